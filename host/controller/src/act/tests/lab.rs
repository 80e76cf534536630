//! One host process between a simulated Proxmox and a simulated Kubernetes, with a loop that plans what the test says.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use kproxide_planner::facts::{
    ClaimResources, ClaimSpec, CloneSpec, Delta, EntryState, HostFacts, LedgerEntry, NodeFacts,
    PodFacts,
};
use kproxide_planner::fixtures;
use kproxide_planner::ids::{ClaimName, ClassName, ClusterName, PodKey, Vmid};
use kproxide_planner::plan::{Advance, Launch, Plan, Verdict};
use kproxide_planner::planning::Limits;
use kproxide_planner::world::World;
use kproxide_simulator::clock::Clock as SimulatedClock;
use kproxide_simulator::faults::{Broken, Dialect, Faults};
use kproxide_simulator::kube::{Collecting, Kube};
use kproxide_simulator::matcher::Matcher;
use kproxide_simulator::pve::{MachineEvent, Pve, Topology};
use kube::api::ObjectMeta;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::guest::Guest;
use crate::act::{Actor, ClaimNote, Context, Fence, Identity, Leftover, Rules};
use crate::metrics::Metrics;
use crate::observe::{self, Clusters};
use kproxide_common::clock::Clock;
use kproxide_kube::client::Client as KubeClient;
use kproxide_kube::convert::{class_facts, cluster_facts, pool_facts};
use kproxide_kube::crd::crds;
use kproxide_kube::{claims, ledger, nodes};
use kproxide_pve::auth::{CredentialSource, Credentials};
use kproxide_pve::client::Client as PveClient;
use kproxide_pve::limits::{Concurrency, StorageSlot};
use kproxide_pve::ownership::Key;
use kproxide_pve::transport::{Endpoint, TransportError};

pub(super) const CLAIM: &str = "workers-a";
pub(super) const VMID: u32 = 201;
const CLUSTER: &str = "home";
/// Of at most five seconds each: longer than anything takes.
const TURNS: u32 = 2_000;

/// Everything outside of the process, and the process' connections.
pub(super) struct Lab {
    pub pve: Pve,
    pub kube: Kube,
    pub faults: Faults,
    machines: mpsc::UnboundedReceiver<MachineEvent>,
    /// VMs that boot, and when their Node is there.
    booting: Vec<(Instant, String, String)>,
    pub client: KubeClient,
    pub joins: bool,
    /// Requests to Kubernetes that are refused, how, and how many were.
    pub refusal: Arc<Mutex<Option<Refused>>>,
    /// Of machines that join when they are told to; otherwise they do by themselves.
    pub guest: Option<Guest>,
}

/// Which requests, with what answer, and how many so far.
pub(super) type Refused = (Matcher, Value, Arc<AtomicU32>);

/// One process: it is dropped when it crashes.
pub(super) struct Host {
    pub actor: Actor,
    /// The epoch in which it leads.
    pub term: Arc<str>,
    /// What its fence says.
    pub leads_in: Arc<Mutex<Arc<str>>>,
    pub world: World,
    clusters: Clusters,
    kube: KubeClient,
    pub clock: Clock,
    pub notes: mpsc::Receiver<ClaimNote>,
    pub launched: bool,
}

fn epoch() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// What a plan would say, made from the template of its hypervisor as it stands, or of another; `None`: nothing is known of one yet.
pub(super) fn planned(world: &World) -> Option<ClaimSpec> {
    let inventory = world.inventories().get(CLUSTER)?;
    let templates = inventory.templates.values().flatten();
    let template = templates.min_by_key(|template| &*template.hypervisor != "pve2")?;
    Some(ClaimSpec {
        storage: Some(template.disks.first()?.storage.clone()),
        clone: Some(CloneSpec {
            hypervisor: template.hypervisor.clone(),
            vmid: template.vmid,
            full: false,
            storage: None,
        }),
        template_digest: template.digest.as_str().into(),
        ..spec()
    })
}

