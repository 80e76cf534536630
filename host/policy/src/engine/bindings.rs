//! Rust types of `wit/policy.wit`, generated.

pub(super) mod host_selection {
    wasmtime::component::bindgen!({ world: "host-selection-policy", path: "../../wit" });
}

pub(super) mod scale_down {
    wasmtime::component::bindgen!({
        world: "scale-down-policy",
        path: "../../wit",
        with: {
            "kproxide:policy/types": super::host_selection::kproxide::policy::types,
            "kproxide:policy/log": super::host_selection::kproxide::policy::log,
        },
    });
}

pub(super) mod labels {
    wasmtime::component::bindgen!({
        world: "label-policy",
        path: "../../wit",
        with: {
            "kproxide:policy/types": super::host_selection::kproxide::policy::types,
            "kproxide:policy/log": super::host_selection::kproxide::policy::log,
        },
    });
}
