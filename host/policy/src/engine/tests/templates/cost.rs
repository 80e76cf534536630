//! What `go-template` costs beside what it did when it rendered with a copy of the crate gtmpl-ng (0.1.0, November 2026): not more than a tenth above.

use std::io::Write as _;

use kproxide_planner::plan::question::{DecorateQuestion, Question};
use serde_json::{Value, json};
use wasmparser::{Parser, Payload};

use super::places;
use crate::fixtures::{ask, candidate, decorate, wasm};

/// Of the component that was shipped then, by these tests.
const BYTES_BEFORE: u64 = 495_613;
const CODE_BEFORE: u64 = 315_154;
const ZONE_BEFORE: u64 = 930_471;
const SEVEN_BEFORE: u64 = 4_182_733;

const SERVERS: usize = 20;

/// Instructions for one machine that may come onto any of the servers.
fn instructions(settings: &Value) -> u64 {
    let [place, _] = places();
    let server = |n: usize| candidate(&format!("pve{n}"), 0).hypervisor;
    let question = DecorateQuestion {
        machine: place.machine,
        hypervisors: (0..SERVERS).map(server).collect(),
        ..decorate("go-template", &settings.to_string())
    };
    let asked = ask(&Question::Decorate(question));
    assert!(asked.result.is_ok(), "{:?}", asked.result);
    asked.fuel
}

#[test]
fn size_code_and_instructions_are_not_a_tenth_above_what_they_were() {
    let zone = json!({"labels": {"topology.kubernetes.io/zone": "{{ .TargetHost }}"}});
    let seven = json!({
        "labels": {
            "topology.kubernetes.io/zone": "{{ .TargetHost }}",
            "topology.kubernetes.io/region": "{{ .Cluster }}",
            "example.com/size": "{{ .Cores }}-{{ .MemoryMiB }}",
            "example.com/name": r#"{{ printf "%s-%d" .Pool .Cores }}"#,
            "example.com/kind": r#"{{ if eq .Pool "default" }}plain{{ else }}other{{ end }}"#,
            "example.com/rack": r#"{{ with index .Attributes "rack" }}{{ . }}{{ else }}none{{ end }}"#,
        },
        "annotations": {"example.com/note": "made on {{ targetHost }} for {{ .InstanceType }}"},
    });
    let component = wasm("go-template");
    let mut out = std::io::stderr().lock();
    for (what, now, before) in [
        ("bytes", component.len() as u64, BYTES_BEFORE),
        ("bytes of code", code(&component), CODE_BEFORE),
        (
            "instructions for a zone label",
            instructions(&zone),
            ZONE_BEFORE,
        ),
        (
            "instructions for seven templates",
            instructions(&seven),
            SEVEN_BEFORE,
        ),
    ] {
        writeln!(out, "go-template: {now} {what}, {before} before").unwrap();
        assert!(now * 10 <= before * 11, "{now} {what}, {before} before");
    }
}

/// Bytes of functions, which are what takes time to compile.
fn code(component: &[u8]) -> u64 {
    let payloads = Parser::new(0).parse_all(component);
    payloads
        .map(|payload| match payload.unwrap() {
            Payload::CodeSectionStart { size, .. } => u64::from(size),
            _ => 0,
        })
        .sum()
}