/// Without a template.
pub(super) fn spec() -> ClaimSpec {
    ClaimSpec {
        pool: "workers".into(),
        class: "standard".into(),
        cluster: CLUSTER.into(),
        vmid: Vmid(VMID),
        vm_name: CLAIM.into(),
        hypervisor: "pve2".into(),
        storage: None,
        clone: None,
        instance_type: "medium".into(),
        resources: ClaimResources {
            milli_cores: 4000,
            memory_bytes: 8 << 30,
            disk_bytes: Some(20 << 30),
        },
        address: None,
        machine: None,
        labels: [("rack".to_owned(), "a".to_owned())].into(),
        annotations: [(
            "example.com/made-by".to_owned(),
            "a label policy".to_owned(),
        )]
        .into(),
        taints: vec![],
        template_digest: "t".into(),
        policy_digest: "p".into(),
        policy: None,
        adopts: None,
        replaces: None,
    }
}

fn from_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl Host {
    /// How many clones could begin now, over all hypervisors, each on a storage of its own.
    pub(super) async fn free_clone_turns(&self) -> usize {
        let client = self.clusters.client(&CLUSTER.into()).unwrap();
        let mut taken = Vec::new();
        for hypervisor in ["pve1", "pve2", "pve3"] {
            loop {
                let slot = StorageSlot {
                    storage: format!("storage-{}", taken.len()),
                    hypervisor: None,
                };
                let turn = client.limits().clone_slot(slot, hypervisor);
                match timeout(Duration::from_millis(1), turn).await {
                    Ok(turn) => taken.push(turn),
                    Err(_) => break,
                }
            }
        }
        taken.len()
    }

    /// What the storages hold of numbers that rest.
    pub(super) async fn leftovers(&mut self) -> Vec<Leftover> {
        let deltas = self
            .clusters
            .refresh(Duration::ZERO, observe::wanted(&self.world), &self.clock)
            .await;
        let ledger = ledger::get(&self.kube).await.unwrap();
        for delta in deltas {
            self.world.apply(delta);
        }
        self.world.apply(Delta::Ledger(ledger.map(Box::new)));
        self.actor.look_for_leftovers(&self.world).await
    }

    pub(super) fn proxmox(&self) -> PveClient {
        self.clusters.client(&CLUSTER.into()).unwrap()
    }

    /// What is planned for so many pods, with this template in the class.
    pub(super) async fn plan(&mut self, template: &Value, pods: usize) -> Plan {
        let class = class_facts(&from_json(json!({
            "template": template,
            "instanceTypes": [{"name": "medium", "cores": 4, "memoryMiB": 8192, "diskGiB": 20}],
        })));
        assert_eq!(class.problem, None);
        let class = Delta::Class("standard".into(), Some(Box::new(class)));
        self.world.apply(class);
        let wanted = observe::wanted(&self.world);
        let seen = self.clusters.refresh(Duration::ZERO, wanted, &self.clock);
        for delta in seen.await {
            self.world.apply(delta);
        }
        let ledger = ledger::get(&self.kube).await.unwrap();
        self.world.apply(Delta::Ledger(ledger.map(Box::new)));
        let now = self.clock.now();
        for index in 0..pods {
            let pod = PodFacts {
                created: now,
                unschedulable_since: Some(now),
                ..fixtures::pending_pod(fixtures::spec("cpu=3"))
            };
            let key = PodKey::new("default", &format!("web-{index}"));
            self.world.apply(Delta::Pod(key, Some(Box::new(pod))));
        }
        fixtures::plan(&self.world, now, Limits::default(), fixtures::reasonable)
    }
}

impl Lab {
    pub(super) async fn new() -> Self {
        Self::with(Topology::of(3)).await
    }

