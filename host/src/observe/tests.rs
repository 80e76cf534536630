use kproxide_planner::ids::{ClassName, PoolName};
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::*;
use crate::kube::convert::{class_facts, cluster_facts, pool_facts};

fn cluster(name: &str) -> (Delta, ClusterConnection) {
    let (facts, connection) = cluster_facts(
        &serde_json::from_value(json!({
            "endpoints": ["https://pve1:8006"], "credentials": "home", "vmidRange": {"first": 200, "last": 299},
        }))
        .unwrap(),
    );
    let delta = Delta::Cluster(name.into(), Some(Box::new(facts)));
    (delta, connection.unwrap())
}

fn class(name: &str, template: &str) -> Delta {
    let spec = json!({
        "template": {"name": template}, "instanceTypes": [{"name": "small", "cores": 2, "memoryMiB": 2048}],
    });
    let facts = class_facts(&serde_json::from_value(spec).unwrap());
    Delta::Class(ClassName::from(name), Some(Box::new(facts)))
}

fn pool(name: &str, spec: Value) -> Delta {
    let facts = pool_facts(
        &ObjectMeta::default(),
        &serde_json::from_value(spec).unwrap(),
    );
    Delta::Pool(PoolName::from(name), Some(Box::new(facts)))
}

#[test]
fn a_cluster_needs_the_templates_of_its_own_pools_alone() {
    let mut world = World::default();
    for delta in [
        cluster("home").0,
        cluster("lab").0,
        class("debian", "debian-12"),
        class("gpu", "debian-gpu"),
        class("unused", "alpine"),
        pool("everywhere", json!({"nodeClass": "debian"})),
        pool("gpus", json!({"nodeClass": "gpu", "clusters": ["lab"]})),
    ] {
        world.apply(delta);
    }
    let names = |wanted: &Wanted| -> Vec<String> {
        let names = wanted.templates.iter();
        names.map(|(name, _)| name.to_string()).collect()
    };
    let wanted = wanted(&world);
    assert_eq!(names(&wanted["home"]), ["debian-12"]);
    assert_eq!(names(&wanted["lab"]), ["debian-12", "debian-gpu"]);
}

#[tokio::test(start_paused = true)]
#[cfg(feature = "simulator")]
async fn f54_a_client_that_could_not_be_built_is_built_later() {
    use crate::pve::auth::Credentials;
    use crate::pve::transport::Endpoint;
    use kproxide_simulator::clock::Clock as SimulatedClock;
    use kproxide_simulator::pve::{Pve, Topology};

    let epoch = jiff::Timestamp::UNIX_EPOCH;
    let pve = Pve::new(Topology::of(2), SimulatedClock::starting_at(epoch), 1);
    let clock = Clock::starting_at(epoch);
    // The CA file is mounted some seconds after the start.
    let mounted_at = Instant::now() + Duration::from_secs(5);
    let clusters = Clusters::new(Arc::new(move |_, concurrency| {
        if Instant::now() < mounted_at {
            return Err("ca.crt: no such file".to_owned());
        }
        let endpoint = Endpoint::new("lab", pve.service());
        let credentials = Arc::new(|| Credentials::token("kproxide@pve!ci", "secret"));
        Ok(Client::new(vec![endpoint], credentials, concurrency))
    }));
    clusters.configure(&"home".into(), Some(cluster("home").1));
    let reachable = async || {
        let deltas = clusters
            .refresh(Duration::from_secs(5), BTreeMap::new(), &clock)
            .await;
        match deltas.into_iter().next() {
            Some(Delta::Inventory(_, Some(facts))) => (facts.reachable, facts.version),
            other => panic!("{other:?}"),
        }
    };
    assert!(!reachable().await.0);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!reachable().await.0);
    tokio::time::sleep(REBUILD).await;
    let (is_reachable, version) = reachable().await;
    assert!(is_reachable);
    assert!(version.is_some());
}

