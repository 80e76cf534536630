//! Known input with a few things changed: what lies close to what is right finds more than noise.

use serde_json::{Value, json};

use kproxide_planner::fuzz::Draw;

/// The value with up to three places changed.
pub fn mutated(seed: &Value, draw: &mut Draw<'_>) -> Value {
    let mut value = seed.clone();
    for _ in 0..draw.below(4) {
        mutate(&mut value, draw);
    }
    value
}

fn mutate(value: &mut Value, draw: &mut Draw<'_>) {
    // Down to a leaf most of the time.
    let goes_down = !draw.byte().is_multiple_of(8);
    match value {
        Value::Object(entries) if goes_down && !entries.is_empty() => {
            let keys: Vec<String> = entries.keys().cloned().collect();
            let key = draw.pick(&keys);
            match draw.byte() % 16 {
                0 => {
                    entries.remove(key);
                }
                1 => {
                    let moved = entries.remove(key);
                    entries.insert(draw.text(12), moved.unwrap_or_default());
                }
                _ => mutate(&mut entries[key], draw),
            }
        }
        Value::Array(items) if goes_down && !items.is_empty() => {
            let index = draw.below(items.len());
            match draw.byte() % 16 {
                0 => {
                    items.remove(index);
                }
                1 => {
                    let twice = items[index].clone();
                    items.push(twice);
                }
                _ => mutate(&mut items[index], draw),
            }
        }
        Value::String(text) if draw.flag() => *text = mutated_text(text, draw),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => *value = other(value, draw),
    }
}

/// Something else altogether, or the same in other clothes.
fn other(value: &Value, draw: &mut Draw<'_>) -> Value {
    match draw.byte() % 16 {
        0 => Value::Null,
        1 => json!(draw.flag()),
        2 => json!([value]),
        3 => json!({ "a": value }),
        4 => json!(value.to_string()),
        5 => json!(draw.text(20)),
        6 => json!(u64::MAX - u64::from(draw.byte())),
        7 => json!(1e300),
        8 => json!(f64::from(draw.byte()) / 7.0),
        9 => json!(draw.number().to_string()),
        10 => json!([]),
        11 => json!({}),
        12 => json!(""),
        _ => json!(draw.number()),
    }
}

/// The text with up to three characters added, left out or replaced, or its end cut off.
pub fn mutated_text(seed: &str, draw: &mut Draw<'_>) -> String {
    const ODD: [char; 20] = [
        '+', '-', '0', '9', 'f', 'F', 'g', ':', '=', ',', ';', '/', '.', ' ', '\n', '\0', 'ü', 'K',
        'T', 'e',
    ];
    let mut text: Vec<char> = seed.chars().collect();
    for _ in 0..draw.below(4) {
        let at = draw.below(text.len() + 1);
        match draw.byte() % 8 {
            0 => text.truncate(at),
            1 if at < text.len() => {
                text.remove(at);
            }
            2 | 3 if at < text.len() => text[at] = *draw.pick(&ODD),
            4 => text.extend(draw.text(8).chars()),
            5 => text.insert(at, char::from(draw.byte())),
            _ => text.insert(at, *draw.pick(&ODD)),
        }
    }
    text.into_iter().collect()
}
