//! The five custom resources of group `kproxide.dev/v1alpha1`, all cluster-scoped: the API that operators write and the records that
//! kproxide keeps. The schema that the API server enforces is generated from these types; `kproxide crds` prints it and the chart ships it,
//! as CustomResourceDefinitions and as the schema of the chart's values.
//!
//! A field exists here only if it has an effect. Unknown fields are refused by the API server (kubectl asks for strict validation);
//! objects read back are read leniently (see [`super::convert`]).

#![allow(
    clippy::duplicated_attributes,
    reason = "each printer column of the derive has a type and a path of its own; the lint sees them as one attribute's"
)]

mod claim;
mod class;
mod cluster;
mod common;
mod ledger;
mod pool;
mod schema;
mod values;

pub use claim::*;
pub use class::*;
pub use cluster::*;
pub use common::*;
pub use ledger::*;
pub use pool::*;
pub use schema::spec_of;
pub use schema::{crds, crds_yaml};
pub use values::values_schema;

/// The only version so far.
pub const VERSION: &str = "v1alpha1";
/// The annotation of a definition with the version of kproxide that it is of.
pub const VERSION_ANNOTATION: &str = "kproxide.dev/version";
/// The one Ledger's name.
pub const LEDGER_NAME: &str = "kproxide";
