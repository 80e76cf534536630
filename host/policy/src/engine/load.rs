//! From bytes to a module: what a component must look like, and what to say about one that does not.

use std::sync::Arc;

use kproxide_planner::facts::PolicyKind;
use kproxide_planner::ids::Digest;
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use wasmparser::{BinaryReaderError, Chunk, ComponentTypeRef, Parser, Payload, TypeBounds};
use wasmtime::Store;
use wasmtime::component::{Component, InstancePre};

use super::bindings::host_selection::HostSelectionPolicyPre;
use super::bindings::labels::LabelPolicyPre;
use super::bindings::scale_down::ScaleDownPolicyPre;
use super::store::{self, State};
use super::unpack::{UNPACKED_BYTES_MAX, unpacked};
use super::{CallError, Code, Engine, Loaded, Module, PolicyInfo, SCHEMA_BYTES_MAX};
use kproxide_common::foreign;

/// What answers each kind of question.
pub(super) struct Compiled {
    pub(super) host_selection: Option<HostSelectionPolicyPre<State>>,
    pub(super) scale_down: Option<ScaleDownPolicyPre<State>>,
    pub(super) labels: Option<LabelPolicyPre<State>>,
}

impl Compiled {
    fn kinds(&self) -> Vec<PolicyKind> {
        [
            (self.host_selection.is_some(), PolicyKind::HostSelection),
            (self.scale_down.is_some(), PolicyKind::ScaleDown),
            (self.labels.is_some(), PolicyKind::Labels),
        ]
        .into_iter()
        .filter_map(|(answers, kind)| answers.then_some(kind))
        .collect()
    }
}

/// Why bytes are no policy that kproxide can use.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LoadError {
    #[error("it is not WebAssembly: its first bytes are not \\0asm")]
    NotWasm,
    #[error(
        "it is a core WebAssembly module, not a component: for Rust, build for wasm32-unknown-unknown with linker = \"wasm-component-ld\"; \
         for Go, C and others, `kproxide policy pack FILE --into NAME.wasm` makes a policy of it"
    )]
    CoreModule,
    #[error(
        "it has more than {UNPACKED_BYTES_MAX} bytes unpacked, which is the most that is loaded"
    )]
    TooBig,
    #[error("it cannot be unpacked: {0}")]
    Unpack(String),
    #[error("it does not compile: {0}")]
    Compile(String),
    #[error(
        "it imports {import}, but a policy may import kproxide:policy/types and kproxide:policy/log only{hint}"
    )]
    Import { import: String, hint: &'static str },
    #[error(
        "it exports none of kproxide:policy/host-selection, /scale-down, /labels (version 0.1)"
    )]
    NoKnownExport,
    #[error("it was built against another version of policy.wit: {0}")]
    Interface(String),
    #[error("it cannot say its name: {0}")]
    Describe(CallError),
    #[error("describe gives no name: return one, such as that of the file")]
    NoName,
    #[error(
        "its settings-schema has {0} bytes, and kproxide reads at most {SCHEMA_BYTES_MAX}: shorten it"
    )]
    LongSchema(usize),
    #[error("its settings-schema is no JSON: {0}. Return JSON Schema, or an empty text")]
    Schema(String),
    #[error("wasmtime does not run here: {0}")]
    Platform(String),
    /// What another process says of it.
    #[error("{0}")]
    Refused(String),
    #[error("it cannot be loaded: {0}")]
    Died(String),
    #[error("its file cannot be read again: {0}")]
    Read(String),
    #[error("the engine lost it: {0}")]
    Lost(String),
}

/// Takes packed bytes too.
pub(super) fn load(engine: &Engine, packed: &[u8]) -> Result<Module, LoadError> {
    let bytes = &*unpacked(packed)?;
    check_bytes(bytes)?;
    let imports = check_imports(bytes)?;
    let component =
        Component::new(&engine.wasmtime, bytes).map_err(|error| compile_error(&error))?;
    let exports: Vec<String> = component
        .component_type()
        .exports(&engine.wasmtime)
        .map(|(name, _)| name.to_owned())
        .collect();
    let exports_kind = |kind: &str| {
        exports
            .iter()
            .any(|name| name.starts_with(&format!("kproxide:policy/{kind}@0.1.")))
    };

    let pre = || -> Result<InstancePre<State>, LoadError> {
        engine
            .linker
            .instantiate_pre(&component)
            .map_err(|error| interface_error(&error))
    };
    let mut compiled = Compiled {
        host_selection: None,
        scale_down: None,
        labels: None,
    };
    if exports_kind("host-selection") {
        compiled.host_selection =
            Some(HostSelectionPolicyPre::new(pre()?).map_err(|error| interface_error(&error))?);
    }
    if exports_kind("scale-down") {
        compiled.scale_down =
            Some(ScaleDownPolicyPre::new(pre()?).map_err(|error| interface_error(&error))?);
    }
    if exports_kind("labels") {
        compiled.labels =
            Some(LabelPolicyPre::new(pre()?).map_err(|error| interface_error(&error))?);
    }
    Ok(Module(Arc::new(Loaded {
        digest: digest(packed),
        info: describe(engine, &compiled)?.printable(),
        imports,
        unpacked_bytes: bytes.len(),
        kinds: compiled.kinds(),
        code: Code::Here(Box::new(compiled)),
    })))
}

