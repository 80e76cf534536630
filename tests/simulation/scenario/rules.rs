//! What operators set of a pool besides its size: windows, ages, graces and deadlines, shares and numbers. Several values of each, so that they bind;
//! [`crate::settings`] holds the run against them.

use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::{AGENT_MILLI_CORES, CORES};

/// Of the static Node that no pod of the load tolerates.
pub(super) const STORAGE_MILLI_CORES: u32 = 16_000;

/// Times in seconds, in the order of the fields of a NodePool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rules {
    pub(crate) min_nodes: u32,
    /// `scaleUp.stabilizationWindow`
    pub(crate) window: u32,
    /// What the cluster keeps free beyond what is requested, as a share of that (`scaleDown.loadHeadroom`).
    pub(crate) load_headroom: f64,
    pub(crate) stabilization: u32,
    pub(crate) min_node_age: u32,
    pub(crate) unneeded_time: u32,
    pub(crate) drain_timeout: u32,
    pub(crate) repair_after: u32,
    /// `headroom.cpu`, in thousandths.
    pub(crate) headroom: u32,
}

impl Rules {
    /// Those under which pools end with no machine more than their pods need.
    pub(crate) const PLAIN: Self = Self {
        min_nodes: 0,
        window: 0,
        load_headroom: 0.2,
        stabilization: 120,
        min_node_age: 120,
        unneeded_time: 30,
        drain_timeout: 600,
        repair_after: 600,
        headroom: 0,
    };

    pub(super) fn draw(rng: &mut SmallRng) -> Self {
        let mut one_of = |values: [u32; 4]| values[rng.random_range(0..values.len())];
        Self {
            min_nodes: one_of([0, 0, 1, 2]),
            window: one_of([0, 0, 45, 60]),
            load_headroom: Self::PLAIN.load_headroom,
            stabilization: one_of([60, 120, 120, 240]),
            min_node_age: one_of([60, 120, 120, 300]),
            unneeded_time: one_of([0, 30, 30, 90]),
            drain_timeout: one_of([300, 600, 600, 600]),
            repair_after: one_of([240, 600, 600, 600]),
            headroom: one_of([0, 0, 1000, 2500]),
        }
    }

    pub(super) fn spec(&self, budget: u32) -> [(&'static str, Value); 5] {
        let seconds = |time: u32| format!("{time}s");
        let scale_down = json!({
            "stabilization": seconds(self.stabilization), "minNodeAge": seconds(self.min_node_age),
            "unneededTime": seconds(self.unneeded_time), "budget": budget, "loadHeadroom": self.load_headroom,
        });
        [
            (
                "scaleUp",
                json!({"stabilizationWindow": seconds(self.window)}),
            ),
            ("scaleDown", scale_down),
            ("drainTimeout", json!(seconds(self.drain_timeout))),
            ("repairAfter", json!(seconds(self.repair_after))),
            ("headroom", json!({"cpu": format!("{}m", self.headroom)})),
        ]
    }

    /// How many machines a pool ends with whose pods need so many and ask for so much.
    pub(super) fn machines_for(&self, machines: u32, milli_cores: u32) -> u32 {
        let with_headroom = match self.headroom {
            0 => 0,
            headroom => (milli_cores + headroom).div_ceil(CORES * 1000),
        };
        machines.max(with_headroom).max(self.min_nodes)
    }

    /// How many machines `loadHeadroom` may keep of a pool that is the only one, with so much requested in the whole cluster: fewer leave too little.
    pub(super) fn kept_by_load(&self, requested: u32) -> u32 {
        let wanted = f64::from(requested) * (1.0 + self.load_headroom);
        let elsewhere = f64::from(AGENT_MILLI_CORES + STORAGE_MILLI_CORES);
        let machines = ((wanted - elsewhere) / f64::from(CORES * 1000)).floor() + 1.0;
        machines.max(0.0) as u32
    }

    /// With this share one machine more is kept than are needed, if it comes to be there; `None`: more than a pool may ask for.
    pub(super) fn binding(requested: u32, needed: u32) -> Option<f64> {
        let machines = needed * CORES * 1000 + CORES * 500;
        let all = f64::from(AGENT_MILLI_CORES + STORAGE_MILLI_CORES + machines);
        Some(all / f64::from(requested) - 1.0).filter(|share| *share <= 10.0)
    }
}
