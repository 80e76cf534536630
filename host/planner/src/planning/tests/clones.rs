//! Which clone makes a machine: the template, full or linked, onto which storage, and what that takes.

use super::*;
use crate::facts::*;

/// The scene's template with these disks, on `alpha`.
fn with(disks: Vec<TemplateDisk>) -> Scene {
    let mut scene = Scene::default();
    scene.pending("web", 1, spec("cpu=1"));
    scene.inventory.templates = [(
        "debian".into(),
        vec![TemplateFacts {
            disks,
            ..template(9000, "alpha", true)
        }],
    )]
    .into();
    scene
}

/// A disk on thick LVM, which is the base of no linked clone.
fn thick(key: &str) -> TemplateDisk {
    TemplateDisk {
        drive: Drive::Disk { links: false },
        storage: "thick".into(),
        storage_kind: "lvm".into(),
        ..template_disk(key, false)
    }
}

fn drive(key: &str, shared: bool, drive: Drive) -> TemplateDisk {
    TemplateDisk {
        drive,
        ..template_disk(key, shared)
    }
}

/// `linked|full 9000@alpha→beta storage`, or why no hypervisor can be used, the same for all.
fn clone_of(scene: &Scene) -> String {
    let plan = scene.plan();
    check_sound(&plan);
    let Some(launch) = plan.launches.first() else {
        let reasons = plan
            .report
            .rejected
            .iter()
            .map(|row| row.reason.to_string());
        let mut reasons: Vec<String> = reasons.collect();
        reasons.dedup();
        return reasons.join("; ");
    };
    let clone = launch.spec.clone.clone().unwrap();
    format!(
        "{} {}@{}→{} {}",
        if clone.full { "full" } else { "linked" },
        clone.vmid,
        clone.hypervisor,
        launch.spec.hypervisor,
        clone
            .storage
            .as_ref()
            .map_or("beside", |storage| storage.as_str()),
    )
}

fn add_storage(scene: &mut Scene, name: &str, on: &[&str], facts: StorageFacts) {
    for hypervisor in on {
        let storages = &mut scene.hypervisor(hypervisor).storages;
        storages.insert(name.into(), facts.clone());
    }
}

#[test]
fn a_clone_is_linked_where_every_disk_can_be_and_may_stay() {
    let all = ["alpha", "beta", "gamma"];
    for (linked, storage, disks, expected) in [
        (
            CloneMode::Auto,
            None,
            vec![template_disk("scsi0", true)],
            "linked 9000@alpha→alpha beside",
        ),
        // It lies there anyway.
        (
            CloneMode::Auto,
            Some("shared"),
            vec![template_disk("scsi0", true)],
            "linked 9000@alpha→alpha beside",
        ),
        (
            CloneMode::Auto,
            Some("local"),
            vec![template_disk("scsi0", true)],
            "full 9000@alpha→alpha local",
        ),
        // One of two does not lie there, or cannot be the base of a linked clone.
        (
            CloneMode::Auto,
            Some("shared"),
            vec![template_disk("scsi0", true), template_disk("scsi1", false)],
            "full 9000@alpha→alpha shared",
        ),
        (
            CloneMode::Auto,
            None,
            vec![template_disk("scsi0", true), thick("scsi1")],
            "full 9000@alpha→alpha beside",
        ),
        (
            CloneMode::Auto,
            None,
            vec![template_disk("scsi0", true), template_disk("scsi1", false)],
            "linked 9000@alpha→alpha beside",
        ),
        (
            CloneMode::Full,
            None,
            vec![template_disk("scsi0", true)],
            "full 9000@alpha→alpha beside",
        ),
        (
            CloneMode::Linked,
            None,
            vec![template_disk("scsi0", true)],
            "linked 9000@alpha→alpha beside",
        ),
    ] {
        let mut scene = with(disks);
        add_storage(&mut scene, "thick", &all, storage_of(false));
        scene.class.template.clone = linked;
        scene.class.template.storage = storage.map(Into::into);
        assert_eq!(clone_of(&scene), expected, "{linked:?} {storage:?}");
    }
}

fn storage_of(shared: bool) -> StorageFacts {
    storage(shared, 1_000)
}

#[test]
fn a_linked_clone_that_cannot_be_is_refused_by_name_and_makes_no_claim() {
    let mut scene = with(vec![template_disk("scsi0", true), thick("scsi1")]);
    scene.class.template.clone = CloneMode::Linked;
    add_storage(&mut scene, "thick", &["alpha"], storage_of(false));
    assert_eq!(
        clone_of(&scene),
        "template.clone is linked, but template 9000 has scsi1 on storage thick (lvm), which cannot hold linked clones: use `full` or `auto`; \
         template debian is on another hypervisor's local storage"
    );
}

/// The template's flag is set, and its disks were never made base volumes.
#[test]
fn r12_what_is_no_base_volume_is_copied_or_the_clone_is_refused_with_the_command() {
    let raw = |key: &str| TemplateDisk {
        drive: Drive::Disk { links: false },
        ..template_disk(key, true)
    };
    let mut scene = with(vec![template_disk("scsi0", true), raw("scsi1")]);
    assert_eq!(clone_of(&scene), "full 9000@alpha→alpha beside");
    scene.class.template.clone = CloneMode::Linked;
    assert_eq!(
        clone_of(&scene),
        "template.clone is linked, but scsi1 of template 9000 is no base volume: convert the template (`qm template 9000`), or use `full` or `auto`"
    );
}

