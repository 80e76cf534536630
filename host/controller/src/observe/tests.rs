use kproxide_planner::facts::HypervisorDetails;
use kproxide_planner::ids::{ClassName, PoolName};
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use kproxide_planner::world::World;

use super::*;
use kproxide_kube::convert::{class_facts, cluster_facts, pool_facts};

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
async fn f54_a_client_that_could_not_be_built_is_built_later() {
    use kproxide_pve::auth::Credentials;
    use kproxide_pve::transport::Endpoint;
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
async fn permissions_that_are_slow_to_tell_cost_no_inventory_and_are_not_asked_again_at_once() {
    use kproxide_pve::auth::Credentials;
    use kproxide_pve::transport::{Endpoint, TransportError};
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

/// What each look at a simulated cluster of two servers says of `pve1`, and the requests for it.
struct Looks {
    clusters: Clusters,
    faults: kproxide_simulator::faults::Faults,
    asked: Arc<Mutex<Vec<String>>>,
    clock: Clock,
}

impl Looks {
    fn at(topology: kproxide_simulator::pve::Topology) -> Self {
        use kproxide_pve::auth::Credentials;
        use kproxide_pve::transport::{Endpoint, TransportError};
        use kproxide_simulator::clock::Clock as SimulatedClock;
        use kproxide_simulator::faults::{Broken, Dialect, Faults};
        use kproxide_simulator::pve::Pve;

        let epoch = jiff::Timestamp::UNIX_EPOCH;
        let pve = Pve::new(topology, SimulatedClock::starting_at(epoch), 1);
        let (faults, asked) = (Faults::new(1), Arc::new(Mutex::new(Vec::new())));
        let (around, seen) = (faults.clone(), asked.clone());
        let clusters = Clusters::new(Arc::new(move |_, concurrency| {
            let service = around.around(pve.service(), Dialect::Proxmox);
            let service = tower::ServiceExt::map_err(service, |broken: Broken| {
                TransportError::Broken(broken.into())
            });
            let seen = seen.clone();
            let service =
                tower::ServiceExt::map_request(service, move |request: http::Request<_>| {
                    seen.lock().unwrap().push(request.uri().path().to_owned());
                    request
                });
            let endpoint = Endpoint::new("lab", service);
            let credentials = Arc::new(|| Credentials::token("kproxide@pve!ci", "secret"));
            Ok(Client::new(vec![endpoint], credentials, concurrency))
        }));
        let mut connection = cluster("home").1;
        connection.pool = "k8s".to_owned();
        clusters.configure(&"home".into(), Some(connection));
        let clock = Clock::starting_at(epoch);
        Self {
            clusters,
            faults,
            asked,
            clock,
        }
    }

    /// How long it took, and what is known of `pve1` and `pve2` then.
    async fn look(&self) -> (Duration, [Option<HypervisorDetails>; 2]) {
        let begun = Instant::now();
        let looked = self
            .clusters
            .refresh(Duration::ZERO, BTreeMap::new(), &self.clock);
        let deltas = looked.await;
        let took = begun.elapsed();
        let Some(Delta::Inventory(_, Some(facts))) = deltas.into_iter().next() else {
            panic!("no inventory");
        };
        assert!(facts.reachable);
        let of = |name: &str| facts.hypervisors[name].details.as_deref().cloned();
        (took, ["pve1", "pve2"].map(of))
    }

    /// How often these were asked for since the last time.
    fn asked(&self, end: &str) -> usize {
        let mut asked = self.asked.lock().unwrap();
        let count = asked.iter().filter(|path| path.ends_with(end)).count();
        asked.retain(|path| !path.ends_with(end));
        count
    }
}

#[tokio::test(start_paused = true)]
async fn servers_are_asked_once_a_minute_what_they_are_and_a_slow_one_holds_up_no_look() {
    use kproxide_simulator::faults::Fault;
    use kproxide_simulator::matcher::Matcher;
    use kproxide_simulator::pve::Topology;

    let mut topology = Topology::of(2);
    topology.hypervisors[0].notes = "# Attic\n#gpu and #ssd".to_owned();
    let looks = Looks::at(topology);
    let tags = |known: &Option<HypervisorDetails>| {
        let tags = known.as_ref().and_then(|it| it.tags.clone());
        tags.map(|tags| tags.join(";"))
    };
    // The first look already has them.
    let (_, [first, second]) = looks.look().await;
    let first = first.unwrap();
    assert_eq!(first.kernel.as_deref(), Some("6.14.8-2-pve"));
    assert_eq!(
        (first.sockets, first.version.as_deref()),
        (Some(1), Some("9.2.11"))
    );
    assert!(first.load.is_some());
    assert_eq!(
        [tags(&Some(first)), tags(&second)],
        [Some("gpu;ssd".to_owned()), Some(String::new())]
    );
    assert_eq!(
        (looks.asked("/nodes/pve1/status"), looks.asked("/config")),
        (1, 2)
    );
    // Within the minute nobody is asked again.
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        looks.look().await;
    }
    assert_eq!(
        (looks.asked("/nodes/pve1/status"), looks.asked("/config")),
        (0, 0)
    );

    // From now on the first server answers late. No look waits, and the last answer serves.
    let late = Matcher::new(http::Method::GET, "/nodes/pve1/status");
    looks
        .faults
        .inject(late, Fault::Delay(Duration::from_secs(30)), u32::MAX);
    let late = Matcher::new(http::Method::GET, "/nodes/pve1/config");
    looks
        .faults
        .inject(late, Fault::Delay(Duration::from_secs(30)), u32::MAX);
    let mut minutes = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        minutes += 1;
        let (took, [slow, other]) = looks.look().await;
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert!(other.unwrap().load.is_some(), "the other server answers");
        let slow = slow.unwrap();
        assert_eq!(
            slow.kernel.as_deref(),
            Some("6.14.8-2-pve"),
            "what stays stays"
        );
        if slow.load.is_none() {
            assert_eq!(slow.tags, None);
            break;
        }
    }
    // The last answer was one minute old.
    assert_eq!(minutes, 5);
    assert_eq!(looks.asked("/nodes/pve1/status"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_privilege_that_is_missing_leaves_out_what_it_is_for() {
    use kproxide_simulator::pve::Topology;

    // Granted on `/`, and with or without what is below it: `/nodes`.
    let told = async |propagate: bool| {
        let mut topology = Topology::of(2).least_privileged();
        for entry in topology.acl.iter_mut().filter(|entry| entry.path == "/") {
            entry.propagate = propagate;
        }
        Looks::at(topology).look().await.1
    };
    let [one, two] = told(true).await.map(Option::unwrap);
    assert!(one.kernel.is_some() && one.tags.is_some() && two.kernel.is_some());
    let [one, two] = told(false).await.map(Option::unwrap);
    assert!(one.kernel.is_none() && one.tags.is_some() && two.kernel.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_privilege_to_run_the_join_script_lacks_where_a_class_of_the_cluster_has_a_script() {
    use kproxide_pve::auth::Credentials;
    use kproxide_pve::transport::Endpoint;
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
    let text = &lacking[&ClusterName::from("lab")].message;
    assert!(text.contains(&format!("{SCRIPTS} is missing")), "{text}");
}
