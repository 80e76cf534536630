//! What a panic that shows one of the types with a secret would print.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::auth::Credentials;
use crate::ownership::Key;
use crate::request::Params;

const CANARY: &str = "canary-5a1f0e9b7c-2e8d4a-7f3b9c20";

/// The text of a panic, as the hook writes it and as the catcher gets it, with values shown in both ways.
fn panicked(value: &dyn Debug) -> String {
    let caught = catch_unwind(AssertUnwindSafe(|| panic!("{value:?} {value:#?}")));
    *caught.unwrap_err().downcast::<String>().unwrap()
}

#[test]
fn a_panic_that_shows_secrets_tells_none() {
    let key = Key::new(CANARY.as_bytes().to_vec()).unwrap();
    let holders: [(&str, &dyn Debug); 4] = [
        (
            "kproxide@pve!ci",
            &Credentials::token("kproxide@pve!ci", CANARY).unwrap(),
        ),
        (
            "kproxide@pve",
            &Credentials::password("kproxide@pve", CANARY).unwrap(),
        ),
        ("Key", &key),
        (
            "input-data",
            &Params::new()
                .with("password", CANARY)
                .with("input-data", CANARY),
        ),
    ];
    let bytes = format!("{:?}", CANARY.as_bytes());
    let hex: String = CANARY.bytes().map(|byte| format!("{byte:02x}")).collect();
    for (shown, holder) in holders {
        let text = panicked(holder);
        assert!(text.contains(shown), "{text}");
        for form in [CANARY, bytes.trim_matches(['[', ']']), &hex] {
            assert!(!text.contains(form), "{text}");
        }
        let compact: String = text.split_whitespace().collect();
        let lines = bytes.replace(' ', "");
        assert!(!compact.contains(lines.trim_matches(['[', ']'])), "{text}");
    }
}
