//! `examples/manual/troubleshooting.md`: each symptom ends with a command, and what kproxide says there, it says.

use std::collections::BTreeSet;

use crate::{files, lines, read};

const PAGE: &str = "examples/manual/troubleshooting.md";

#[test]
fn each_symptom_ends_with_a_command() {
    let text = read(PAGE);
    let mut symptoms: Vec<(&str, bool)> = Vec::new();
    for (_, fence, line) in lines(&text) {
        if let (None, Some(symptom)) = (fence, line.strip_prefix("### ")) {
            symptoms.push((symptom, false));
        } else if line.starts_with("## ") {
            // What stands below it belongs to no symptom.
            symptoms.push(("", true));
        } else if let Some((_, ends)) = symptoms.last_mut()
            && !line.trim().is_empty()
        {
            *ends = fence == Some("sh");
        }
    }
    symptoms.retain(|(symptom, _)| !symptom.is_empty());
    assert!(symptoms.len() >= 20, "{}", symptoms.len());
    let open: Vec<&str> = symptoms
        .iter()
        .filter_map(|(symptom, ends)| (!ends).then_some(*symptom))
        .collect();
    assert!(open.is_empty(), "without a command at the end: {open:?}");
}

/// What is in quotation marks stands so in the sources, or in an answer that a test compares.
#[test]
fn each_text_in_quotation_marks_is_said() {
    let text = read(PAGE);
    let prose: Vec<&str> = lines(&text)
        .into_iter()
        .filter_map(|(_, fence, line)| fence.is_none().then_some(line))
        .collect();
    let prose = prose.join(" ");
    let said: Vec<&str> = prose.split('"').skip(1).step_by(2).collect();
    assert!(said.len() >= 8, "{said:?}");
    let sources = sources(&["host", "charts", "tests/data/plan", "tests/chart"]);
    let unknown: Vec<&&str> = said
        .iter()
        .filter(|said| !sources.contains(said.trim_start_matches("… ")))
        .collect();
    assert!(unknown.is_empty(), "nobody says {unknown:#?}");
}

/// The sources in some folders as one text, without pages.
fn sources(folders: &[&str]) -> String {
    let files = folders.iter().flat_map(|folder| files(folder));
    files
        .filter(|file| !file.ends_with(".md") && !file.ends_with(".wasm"))
        .map(|file| read(&file))
        .collect()
}

/// `OneWord` in backquotes is a reason, a condition or a kind, and stands as such in the sources.
#[test]
fn each_reason_is_one_that_kproxide_gives() {
    let text = read(PAGE);
    let spans = text.split('`').skip(1).step_by(2);
    let reasons: BTreeSet<&str> = spans
        .filter(|span| {
            let capitals = span.chars().filter(char::is_ascii_uppercase).count();
            span.chars().all(|letter| letter.is_ascii_alphabetic())
                && span.starts_with(|letter: char| letter.is_ascii_uppercase())
                && (capitals >= 2 || *span == "Frozen")
                && span.chars().any(|letter| letter.is_ascii_lowercase())
        })
        .collect();
    assert!(reasons.len() >= 20, "{reasons:?}");
    let sources = sources(&[
        "host/controller/src",
        "host/kube/src",
        "host/planner/src",
        "host/tools/src",
    ]);
    let unknown: Vec<&&str> = reasons
        .iter()
        .filter(|reason| {
            // A condition of NodeClaims is a variant.
            let written = [format!("\"{reason}\""), format!("Condition::{reason}")];
            !written.iter().any(|it| sources.contains(it))
        })
        .collect();
    assert!(unknown.is_empty(), "no reason of kproxide: {unknown:?}");
}
