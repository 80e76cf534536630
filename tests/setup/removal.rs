//! `setup.sh --remove`: what it takes back, what it leaves, and when it refuses.

use std::collections::BTreeMap;

use kproxide_simulator::pve::topology::{PoolSpec, Version, VmSpec};

use crate::books::{Rights, User};
use crate::cluster::Cluster;
use crate::{GIB, LOCAL, bare, cluster, refused, succeeded, template_on, templates, token};

/// Makes a VM with these notes, as kproxide does.
pub(crate) fn machine(cluster: &Cluster, vmid: u32, notes: &str, pool: Option<&str>) {
    let mut spec = VmSpec::machine(vmid, "workers-x", "pve2", "local-lvm", GIB);
    spec.config
        .insert("description".to_owned(), format!("of people\n{notes}"));
    spec.pool = pool.map(str::to_owned);
    cluster.pve.human_makes(spec);
}

#[tokio::test]
async fn nothing_is_removed_while_there_are_machines() {
    let cluster = cluster(bare(Version::V9));
    succeeded(cluster.setup("pve1", &LOCAL).await);
    let marks = [
        "kproxide: v1 cid=a claim=b vmid=1 n=c mac=d",
        "kproxide-tombstone: v1 cid=a",
    ];
    // A clone that is under way is in no pool yet.
    for (vmid, mark, pool) in [
        (20_000, marks[0], Some("kproxide")),
        (20_001, marks[0], None),
        (20_002, marks[1], Some("kproxide")),
    ] {
        machine(&cluster, vmid, mark, pool);
        let ended = cluster.setup("pve1", &["--remove"]).await;
        refused(
            &ended,
            &format!("machines of kproxide exist: VM {vmid} (pve2)"),
        );
        cluster.pve.human_destroys(vmid).unwrap();
    }
    assert_eq!(templates(&cluster).len(), 2);
}

#[tokio::test]
async fn what_it_made_is_removed_with_the_anchor_and_nothing_else() {
    let mut topology = bare(Version::V9);
    topology.vms = vec![VmSpec::template(
        500,
        "k8s-node-of-people",
        "pve1",
        "local-lvm",
        GIB,
    )];
    topology.pools = vec![PoolSpec {
        name: "other".to_owned(),
        comment: "of people".to_owned(),
        storages: Vec::new(),
    }];
    let cluster = cluster(topology);
    let empty = (cluster.books().rights.clone(), cluster.pve.snapshot().vms);
    succeeded(cluster.setup("pve1", &LOCAL).await);
    let anchor = "kproxide-anchor: v1 cid=a claim=proxmox vmid=20999 n=c mac=d";
    machine(&cluster, 20_999, anchor, Some("kproxide"));
    // Those of another kproxide, and a VM of people in the pool.
    machine(&cluster, 30_999, anchor, Some("other"));
    machine(
        &cluster,
        30_000,
        "kproxide: v1 cid=e claim=f vmid=1 n=c mac=d",
        Some("other"),
    );
    machine(&cluster, 600, "not kproxide: v1", Some("kproxide"));
    let ended = succeeded(cluster.setup("pve1", &["--remove"]).await);
    let left: Vec<u32> = cluster
        .pve
        .snapshot()
        .vms
        .iter()
        .map(|vm| vm.vmid)
        .collect();
    assert_eq!(left, [500, 600, 30_000, 30_999]);
    assert!(
        ended
            .out
            .contains("the pool kproxide stays, because others' VMs are in it: 600"),
        "{}",
        ended.out
    );
    cluster.pve.human_destroys(600).unwrap();
    succeeded(cluster.setup("pve2", &["--remove"]).await);
    for vmid in [30_000, 30_999] {
        cluster.pve.human_destroys(vmid).unwrap();
    }
    assert_eq!(
        (cluster.books().rights.clone(), cluster.pve.snapshot().vms),
        empty
    );
    let again = succeeded(cluster.setup("pve1", &["--remove"]).await);
    assert_eq!(again.changes(), Vec::<String>::new());
}

#[tokio::test]
async fn what_a_second_kproxide_uses_stays() {
    let cluster = cluster(bare(Version::V9));
    let second = ["--pool", "second", "--user", "second@pve"];
    succeeded(cluster.setup("pve1", &LOCAL).await);
    let other = succeeded(cluster.setup("pve1", &[&LOCAL[..], &second].concat()).await);
    let held = cluster
        .ask(&token(&other), "/access/permissions")
        .await
        .unwrap();
    succeeded(cluster.setup("pve1", &["--remove"]).await);
    assert_eq!(templates(&cluster).len(), 2);
    assert_eq!(
        cluster
            .ask(&token(&other), "/access/permissions")
            .await
            .unwrap(),
        held
    );
    let rights = cluster.books().rights.clone();
    assert_eq!(rights.users.keys().collect::<Vec<_>>(), ["second@pve"]);
    assert_eq!(rights.pools.keys().collect::<Vec<_>>(), ["second"]);
    succeeded(
        cluster
            .setup("pve1", &[&second[..], &["--remove"]].concat())
            .await,
    );
    assert_eq!(cluster.books().rights, Rights::default());
    assert_eq!(templates(&cluster), BTreeMap::new());
}

#[tokio::test]
async fn what_people_had_made_before_stays() {
    let mut topology = bare(Version::V9);
    topology.vms = vec![VmSpec::template(500, "k8s-node", "pve1", "local-lvm", GIB)];
    let cluster = cluster(topology);
    let user = User {
        comment: "of people".to_owned(),
        ..User::default()
    };
    {
        let rights = &mut cluster.books().rights;
        rights.users.insert("kproxide@pve".to_owned(), user);
        rights.pools.insert("kproxide".to_owned(), String::new());
    }
    let before = cluster.books().rights.clone();
    succeeded(cluster.setup("pve1", &LOCAL).await);
    assert_eq!(
        templates(&cluster),
        [(500, template_on("pve1")), (9001, template_on("pve2"))].into()
    );
    let ended = succeeded(cluster.setup("pve1", &["--remove"]).await);
    assert_eq!(cluster.books().rights, before);
    assert_eq!(templates(&cluster), [(500, template_on("pve1"))].into());
    for what in ["the user kproxide@pve stays", "the pool kproxide stays"] {
        assert!(ended.out.contains(what), "{}", ended.out);
    }
}
