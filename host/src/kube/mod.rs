//! The Kubernetes adapter: the only module that knows Kubernetes' types, and the owner of our own ([`crd`]).

pub mod crd;
