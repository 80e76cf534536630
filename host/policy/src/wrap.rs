//! A core module for WASI preview 1, as Go, C and others make it, becomes a policy. What it imports of WASI is answered
//! inside the component, by `policies/preview1.wat`.

use std::fmt::Write as _;

use kproxide_builtins::{PREVIEW1, WIT};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::engine::UNPACKED_BYTES_MAX;

const WASI: &str = "wasi_snapshot_preview1";

/// Interfaces of `policy.wit`, each with the function that a module exports for it.
const KINDS: [(&str, &str); 3] = [
    (
        "host-selection",
        "kproxide:policy/host-selection@0.1.0#rank",
    ),
    ("scale-down", "kproxide:policy/scale-down@0.1.0#order"),
    ("labels", "kproxide:policy/labels@0.1.0#decorate"),
];

/// Why no component can be made of bytes. Each says what mends it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Refusal {
    #[error("it is not WebAssembly: its first bytes are not \\0asm")]
    NotWasm,
    #[error("it is a component already: there is nothing to wrap")]
    Component,
    #[error("it is broken: {0}")]
    Broken(String),
    #[error(
        "it is a program, with the function _start, and a policy is a library. For Go, build with -buildmode=c-shared; for C, \
         with -mexec-model=reactor; for Rust, set crate-type = [\"cdylib\"]"
    )]
    Program,
    #[error(
        "it exports no question of kproxide, such as kproxide:policy/host-selection@0.1.0#rank. `kproxide policy new` makes a \
         folder with the bindings that export it; compile them into the module, for C policy.c and policy_component_type.o"
    )]
    NoQuestion,
    #[error(
        "it imports {name} of {module}, but a policy may import functions of wasi_snapshot_preview1 and of kproxide:policy/log \
         only. Where the linker left a function open ({module} is \"env\"), link the file that defines it"
    )]
    Import { module: String, name: String },
    #[error(
        "it does not fit policy.wit: {0}. `kproxide policy new` makes bindings that fit this version"
    )]
    Misfit(String),
    #[error(
        "it becomes a policy of more than {UNPACKED_BYTES_MAX} bytes, which is the most that is loaded"
    )]
    TooBig,
}

/// # Errors
/// Why the bytes are no module that can be a policy.
pub(super) fn component(mut module: Vec<u8>) -> Result<Vec<u8>, Refusal> {
    // Binary format: magic, then version 1 in layer 0 (core module) or version 13 in layer 1 (component).
    match *module {
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => {}
        [0, b'a', b's', b'm', ..] => return Err(Refusal::Component),
        _ => return Err(Refusal::NotWasm),
    }
    let seen = Seen::of(&module).map_err(|error| Refusal::Broken(error.to_string()))?;
    if let Some((module, name)) = seen.foreign {
        return Err(Refusal::Import { module, name });
    }
    if seen.kinds.is_empty() {
        return Err(match seen.program {
            true => Refusal::Program,
            false => Refusal::NoQuestion,
        });
    }
    // The bindings of Rust and C write their types into the module. Those of Go do not.
    if !seen.typed {
        embed(&mut module, "wrapped", &world(&seen.kinds))?;
    }
    let mut stub = PREVIEW1.to_vec();
    embed(&mut stub, "preview1", "import log;")?;
    let component = ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .and_then(|encoder| encoder.adapter(WASI, &stub))
        .and_then(|mut encoder| encoder.encode())
        .map_err(misfit)?;
    match component.len() > UNPACKED_BYTES_MAX {
        true => Err(Refusal::TooBig),
        false => Ok(component),
    }
}

/// What a module shows of itself.
#[derive(Default)]
struct Seen {
    /// The interfaces that it implements.
    kinds: Vec<&'static str>,
    /// It says of itself which world it implements.
    typed: bool,
    /// It has the function with which programs begin.
    program: bool,
    /// The first import that nothing offers: module and name.
    foreign: Option<(String, String)>,
}

impl Seen {
    fn of(module: &[u8]) -> Result<Self, wasmparser::BinaryReaderError> {
        let mut seen = Self::default();
        for part in Parser::new(0).parse_all(module) {
            #[expect(
                clippy::wildcard_enum_match_arm,
                reason = "nothing else says what a module offers"
            )]
            match part? {
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        let import = import?;
                        let offered = import.module == WASI
                            || import.module.starts_with("kproxide:policy/log@0.1.");
                        if !offered && seen.foreign.is_none() {
                            seen.foreign = Some((import.module.to_owned(), import.name.to_owned()));
                        }
                    }
                }
                Payload::ExportSection(exports) => {
                    for export in exports {
                        let name = export?.name;
                        seen.program |= name == "_start";
                        let kind = KINDS.iter().find(|(_, function)| *function == name);
                        seen.kinds.extend(kind.map(|(kind, _)| *kind));
                    }
                }
                Payload::CustomSection(section) => {
                    seen.typed |= section.name().starts_with("component-type");
                }
                _ => {}
            }
        }
        Ok(seen)
    }
}

/// What a policy that answers these questions imports and exports, as WIT.
fn world(kinds: &[&str]) -> String {
    let mut world = String::from("include common;");
    for kind in kinds {
        write!(world, " export {kind};").expect("a String takes any text");
    }
    world
}

/// Writes into the module what it imports and exports.
fn embed(module: &mut Vec<u8>, name: &str, world: &str) -> Result<(), Refusal> {
    let mut resolve = Resolve::default();
    let text = format!("{WIT}\nworld {name} {{ {world} }}\n");
    let package = resolve.push_str("policy.wit", &text).map_err(misfit)?;
    let world = resolve
        .select_world(&[package], Some(name))
        .map_err(misfit)?;
    embed_component_metadata(module, &resolve, world, StringEncoding::UTF8).map_err(misfit)
}

fn misfit(error: impl std::fmt::Display) -> Refusal {
    Refusal::Misfit(format!("{error:#}"))
}

#[cfg(test)]
mod tests;
