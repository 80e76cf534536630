use kproxide_planner::facts::CloneSpec;
use kproxide_planner::ids::Vmid;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::{data, one, refusal};
use crate::inventory::tests::inventory;

/// Two hypervisors with a shared and a local storage each, thick LVM on the first, and the given guests.
fn cluster(guests: Value) -> Inventory {
    let storage = |hypervisor: &str, name: &str, kind: &str, shared: u8, content: &str| {
        json!({"type": "storage", "node": hypervisor, "storage": name, "plugintype": kind, "shared": shared,
            "content": content, "status": "available", "maxdisk": 100})
    };
    let mut resources = vec![
        json!({"type": "node", "node": "pve1", "status": "online"}),
        json!({"type": "node", "node": "pve2", "status": "online"}),
        storage("pve1", "ceph", "rbd", 1, "images"),
        storage("pve2", "ceph", "rbd", 1, "images"),
        storage("pve1", "local", "dir", 0, "images,iso"),
        storage("pve2", "local", "dir", 0, "images,iso"),
        storage("pve1", "thick", "lvm", 0, "images"),
        storage("pve2", "isos", "nfs", 1, "iso"),
    ];
    resources.extend(guests.as_array().unwrap().iter().cloned());
    inventory(json!([]), json!(resources))
}

fn guest(vmid: u32, hypervisor: &str, name: &str, template: u8) -> Value {
    json!({"type": "qemu", "vmid": vmid, "node": hypervisor, "name": name, "template": template, "status": "stopped"})
}

fn on(storage: &str) -> Value {
    json!({"boot": "order=scsi0", "scsi0": format!("{storage}:base-9000-disk-0,size=8G"), "ide2": format!("{storage}:vm-9000-cloudinit,media=cdrom")})
}

async fn lookup(guests: Value, placement: Placement) -> Result<Vec<u32>, String> {
    look_for("tmpl", guests, placement).await
}

async fn look_for(what: &str, guests: Value, placement: Placement) -> Result<Vec<u32>, String> {
    let (client, _) = one(|_| data(on("ceph")));
    client
        .templates(&cluster(guests), &what.into(), placement)
        .await
        .map(|found| {
            found
                .templates
                .iter()
                .map(|template| template.vmid)
                .collect()
        })
        .map_err(|error| error.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_name_finds_its_templates() {
    let guests = json!([
        guest(101, "pve1", "tmpl", 0),
        guest(9001, "pve2", "tmpl", 1),
        guest(9000, "pve1", "tmpl", 1)
    ]);
    assert_eq!(
        lookup(guests.clone(), Placement::Local).await,
        Ok(vec![9000, 9001])
    );
    assert_eq!(
        lookup(guests, Placement::Shared).await.unwrap_err(),
        "template \"tmpl\" is ambiguous: VMs 9000, 9001 have this name; rename all but one, or set `template.placement: local` if there is one per hypervisor"
    );
    let twins = json!([
        guest(9001, "pve1", "tmpl", 1),
        guest(9000, "pve1", "tmpl", 1)
    ]);
    assert!(
        lookup(twins, Placement::Local)
            .await
            .unwrap_err()
            .ends_with("rename all but one on hypervisor pve1")
    );
}

#[tokio::test(start_paused = true)]
async fn tags_or_a_vmid_find_a_template_and_no_other_vm() {
    let tagged = |vmid: u32, hypervisor: &str, tags: &str, template: u8| {
        let mut guest = guest(vmid, hypervisor, "any", template);
        guest["tags"] = json!(tags);
        guest
    };
    let guests = json!([
        tagged(9000, "pve1", "prod;k8s", 1),
        tagged(9001, "pve2", "k8s", 1),
        tagged(101, "pve1", "k8s;prod", 0),
    ]);
    let find = |what: &'static str, placement| look_for(what, guests.clone(), placement);
    let shared = Placement::Shared;
    assert_eq!(
        find("with the tags k8s, prod", shared).await,
        Ok(vec![9000])
    );
    assert_eq!(find("with VMID 9001", shared).await, Ok(vec![9001]));
    let local = find("with the tags k8s", Placement::Local).await;
    assert_eq!(local, Ok(vec![9000, 9001]));
    let several = find("with the tags k8s", shared).await.unwrap_err();
    let said = "template with the tags k8s is ambiguous: VMs 9000, 9001 match; take a tag off all but one, or set";
    assert!(several.starts_with(said), "{several}");
    let none = find("with the tags k8s, test", shared).await.unwrap_err();
    let said = "template with the tags k8s, test does not exist in this Proxmox cluster: correct `template.tags`, or give the token VM.Audit and VM.Clone on it";
    assert!(none.starts_with(said), "{none}");
    let vm = find("with VMID 101", shared).await.unwrap_err();
    let said = "VM 101 on pve1 is one with VMID 101 but is not a template: convert it with `qm template 101`";
    assert!(vm.starts_with(said), "{vm}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_template_is_explained() {
    let error = lookup(json!([guest(9000, "pve1", "other", 1)]), Placement::Shared)
        .await
        .unwrap_err();
    assert!(
        error.starts_with(
            "template \"tmpl\" does not exist in this Proxmox cluster: correct `template.name`"
        ),
        "{error}"
    );
}

/// kproximate's B31: a plain VM of the same name was cloned.
#[tokio::test(start_paused = true)]
async fn b31_a_vm_is_no_template() {
    assert_eq!(
        lookup(json!([guest(101, "pve1", "tmpl", 0)]), Placement::Shared)
            .await
            .unwrap_err(),
        "VM 101 on pve1 is named \"tmpl\" but is not a template: convert it with `qm template 101`, or correct `template.name`"
    );
}

/// Proxmox's lists are some seconds old. The configuration is not.
#[tokio::test(start_paused = true)]
async fn a_vm_that_has_just_become_a_template_is_one() {
    let (client, _) = one(|_| {
        let mut config = on("ceph");
        config["template"] = json!(1);
        data(config)
    });
    for placement in [Placement::Shared, Placement::Local] {
        let guests = json!([guest(101, "pve1", "tmpl", 0), guest(102, "pve1", "x", 0)]);
        let found = client
            .templates(&cluster(guests), &"tmpl".into(), placement)
            .await;
        let found = found.unwrap();
        let vmids: Vec<u32> = found.templates.iter().map(|it| it.vmid).collect();
        assert_eq!(vmids, [101]);
    }
}

#[tokio::test(start_paused = true)]
async fn f117_a_template_that_vanished_is_named_by_the_clone() {
    let (client, _) = one(|_| {
        refusal(
            500,
            "unable to find configuration file for VM 9000 on node 'pve1'",
        )
    });
    let request = crate::machine::CloneRequest {
        clone: CloneSpec {
            hypervisor: "pve1".into(),
            vmid: Vmid(9000),
            full: false,
            storage: None,
        },
        hypervisor: "pve1".to_owned(),
        newid: 101,
        name: "a".to_owned(),
        pool: None,
        description: String::new(),
    };
    let error = client.clone_vm(&request).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("template 9000 does not exist on hypervisor pve1"),
        "{error}"
    );
}
