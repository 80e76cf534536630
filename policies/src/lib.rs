//! kproxide's built-in policies: the WebAssembly components, embedded.
//!
//! They go through the same engine as anybody's policy, and a file of the same name in a policy directory takes the
//! place of one. `build.rs` builds them from the crates beside this one.

/// One built-in policy.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// What an operator writes in `policies.*.use`, for example `spread`.
    pub name: &'static str,
    pub kind: Kind,
    /// The component's bytes.
    pub wasm: &'static [u8],
    /// SHA-256 of the bytes in lower-case hexadecimal digits.
    pub sha256: &'static str,
}

/// The question that a policy answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    HostSelection,
    ScaleDown,
    Labels,
}

/// All built-in policies; the first of each kind is that kind's default.
pub const BUILTINS: &[Builtin] = include!(concat!(env!("OUT_DIR"), "/builtins.rs"));

/// Policies that misbehave as their settings say. They are never listed, exported or found by name: tests of the engine
/// alone load them.
#[cfg(feature = "hostile")]
pub const HOSTILE: &[Builtin] = include!(concat!(env!("OUT_DIR"), "/hostile.rs"));

/// The questions and facts as text: `wit/policy.wit`.
pub const WIT: &str = include_str!("../../wit/policy.wit");

/// What takes the place of WASI preview 1 in a core module that becomes a policy: `preview1.wat`, as a module.
pub const PREVIEW1: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preview1.wasm"));

/// What a new policy begins with: paths and bytes of the folders `templates`, `sdk` and `bindings/LANGUAGE/KIND`.
#[cfg(feature = "starters")]
pub const STARTERS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/starters.rs"));

/// The built-in policy of that name.
pub fn builtin(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|builtin| builtin.name == name)
}

#[cfg(test)]
mod tests;
