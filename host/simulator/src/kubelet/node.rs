//! One kubelet: from power-on to the loop of leases, reports and pods.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use super::{
    NodeFault, NodeSpec, Pace, RUN_SECONDS,
    api::{Api, CallError},
    complaints::Complaints,
    pods::{self, PodEvent},
};
use crate::{
    clock::Clock,
    kube::object::{condition_is_true, items, meta_str, micro_time, time},
    rng::Seed,
};

/// A failed write is tried again so much later.
const RETRY: Duration = Duration::from_secs(2);

const MIRROR: &str = "kubernetes.io/config.mirror";

pub(crate) struct NodeTask {
    api: Api,
    pub(super) clock: Clock,
    pace: Pace,
    seed: Seed,
    pub(super) spec: NodeSpec,
    pub(super) ready: bool,
    pub(super) ready_since: String,
    pods: BTreeMap<(String, String), Pod>,
    lease_at: Instant,
    /// As it was last answered: as real kubelets do, it is written on without being read again.
    lease: Option<Value>,
    status_at: Instant,
    fault_at: Option<Instant>,
    /// When its devices show.
    devices_at: Option<Instant>,
    pub(super) shows_devices: bool,
    complaints: Complaints,
}

/// A pod as its kubelet sees it.
struct Pod {
    uid: String,
    version: u64,
    containers: Vec<String>,
    run_seconds: Option<f64>,
    mirror: bool,
    /// What comes next, and when.
    next: Option<(Instant, Step)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Run,
    Finish,
    Remove,
}

impl NodeTask {
    pub(crate) fn new(api: Api, clock: Clock, pace: Pace, seed: Seed, spec: NodeSpec) -> Self {
        let now = Instant::now();
        Self {
            api,
            clock,
            pace,
            seed,
            shows_devices: spec.devices_after.is_zero(),
            spec,
            ready: false,
            ready_since: String::new(),
            pods: BTreeMap::new(),
            lease_at: now,
            lease: None,
            status_at: now,
            fault_at: None,
            devices_at: None,
            complaints: Complaints::default(),
        }
    }

    pub(crate) async fn run(mut self, mut events: mpsc::UnboundedReceiver<PodEvent>) {
        sleep(self.spec.joins_after).await;
        self.ready_since = time(self.clock.now());
        while let Err(error) = self.register().await {
            self.complain("the Node could not be registered", &error);
            sleep(RETRY).await;
        }
        self.renew_lease().await;
        self.create_static_pods().await;
        self.adopt_pods().await;
        let ready_at = Instant::now() + self.spec.ready_after;
        self.status_at = ready_at;
        loop {
            let wake_at = self.next_wake();
            tokio::select! {
                biased;
                event = events.recv() => match event {
                    Some(event) => self.note(event).await,
                    None => return,
                },
                () = sleep_until(wake_at) => {
                    if self.fails().await {
                        // Silence: the machine still runs, but nobody hears of it until it is switched off.
                        return std::future::pending().await;
                    }
                    if !self.ready && self.fault_at.is_none() && Instant::now() >= ready_at {
                        self.become_ready(true);
                        self.devices_at = Some(Instant::now() + self.spec.devices_after);
                        self.fault_at = self.spec.fault.map(|fault| match fault {
                            NodeFault::SilentAfter(delay) | NodeFault::NotReadyAfter(delay) => Instant::now() + delay,
                        });
                    }
                    if self.devices_at.is_some_and(|at| Instant::now() >= at) {
                        self.devices_at = None;
                        self.shows_devices = true;
                        self.status_at = Instant::now();
                    }
                    self.work().await;
                }
            }
        }
    }

    fn next_wake(&self) -> Instant {
        let pods = self.pods.values().filter_map(|pod| Some(pod.next?.0));
        let own = [
            Some(self.lease_at),
            Some(self.status_at),
            self.fault_at,
            self.devices_at,
        ];
        pods.chain(own.into_iter().flatten())
            .min()
            .unwrap_or(self.lease_at)
    }

    fn become_ready(&mut self, ready: bool) {
        self.ready = ready;
        self.ready_since = time(self.clock.now());
        self.status_at = Instant::now();
    }

    /// Lets the configured fault happen when its time has come; true for silence.
    async fn fails(&mut self) -> bool {
        if self.fault_at.is_none_or(|at| Instant::now() < at) {
            return false;
        }
        match self.spec.fault {
            Some(NodeFault::SilentAfter(_)) => true,
            Some(NodeFault::NotReadyAfter(_)) => {
                self.spec.fault = None;
                // Far enough to be never, so that the node does not become ready again.
                self.fault_at = Some(Instant::now() + Duration::from_secs(3_600 * 24 * 365));
                self.become_ready(false);
                false
            }
            None => false,
        }
    }