#[tokio::test(start_paused = true)]
#[cfg(feature = "simulator")]
async fn permissions_that_are_slow_to_tell_cost_no_inventory_and_are_not_asked_again_at_once() {
    use crate::pve::auth::Credentials;
    use crate::pve::transport::{Endpoint, TransportError};
    use kproxide_simulator::clock::Clock as SimulatedClock;
    use kproxide_simulator::faults::{Broken, Dialect, Fault, Faults};
    use kproxide_simulator::matcher::Matcher;
    use kproxide_simulator::pve::{Pve, Topology};

    let epoch = jiff::Timestamp::UNIX_EPOCH;
    let pve = Pve::new(Topology::of(2), SimulatedClock::starting_at(epoch), 1);
    let clock = Clock::starting_at(epoch);
    let faults = Faults::new(1);
    let asked = Matcher::new(http::Method::GET, "/access/permissions");
    faults.inject(asked, Fault::Delay(2 * INVENTORY_DEADLINE), u32::MAX);
    let around = faults.clone();
    let clusters = Clusters::new(Arc::new(move |_, concurrency| {
        let service = around.around(pve.service(), Dialect::Proxmox);
        let service = tower::ServiceExt::map_err(service, |broken: Broken| {
            TransportError::Broken(broken.into())
        });
        let endpoint = Endpoint::new("lab", service);
        let credentials = Arc::new(|| Credentials::token("kproxide@pve!ci", "secret"));
        Ok(Client::new(vec![endpoint], credentials, concurrency))
    }));
    let home = ClusterName::from("home");
    clusters.configure(&home, Some(cluster("home").1));
    for _ in 0..3 {
        let deltas = clusters
            .refresh(Duration::ZERO, BTreeMap::new(), &clock)
            .await;
        let told = deltas.into_iter().next();
        assert!(matches!(told, Some(Delta::Inventory(_, Some(facts))) if facts.reachable));
        assert!(clusters.excess().is_empty(), "it is not known");
    }
    assert_eq!(faults.happened().len(), 1);

    faults.calm();
    tokio::time::sleep(PERMISSIONS_RETRY).await;
    clusters
        .refresh(Duration::ZERO, BTreeMap::new(), &clock)
        .await;
    assert!(clusters.excess().contains_key(&home));
}

#[tokio::test(start_paused = true)]
#[cfg(feature = "simulator")]
async fn the_privilege_to_run_the_join_script_lacks_where_a_class_of_the_cluster_has_a_script() {
    use crate::pve::auth::Credentials;
    use crate::pve::transport::Endpoint;
    use kproxide_simulator::clock::Clock as SimulatedClock;
    use kproxide_simulator::pve::{Pve, Topology};

    const SCRIPTS: &str = "VM.GuestAgent.Unrestricted";
    let epoch = jiff::Timestamp::UNIX_EPOCH;
    let mut topology = Topology::of(1).least_privileged();
    for entry in &mut topology.acl {
        entry.privileges.retain(|privilege| privilege != SCRIPTS);
    }
    let pve = Pve::new(topology, SimulatedClock::starting_at(epoch), 1);
    let clock = Clock::starting_at(epoch);
    let clusters = Clusters::new(Arc::new(move |_, concurrency| {
        let endpoint = Endpoint::new("lab", pve.service());
        let credentials = Arc::new(|| Credentials::token("kproxide@pve!ci", "secret"));
        Ok(Client::new(vec![endpoint], credentials, concurrency))
    }));
    let mut world = World::default();
    let mut refresh = async |deltas: Vec<Delta>| {
        deltas.into_iter().for_each(|delta| world.apply(delta));
        clusters
            .refresh(Duration::ZERO, wanted(&world), &clock)
            .await;
        clusters.lacking()
    };
    for name in ["home", "lab"] {
        let (facts, mut connection) = cluster(name);
        connection.pool = "k8s".to_owned();
        clusters.configure(&name.into(), Some(connection));
        refresh(vec![facts]).await;
    }
    let joins = |name: &str, join: Value| {
        let spec = json!({
            "template": {"name": name}, "join": join,
            "instanceTypes": [{"name": "small", "cores": 2, "memoryMiB": 2048}],
        });
        let facts = class_facts(&serde_json::from_value(spec).unwrap());
        Delta::Class(ClassName::from(name), Some(Box::new(facts)))
    };
    let lacking = refresh(vec![
        joins("debian", json!({"template": {}})),
        pool("everywhere", json!({"nodeClass": "debian"})),
    ]);
    assert_eq!(lacking.await, BTreeMap::new());
    // It is asked again when a class wants more, and told of the cluster alone that needs it.
    let lacking = refresh(vec![
        joins(
            "scripted",
            json!({"guestExec": {"commandSecretFile": "join"}}),
        ),
        pool(
            "scripts",
            json!({"nodeClass": "scripted", "clusters": ["lab"]}),
        ),
    ])
    .await;
    let told: Vec<&str> = lacking.keys().map(ClusterName::as_str).collect();
    assert_eq!(told, ["lab"]);
    let text = &lacking[&ClusterName::from("lab")];
    assert!(text.contains(&format!("{SCRIPTS} is missing")), "{text}");
}