/// SHA-256 in lower-case hexadecimal digits.
pub fn digest(bytes: &[u8]) -> Digest {
    kproxide_common::hex::hex(&Sha256::digest(bytes)).into()
}

fn check_bytes(bytes: &[u8]) -> Result<(), LoadError> {
    if bytes.len() > UNPACKED_BYTES_MAX {
        return Err(LoadError::TooBig);
    }
    // Binary format: magic, then version 1 in layer 0 (core module) or version 13 in layer 1 (component).
    match bytes {
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => Err(LoadError::CoreModule),
        [0, b'a', b's', b'm', ..] => Ok(()),
        _ => Err(LoadError::NotWasm),
    }
}

/// All imports, none of which is refused. Before anything is compiled: that takes seconds, for what would be refused.
fn check_imports(bytes: &[u8]) -> Result<Vec<String>, LoadError> {
    let imports = imports(bytes).map_err(|error| compile_error(&error.into()))?;
    for name in &imports {
        let allowed = ["kproxide:policy/types@0.1.", "kproxide:policy/log@0.1."]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if !allowed {
            let hint = if name.starts_with("wasi:") {
                ". WASI is not offered: for Rust, build for wasm32-unknown-unknown instead of wasm32-wasip2; for JavaScript, \
                 `jco componentize --backend quickjs --backend-qjs-stub-wasi --backend-qjs-disable-async`; for Go and C, give the core module to \
                 `kproxide policy pack`; for Python, `componentize-py componentize --stub-wasi`, which makes 18 MB"
            } else if name.starts_with("kproxide:policy/") {
                ". It was built for another version of the interface"
            } else {
                ""
            };
            return Err(LoadError::Import {
                import: foreign::line(name, 200),
                hint,
            });
        }
    }
    Ok(imports.into_iter().map(str::to_owned).collect())
}

/// What the component itself imports, but for names that it gives to types. What is nested in it is skipped: it may import what it likes, and nobody goes
/// into what is nested deeply.
fn imports(bytes: &[u8]) -> Result<Vec<&str>, BinaryReaderError> {
    let mut imports = Vec::new();
    let (mut parser, mut left) = (Parser::new(0), bytes);
    while let Chunk::Parsed { consumed, payload } = parser.parse(left, true)? {
        left = &left[consumed..];
        #[expect(clippy::wildcard_enum_match_arm, reason = "one of forty kinds")]
        match payload {
            Payload::End(_) => break,
            Payload::ModuleSection {
                unchecked_range: range,
                ..
            }
            | Payload::ComponentSection {
                unchecked_range: range,
                ..
            } => {
                left = left.get(range.len()..).unwrap_or_default();
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    let import = import?;
                    if !matches!(import.ty, ComponentTypeRef::Type(TypeBounds::Eq(_))) {
                        imports.push(import.name.name);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(imports)
}

/// Puts an instance of each kind together, which is where wasmtime compares the types, and asks one for its name.
fn describe(engine: &Engine, compiled: &Compiled) -> Result<PolicyInfo, LoadError> {
    let mut info = None;
    macro_rules! describe {
        ($pre:expr) => {
            if let Some(pre) = $pre {
                let mut store = store::store(engine, 0);
                let failed = |error: wasmtime::Error, store: &Store<State>| {
                    LoadError::Describe(store::failure(&error, store.data()))
                };
                let policy = match pre.instantiate(&mut store) {
                    Ok(policy) => policy,
                    Err(error) if store::is_mismatch(&error) => {
                        return Err(interface_error(&error));
                    }
                    Err(error) => return Err(failed(error, &store)),
                };
                if info.is_none() {
                    info = Some(
                        policy
                            .call_describe(&mut store)
                            .map_err(|error| failed(error, &store))?,
                    );
                }
            }
        };
    }
    describe!(&compiled.host_selection);
    describe!(&compiled.scale_down);
    describe!(&compiled.labels);
    let info = info.ok_or(LoadError::NoKnownExport)?;
    let info = PolicyInfo {
        name: info.name,
        version: info.version,
        description: info.description,
        settings_schema: info.settings_schema,
    };
    info.check()?;
    Ok(info)
}

fn compile_error(error: &wasmtime::Error) -> LoadError {
    LoadError::Compile(foreign::line(&format!("{error:#}"), 300))
}

fn interface_error(error: &wasmtime::Error) -> LoadError {
    LoadError::Interface(foreign::line(&format!("{error:#}"), 300))
}