#[test]
fn every_disk_needs_its_storage_and_its_room() {
    let two = || vec![template_disk("scsi0", true), template_disk("scsi1", false)];
    let mut scene = with(two());
    scene.hypervisor("alpha").storages.remove("local");
    assert!(clone_of(&scene).starts_with("storage local does not exist there"));

    // 20 GiB on each of two storages: the second one has no room.
    let mut scene = with(two());
    scene.class.template.clone = CloneMode::Full;
    let facts = StorageFacts {
        available_bytes: 19 * GIB,
        ..storage(false, 100)
    };
    add_storage(&mut scene, "local", &["alpha"], facts);
    assert!(
        clone_of(&scene).starts_with("storage local has no space: the disk needs 20Gi, 19Gi left")
    );

    // 32 GiB, to which the first one is grown, and 20 GiB on one storage.
    let mut scene = with(two());
    scene.class.template.clone = CloneMode::Full;
    scene.class.template.storage = Some("local".into());
    scene.class.instance_types[0].disk_gib = Some(32);
    add_storage(&mut scene, "local", &["alpha"], storage(false, 51));
    assert!(
        clone_of(&scene).starts_with("storage local has no space: the disk needs 52Gi, 51Gi left")
    );
    add_storage(&mut scene, "local", &["alpha"], storage(false, 52));
    assert_eq!(clone_of(&scene), "full 9000@alpha→alpha local");
}

#[test]
fn two_machines_of_one_tick_share_the_room_of_each_storage() {
    let mut scene = with(vec![
        template_disk("scsi0", true),
        template_disk("scsi1", false),
    ]);
    scene.class.template.clone = CloneMode::Full;
    scene.pending("large", 2, spec("cpu=3"));
    add_storage(&mut scene, "local", &["alpha"], storage(false, 50));
    assert_eq!(scene.plan().launches.len(), 2, "20 GiB of 50 for each");
}

#[test]
fn a_template_is_bound_by_each_drive_that_a_clone_gets() {
    let shared = template_disk("scsi0", true);
    for (other, may_leave) in [
        (drive("ide2", true, Drive::CloudInit), true),
        (drive("ide2", false, Drive::CloudInit), false),
        (drive("ide3", true, Drive::Cd), true),
        (drive("ide3", false, Drive::Cd), false),
    ] {
        let mut scene = with(vec![shared.clone(), other.clone()]);
        scene.hypervisor("alpha").online = false;
        let expected = match may_leave {
            true => "linked 9000@alpha→beta beside",
            false => "offline; template debian is on another hypervisor's local storage",
        };
        assert_eq!(clone_of(&scene), expected, "{other:?}");
    }
}

#[test]
fn a_cd_needs_no_storage_for_disks() {
    let cd = TemplateDisk {
        storage: "isos".into(),
        ..drive("ide3", true, Drive::Cd)
    };
    let scene = with(vec![template_disk("scsi0", true), cd]);
    assert_eq!(clone_of(&scene), "linked 9000@alpha→alpha beside");
}

#[test]
fn of_templates_of_one_name_a_sound_one_is_first_then_a_near_one_then_the_lowest_number() {
    let bad = |vmid, on| TemplateFacts {
        problem: Some(format!("template {vmid} has no disk to boot from")),
        ..template(vmid, on, true)
    };
    let good = |vmid, on| template(vmid, on, true);
    for (templates, expected) in [
        (
            vec![good(9003, "gamma"), good(9002, "gamma")],
            "linked 9002@gamma→alpha beside",
        ),
        (
            vec![good(9001, "gamma"), good(9002, "alpha")],
            "linked 9002@alpha→alpha beside",
        ),
        (
            vec![good(9002, "gamma"), bad(9001, "alpha")],
            "linked 9002@gamma→alpha beside",
        ),
        (
            vec![bad(9001, "alpha"), bad(9002, "alpha")],
            "template 9001 has no disk to boot from",
        ),
    ] {
        let mut scene = with(Vec::new());
        scene.inventory.templates = [("debian".into(), templates)].into();
        assert_eq!(clone_of(&scene), expected);
    }
}

#[test]
fn a_claim_that_says_no_clone_goes_unless_one_was_asked_for() {
    for (phase, goes) in [(Phase::Pending, true), (Phase::Launching, false)] {
        for is_written in [false, true] {
            let mut scene = Scene::default();
            scene.workers().limits.min_nodes = 1;
            scene.coming_machine("m", "alpha", phase);
            if !is_written {
                scene.claim("m").spec.clone = None;
            }
            let expected = match goes && !is_written {
                true => Verdict::Remove(crate::plan::RemovalReason::LaunchFailed),
                false => Verdict::Keep,
            };
            assert_eq!(
                verdict(&scene.plan(), "m"),
                expected,
                "{phase:?} {is_written}"
            );
        }
    }
}

#[test]
fn a_cluster_may_have_a_template_of_its_own() {
    let mut scene = Scene::default();
    scene.pending("web", 1, spec("cpu=1"));
    let mut other = scene.inventory.templates[&"debian".into()].clone();
    other[0].vmid = crate::ids::Vmid(9001);
    scene
        .inventory
        .templates
        .insert("with VMID 9001".into(), other);
    let source = |scene: &Scene| {
        let plan = scene.plan();
        check_sound(&plan);
        let Launch { spec, .. } = &plan.launches[0];
        let vmid = spec.clone.as_ref().unwrap().vmid.0;
        (vmid, spec.labels.get(crate::keys::TEMPLATE).cloned())
    };
    assert_eq!(source(&scene), (9000, Some("debian".to_owned())));
    let own = ClassInCluster {
        template: Some(TemplateInCluster {
            vmid: Some(crate::ids::Vmid(9001)),
            ..TemplateInCluster::default()
        }),
    };
    scene.class.clusters = [("pve".into(), own.clone())].into();
    assert_eq!(source(&scene), (9001, None));
    scene.class.clusters = [("elsewhere".into(), own)].into();
    assert_eq!(source(&scene).0, 9000);
}
