pub mod clock;
pub mod kube;
pub mod rng;