    /// Everything whose time has come.
    async fn work(&mut self) {
        let now = Instant::now();
        if self.lease_at <= now {
            self.renew_lease().await;
        }
        if self.status_at <= now {
            self.report().await;
        }
        let due: Vec<(String, String)> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.next.is_some_and(|(at, _)| at <= now))
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            self.step(&key).await;
        }
    }

    async fn register(&self) -> Result<(), CallError> {
        let NodeSpec {
            name,
            labels,
            taints,
            provider_id,
            ..
        } = &self.spec;
        let mut all_labels = json!({
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
        });
        for (key, value) in labels {
            all_labels[key] = json!(value);
        }
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": all_labels},
            "spec": {},
            "status": self.status(),
        });
        if !taints.is_empty() {
            node["spec"]["taints"] = json!(taints);
        }
        if let Some(provider_id) = provider_id {
            node["spec"]["providerID"] = json!(provider_id);
        }
        match self.api.post("/api/v1/nodes", &node).await {
            // A machine that comes back finds its Node and reports anew; taints are set at creation only.
            Err(error) if error.is(409) => {
                let labels = json!({"metadata": {"labels": all_labels}});
                self.api
                    .patch(&format!("/api/v1/nodes/{name}"), &labels)
                    .await?;
                let status = json!({"status": self.status()});
                self.api
                    .patch(&format!("/api/v1/nodes/{name}/status"), &status)
                    .await?;
                Ok(())
            }
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    async fn report(&mut self) {
        self.status_at = Instant::now() + self.pace.status_interval;
        let path = format!("/api/v1/nodes/{}/status", self.spec.name);
        let mut patch = json!({"status": {"conditions": self.conditions()}});
        // What device plugins have registered since.
        if self.shows_devices && !self.spec.extended_resources.is_empty() {
            let status = self.status();
            for field in ["capacity", "allocatable"] {
                patch["status"][field] = status[field].clone();
            }
        }
        match self.api.patch(&path, &patch).await {
            // As a real kubelet, this one registers once: a Node that somebody deleted does not come back.
            Err(error) if error.is(404) => {}
            Err(error) => {
                self.complain("the status could not be reported", &error);
                self.status_at = Instant::now() + RETRY;
            }
            Ok(_) => {}
        }
    }

    async fn renew_lease(&mut self) {
        self.lease_at = Instant::now() + self.pace.lease_interval;
        if let Err(error) = self.try_renew_lease().await {
            self.lease = None;
            // Somebody deleted the Node, which is no failure of this machine's.
            if !error.is(404) {
                self.complain("the Lease could not be renewed", &error);
            }
            self.lease_at = Instant::now() + RETRY.min(self.pace.lease_interval);
        }
    }

    async fn try_renew_lease(&mut self) -> Result<(), CallError> {
        let name = &self.spec.name;
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let now = micro_time(self.clock.now());
        let path = format!("{leases}/{name}");
        if let Some(mut lease) = self.lease.take() {
            lease["spec"]["renewTime"] = json!(now);
            match self.api.replace(&path, &mut lease).await {
                Ok(()) => {
                    self.lease = Some(lease);
                    return Ok(());
                }
                // Somebody has written or deleted it.
                Err(error) if error.is(409) || error.is(404) => {}
                Err(error) => return Err(error),
            }
        }
        match self.api.get(&path).await {
            Ok(mut lease) => {
                lease["spec"]["renewTime"] = json!(now);
                lease["spec"]["holderIdentity"] = json!(name);
                self.api.replace(&path, &mut lease).await?;
                self.lease = Some(lease);
            }
            Err(error) if error.is(404) => {
                // The Lease goes with its Node.
                let node = self.api.get(&format!("/api/v1/nodes/{name}")).await?;
                let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]});
                let lease = json!({
                    "metadata": {"name": name, "namespace": "kube-node-lease", "ownerReferences": [owner]},
                    "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
                });
                self.api.post(leases, &lease).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn create_static_pods(&self) {
        for manifest in &self.spec.static_pods {
            if let Err(error) = self.create_mirror(manifest).await
                && !error.is(409)
            {
                self.complain("a mirror pod could not be created", &error);
            }
        }
    }

    async fn create_mirror(&self, manifest: &Value) -> Result<(), CallError> {
        let name = &self.spec.name;
        let node = self.api.get(&format!("/api/v1/nodes/{name}")).await?;
        let namespace = match meta_str(manifest, "namespace") {
            "" => "kube-system",
            namespace => namespace,
        };
        let mut pod = manifest.clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["namespace"] = json!(namespace);
        pod["metadata"]["name"] = json!(format!("{}-{name}", meta_str(manifest, "name")));
        pod["metadata"]["annotations"][MIRROR] = json!("static");
        pod["metadata"]["annotations"]["kubernetes.io/config.source"] = json!("file");
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"], "controller": true,
        }]);
        pod["spec"]["nodeName"] = json!(name);
        pod["spec"]["tolerations"] = json!([{"operator": "Exists", "effect": "NoExecute"}]);
        self.api
            .post(&format!("/api/v1/namespaces/{namespace}/pods"), &pod)
            .await?;
        Ok(())
    }

    /// Takes over the pods that were bound before this kubelet listened.
    async fn adopt_pods(&mut self) {
        let (sender, mut bound) = mpsc::unbounded_channel();
        let selector = format!("spec.nodeName%3D{}", self.spec.name);
        if let Err(error) = pods::list(&self.api, &selector, &sender).await {
            self.complain("the bound pods could not be listed", &error);
        }
        drop(sender);
        while let Some(event) = bound.recv().await {
            self.note(event).await;
        }
    }

    async fn note(&mut self, event: PodEvent) {
        match event {
            PodEvent::Present(pod) => self.note_present(&pod),
            PodEvent::Gone(pod) => {
                let key = key_of(&pod);
                let uid = meta_str(&pod, "uid");
                let ended = self.pods.get(&key).is_some_and(|known| known.uid == uid);
                let known = if ended { self.pods.remove(&key) } else { None };
                if known.is_some_and(|known| known.mirror) {
                    // What is on the kubelet's disk cannot be deleted through the API.
                    self.create_static_pods().await;
                }
            }
        }
    }

    fn note_present(&mut self, pod: &Value) {
        let key = key_of(pod);
        let uid = meta_str(pod, "uid");
        let version: u64 = meta_str(pod, "resourceVersion").parse().unwrap_or(0);
        let known = self.pods.get(&key).filter(|known| known.uid == uid);
        if known.is_some_and(|known| known.version >= version) {
            return;
        }
        let annotation = |name: &str| pod["metadata"]["annotations"][name].as_str();
        let planned = known.and_then(|known| known.next);
        let finish_planned = planned.filter(|(_, step)| *step == Step::Finish);
        let mut noted = Pod {
            uid: uid.to_owned(),
            version,
            containers: items(&pod["spec"], "containers")
                .iter()
                .filter_map(|container| Some(container["name"].as_str()?.to_owned()))
                .collect(),
            run_seconds: annotation(RUN_SECONDS).and_then(|seconds| seconds.parse().ok()),
            mirror: annotation(MIRROR).is_some(),
            next: None,
        };
        let terminating = pod["metadata"]["deletionTimestamp"].is_string();
        let is_removed = |(_, step): &(Instant, Step)| *step == Step::Remove;
        noted.next = match pod["status"]["phase"].as_str() {
            _ if terminating => match planned {
                Some(planned) if is_removed(&planned) => Some(planned),
                Some(_) | None => {
                    let grace = pod["metadata"]["deletionGracePeriodSeconds"]
                        .as_u64()
                        .unwrap_or(30);
                    let stop = self.draw(self.pace.pod_stop, "pod-stop", uid);
                    Some((
                        Instant::now() + stop.min(Duration::from_secs(grace)),
                        Step::Remove,
                    ))
                }
            },
            // Its Node was taken for dead meanwhile, or was off: its containers run again, and it says so.
            Some("Running") if !condition_is_true(pod, "Ready") => planned.or_else(|| {
                let start = self.draw(self.pace.pod_start, "pod-start-again", uid);
                Some((Instant::now() + start, Step::Run))
            }),
            Some("Running") => finish_planned.or_else(|| noted.finish_after()),
            Some("Succeeded" | "Failed") => None,
            Some(_) | None => planned.or_else(|| {
                let start = self.draw(self.pace.pod_start, "pod-start", uid);
                Some((Instant::now() + start, Step::Run))
            }),
        };
        self.pods.insert(key, noted);
    }

    fn draw(&self, spread: crate::rng::Spread, kind: &str, id: &str) -> Duration {
        spread.sample(&mut self.seed.stream(kind, id))
    }

    async fn step(&mut self, key: &(String, String)) {
        let Some(pod) = self.pods.get_mut(key) else {
            return;
        };
        let Some((_, step)) = pod.next.take() else {
            return;
        };
        let (namespace, name) = key;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let (uid, containers) = (pod.uid.clone(), pod.containers.clone());
        let outcome = match step {
            Step::Run => {
                let patch =
                    json!({"metadata": {"uid": uid}, "status": self.running(&uid, &containers)});
                self.api.patch(&format!("{path}/status"), &patch).await
            }
            Step::Finish => {
                let patch = json!({"metadata": {"uid": uid}, "status": self.finished(&containers)});
                self.api.patch(&format!("{path}/status"), &patch).await
            }
            Step::Remove => {
                let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
                self.api.delete(&path, &options).await
            }
        };
        match outcome {
            Ok(_) => {}
            // The pod is gone, or another one has its name: the watch says so too.
            Err(error) if error.is(404) || error.is(409) => {
                self.pods.remove(key);
            }
            Err(error) => {
                self.complain("a pod's status could not be written", &error);
                if let Some(pod) = self.pods.get_mut(key) {
                    pod.next = Some((Instant::now() + RETRY, step));
                }
            }
        }
    }

    fn complain(&self, what: &'static str, error: &CallError) {
        self.complaints.say(Some(&self.spec.name), what, error);
    }
}

impl Pod {
    fn finish_after(&self) -> Option<(Instant, Step)> {
        let seconds = Duration::try_from_secs_f64(self.run_seconds?).ok()?;
        Some((Instant::now() + seconds, Step::Finish))
    }
}

fn key_of(pod: &Value) -> (String, String) {
    (
        meta_str(pod, "namespace").to_owned(),
        meta_str(pod, "name").to_owned(),
    )
}