    pub(super) async fn with(topology: Topology) -> Self {
        let clock = SimulatedClock::starting_at(epoch());
        let pve = Pve::new(topology, clock, 7);
        let kube = Kube::new(clock, 7);
        for crd in crds() {
            kube.create(
                "customresourcedefinitions.apiextensions.k8s.io",
                serde_json::to_value(crd).unwrap(),
            )
            .unwrap();
        }
        let machines = pve.machine_events();
        // What the tests look at does not pass through the process' own connection.
        let client = KubeClient::from_service(kube.service());
        ledger::get_or_create(&client).await.unwrap();
        sleep(Duration::from_secs(15)).await;
        Self {
            pve,
            kube,
            faults: Faults::new(7),
            machines,
            booting: Vec::new(),
            client,
            joins: true,
            refusal: Arc::default(),
            guest: None,
        }
    }

    /// A new process, with a leadership of its own.
    pub(super) async fn host(&self, number: u32) -> Host {
        self.faults.revive();
        let clock = Clock::Virtual {
            epoch: epoch(),
            started: self.pve.clock().start(),
        };
        let (pve, faults) = (self.pve.clone(), self.faults.clone());
        let clusters = Clusters::new(Arc::new(move |_, _| {
            let credentials: CredentialSource =
                Arc::new(|| Credentials::token("kproxide@pve!ci", "secret"));
            let service = faults.around(pve.service(), Dialect::Proxmox);
            let service = tower::ServiceExt::map_err(service, |broken| match broken {
                Broken::Refused => TransportError::Connect(broken.into()),
                Broken::Lost => TransportError::Broken(broken.into()),
            });
            let endpoint = Endpoint::new("simulated", service);
            Ok(PveClient::new(
                vec![endpoint],
                credentials,
                Concurrency::default(),
            ))
        }));
        let served = self
            .faults
            .around(self.kube.whole_requests(), Dialect::Kubernetes);
        let refusal = self.refusal.clone();
        let kube = KubeClient::from_service(Collecting(tower::service_fn(
            move |request: Request<Bytes>| {
                let refused =
                    refusal.lock().unwrap().clone().filter(|(matcher, ..)| {
                        matcher.covers(request.method(), request.uri().path())
                    });
                let served = served.clone();
                async move {
                    let Some((_, status, refusals)) = refused else {
                        return tower::ServiceExt::oneshot(served, request).await;
                    };
                    refusals.fetch_add(1, Ordering::SeqCst);
                    let mut response = Response::new(Bytes::from(status.to_string()).into());
                    let code = status["code"].as_u64().unwrap();
                    *response.status_mut() = u16::try_from(code).unwrap().try_into().unwrap();
                    Ok(response)
                }
            },
        )));
        let mut world = World::default();
        let script = self.guest.as_ref().map(Guest::script);
        configure(&mut world, &clusters, script);
        let (notes, told) = mpsc::channel(100);
        let drawn = AtomicU32::new(0);
        let leadership: Arc<str> = format!("epoch-{number}").into();
        let term = leadership.clone();
        let leads_in = Arc::new(Mutex::new(leadership));
        let fence = leads_in.clone();
        let actor = Actor::new(Context {
            kube: kube.clone(),
            clusters: clusters.clone(),
            clock,
            identity: Identity {
                cluster_id: "cluster-id".to_owned(),
                keys: vec![Key::new(vec![7; 32]).unwrap()],
            },
            fence: Fence::new(move || Some(fence.lock().unwrap().clone())),
            nonces: Arc::new(move || {
                format!("nonce{number}x{}", drawn.fetch_add(1, Ordering::Relaxed))
            }),
            rules: Rules::default(),
            notes,
            join_dir: self
                .guest
                .as_ref()
                .map_or_else(PathBuf::new, Guest::join_dir),
            metrics: Metrics::new(true).unwrap(),
        });
        Host {
            actor,
            term,
            leads_in,
            world,
            clusters,
            kube,
            clock,
            notes: told,
            launched: false,
        }
    }

