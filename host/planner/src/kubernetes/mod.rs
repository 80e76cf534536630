//! What Kubernetes itself counts and compares: quantities, resources, selectors, taints, and whether a pod may be evicted.

pub mod eviction;
pub mod quantity;
pub mod resources;
pub mod selector;
pub mod taints;
