//! Addresses that are free in kproxide's books, of two classes and three pools.

use serde_json::{Value, json};

use super::ward::{Ward, ailments};
use crate::doctor::{Values, examine};
use kproxide_controller::judge::Level;

/// A class with the addresses from 10.1.0.10 on.
pub(super) fn class(last: &str) -> Value {
    let ranges = json!([{ "first": "10.1.0.10", "last": last }]);
    json!({ "cloudInit": { "dhcp": null, "ipPool": { "cidr": "10.1.0.0/16", "gateway": "10.1.0.1", "ranges": ranges } } })
}

/// Writes the Ledger anew: pool, address and state of each row.
pub(super) fn books(ward: &Ward, rows: &[(&str, &str, &str)]) {
    let rows = (500..).zip(rows).map(|(vmid, (pool, address, state))| {
        let mut row = json!({
            "claim": format!("m-{vmid}"), "pool": pool, "cluster": "home", "vmid": vmid, "hypervisor": "pve1",
            "milliCores": 4000, "memoryBytes": 8_589_934_592_u64, "address": address, "state": state,
        });
        match *state {
            "quarantined" => row["until"] = json!("2027-01-01T00:00:00Z"),
            "reserved" => row["since"] = json!("2025-01-01T00:00:00Z"),
            _ => {}
        }
        row
    });
    let spec = json!({ "entries": rows.collect::<Vec<_>>() });
    let kube = &ward.lab.kube;
    let _ = kube.delete("ledgers.kproxide.dev", "", "kproxide");
    let ledger = json!({ "apiVersion": "kproxide.dev/v1alpha1", "kind": "Ledger", "metadata": { "name": "kproxide" }, "spec": spec });
    kube.create("ledgers.kproxide.dev", ledger).unwrap();
}

/// What is said of a class's addresses: whether it is well, and how many are free.
async fn told(ward: &Ward, class: &str) -> (bool, String) {
    let report = ward.examined().await;
    let object = format!("NodeClass/{class}");
    let mut findings = report.findings.iter();
    let found = findings.find(|it| it.object == object && it.message.contains("cloudInit.ipPool"));
    let found = found.unwrap_or_else(|| panic!("{report}"));
    let (_, numbers) = found.message.split_once(": ").unwrap();
    (found.level == Level::Ok, numbers.to_owned())
}

fn make(ward: &Ward, kind: &str, name: &str, spec: Value) {
    let resource = format!(
        "{}s.kproxide.dev",
        kind.to_lowercase().replace("class", "classe")
    );
    let object = json!({ "apiVersion": "kproxide.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec });
    ward.lab.kube.create(&resource, object).unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_machines_have_and_what_rests_is_not_free_and_classes_of_one_network_share_it() {
    let ward = Ward::new();
    // 6 addresses, and 3 machines at most.
    ward.edit("nodeclasses/debian", class("10.1.0.15"));
    let mut other = ward
        .lab
        .kube
        .get("nodeclasses.kproxide.dev", "", "debian")
        .unwrap();
    other["spec"]["cloudInit"]["ipPool"]["ranges"] =
        json!([{ "first": "10.1.1.10", "last": "10.1.1.11" }]);
    make(&ward, "NodeClass", "other", other["spec"].clone());
    make(
        &ward,
        "NodePool",
        "others",
        json!({ "nodeClass": "other", "limits": { "maxNodes": 2 } }),
    );
    assert_eq!(told(&ward, "debian").await, (true, "6".to_owned()));
    assert_eq!(told(&ward, "other").await, (true, "2".to_owned()));

    // Rows of the same addresses in two pools' ranges count where they are.
    let mut rows = vec![
        ("workers", "10.1.0.10", "reserved"),
        ("workers", "10.1.0.11", "quarantined"),
        ("others", "10.1.0.12", "quarantined"),
    ];
    books(&ward, &rows);
    assert_eq!(told(&ward, "debian").await, (true, "3".to_owned()));
    assert_eq!(told(&ward, "other").await, (true, "2".to_owned()));
    rows.extend([
        ("workers", "10.1.0.13", "quarantined"),
        ("workers", "10.1.0.14", "quarantined"),
    ]);
    books(&ward, &rows);
    let few = "1; machines that its NodePools may still make: 2";
    assert_eq!(told(&ward, "debian").await, (false, few.to_owned()));
    assert_eq!(told(&ward, "other").await, (true, "2".to_owned()));
    // A limit of cores or memory keeps the pool from the machine that has no address.
    for limits in [json!({ "cpuCores": 8 }), json!({ "memoryMiB": 17_000 })] {
        ward.edit("nodepools/workers", json!({ "limits": limits }));
        assert_eq!(
            told(&ward, "debian").await,
            (true, "1".to_owned()),
            "{limits}"
        );
        let names = limits.as_object().unwrap().keys();
        let none: serde_json::Map<_, _> = names.map(|name| (name.clone(), Value::Null)).collect();
        ward.edit("nodepools/workers", json!({ "limits": none }));
    }

    // One class more on the second network, and a pool of it.
    make(&ward, "NodeClass", "third", other["spec"].clone());
    assert_eq!(told(&ward, "third").await, (true, "2".to_owned()));
    make(
        &ward,
        "NodePool",
        "thirds",
        json!({ "nodeClass": "third", "limits": { "maxNodes": 1 } }),
    );
    let few = "2; machines that its NodePools may still make: 3";
    for class in ["other", "third"] {
        assert_eq!(told(&ward, class).await, (false, few.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn before_the_installation_the_whole_range_counts() {
    let ward = Ward::new();
    let text = "
clusters:
  home: {credentials: {existingSecret: proxmox},
    spec: {endpoints: ['https://pve1:8006'], pool: k8s, tls: {insecureSkipVerify: true}}}
nodeClasses:
  debian: {joinScript: {existingSecret: join}, spec: {template: {name: k8s-node, placement: local},
    cloudInit: {ipPool: {cidr: 10.1.0.0/24, ranges: [{first: 10.1.0.10, last: 10.1.0.11}]}}}}
nodePools:
  workers: {spec: {limits: {maxNodes: 3}}}
";
    for (text, expected) in [
        (
            text.to_owned(),
            vec![(Level::Warning, "NodeClass/debian", "AddressesFew")],
        ),
        (text.replace("maxNodes: 3", "maxNodes: 2"), Vec::new()),
    ] {
        let mut sources = ward.sources();
        (sources.kube, sources.account) = (None, None);
        sources.objects = Values::read("values.yaml", &text).unwrap().objects;
        let report = examine(&sources, Vec::new()).await.unwrap();
        assert_eq!(ailments(&report), expected, "{report}");
    }
}
