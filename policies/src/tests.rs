use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::*;

#[test]
fn names_are_unique_and_found() {
    let names: BTreeSet<_> = BUILTINS.iter().map(|b| b.name).collect();
    assert_eq!(names.len(), BUILTINS.len());
    for name in names {
        assert_eq!(builtin(name).map(|b| b.name), Some(name));
    }
    assert!(builtin("spraed").is_none());
}

#[test]
fn the_first_of_each_kind_is_its_default() {
    let first = |kind| BUILTINS.iter().find(|b| b.kind == kind).map(|b| b.name);
    assert_eq!(first(Kind::HostSelection), Some("spread"));
    assert_eq!(first(Kind::ScaleDown), Some("least-loaded"));
    assert_eq!(first(Kind::Labels), Some("go-template"));
}

/// A component and not a core module: the magic number, then version 13 in layer 1.
#[test]
fn all_are_components() {
    for builtin in BUILTINS {
        assert_eq!(builtin.wasm[..8], *b"\0asm\x0d\0\x01\0", "{}", builtin.name);
    }
}

/// Small enough for a ConfigMap each, and compiled in milliseconds.
#[test]
fn all_are_small() {
    for builtin in BUILTINS {
        let kib_max = if builtin.name == "go-template" {
            512
        } else {
            // A quarter of it names functions, for the backtrace of a trap.
            80
        };
        assert!(
            builtin.wasm.len() < kib_max << 10,
            "{} has {} bytes",
            builtin.name,
            builtin.wasm.len()
        );
    }
}

#[test]
fn digests_are_those_of_the_bytes() {
    for builtin in BUILTINS {
        let digest: String = Sha256::digest(builtin.wasm)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(builtin.sha256, digest, "{}", builtin.name);
    }
}

/// An import of WASI would name it, and a path of the machine that built the component would make its digest differ.
#[test]
fn none_mentions_wasi_or_the_machine_that_built_it() {
    for builtin in BUILTINS {
        for needle in [
            "wasi:",
            "wasi_snapshot",
            env!("CARGO_MANIFEST_DIR"),
            "/.cargo/registry",
        ] {
            let found = builtin
                .wasm
                .windows(needle.len())
                .any(|window| window == needle.as_bytes());
            assert!(!found, "{} mentions {needle}", builtin.name);
        }
    }
}
