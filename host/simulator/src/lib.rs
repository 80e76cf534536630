pub mod clock;
pub mod kube;
pub mod kubelet;
pub mod rng;
