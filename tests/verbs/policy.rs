//! The tools for the authors of policies.

use super::{ANYTHING_ELSE, BAD_INPUT, DONE, NO_KUBERNETES, Row};

/// `policy/` is `data/policy`.
pub(super) const VERBS: [Row; 14] = [
    (
        "policy",
        &[("policy nosuch", BAD_INPUT), ("policy", BAD_INPUT)],
    ),
    (
        "policy show",
        &[
            ("policy show nosuch", BAD_INPUT),
            ("policy show", BAD_INPUT),
        ],
    ),
    (
        "policy show list",
        &[
            ("policy show list", DONE),
            ("policy show list -o json", DONE),
            ("policy show list --policy-dir policy", DONE),
            ("policy show list --all", BAD_INPUT),
            ("policy show list --policy-dir nowhere", BAD_INPUT),
        ],
    ),
    (
        "policy show files",
        &[
            ("policy show files OUT", DONE),
            ("policy show files", BAD_INPUT),
            ("policy show files NOTHING", ANYTHING_ELSE),
        ],
    ),
    (
        "policy new",
        &[
            ("policy new racks --lang rust --into FOLDER", DONE),
            ("policy new spread --lang c --into FOLDER", DONE),
            ("policy new racks --lang rust --into OUT", BAD_INPUT),
            ("policy new racks --lang cobol", BAD_INPUT),
            ("policy new My_Racks --lang rust --into FOLDER", BAD_INPUT),
            ("policy new racks --lang go --into NOTHING", BAD_INPUT),
        ],
    ),
    (
        "policy check",
        &[
            ("policy check spread", DONE),
            ("policy check spread -o json", DONE),
            ("policy check max-cpu --settings policy/cores.yaml", DONE),
            (
                "policy check max-cpu --settings policy/typo.yaml",
                ANYTHING_ELSE,
            ),
            (
                "policy check max-cpu --settings policy/typo.yaml -o json",
                ANYTHING_ELSE,
            ),
            ("policy check policy/cut.wasm.gz", ANYTHING_ELSE),
            ("policy check policy/list.yaml", ANYTHING_ELSE),
            ("policy check nosuch", BAD_INPUT),
            ("policy check policy", BAD_INPUT),
            (
                "policy check max-cpu --settings policy/list.yaml",
                BAD_INPUT,
            ),
        ],
    ),
    (
        "policy show facts",
        &[
            ("policy show facts --kind labels", DONE),
            ("policy show facts --kind scale-down -o json", DONE),
            (
                "policy show facts --from plan/limit.yaml --now 2026-01-05T08:00:00Z --kind host-selection",
                DONE,
            ),
            (
                "policy show facts --from policy/decisions.json --pool web",
                DONE,
            ),
            (
                "policy show facts --from plan/limit.yaml --now 2026-01-05T08:00:00Z --into OUT",
                DONE,
            ),
            ("policy show facts --from nowhere.yaml", BAD_INPUT),
            ("policy show facts --from policy/old.json", BAD_INPUT),
            ("policy show facts --pool nope", BAD_INPUT),
            (
                "policy show facts --from policy/decisions.json --pool nope",
                BAD_INPUT,
            ),
            (
                "policy show facts --from plan/limit.yaml --now 2026-01-05T08:00:00Z --pool nope",
                BAD_INPUT,
            ),
            ("policy show facts --kind nosuch", BAD_INPUT),
            (
                "policy show facts --from-cluster --kubeconfig GONE",
                NO_KUBERNETES,
            ),
        ],
    ),
    (
        "policy run",
        &[
            ("policy run spread", DONE),
            ("policy run go-template --settings policy/labels.yaml", DONE),
            ("policy run pack --facts policy/facts.yaml", DONE),
            ("policy run pack --facts policy/facts.yaml -o json", DONE),
            (
                "policy run max-cpu --facts policy/facts.yaml --settings policy/typo.yaml",
                ANYTHING_ELSE,
            ),
            (
                "policy run least-loaded --facts policy/facts.yaml",
                BAD_INPUT,
            ),
            (
                "policy run spread --facts policy/typo.facts.yaml",
                BAD_INPUT,
            ),
            (
                "policy run spread --facts policy/doubled.facts.yaml",
                BAD_INPUT,
            ),
            ("policy run spread --facts policy/cores.yaml", BAD_INPUT),
            ("policy run spread --facts NOTHING", BAD_INPUT),
        ],
    ),
    (
        "policy test",
        &[
            ("policy test policy/cases --policy pack", DONE),
            ("policy test policy/cases --policy pack -o json", DONE),
            ("policy test policy/cases --policy spread", ANYTHING_ELSE),
            ("policy test policy/cases", BAD_INPUT),
            ("policy test nowhere --policy spread", BAD_INPUT),
            ("policy test plan --policy spread", BAD_INPUT),
            (
                "policy test policy/cases --policy max-cpu --settings policy/typo.yaml",
                BAD_INPUT,
            ),
        ],
    ),
    (
        "policy bench",
        &[
            ("policy bench spread", DONE),
            ("policy bench spread -o json", DONE),
            (
                "policy bench max-cpu --settings policy/typo.yaml",
                ANYTHING_ELSE,
            ),
            ("policy bench nosuch", BAD_INPUT),
        ],
    ),
    (
        "policy pack",
        &[
            ("policy pack spread", DONE),
            ("policy pack spread --name mine -n ops -o json", DONE),
            ("policy pack policy/list.yaml", ANYTHING_ELSE),
            ("policy pack spread --name Bad_Name", BAD_INPUT),
            ("policy pack spread -n kube_system", BAD_INPUT),
            ("policy pack nosuch", BAD_INPUT),
            ("policy pack spread --into OUT", DONE),
            ("policy pack policy/core.wasm --into OUT", ANYTHING_ELSE),
            ("policy pack NOTHING --into OUT", ANYTHING_ELSE),
            ("policy pack VALUES --into VALUES", BAD_INPUT),
            ("policy pack spread --into OUT --name mine", BAD_INPUT),
        ],
    ),
    (
        "policy replay",
        &[
            ("policy replay --policy pack policy/decisions.json", DONE),
            (
                "policy replay --policy pack policy/decisions.json -o json",
                DONE,
            ),
            (
                "policy replay --policy spread --pool other policy/decisions.json",
                DONE,
            ),
            (
                "policy replay --policy pack --now 2026-01-05T08:00:00Z plan/limit.yaml",
                DONE,
            ),
            (
                "policy replay --policy spread --settings policy/typo.yaml --now 2026-01-05T08:00:00Z plan/limit.yaml",
                ANYTHING_ELSE,
            ),
            (
                "policy replay --policy spread --settings policy/typo.yaml policy/decisions.json",
                ANYTHING_ELSE,
            ),
            (
                "policy replay --policy pack --pool nope policy/decisions.json",
                BAD_INPUT,
            ),
            (
                "policy replay --policy pack --pool nope --now 2026-01-05T08:00:00Z plan/limit.yaml",
                BAD_INPUT,
            ),
            (
                "policy replay --policy pack --kind labels policy/decisions.json",
                BAD_INPUT,
            ),
            ("policy replay --policy pack policy/old.json", BAD_INPUT),
            ("policy replay --policy pack nowhere.yaml", BAD_INPUT),
            ("policy replay --policy pack", BAD_INPUT),
        ],
    ),
    (
        "policy show digest",
        &[
            ("policy show digest spread", DONE),
            ("policy show digest nosuch", BAD_INPUT),
        ],
    ),
    (
        "policy show settings",
        &[
            ("policy show settings max-cpu", DONE),
            ("policy show settings go-template -o json", DONE),
            ("policy show settings spread", DONE),
            ("policy show settings policy/list.yaml", ANYTHING_ELSE),
            ("policy show settings nosuch", BAD_INPUT),
        ],
    ),
];

