use serde_json::{Value, json};

use super::*;
use crate::pve::canned::{data, one, refusal};
use crate::pve::inventory::tests::inventory;

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

fn template(vmid: u32, hypervisor: &str, config: Value) -> Template {
    Template {
        vmid,
        hypervisor: hypervisor.to_owned(),
        config: VmConfig::from_data(&serde_json::from_value(config).unwrap()),
    }
}

fn on(storage: &str) -> Value {
    json!({"boot": "order=scsi0", "scsi0": format!("{storage}:base-9000-disk-0,size=8G"), "ide2": format!("{storage}:vm-9000-cloudinit,media=cdrom")})
}

fn wish(kind: CloneKind, storage: Option<&str>) -> CloneWish {
    CloneWish {
        kind,
        storage: storage.map(str::to_owned),
    }
}

/// `linked|full source→target storage`, or the reason.
fn route(templates: Vec<Template>, hypervisor: &str, wish: &CloneWish) -> String {
    let inventory = cluster(json!([]));
    let templates = Templates {
        name: "tmpl".to_owned(),
        templates,
    };
    match templates.route(&inventory, inventory.hypervisor(hypervisor).unwrap(), wish) {
        Ok(route) => format!(
            "{} {}@{}→{} {}, lock {}{}",
            if route.full { "full" } else { "linked" },
            route.template,
            route.source,
            route.target.as_deref().unwrap_or("here"),
            route.storage.as_deref().unwrap_or("beside"),
            route.slot.storage,
            route
                .slot
                .hypervisor
                .map(|name| format!("@{name}"))
                .unwrap_or_default(),
        ),
        Err(reason) => reason.to_string(),
    }
}

#[test]
fn a_template_on_shared_storage_goes_everywhere() {
    let auto = wish(CloneKind::Auto, None);
    let shared = || vec![template(9000, "pve1", on("ceph"))];
    assert_eq!(
        route(shared(), "pve1", &auto),
        "linked 9000@pve1→here beside, lock ceph"
    );
    assert_eq!(
        route(shared(), "pve2", &auto),
        "linked 9000@pve1→pve2 beside, lock ceph"
    );
}

#[test]
fn a_template_on_local_storage_stays() {
    let auto = wish(CloneKind::Auto, None);
    let local = || vec![template(9000, "pve1", on("local"))];
    assert_eq!(
        route(local(), "pve1", &auto),
        "linked 9000@pve1→here beside, lock local@pve1"
    );
    assert_eq!(
        route(local(), "pve2", &auto),
        "template 9000 has ide2 on local storage local of pve1"
    );
    let both = vec![
        template(9000, "pve1", on("local")),
        template(9001, "pve2", on("local")),
    ];
    assert_eq!(
        route(both, "pve2", &auto),
        "linked 9001@pve2→here beside, lock local@pve2"
    );
}

#[test]
fn a_local_cd_alone_ties_a_template_down() {
    let mut config = on("ceph");
    config["ide3"] = json!("local:iso/x.iso,media=cdrom");
    assert_eq!(
        route(
            vec![template(9000, "pve1", config)],
            "pve2",
            &wish(CloneKind::Auto, None)
        ),
        "template 9000 has ide3 on local storage local of pve1"
    );
}

#[test]
fn linked_or_full() {
    let thick = || vec![template(9000, "pve1", on("thick"))];
    let shared = || vec![template(9000, "pve1", on("ceph"))];
    for (templates, kind, storage, expected) in [
        (
            thick(),
            CloneKind::Auto,
            None,
            "full 9000@pve1→here beside, lock thick@pve1",
        ),
        (
            thick(),
            CloneKind::Linked,
            None,
            "template.clone is linked, but storage thick (lvm) cannot hold linked clones: use `full` or `auto`",
        ),
        (
            shared(),
            CloneKind::Full,
            None,
            "full 9000@pve1→here beside, lock ceph",
        ),
        (
            shared(),
            CloneKind::Full,
            Some("local"),
            "full 9000@pve1→here local, lock local@pve1",
        ),
        (
            shared(),
            CloneKind::Auto,
            Some("local"),
            "full 9000@pve1→here local, lock local@pve1",
        ),
        (
            shared(),
            CloneKind::Auto,
            Some("ceph"),
            "linked 9000@pve1→here beside, lock ceph",
        ),
        (
            shared(),
            CloneKind::Linked,
            Some("local"),
            "template.clone is linked and template.storage is local: a linked clone stays on the template's storage; remove one of the two",
        ),
    ] {
        assert_eq!(route(templates, "pve1", &wish(kind, storage)), expected);
    }
}

#[test]
fn storages_that_will_not_do() {
    let shared = || vec![template(9000, "pve1", on("ceph"))];
    for (hypervisor, storage, expected) in [
        (
            "pve2",
            "local",
            "storage local is local, so copies can only be made on the template's own hypervisor",
        ),
        (
            "pve2",
            "isos",
            "storage isos does not hold disk images (content `images`)",
        ),
        (
            "pve2",
            "thick",
            "storage thick is not available on this hypervisor",
        ),
    ] {
        assert_eq!(
            route(shared(), hypervisor, &wish(CloneKind::Full, Some(storage))),
            expected
        );
    }
    let diskless = vec![template(9000, "pve1", json!({}))];
    assert_eq!(
        route(diskless, "pve1", &wish(CloneKind::Auto, None)),
        "template 9000 has no disk"
    );
}

async fn lookup(guests: Value, placement: Placement) -> Result<Vec<u32>, String> {
    let (client, _) = one(|_| data(on("ceph")));
    client
        .templates(&cluster(guests), "tmpl", placement)
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

#[tokio::test(start_paused = true)]
async fn f117_a_template_that_vanished_is_named_by_the_clone() {
    let (client, _) = one(|_| {
        refusal(
            500,
            "unable to find configuration file for VM 9000 on node 'pve1'",
        )
    });
    let request = crate::pve::machine::CloneRequest {
        route: Route {
            template: 9000,
            source: "pve1".to_owned(),
            target: None,
            full: false,
            storage: None,
            slot: StorageSlot {
                storage: "ceph".to_owned(),
                hypervisor: None,
            },
        },
        newid: 101,
        name: "a".to_owned(),
        pool: None,
        description: String::new(),
        format: None,
    };
    let error = client.clone_vm(&request).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("template 9000 does not exist on hypervisor pve1"),
        "{error}"
    );
}
