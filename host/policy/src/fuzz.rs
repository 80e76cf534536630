//! Any bytes as a policy: packed, unpacked, near a component and far from one; valid components that are no policies, and policies with bytes changed.

use std::sync::OnceLock;

use arbitrary::Unstructured;
use futures::FutureExt as _;
use kproxide_planner::fuzz::Draw;
use wasm_smith::{Component, Config};

use super::engine::{self, Engine, Execution, LoadError};

const SECTIONS: [u8; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

const INTERFACES: [&str; 6] = [
    "kproxide:policy/log@0.1.0",
    "kproxide:policy/types@0.1.0",
    "kproxide:policy/labels@0.1.0",
    "kproxide:policy/host-selection@0.1.0",
    "wasi:clocks/wall-clock@0.2.6",
    "acme:racks/table",
];

/// Refused in words, or a policy of a known kind. Small, so that compiling takes no time: what is looked at first is what is fuzzed.
pub fn component(data: &[u8]) {
    let mut draw = Draw::new(data);
    let bytes = match draw.byte() % 16 {
        0 => draw.rest().to_vec(),
        1 => return unpacked([&[0x1f, 0x8b], draw.rest()].concat()),
        2 => return unpacked([&[0x28, 0xb5, 0x2f, 0xfd], draw.rest()].concat()),
        3..6 => match valid(draw.rest()) {
            Some(bytes) => bytes,
            None => return,
        },
        6 => changed(&mut draw),
        _ => drawn(&mut draw),
    };
    let starts_well = bytes.starts_with(b"\0asm");
    let loaded = inline().load(bytes.into()).now_or_never();
    match loaded.expect("an engine that runs inline answers at once") {
        Ok(policy) => assert!(!policy.kinds().is_empty()),
        Err(LoadError::NotWasm) => assert!(!starts_well),
        Err(error) => {
            let said = error.to_string();
            assert!(
                starts_well && !said.is_empty() && said.len() < 2000,
                "{said}"
            );
            assert!(!said.contains('\n'), "{said:?} is more than a line");
        }
    }
}

fn unpacked(packed: Vec<u8>) {
    match engine::unpacked(&packed) {
        Ok(bytes) => assert!(bytes.len() <= engine::UNPACKED_BYTES_MAX + 1),
        Err(problem) => assert!(!problem.to_string().is_empty()),
    }
}

/// A valid component of types, imports, functions to convert, modules with code and components within: everything but what makes it a policy. Small, and
/// only of what our engine offers, so that it is refused for what it lacks. `None`: too few bytes to choose by.
fn valid(data: &[u8]) -> Option<Vec<u8>> {
    let config = Config {
        max_components: 2,
        max_funcs: 4,
        max_instructions: 30,
        max_modules: 1,
        max_nesting_depth: 3,
        exceptions_enabled: false,
        gc_enabled: false,
        relaxed_simd_enabled: false,
        threads_enabled: false,
        ..Config::default()
    };
    let component = Component::new(config, &mut Unstructured::new(data)).ok()?;
    Some(component.to_bytes())
}

/// A policy as it is shipped, with a byte changed here and there: what still compiles says its name, or fails as any policy may.
fn changed(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut bytes = kproxide_builtins::BUILTINS[0].wasm.to_vec();
    for _ in 0..=draw.below(4) {
        let at = 8 + draw.below(bytes.len() - 8);
        bytes[at] = draw.byte();
    }
    bytes
}

/// A header and some sections: an import or an export of an interface, or anything, with a byte changed here and there.
fn drawn(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    for _ in 0..draw.below(5) {
        let name = draw.word(&INTERFACES);
        let name = [&[0, name.len() as u8], name.as_bytes()].concat();
        match draw.byte() % 4 {
            // A type: an instance without functions. Then an import of it.
            0 => {
                section(&mut bytes, 7, &[1, 0x42, 0]);
                section(&mut bytes, 10, &[&[1], &*name, &[5, 0]].concat());
            }
            // An instance of no exports. Then an export of it.
            1 => {
                section(&mut bytes, 5, &[1, 1, 0]);
                section(&mut bytes, 11, &[&[1], &*name, &[5, 0, 0]].concat());
            }
            // A core module, or what begins like one.
            2 => section(
                &mut bytes,
                1,
                &[b"\0asm\x01\0\0\0", draw.bytes(40)].concat(),
            ),
            _ => section(&mut bytes, *draw.pick(&SECTIONS), draw.bytes(40)),
        }
    }
    for _ in 0..draw.below(4) {
        let at = draw.below(bytes.len());
        bytes[at] = draw.byte();
    }
    bytes
}

/// Shorter than 128 bytes, so that its length is one.
fn section(bytes: &mut Vec<u8>, id: u8, content: &[u8]) {
    bytes.extend([id, content.len() as u8]);
    bytes.extend(content);
}

fn inline() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new(Execution::Inline).expect("wasmtime runs here"))
}

#[cfg(test)]
mod tests;