    /// Boots what was started: a Node with the machine's UUID, fifteen seconds later.
    pub(super) fn physics(&mut self) {
        while let Ok(event) = self.machines.try_recv() {
            if let MachineEvent::Started {
                name, smbios_uuid, ..
            } = event
                && self.joins
            {
                let at = Instant::now() + Duration::from_secs(15);
                self.booting.push((at, name, smbios_uuid));
            }
        }
        if self.guest.as_ref().is_some_and(|guest| !guest.has_joined()) {
            return;
        }
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.booting)
            .into_iter()
            .partition(|(at, ..)| *at <= now);
        self.booting = later;
        let due: Vec<(Instant, String, String)> = due;
        for (_, name, uuid) in due {
            let node = json!({
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "spec": {"taints": [{"key": "kproxide.dev/unregistered", "effect": "NoExecute"}]},
                "status": {
                    "nodeInfo": node_info(&uuid.to_uppercase()),
                    "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "",
                        "lastTransitionTime": "2027-01-15T08:00:00Z", "lastHeartbeatTime": "2027-01-15T08:00:00Z"}],
                },
            });
            let created = self.kube.create("nodes", node.clone()).is_ok();
            if created {
                // A kubelet that is Ready at once: the taint that admission adds goes, as the node controller would see to.
                let ready = json!({"spec": {"taints": node["spec"]["taints"]}});
                self.kube.patch("nodes", "", "", &name, ready).unwrap();
            }
            let status = json!({"status": node["status"]});
            self.kube
                .patch("nodes", "status", "", &name, status)
                .unwrap();
        }
    }

    pub(super) async fn claim(&self) -> Option<claims::StoredClaim> {
        claims::get(&self.client, &CLAIM.into()).await.unwrap()
    }

    pub(super) async fn node(&self) -> Option<NodeFacts> {
        nodes::get(&self.client, &CLAIM.into()).await.unwrap()
    }

    pub(super) async fn entry(&self) -> Option<EntryState> {
        let ledger = ledger::get(&self.client).await.unwrap().unwrap();
        let mut entries = ledger.entries.iter();
        entries
            .find(|entry| entry.vmid == Vmid(VMID))
            .map(|entry| entry.state)
    }

    /// Requests of this method whose path ends so, which took effect or began to.
    pub(super) fn asked(&self, method: &str, end: &str) -> usize {
        let audit = self.pve.audit();
        audit
            .iter()
            .filter(|entry| entry.method == method && entry.path.ends_with(end))
            .count()
    }
}

/// Turns the loop every few seconds until the claim is as `until` says, or the process has crashed; false: it crashed.
pub(super) async fn turn(
    lab: &mut Lab,
    host: &mut Host,
    verdict: &Verdict,
    until: impl AsyncFn(&Lab) -> bool,
) -> bool {
    let faults = lab.faults.clone();
    for _ in 0..TURNS {
        lab.physics();
        if until(lab).await {
            return true;
        }
        let ended = tokio::select! {
            biased;
            () = faults.crashed() => return false,
            () = tick(host, &lab.client, verdict) => false,
        };
        assert!(!ended);
        let rest = sleep(Duration::from_secs(5));
        tokio::pin!(rest);
        loop {
            tokio::select! {
                biased;
                () = faults.crashed() => return false,
                () = &mut rest => break,
                () = host.actor.finished() => {
                    lab.physics();
                    tokio::select! {
                        biased;
                        () = faults.crashed() => return false,
                        () = tick(host, &lab.client, verdict) => {}
                    }
                }
            }
        }
    }
    panic!(
        "no end: {:#?}",
        lab.claim().await.map(|claim| claim.facts.status)
    );
}

/// What a plan reserves for a claim, as of now.
pub(super) fn reserved(claim: &str, spec: &ClaimSpec, host: &Host) -> LedgerEntry {
    let since = host.clock.now();
    LedgerEntry::of(&claim.into(), spec, EntryState::Reserved { since })
}

