//! VMs of others where ours are.

use kproxide_simulator::pve::VmView;
use kproxide_simulator::pve::topology::VmSpec;
use serde_json::json;

use super::degraded::{HOUR, claims, lively, running, scale};
use super::run;
use kproxide_lab::wide;
use kproxide_lab::{Lab, Setting};
use kproxide_lab::{MACHINE, furnished};

const GIB: u64 = 1 << 30;

/// A VM that somebody made in our resource pool, with a number of our range.
fn stranger(vmid: u32, hypervisor: &str, memory_gib: u64) -> VmSpec {
    let name = format!("somebodys-{vmid}");
    let mut vm = VmSpec::machine(vmid, &name, hypervisor, "local-lvm", 10 * GIB);
    let memory = (memory_gib * 1024).to_string();
    vm.config.insert("memory".to_owned(), memory);
    vm.pool = Some("k8s".to_owned());
    vm.running = true;
    vm
}

fn vm(lab: &Lab, vmid: u32) -> VmView {
    let mut vms = lab.pve.snapshot().vms.into_iter();
    vms.find(|vm| vm.vmid == vmid).unwrap()
}

#[tokio::test(start_paused = true)]
async fn f110_vms_of_others_in_our_pool_and_range_are_counted_and_passed_over_and_never_touched() {
    let mut setting = Setting::new(1, 2);
    // Where hypervisors have 64 GiB each, one of ours finds no room beside the first.
    let strangers = [stranger(500, "pve1", 60), stranger(502, "pve2", 2)];
    let numbers = strangers.clone().map(|vm| vm.vmid);
    setting.topology.vms.extend(strangers);
    let lab = furnished(setting, json!({}), lively());
    let before = numbers.map(|vmid| vm(&lab, vmid));

    wide(&lab, "web", "workers", 3);
    run(&lab, MACHINE).await;
    assert_eq!(running(&lab, "web"), 3);
    let births = lab.pve.snapshot().births;
    let mut ours: Vec<(u32, &str)> = births
        .iter()
        .filter(|birth| (500..600).contains(&birth.vmid) && !numbers.contains(&birth.vmid))
        .map(|birth| (birth.vmid, birth.hypervisor.as_str()))
        .collect();
    ours.sort();
    assert_eq!(ours, [(501, "pve2"), (503, "pve2"), (504, "pve2")]);

    scale(&lab, "web", 0);
    run(&lab, HOUR).await;
    assert_eq!(claims(&lab).len(), 0);
    assert_eq!(numbers.map(|vmid| vm(&lab, vmid)), before);
    for vmid in numbers {
        let path = format!("/qemu/{vmid}");
        let audit = lab.pve.audit();
        let touched = audit.iter().find(|entry| entry.path.contains(&path));
        assert_eq!(touched, None);
    }
}
