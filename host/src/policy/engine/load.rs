//! From bytes to a module: what a component must look like, and what to say about one that does not.

use kproxide_planner::ids::Digest;
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use wasmtime::Store;
use wasmtime::component::{Component, InstancePre};

use super::bindings::host_selection::HostSelectionPolicyPre;
use super::bindings::labels::LabelPolicyPre;
use super::bindings::scale_down::ScaleDownPolicyPre;
use super::store::{self, State};
use super::{CallError, Compiled, Engine, Module, PolicyInfo, convert};

/// Compiling takes up to 40 times the module's size in memory: 4 MiB keep it below 200 MB.
pub(crate) const UNPACKED_BYTES_MAX: usize = 4 << 20;

/// Why bytes are no policy that kproxide can use.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LoadError {
    #[error("it is not WebAssembly: its first bytes are not \\0asm")]
    NotWasm,
    #[error(
        "it is a core WebAssembly module, not a component: for Rust, build for wasm32-unknown-unknown with linker = \"wasm-component-ld\"; \
         for other languages, wrap it with `wasm-tools component new`"
    )]
    CoreModule,
    #[error(
        "it has more than {UNPACKED_BYTES_MAX} bytes unpacked, which is the most that is loaded"
    )]
    TooBig,
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
    #[error("wasmtime does not run here: {0}")]
    Platform(String),
    #[error("the engine lost it: {0}")]
    Lost(String),
}

pub(super) fn load(engine: &Engine, bytes: &[u8]) -> Result<Module, LoadError> {
    check_bytes(bytes)?;
    let component =
        Component::new(&engine.wasmtime, bytes).map_err(|error| compile_error(&error))?;
    let imports = check_imports(engine, &component)?;
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
        digest: digest(bytes),
        info: PolicyInfo {
            name: String::new(),
            version: String::new(),
            description: String::new(),
            settings_schema: String::new(),
        },
        imports,
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
    compiled.info = describe(engine, &compiled)?;
    Ok(Module(std::sync::Arc::new(compiled)))
}

/// SHA-256 in lower-case hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    crate::hex::hex(&Sha256::digest(bytes)).into()
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

/// All imports, none of which is refused.
fn check_imports(engine: &Engine, component: &Component) -> Result<Vec<String>, LoadError> {
    let mut imports = Vec::new();
    for (name, _) in component.component_type().imports(&engine.wasmtime) {
        let allowed = ["kproxide:policy/types@0.1.", "kproxide:policy/log@0.1."]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if !allowed {
            let hint = if name.starts_with("wasi:") {
                ". WASI is not offered: for Rust, build for wasm32-unknown-unknown instead of wasm32-wasip2; for JavaScript, \
                 `jco componentize --backend quickjs --backend-qjs-stub-wasi`; for Python, `componentize-py --stub-wasi`"
            } else if name.starts_with("kproxide:policy/") {
                ". It was built for another version of the interface"
            } else {
                ""
            };
            return Err(LoadError::Import {
                import: name.to_owned(),
                hint,
            });
        }
        imports.push(name.to_owned());
    }
    Ok(imports)
}

/// Puts an instance of each kind together, which is where wasmtime compares the types, and asks one for its name.
fn describe(engine: &Engine, compiled: &Compiled) -> Result<PolicyInfo, LoadError> {
    let mut info = None;
    macro_rules! describe {
        ($pre:expr) => {
            if let Some(pre) = $pre {
                let mut store = store::store(engine, "new policy".into());
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
    Ok(PolicyInfo {
        name: convert::printable(&info.name, 63),
        version: convert::printable(&info.version, 63),
        description: convert::printable(&info.description, 1000),
        settings_schema: convert::printable(&info.settings_schema, 64 << 10),
    })
}

fn compile_error(error: &wasmtime::Error) -> LoadError {
    LoadError::Compile(convert::printable(&format!("{error:#}"), 300))
}

fn interface_error(error: &wasmtime::Error) -> LoadError {
    LoadError::Interface(convert::printable(&format!("{error:#}"), 300))
}
