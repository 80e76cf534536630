//! kproximate's eight gauges, with its names and meanings, so that dashboards made for it go on working. `_total` on a
//! gauge is its spelling, not ours: `--kproximate-metrics=false` leaves them out.

use prometheus::{Error, Gauge};

use kproxide_common::metrics::Register;

/// What kproximate's gauges show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KproximateGauges {
    /// VMs of ours on Proxmox, in any state.
    pub machines: u32,
    /// Those whose Node is Ready.
    pub running: u32,
    pub cpu_provisioned_cores: f64,
    pub memory_provisioned_bytes: f64,
    pub cpu_allocatable_cores: f64,
    pub memory_allocatable_bytes: f64,
    pub cpu_allocated_cores: f64,
    pub memory_allocated_bytes: f64,
}

/// Takes one number out of many.
type Reading = fn(&KproximateGauges) -> f64;

const GAUGES: [(&str, &str, Reading); 8] = [
    (
        "kpnodes_total",
        "VMs of kproxide on Proxmox, in any state",
        |it| it.machines.into(),
    ),
    (
        "kpnodes_running",
        "VMs of kproxide whose Node is Ready",
        |it| it.running.into(),
    ),
    (
        "cpu_provisioned_total",
        "Cores of the running machines",
        |it| it.cpu_provisioned_cores,
    ),
    (
        "memory_provisioned_total",
        "Bytes of memory of the running machines",
        |it| it.memory_provisioned_bytes,
    ),
    (
        "cpu_allocatable_total",
        "Allocatable cores of their Nodes",
        |it| it.cpu_allocatable_cores,
    ),
    (
        "memory_allocatable_total",
        "Allocatable bytes of memory of their Nodes",
        |it| it.memory_allocatable_bytes,
    ),
    (
        "cpu_allocated_total",
        "Cores requested by the pods on their Nodes",
        |it| it.cpu_allocated_cores,
    ),
    (
        "memory_allocated_total",
        "Bytes of memory requested by the pods on their Nodes",
        |it| it.memory_allocated_bytes,
    ),
];

#[derive(Clone, Debug)]
pub(super) struct Kproximate(Vec<(Gauge, Reading)>);

impl Kproximate {
    pub(super) fn new(register: &mut Register) -> Result<Self, Error> {
        let made = GAUGES.iter().map(|(name, help, reading)| {
            let gauge = register.float(name, &format!("{help} (kproximate's name)."))?;
            Ok::<_, Error>((gauge, *reading))
        });
        Ok(Self(made.collect::<Result<_, _>>()?))
    }

    pub(super) fn show(&self, gauges: &KproximateGauges) {
        for (gauge, reading) in &self.0 {
            gauge.set(reading(gauges));
        }
    }
}