/// Observes, plans one launch if none was planned, and drives what there is.
pub(super) async fn tick(host: &mut Host, client: &KubeClient, verdict: &Verdict) {
    for delta in host
        .clusters
        .refresh(
            Duration::from_secs(5),
            observe::wanted(&host.world),
            &host.clock,
        )
        .await
    {
        host.world.apply(delta);
    }
    let found = claims::list(client).await.unwrap();
    let known: Vec<ClaimName> = host.world.claims().keys().cloned().collect();
    for name in known {
        if !found.iter().any(|claim| claim.name == name) {
            host.world.apply(Delta::Claim(name, None));
        }
    }
    for claim in &found {
        let facts = Some(Box::new(claim.facts.clone()));
        host.world.apply(Delta::Claim(claim.name.clone(), facts));
    }
    host.world.apply(Delta::Node(CLAIM.into(), None));
    for (name, node) in nodes::list(client).await.unwrap() {
        host.world.apply(Delta::Node(name, Some(Box::new(node))));
    }
    let stands = ledger::get(client).await.unwrap().unwrap();
    let mut plan = Plan::default();
    let promised = stands.entries.iter().all(LedgerEntry::counts);
    if !host.launched
        && found.is_empty()
        && promised
        && let Some(spec) = planned(&host.world)
    {
        let mut wanted = stands.clone();
        wanted.entries.push(reserved(CLAIM, &spec, host));
        // A process that died between the reservation and the claim left it standing.
        plan.ledger = stands.entries.is_empty().then_some(wanted);
        plan.launches.push(Launch {
            claim: CLAIM.into(),
            spec,
            reason: "a test".to_owned(),
            for_pods: false,
        });
        host.launched = true;
    }
    let advances = found.iter().map(|claim| Advance {
        claim: claim.name.clone(),
        uid: claim.facts.uid.clone(),
        verdict: verdict.clone(),
    });
    plan.advances = advances.collect();
    host.actor.start(&plan, &host.world, &host.term).await;
}

fn configure(world: &mut World, clusters: &Clusters, script: Option<PathBuf>) {
    let (cluster, connection) = cluster_facts(&from_json(json!({
        "endpoints": ["https://pve1:8006"], "credentials": "home", "pool": "k8s",
        "vmidRange": {"first": 200, "last": 299},
    })));
    assert_eq!(cluster.problem, None);
    let name = ClusterName::from(CLUSTER);
    clusters.configure(&name, connection);
    world.apply(Delta::Cluster(name, Some(Box::new(cluster))));

    let class = class_facts(&from_json(json!({
        "template": {"name": "k8s-node", "placement": "local"},
        "instanceTypes": [{"name": "medium", "cores": 4, "memoryMiB": 8192, "diskGiB": 20}],
        "cloudInit": {"dhcp": true, "user": "ops"},
        "tags": ["kproxide"],
        "join": match script {
            Some(script) => json!({"guestExec": {"commandSecretFile": script}}),
            None => json!({"template": {}}),
        },
    })));
    assert_eq!(class.problem, None);
    let name = ClassName::from("standard");
    world.apply(Delta::Class(name, Some(Box::new(class))));

    let pool = pool_facts(
        &ObjectMeta::default(),
        &from_json(json!({"nodeClass": "standard"})),
    );
    assert_eq!(pool.problem, None);
    world.apply(Delta::Pool("workers".into(), Some(Box::new(pool))));
    world.apply(Delta::Host(HostFacts {
        cluster_id: "cluster-id".to_owned(),
        own_node: None,
        armed_at: Some(epoch() - SignedDuration::from_secs(1)),
        dry_run: false,
        key_known: true,
        ..HostFacts::default()
    }));
}

pub(super) fn node_info(uuid: &str) -> Value {
    let mut info = json!({"systemUUID": uuid});
    for field in [
        "machineID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ] {
        info[field] = json!("test");
    }
    info
}
