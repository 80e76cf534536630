//! What the tests stand on: a real Kubernetes control plane on loopback, a stand-in for the kubelet that runs
//! kproxide's own pod, and waiting by condition.
//!
//! ```text
//! require_controlplane ──► Programs ──► ControlPlane::start ──► Api, kubectl, helm, token_for
//!   (builds once)                            │
//!                                            └──► PodLauncher::launch ──► RunningPod
//! ```
//!
//! Nothing here depends on the `kproxide` package. Tests that need its binary live in that package, hand the path over,
//! and see of kproxide what a user sees: objects, logs, exit codes.

mod eventually;

pub mod controlplane;
pub mod kubelet;

pub use controlplane::{ControlPlane, Options, Programs, require_controlplane};
pub use eventually::{Probe, eventually};
pub use kubelet::{PodLauncher, RunningPod};

/// A TCP port of loopback that nobody listens on at this moment. Somebody may before the caller does, so whoever starts
/// a server on it must be ready to take another.
///
/// # Errors
///
/// When the system has no port left to give.
pub fn free_port() -> std::io::Result<u16> {
    let [port] = free_ports()?;
    Ok(port)
}

/// Several free ports that differ from each other: all are held until the last one is found.
pub(crate) fn free_ports<const N: usize>() -> std::io::Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
