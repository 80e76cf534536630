//! Situations of `tests/data/plan/fidelity`, in which kproxide once answered otherwise than kube-scheduler.

use super::*;
use crate::whatif::Verdict;

async fn answer(case: &str) -> Answer {
    let Command::Plan(args) = parsed(&["plan"], &format!("fidelity/{case}.yaml")) else {
        panic!("{case}");
    };
    let (scene, plan) = answered(&args, &policies()).await.unwrap();
    Answer::of(&scene, &plan).with_verdicts(&scene.world)
}

/// The types of the machines that would be made, and for each Node the plugin that refuses the pod.
async fn said(case: &str) -> String {
    let Answer {
        launches, verdicts, ..
    } = answer(case).await;
    let launches = launches
        .into_iter()
        .map(|it| format!("+{}", it.instance_type));
    let verdicts = verdicts.into_iter().flatten().map(|verdict| {
        let Verdict { node, fits, .. } = verdict;
        let other = match &verdict.not_evaluated {
            Some(_) => "?",
            None => verdict.plugin.unwrap_or_default(),
        };
        format!("{node}: {}", if fits { "fits" } else { other })
    });
    launches.chain(verdicts).collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn v1_huge_pages_are_no_memory() {
    assert_eq!(said("v1").await, "");
}

#[tokio::test]
async fn v2_a_disk_offers_less_than_its_size() {
    assert_eq!(said("v2").await, "+large, n1: NodeResourcesFit");
}

#[tokio::test]
async fn v3_what_containers_ask_comes_before_a_limit_of_the_pod() {
    assert_eq!(said("v3_pod").await, "n1: fits");
    assert_eq!(said("v3_daemon_set").await, "+small");
}

#[tokio::test]
async fn v4_a_free_volume_elsewhere_is_no_room_here() {
    assert_eq!(said("v4").await, "n1: VolumeBinding, n2: fits");
}

#[tokio::test]
async fn v5_a_volume_of_an_earlier_claim_is_for_nobody() {
    assert_eq!(said("v5").await, "n1: VolumeBinding");
}

#[tokio::test]
async fn v6_two_claims_of_a_pod_take_two_volumes() {
    let two = "n1: VolumeBinding, n2: VolumeBinding";
    assert_eq!(said("v6").await, two);
    let reason = answer("v6")
        .await
        .pending
        .remove(0)
        .reasons
        .remove(0)
        .reason;
    let expected = "a new volume of StorageClass loc needs a free PersistentVolume of its own, which only Nodes with kubernetes.io/hostname in (n1) or kubernetes.io/hostname in (n2) reach";
    assert_eq!(reason, expected);
}

#[tokio::test]
async fn v7_what_is_not_evaluated_does_not_fit() {
    for case in ["v7", "v7_rbd", "v7_volume_kind", "v7_scheduler"] {
        assert_eq!(said(case).await, "n1: ?, n2: ?");
    }
    for (case, what) in [
        ("v7", "spec.resourceClaims"),
        (
            "v7_volume_kind",
            "PersistentVolumes of kind gcePersistentDisk",
        ),
        ("v7_scheduler", "the rules of scheduler volcano"),
    ] {
        let text = Text(&answer(case).await).to_string();
        let row = format!("  default/p  n1    not evaluated  kproxide does not evaluate {what}");
        assert!(text.contains(&row), "{text}");
    }
}

#[tokio::test]
async fn v8_new_claims_are_bound_as_in_a_cluster() {
    for (case, assumed) in [
        (
            "v8_at_once",
            "rook-ceph.rbd.csi.ceph.com has made a volume that every Node reaches for each of these new PersistentVolumeClaims of StorageClass ceph-block: default/d",
        ),
        (
            "v8_static",
            "these new PersistentVolumeClaims are bound to a PersistentVolume of the input: default/media",
        ),
    ] {
        assert_eq!(said(case).await, "+small");
        let said = answer(case).await.assumed;
        assert!(said.iter().any(|it| it == assumed), "{said:?}");
    }
}

#[tokio::test]
async fn v9_a_namespace_has_its_name_as_a_label() {
    assert_eq!(said("v9").await, "n1: fits, n2: InterPodAffinity");
    assert_eq!(said("v9_absent").await, "n1: fits");
    let assumed = answer("v9_absent").await.assumed;
    let sentence =
        "these Namespaces have no label but their name (the input lacks them): shop, team";
    assert!(assumed.iter().any(|it| it == sentence), "{assumed:?}");
}

#[tokio::test]
async fn what_an_inventory_does_not_say_is_assumed() {
    assert_eq!(
        answer("v1").await.assumed,
        [
            "each hypervisor of ProxmoxCluster home has the template debian (its Inventory names none)",
            "these hypervisors of ProxmoxCluster home have storages that are large enough (its Inventory names none): pve1, pve2, pve3",
        ]
    );
}

#[tokio::test]
async fn v10_two_volumes_with_one_handle_are_one() {
    assert_eq!(said("v10").await, "n1: fits");
}

#[tokio::test]
async fn v11_volumes_and_their_claims_are_compared_as_kube_scheduler_does() {
    for (case, expected) in [
        ("v11_attributes", "n1: VolumeBinding"),
        ("v11_selected_node", "n1: VolumeBinding"),
        ("v11_fields", "n2: fits"),
        ("v11_zone_label", "n2: fits"),
        ("v11_old_zone_label", "n1: fits"),
        ("v11_gone", "+small, n1: NodeVolumeLimits"),
    ] {
        assert_eq!(said(case).await, expected, "{case}");
    }
}
