//! The questions about machines: which are kproxide's, which are somebody else's, and whether VMs, claims and Nodes are in step.

use std::collections::BTreeMap;

use kproxide_simulator::pve::{Birth, VmView};
use kproxide_testkit::eventually;
use serde_json::Value;

use super::{CLAIMS, SOON, Stage};

/// The chart's default range.
pub(super) const FIRST_VMID: u32 = 20_000;

/// What is on the hypervisors that kproxide did not make.
pub(crate) struct Foreign {
    before: BTreeMap<u32, String>,
}

impl Stage<'_> {
    /// Every VM has its claim and every claim its VM and its Node, and nothing else is there of any of them.
    pub(crate) async fn until_in_step(&self, count: usize) {
        eventually(
            SOON,
            &format!("{count} VMs, and their claims and Nodes"),
            async || {
                let mut vms: Vec<_> = self.machines().into_iter().map(|vm| vm.name).collect();
                let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
                let mut nodes: Vec<_> = self.nodes().await.iter().map(name).collect();
                let claims = self.claims().await;
                let settled = claims
                    .iter()
                    .all(|claim| claim["status"]["phase"] == "Initialized");
                let mut claims: Vec<_> = claims
                    .iter()
                    .map(|claim| claim["spec"]["vmName"].as_str().unwrap().to_owned())
                    .collect();
                for names in [&mut vms, &mut nodes, &mut claims] {
                    names.sort();
                }
                if settled && vms.len() == count && vms == nodes && vms == claims {
                    Ok(())
                } else {
                    Err(self.describe().await)
                }
            },
        )
        .await;
    }

    /// A person's machine in the middle of our range, in our pool, made from our template.
    pub(crate) fn put_up_a_foreign_vm(&self) -> Foreign {
        let vms = self.served.pve.snapshot().vms;
        let template = vms.iter().find(|vm| vm.template).unwrap();
        self.put_up_a_copy(template, "somebody-elses")
    }

    /// A person's copy of a machine of ours: name, tags and description, and with it the marker, are the original's.
    pub(crate) fn put_up_a_copy_of_ours(&self) -> Foreign {
        let ours = self.machines().remove(0);
        self.put_up_a_copy(&ours, &ours.name)
    }

    fn put_up_a_copy(&self, source: &VmView, name: &str) -> Foreign {
        let (pve, vmid) = (&self.served.pve, FIRST_VMID + 500);
        pve.human_clones_vm(source.vmid, vmid, name).unwrap();
        pve.human_sets_pool(vmid, Some("k8s")).unwrap();
        Foreign {
            before: self.foreign_vms(),
        }
    }

    /// Whatever kproxide has not made is as it was, and was not even asked for.
    pub(crate) fn assert_untouched(&self, foreign: &Foreign) {
        assert_eq!(self.foreign_vms(), foreign.before);
        for vmid in foreign.before.keys() {
            let path = format!("/qemu/{vmid}");
            for entry in self.served.pve.audit() {
                let of_it = entry.path.ends_with(&path) || entry.path.contains(&format!("{path}/"));
                assert!(!of_it || entry.path.ends_with("/clone"), "{entry:?}");
            }
        }
    }

    fn foreign_vms(&self) -> BTreeMap<u32, String> {
        let vms = self.served.pve.snapshot().vms.into_iter();
        vms.filter(|vm| !vm.creator.starts_with("kproxide@pve"))
            .map(|vm| {
                (
                    vm.vmid,
                    format!("{} {:?} {}", vm.name, vm.config, vm.running),
                )
            })
            .collect()
    }

    /// Everything of ours is gone, here and there.
    pub(crate) async fn until_nothing_is_left(&self) {
        eventually(SOON, "no claim, Node, VM and disk left", async || {
            let claims = self.claims().await.len();
            let nodes = self.nodes().await.len();
            let volumes = self.volumes();
            if claims + nodes + self.machines().len() + volumes.len() == 0 {
                Ok(())
            } else {
                Err(format!("{}; disks {volumes:?}", self.describe().await))
            }
        })
        .await;
    }

    /// So many machines are there, and a claim for each.
    pub(crate) async fn until_machines(&self, count: usize) {
        eventually(SOON, &format!("{count} machines"), async || {
            let settled = self.machines().len() == count && self.claims().await.len() == count;
            if settled {
                Ok(())
            } else {
                Err(self.describe().await)
            }
        })
        .await;
    }

    /// So many Nodes carry their claim's label: the first write to a Node gives it nothing else. Pods may run on it before.
    pub(crate) async fn until_nodes(&self, count: usize) {
        eventually(SOON, &format!("{count} Nodes of ours"), async || {
            if self.nodes().await.len() == count {
                Ok(())
            } else {
                Err(self.describe().await)
            }
        })
        .await;
    }

    pub(crate) async fn claims(&self) -> Vec<Value> {
        self.api().list(CLAIMS).await.unwrap()
    }

    /// The Nodes that kproxide made.
    pub(crate) async fn nodes(&self) -> Vec<Value> {
        let path = "/api/v1/nodes?labelSelector=kproxide.dev%2Fclaim";
        self.api().list(path).await.unwrap()
    }

    /// The VMs that kproxide made for Nodes and that are there.
    pub(crate) fn machines(&self) -> Vec<VmView> {
        let mut vms = self.of_kproxide();
        vms.retain(|vm| !is_anchor(&vm.name));
        vms
    }

    /// The VM by which kproxide tells this cluster from a copy of it, once there is one.
    pub(crate) fn anchors(&self) -> Vec<VmView> {
        let mut vms = self.of_kproxide();
        vms.retain(|vm| is_anchor(&vm.name));
        vms
    }

    fn of_kproxide(&self) -> Vec<VmView> {
        let mut vms = self.served.pve.snapshot().vms;
        vms.retain(|vm| vm.vmid >= FIRST_VMID && vm.creator.starts_with("kproxide@pve"));
        vms
    }

    fn volumes(&self) -> Vec<String> {
        let foreign = self.foreign_vms();
        let volumes = self.served.pve.snapshot().volumes;
        let ours = volumes
            .into_iter()
            .filter(|volume| volume.vmid >= FIRST_VMID && !foreign.contains_key(&volume.vmid));
        ours.map(|volume| volume.volid).collect()
    }

    /// The machines that kproxide has ever made, in that order.
    pub(crate) fn births(&self) -> Vec<Birth> {
        let mut births = self.served.pve.snapshot().births;
        births.retain(|birth| {
            let ours = birth.creator.starts_with("kproxide@pve");
            ours && !birth.bare && birth.vmid >= FIRST_VMID
        });
        births
    }

    /// How many machines kproxide has ever made.
    pub(crate) fn born(&self) -> usize {
        self.births().len()
    }

    /// Machines per hypervisor.
    pub(crate) fn placed(&self) -> BTreeMap<String, usize> {
        let mut placed = BTreeMap::new();
        for vm in self.machines() {
            *placed.entry(vm.hypervisor).or_default() += 1;
        }
        placed
    }
}

pub(super) fn is_anchor(name: &str) -> bool {
    name.starts_with("kproxide-anchor-")
}