/// What stands before these words differs from one compiler or computer to another.
const NUMBERED: [&str; 6] = [
    " bytes",
    " compressed",
    " instructions",
    " µs",
    " % of what",
    " % of the",
];
/// So do numbers of these fields.
const FIELDS: [&str; 5] = [
    "bytes",
    "unpackedBytes",
    "instructions",
    "microseconds",
    "calls",
];
const KINDS: [&str; 3] = ["host-selection", "scale-down", "labels"];

/// With words for digests, sizes, times and what is made of bytes.
pub(super) fn steady(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        let trimmed = line.trim_start();
        let indent = &line[..line.len() - trimmed.len()];
        let words: Vec<&str> = trimmed.split_whitespace().collect();
        let is_measured = KINDS.contains(&words.first().copied().unwrap_or_default())
            && words.last() == Some(&"µs")
            && words.len() == 6;
        if is_measured {
            return format!("{indent}{}  {}  NUMBERS{end}", words[0], words[1]);
        }
        let field = trimmed
            .strip_prefix('"')
            .and_then(|it| it.split_once("\": "));
        if let Some((name, value)) = field
            && FIELDS.contains(&name)
        {
            let comma = match value.ends_with(',') {
                true => ",",
                false => "",
            };
            return format!("{indent}\"{name}\": 0{comma}{end}");
        }
        format!(
            "{}{end}",
            NUMBERED.iter().fold(without_bytes(line), |line, word| {
                without_number(&line, word)
            })
        )
    });
    lines.collect()
}

/// Digests, whole or as the beginning of one, and base64.
fn without_bytes(line: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let mut said = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        let is_hex = word.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
        said.push_str(match word.len() {
            64 if is_hex => "DIGEST",
            // A number may look so too.
            12 if is_hex && line.contains(" built-in ") => "DIGEST",
            12 if is_hex && line.contains(" file ") => "DIGEST",
            200.. => "BASE64",
            _ => word,
        });
        let next = after.find(is_part).unwrap_or(after.len());
        said.push_str(&after[..next]);
        rest = &after[next..];
    }
    said
}

fn without_number(line: &str, word: &str) -> String {
    let Some((before, after)) = line.split_once(word) else {
        return line.to_owned();
    };
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let kept = before.trim_end_matches(is_number);
    match kept.len() == before.len() {
        true => line.to_owned(),
        false => format!("{kept}N{word}{after}"),
    }
}
