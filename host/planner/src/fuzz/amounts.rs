//! Quantities and vectors of amounts, against arithmetic that cannot overflow.

use crate::fuzz::Draw;
use crate::kubernetes::quantity::Quantity;
use crate::kubernetes::resources::Resources;

const LARGEST: i128 = i64::MAX as i128 * 1_000_000_000;

/// Suffixes with the powers of two and of ten that they stand for.
const SUFFIXES: [(&str, u32, i32); 22] = [
    ("", 0, 0),
    ("n", 0, -9),
    ("u", 0, -6),
    ("m", 0, -3),
    ("k", 0, 3),
    ("M", 0, 6),
    ("G", 0, 9),
    ("T", 0, 12),
    ("P", 0, 15),
    ("E", 0, 18),
    ("Ki", 10, 0),
    ("Mi", 20, 0),
    ("Gi", 30, 0),
    ("Ti", 40, 0),
    ("Pi", 50, 0),
    ("Ei", 60, 0),
    ("e0", 0, 0),
    ("e7", 0, 7),
    ("E-7", 0, -7),
    ("e+30", 0, 30),
    ("e-30", 0, -30),
    ("e000", 0, 0),
];

/// A quantity's text: any, and one of the known form, whose value is computed otherwise as well.
pub fn quantity(data: &[u8]) {
    let mut draw = Draw::new(data);
    let negative = draw.flag();
    let (suffix, two, ten) = *draw.pick(&SUFFIXES);
    // At most 15 digits in all: with 2⁶⁰ they fit into the oracle's numbers.
    let mut digits = |most| -> String { (0..draw.below(most)).map(|_| digit(&mut draw)).collect() };
    let (whole, fraction) = (digits(8), digits(8));
    if !whole.is_empty() || !fraction.is_empty() {
        let sign = if negative { "-" } else { "" };
        let text = format!("{sign}{whole}.{fraction}{suffix}");
        let number: i128 = format!("0{whole}{fraction}").parse().expect("digits");
        let shift = ten + 9 - fraction.len() as i32;
        let size = scaled(number << two, shift);
        let expected = if negative { -size } else { size };
        let found = text.parse::<Quantity>().map(Quantity::nanos);
        assert_eq!(found, Ok(expected), "{text}");
    }
    let text = String::from_utf8_lossy(data);
    if let Ok(quantity) = text.parse::<Quantity>() {
        enclosed(quantity);
    }
    for pair in [("cpu", &*text), ("memory", &*text), ("a/gpu", &*text)] {
        let (asked, offered) = (Resources::requested([pair]), Resources::offered([pair]));
        assert_eq!(asked.is_ok(), offered.is_ok(), "{text}");
        if let (Ok(asked), Ok(offered)) = (asked, offered) {
            assert!(offered.fits(&asked), "{text}: rounding lost something");
        }
    }
}

fn digit(draw: &mut Draw<'_>) -> char {
    char::from(b'0' + draw.byte() % 10)
}

/// `number × 10^shift`, away from zero and cut off, by whole numbers alone.
fn scaled(number: i128, shift: i32) -> i128 {
    let power = 10i128.checked_pow(shift.unsigned_abs());
    match power {
        _ if number == 0 => 0,
        Some(power) if shift >= 0 => number.checked_mul(power).unwrap_or(LARGEST).min(LARGEST),
        Some(power) => ((number + power - 1) / power).min(LARGEST),
        None if shift >= 0 => LARGEST,
        None => 1,
    }
}

/// Rounding moves by less than one, in the right direction.
fn enclosed(quantity: Quantity) {
    let nanos = quantity.nanos();
    assert!(nanos.abs() <= LARGEST);
    let units = (quantity.units_down(), quantity.units_up(), 1_000_000_000);
    let milli = (quantity.milli_down(), quantity.milli_up(), 1_000_000);
    for (down, up, size) in [units, milli] {
        let (down, up) = (i128::from(down), i128::from(up));
        // What is beyond an i64 is cut off there.
        let exact = nanos
            .div_euclid(size)
            .clamp(i64::MIN.into(), i64::MAX.into());
        assert_eq!(down, exact);
        assert!((0..=1).contains(&(up - down)));
        assert!(up == i128::from(i64::MAX) || up * size >= nanos);
    }
}

/// Two vectors and a count, under every operation.
pub fn resources(data: &[u8]) {
    let mut draw = Draw::new(data);
    let (a, b) = (vector(&mut draw), vector(&mut draw));
    let count = draw.number();
    let zero = Resources::default();

    let by = |f: fn(&mut Resources, &Resources, i64)| {
        let mut result = a.clone();
        f(&mut result, &b, count);
        result
    };
    type Exact = fn(i128, i128, i128) -> i128;
    let all: [(&str, Resources, Exact); 6] = [
        ("plus", a.plus(&b), |a, b, _| a + b),
        ("minus", a.minus(&b), |a, b, _| a - b),
        ("add_times", by(Resources::add_times), |a, b, n| a + b * n),
        (
            "subtract_times",
            by(Resources::subtract_times),
            |a, b, n| a - b * n,
        ),
        ("raise_to", by(|a, b, _| a.raise_to(b)), |a, b, _| a.max(b)),
        ("lower_to", by(|a, b, _| a.lower_to(b)), |a, b, _| a.min(b)),
    ];
    for (name, found, oracle) in all {
        assert!(found.extended.values().all(|amount| *amount != 0), "{name}");
        for (resource, [a, b, found]) in amounts([&a, &b, &found]) {
            let expected = oracle(a.into(), b.into(), count.into());
            let expected = expected.clamp(i64::MIN.into(), i64::MAX.into());
            assert_eq!(
                i128::from(found),
                expected,
                "{name} of {resource}: {a}, {b}, {count}"
            );
        }
    }

    let each = amounts([&a, &b, &zero]);
    let fits = each
        .iter()
        .all(|(_, [asked, free, _])| *asked <= 0 || asked <= free);
    assert_eq!(a.fits(&b), fits);
    assert_eq!(a.first_lacking(&b).is_none(), fits);
    let times = a.times_in(&b);
    assert_eq!(times >= 1, fits);
    for (resource, [asked, free, _]) in each {
        let taken = i128::from(asked.max(0)) * i128::from(times);
        assert!(
            taken <= i128::from(free.max(0)),
            "{times} times {asked} of {resource} in {free}"
        );
    }
}

const FIXED: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];
const EXTENDED: [&str; 2] = ["a/x", "b/y"];

fn amounts(of: [&Resources; 3]) -> Vec<(&'static str, [i64; 3])> {
    let names = FIXED.iter().chain(&EXTENDED);
    names
        .map(|name| (*name, of.map(|one| one.amount(name))))
        .collect()
}

fn vector(draw: &mut Draw<'_>) -> Resources {
    let mut drawn = Resources {
        milli_cores: draw.number(),
        memory_bytes: draw.number(),
        ephemeral_bytes: draw.number(),
        pods: draw.number(),
        ..Resources::default()
    };
    for name in EXTENDED {
        drawn.set_extended(name.into(), draw.number());
    }
    drawn
}
