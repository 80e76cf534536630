//! From a policy to the exports of its world, and the macros that make them.

use std::marker::PhantomData;

use crate::bindings::{host_selection, labels, scale_down};
use crate::{
    Candidate, Context, Decoration, HostSelection, Hypervisor, Info, Labels, Machine, Node, Plan,
    PolicyError, Ranking, Request, ScaleDown, call, log,
};

pub struct HostSelectionComponent<P>(PhantomData<P>);
pub struct ScaleDownComponent<P>(PhantomData<P>);
pub struct LabelsComponent<P>(PhantomData<P>);

/// The exports that every world has.
macro_rules! common_exports {
    ($world:ident, $component:ident, $kind:ident) => {
        impl<P: $kind> $world::Guest for $component<P> {
            fn describe() -> Info {
                log::panics_to_log();
                call::describe::<P>()
            }

            fn check_settings(settings: String) -> Result<(), PolicyError> {
                log::panics_to_log();
                call::check_settings::<P>(&settings)
            }
        }
    };
}

common_exports!(host_selection, HostSelectionComponent, HostSelection);
common_exports!(scale_down, ScaleDownComponent, ScaleDown);
common_exports!(labels, LabelsComponent, Labels);

impl<P: HostSelection> host_selection::exports::kproxide::policy::host_selection::Guest
    for HostSelectionComponent<P>
{
    fn rank(
        context: Context,
        request: Request,
        candidates: Vec<Candidate>,
    ) -> Result<Ranking, PolicyError> {
        log::panics_to_log();
        call::rank::<P>(&context, &request, &candidates)
    }
}

impl<P: ScaleDown> scale_down::exports::kproxide::policy::scale_down::Guest
    for ScaleDownComponent<P>
{
    fn order(
        context: Context,
        pool: String,
        nodes: Vec<Node>,
        hypervisors: Vec<Candidate>,
        max_removals: u32,
    ) -> Result<Plan, PolicyError> {
        log::panics_to_log();
        call::order::<P>(&context, &pool, &nodes, &hypervisors, max_removals)
    }
}

impl<P: Labels> labels::exports::kproxide::policy::labels::Guest for LabelsComponent<P> {
    fn decorate(
        settings: String,
        machine: Machine,
        hypervisors: Vec<Hypervisor>,
    ) -> Result<Vec<Decoration>, PolicyError> {
        log::panics_to_log();
        call::decorate::<P>(&settings, &machine, &hypervisors)
    }
}

/// Exports a type that implements [`HostSelection`](crate::HostSelection) as the component's policy.
///
/// Does nothing on native targets, where the exports of a component would not link.
#[macro_export]
macro_rules! export_host_selection {
    ($policy:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Component = $crate::HostSelectionComponent<$policy>;
            $crate::bindings::host_selection::export_host_selection_world!(
                Component with_types_in $crate::bindings::host_selection
            );
        };
    };
}

/// Exports a type that implements [`ScaleDown`](crate::ScaleDown) as the component's policy.
///
/// Does nothing on native targets, where the exports of a component would not link.
#[macro_export]
macro_rules! export_scale_down {
    ($policy:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Component = $crate::ScaleDownComponent<$policy>;
            $crate::bindings::scale_down::export_scale_down_world!(
                Component with_types_in $crate::bindings::scale_down
            );
        };
    };
}

/// Exports a type that implements [`Labels`](crate::Labels) as the component's policy.
///
/// Does nothing on native targets, where the exports of a component would not link.
#[macro_export]
macro_rules! export_labels {
    ($policy:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Component = $crate::LabelsComponent<$policy>;
            $crate::bindings::labels::export_labels_world!(
                Component with_types_in $crate::bindings::labels
            );
        };
    };
}
