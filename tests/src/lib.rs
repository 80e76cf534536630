//! What the tests stand on: a real Kubernetes control plane on loopback, a stand-in for the kubelet that runs
//! kproxide's own pod, and waiting by condition.
//!
//! ```text
//! require_controlplane ──► Programs ──► ControlPlane::start ──► Api, kubectl, helm, token_for
//!   (builds once)                            │
//!                                            └──► PodLauncher::launch ──► RunningPod
//! ```
//!
//! [`shipped_binary`] builds what is shipped, [`kproxide_binary`] what the end-to-end cases run, [`Packager`] the image of it with the [`licenses`] of what it is made of, [`Promtool`] checks metrics and alerts, [`TextTemplate`] renders templates as Go does, [`CronTable`] reads schedules as Kubernetes does. [`oracle::Scheduler`] says what kube-scheduler's filters say.
//!
//! Nothing here depends on the `kproxide` package. Tests that need its binary live in that package, hand the path over,
//! and see of kproxide what a user sees: objects, logs, exit codes.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

mod cargo;
mod cron;
mod eventually;
mod go;
mod gotemplate;
mod image;
mod promtool;
mod release;

pub mod controlplane;
pub mod kubelet;
pub mod licenses;
pub mod oracle;

pub use cargo::ask_cargo;
pub use controlplane::{ControlPlane, Options, Programs, require_controlplane};
pub use cron::{CronTable, require_cron_table};
pub use eventually::{Probe, eventually};
pub use gotemplate::{Rendered, TextTemplate, require_text_template};
pub use image::{Image, Packager, require_packager};
pub use kubelet::{PodLauncher, RunningPod};
pub use promtool::{Promtool, require_promtool};
pub use release::{
    KPROXIDE, RELEASE_ENVIRONMENT, in_background, is_bench, is_shipped, kproxide_binary,
    shipped_binary, simulation_binary,
};

/// A TCP port of loopback for a server that is started later: nobody listens on it now, and the system gives it to nobody who asks for any port.
///
/// # Errors
///
/// When every port of the range is taken.
pub fn free_port() -> io::Result<u16> {
    // Each process begins elsewhere, and no call of one process takes what another has taken.
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(PORTS_PER_PROCESS);
    for _ in PORTS {
        let place = begin.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + (place % PORTS.len() as u32) as u16;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// Below the ports that Linux gives by itself (`ip_local_port_range`, 32768 and up), above those of services.
const PORTS: Range<u16> = 14_000..32_000;
const PORTS_PER_PROCESS: u32 = 97;
