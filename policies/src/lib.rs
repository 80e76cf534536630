#[derive(Debug, Clone, Copy)]
pub struct Builtin { pub name: &'static str, pub kind: Kind, pub wasm: &'static [u8], pub sha256: &'static str }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind { HostSelection, ScaleDown, Labels }
pub const BUILTINS: &[Builtin] = &[];
pub fn builtin(name: &str) -> Option<&'static Builtin> { BUILTINS.iter().find(|b| b.name == name) }
