//! What GitHub reads beside workflows: the forms of issues, and what dependabot watches.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::repository;

/// A lock file that nobody looks at grows old without a word.
#[test]
fn dependabot_watches_each_lock_file() {
    let text = fs::read_to_string(repository().join(".github/dependabot.yml")).unwrap();
    let settings: Value = serde_saphyr::from_str(&text).unwrap();
    let mut watched = Vec::new();
    for update in settings["updates"].as_array().unwrap() {
        let lock = match update["package-ecosystem"].as_str().unwrap() {
            "cargo" => "Cargo.lock",
            "gomod" => "go.sum",
            _ => continue,
        };
        let folders = update["directories"].as_array().unwrap().iter();
        let folders = folders.map(|it| it.as_str().unwrap().trim_matches('/').to_owned());
        watched.extend(folders.map(|folder| PathBuf::from(folder).join(lock)));
    }
    watched.sort();
    let mut there = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(repository().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let is_folder = entry.file_type().unwrap().is_dir();
            if is_folder && !name.starts_with('.') && !name.starts_with("target") {
                folders.push(folder.join(name));
            } else if ["Cargo.lock", "go.sum"].contains(&name.as_str()) {
                there.push(folder.join(name));
            }
        }
    }
    there.sort();
    assert!(there.len() >= 2, "{there:?}");
    assert_eq!(watched, there);
}

/// GitHub shows no form that it cannot read, and says so to nobody.
#[test]
fn the_form_for_a_defect_asks_for_versions_and_for_what_doctor_says() {
    let folder = repository().join(".github/ISSUE_TEMPLATE");
    for form in ["defect.yml", "wish.yml"] {
        let form: Value =
            serde_saphyr::from_str(&fs::read_to_string(folder.join(form)).unwrap()).unwrap();
        for key in ["name", "description"] {
            assert!(form[key].is_string(), "{key}");
        }
        let body = form["body"].as_array().unwrap();
        let mut fields = body.iter().filter(|it| it["type"] != "markdown");
        let is_whole = |it: &Value| it["id"].is_string() && it["attributes"]["label"].is_string();
        assert!(fields.all(is_whole), "{form}");
    }
    let defect = fs::read_to_string(folder.join("defect.yml")).unwrap();
    for asked in [
        "kproxide doctor -o json",
        "kproxide version",
        "kubectl version",
        "pveversion",
    ] {
        assert!(defect.contains(asked), "{asked}");
    }
}
