//! One case's world: simulated hypervisors, kproxide installed and running, and the questions that cases ask.

use std::collections::BTreeMap;
use std::time::Duration;

use kproxide_simulator::kube::fixtures;
use kproxide_simulator::kubelet::{NodeSpec, Pace};
use kproxide_simulator::physics::Guests;
use kproxide_simulator::pve::{Birth, Topology, VmView};
use kproxide_simulator::remote;
use kproxide_simulator::serve::{Cluster, Served, Setting};
use kproxide_testkit::controlplane::{Api, condition};
use kproxide_testkit::{ControlPlane, PodLauncher, RunningPod, eventually};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::front::Front;
use crate::install::{install, merge, values};

pub(crate) const NAMESPACE: &str = "kproxide";
pub(crate) const RELEASE: &str = "kproxide";
pub(crate) const CLAIMS: &str = "/apis/kproxide.dev/v1alpha1/nodeclaims";
pub(crate) const POOL: &str = "/apis/kproxide.dev/v1alpha1/nodepools/default";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const SELECTOR: &str = "app.kubernetes.io/name=kproxide";
const FIRST_ADDRESS: &str = "127.0.0.1";
const SECOND_ADDRESS: &str = "127.0.0.2";
const EVENTS: &str = "/api/v1/namespaces/default/events";

/// For what takes seconds on an idle computer.
pub(crate) const SOON: Duration = Duration::from_secs(180);

/// The machines of all cases: 4 cores and 8 GiB, of which the kubelet keeps 512 MiB.
pub(crate) const CORES: u64 = 4;
pub(crate) const MEMORY_MIB: u64 = 8_192;
pub(crate) const OVERHEAD_MIB: u64 = 512;
/// The chart's default range.
const FIRST_VMID: u32 = 20_000;

/// What a case wants otherwise.
pub(crate) struct Scene {
    pub(crate) topology: Topology,
    pub(crate) guests: Guests,
    /// Merged into the chart's values.
    pub(crate) values: Value,
    /// Whether kproxide reaches the API server through a [`Front`].
    pub(crate) fronted: bool,
}

impl Default for Scene {
    /// Three equal hypervisors where nothing takes time.
    fn default() -> Self {
        Self {
            topology: Topology::of(3).instant(),
            guests: Guests {
                reserved_memory_mib: OVERHEAD_MIB,
                ..Guests::instant()
            },
            values: json!({}),
            fronted: false,
        }
    }
}

impl Scene {
    pub(crate) fn with(values: Value) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }
}

/// One of the processes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Replica {
    First,
    Second,
}

/// What is on the hypervisors that kproxide did not make.
pub(crate) struct Foreign {
    before: BTreeMap<u32, String>,
}

pub(crate) struct Stage<'a> {
    pub(crate) cluster: &'a ControlPlane,
    pub(crate) served: Served,
    pub(crate) pod: RunningPod,
    pub(crate) front: Option<Front>,
    admin_port: u64,
    launcher: PodLauncher,
}

impl<'a> Stage<'a> {
    /// Serves the hypervisors, installs the chart and waits until kproxide is ready.
    pub(crate) async fn set(bench: &'a Bench, scene: Scene) -> Self {
        let cluster = &bench.cluster;
        let served = Served::start(Setting {
            seed: 1,
            now: now(),
            topology: scene.topology,
            guests: scene.guests,
            pace: Pace {
                // A share of the control plane's patience, however busy the computer is.
                lease_interval: Duration::from_secs(3),
                ..Pace::INSTANT
            },
            pve_port: 0,
            cluster: Cluster::Real(remote::connect(cluster.admin_kubeconfig_path()).unwrap()),
        })
        .await
        .unwrap();
        let mut values = values(&served);
        merge(&mut values, scene.values);
        let admin_port = values["admin"]["port"].as_u64().unwrap();
        install(cluster, &values).await;
        let mut launcher = PodLauncher::new(cluster, &bench.binary);
        let mut front = None;
        if scene.fronted {
            let between = front.insert(Front::before(cluster).await);
            launcher = launcher.through(&between.url(), between.ca_pem());
        }
        let mut pod = launcher.launch(NAMESPACE, SELECTOR).await.unwrap();
        pod.ready(SOON).await.unwrap();
        Self {
            cluster,
            served,
            pod,
            front,
            admin_port,
            launcher,
        }
    }

    /// A second replica, on an address of its own. It is ready, and the first one leads.
    pub(crate) async fn second_replica(&self) -> RunningPod {
        let deployment = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}");
        let two = json!({ "spec": { "replicas": 2 } });
        self.api().merge(&deployment, &two).await.unwrap();
        let launcher = self.launcher.clone().address(SECOND_ADDRESS);
        let mut pod = launcher.launch(NAMESPACE, SELECTOR).await.unwrap();
        pod.ready(SOON).await.unwrap();
        pod
    }

    pub(crate) fn api(&self) -> &Api {
        self.cluster.api()
    }

    /// A Deployment in `default`, with `template` merged into its pods' spec.
    pub(crate) async fn deploy(
        &self,
        name: &str,
        replicas: u32,
        cpu: &str,
        memory: &str,
        spec: Value,
    ) {
        let mut deployment = fixtures::deployment("default", name, replicas, cpu, memory);
        let pods = &mut deployment["spec"]["template"]["spec"];
        // Nobody waits for a container that there is not.
        pods["terminationGracePeriodSeconds"] = json!(1);
        merge(pods, spec);
        self.api().create(DEPLOYMENTS, &deployment).await.unwrap();
    }

    pub(crate) async fn scale(&self, name: &str, replicas: u32) {
        let patch = json!({ "spec": { "replicas": replicas } });
        let path = format!("{DEPLOYMENTS}/{name}");
        self.api().merge(&path, &patch).await.unwrap();
    }

    pub(crate) async fn budget(&self, app: &str, min_available: u32) {
        let budget = fixtures::disruption_budget("default", app, json!(min_available));
        self.api().create(BUDGETS, &budget).await.unwrap();
    }

    /// The pods of an app that run and are Ready.
    pub(crate) async fn ready_pods(&self, app: &str) -> Vec<Value> {
        let path = format!("{PODS}?labelSelector=app%3D{app}");
        let mut pods = self.api().list(&path).await.unwrap();
        pods.retain(|pod| {
            pod["metadata"]["deletionTimestamp"].is_null()
                && condition(pod, "Ready") == Some("True")
        });
        pods
    }

    pub(crate) async fn until_running(&self, app: &str, count: usize) {
        eventually(
            SOON,
            &format!("{count} pods of {app} running"),
            async || {
                let ready = self.ready_pods(app).await.len();
                if ready == count {
                    Ok(())
                } else {
                    Err(format!("{ready} run; {}", self.describe().await))
                }
            },
        )
        .await;
    }

    /// So many pods of an app are there, and the scheduler has found no place for any of them.
    pub(crate) async fn until_unschedulable(&self, app: &str, count: usize) {
        let path = format!("{PODS}?labelSelector=app%3D{app}");
        eventually(
            SOON,
            &format!("{count} pods of {app} without a place"),
            async || {
                let mut pods = self.api().list(&path).await.unwrap();
                pods.retain(|pod| condition(pod, "PodScheduled") == Some("False"));
                if pods.len() == count {
                    Ok(())
                } else {
                    Err(format!("{} pods", pods.len()))
                }
            },
        )
        .await;
    }

    /// Every VM has its claim and every claim its VM and its Node, and nothing else is there of any of them.
    pub(crate) async fn until_in_step(&self, count: usize) {
        eventually(
            SOON,
            &format!("{count} VMs, and their claims and Nodes"),
            async || {
                let mut vms: Vec<_> = self.machines().into_iter().map(|vm| vm.name).collect();
                let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
                let mut nodes: Vec<_> = self.nodes().await.iter().map(name).collect();
                let claims = self.claims().await;
                let settled = claims
                    .iter()
                    .all(|claim| claim["status"]["phase"] == "Initialized");
                let mut claims: Vec<_> = claims
                    .iter()
                    .map(|claim| claim["spec"]["vmName"].as_str().unwrap().to_owned())
                    .collect();
                for names in [&mut vms, &mut nodes, &mut claims] {
                    names.sort();
                }
                if settled && vms.len() == count && vms == nodes && vms == claims {
                    Ok(())
                } else {
                    Err(self.describe().await)
                }
            },
        )
        .await;
    }

    /// A person's machine in the middle of our range, in our pool, made from our template.
    pub(crate) fn put_up_a_foreign_vm(&self) -> Foreign {
        let vms = self.served.pve.snapshot().vms;
        let template = vms.iter().find(|vm| vm.template).unwrap();
        self.put_up_a_copy(template, "somebody-elses")
    }

    /// A person's copy of a machine of ours: name, tags and description, and with it the marker, are the original's.
    pub(crate) fn put_up_a_copy_of_ours(&self) -> Foreign {
        let ours = self.machines().remove(0);
        self.put_up_a_copy(&ours, &ours.name)
    }

    fn put_up_a_copy(&self, source: &VmView, name: &str) -> Foreign {
        let (pve, vmid) = (&self.served.pve, FIRST_VMID + 500);
        pve.human_clones_vm(source.vmid, vmid, name).unwrap();
        pve.human_sets_pool(vmid, Some("k8s")).unwrap();
        Foreign {
            before: self.foreign_vms(),
        }
    }

    /// Whatever kproxide has not made is as it was, and was not even asked for.
    pub(crate) fn assert_untouched(&self, foreign: &Foreign) {
        assert_eq!(self.foreign_vms(), foreign.before);
        for vmid in foreign.before.keys() {
            let path = format!("/qemu/{vmid}");
            for entry in self.served.pve.audit() {
                let of_it = entry.path.ends_with(&path) || entry.path.contains(&format!("{path}/"));
                assert!(!of_it || entry.path.ends_with("/clone"), "{entry:?}");
            }
        }
    }

    fn foreign_vms(&self) -> BTreeMap<u32, String> {
        let vms = self.served.pve.snapshot().vms.into_iter();
        vms.filter(|vm| !vm.creator.starts_with("kproxide@pve"))
            .map(|vm| {
                (
                    vm.vmid,
                    format!("{} {:?} {}", vm.name, vm.config, vm.running),
                )
            })
            .collect()
    }

    /// Everything of ours is gone, here and there.
    pub(crate) async fn until_nothing_is_left(&self) {
        eventually(SOON, "no claim, Node, VM and disk left", async || {
            let claims = self.claims().await.len();
            let nodes = self.nodes().await.len();
            let volumes = self.volumes();
            if claims + nodes + self.machines().len() + volumes.len() == 0 {
                Ok(())
            } else {
                Err(format!("{}; disks {volumes:?}", self.describe().await))
            }
        })
        .await;
    }

    /// So many machines are there, and a claim for each.
    pub(crate) async fn until_machines(&self, count: usize) {
        eventually(SOON, &format!("{count} machines"), async || {
            let settled = self.machines().len() == count && self.claims().await.len() == count;
            if settled {
                Ok(())
            } else {
                Err(self.describe().await)
            }
        })
        .await;
    }

    /// So many Nodes carry their claim's label. Pods may run on a Node before it does.
    pub(crate) async fn until_nodes(&self, count: usize) {
        eventually(SOON, &format!("{count} Nodes of ours"), async || {
            if self.nodes().await.len() == count {
                Ok(())
            } else {
                Err(self.describe().await)
            }
        })
        .await;
    }

    pub(crate) async fn claims(&self) -> Vec<Value> {
        self.api().list(CLAIMS).await.unwrap()
    }

    /// The Nodes that kproxide made.
    pub(crate) async fn nodes(&self) -> Vec<Value> {
        let path = "/api/v1/nodes?labelSelector=kproxide.dev%2Fclaim";
        self.api().list(path).await.unwrap()
    }

    /// The VMs that kproxide made for Nodes and that are there.
    pub(crate) fn machines(&self) -> Vec<VmView> {
        let mut vms = self.of_kproxide();
        vms.retain(|vm| !is_anchor(&vm.name));
        vms
    }

    /// The VM by which kproxide tells this cluster from a copy of it, once there is one.
    pub(crate) fn anchors(&self) -> Vec<VmView> {
        let mut vms = self.of_kproxide();
        vms.retain(|vm| is_anchor(&vm.name));
        vms
    }

    fn of_kproxide(&self) -> Vec<VmView> {
        let mut vms = self.served.pve.snapshot().vms;
        vms.retain(|vm| vm.vmid >= FIRST_VMID && vm.creator.starts_with("kproxide@pve"));
        vms
    }

    fn volumes(&self) -> Vec<String> {
        let foreign = self.foreign_vms();
        let volumes = self.served.pve.snapshot().volumes;
        let ours = volumes
            .into_iter()
            .filter(|volume| volume.vmid >= FIRST_VMID && !foreign.contains_key(&volume.vmid));
        ours.map(|volume| volume.volid).collect()
    }

    /// The machines that kproxide has ever made, in that order.
    pub(crate) fn births(&self) -> Vec<Birth> {
        let mut births = self.served.pve.snapshot().births;
        births.retain(|birth| {
            let ours = birth.creator.starts_with("kproxide@pve");
            ours && !birth.bare && birth.vmid >= FIRST_VMID
        });
        births
    }

    /// How many machines kproxide has ever made.
    pub(crate) fn born(&self) -> usize {
        self.births().len()
    }

    /// Machines per hypervisor.
    pub(crate) fn placed(&self) -> BTreeMap<String, usize> {
        let mut placed = BTreeMap::new();
        for vm in self.machines() {
            *placed.entry(vm.hypervisor).or_default() += 1;
        }
        placed
    }

    /// Reasons and messages of the Events about an object in `default` whose name begins so, or about a cluster-scoped
    /// object.
    pub(crate) async fn events(&self, name: &str) -> Vec<(String, String)> {
        let events = self.api().list(EVENTS).await.unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events
            .iter()
            .filter(|event| text(&event["involvedObject"]["name"]).starts_with(name))
            .map(|event| (text(&event["reason"]), text(&event["message"])))
            .collect()
    }

    /// Waits for an Event with a reason and a part of its message.
    pub(crate) async fn until_event(&self, name: &str, reason: &str, part: &str) {
        let what = format!("an Event {reason} about {name} that says {part:?}");
        eventually(SOON, &what, async || {
            let events = self.events(name).await;
            let found = events
                .iter()
                .any(|(of, message)| of == reason && message.contains(part));
            if found {
                Ok(())
            } else {
                Err(format!("{events:?}"))
            }
        })
        .await;
    }

    /// Waits until the last plan keeps the only managed Node, for a reason with this part.
    pub(crate) async fn until_kept(&self, part: &str) {
        eventually(
            SOON,
            &format!("the Node kept because: {part}"),
            async || {
                let nodes = &self.debug_plan().await?["plan"]["report"]["nodes"];
                let kept = nodes[0]["outcome"]["Kept"].as_str().unwrap_or_default();
                if kept.contains(part) {
                    Ok(())
                } else {
                    Err(nodes.to_string())
                }
            },
        )
        .await;
    }

    /// Waits until kproxide's last inventory shows none of its machines, and so much used memory on each hypervisor as if there had been none.
    pub(crate) async fn until_inventory_as_at_first(&self, used: &BTreeMap<String, u64>) {
        eventually(SOON, "an inventory without machines", async || {
            let inventory = &self.debug_plan().await?["world"]["inventories"]["lab"];
            let guests = inventory["guests"].as_object().ok_or("no inventory")?;
            let ours = |(vmid, guest): (&String, &Value)| {
                let machine = !is_anchor(guest["name"].as_str().unwrap_or_default());
                machine && vmid.parse::<u32>().is_ok_and(|vmid| vmid >= FIRST_VMID)
            };
            let measured = &inventory["hypervisors"];
            let settled = used
                .iter()
                .all(|(name, bytes)| measured[name]["memory_used_bytes"] == *bytes);
            if guests.iter().any(ours) || !settled {
                Err(format!("{} {measured}", inventory["guests"]))
            } else {
                Ok(())
            }
        })
        .await;
    }

    /// kproxide's world and its last plan.
    async fn debug_plan(&self) -> Result<Value, String> {
        let text = self.admin(FIRST_ADDRESS, "/debug/plan").await?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    /// What a replica has counted, labels and all; 0 where there is nothing of that name.
    pub(crate) async fn metric(&self, replica: Replica, name: &str) -> Result<f64, String> {
        let address = match replica {
            Replica::First => FIRST_ADDRESS,
            Replica::Second => SECOND_ADDRESS,
        };
        let text = self.admin(address, "/metrics").await?;
        let values = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            // Not of a longer name.
            rest.starts_with(['{', ' ']).then_some(())?;
            rest.rsplit(' ').next()?.parse::<f64>().ok()
        });
        Ok(values.sum())
    }

    /// Waits until the pool says that no machine can be made, for a reason with this part.
    pub(crate) async fn until_pool_unusable(&self, part: &str) {
        eventually(SOON, &format!("a pool that says {part:?}"), async || {
            let pool = self.api().get(POOL).await.unwrap();
            let conditions = pool["status"]["conditions"].as_array();
            let says = conditions.into_iter().flatten().any(|condition| {
                condition["status"] == "False"
                    && condition["message"]
                        .as_str()
                        .is_some_and(|message| message.contains(part))
            });
            if says {
                Ok(())
            } else {
                Err(pool["status"].to_string())
            }
        })
        .await;
    }

    /// Waits until kproxide has planned so many more times: enough for whatever it is going to do.
    pub(crate) async fn until_more_ticks(&self, count: u32) {
        let ticks = async || self.metric(Replica::First, "kproxide_ticks_total").await;
        let before = eventually(SOON, "the number of ticks", ticks).await;
        eventually(SOON, &format!("{count} more ticks"), async || {
            let now = ticks().await?;
            if now >= before + f64::from(count) {
                Ok(())
            } else {
                Err(format!("{}", now - before))
            }
        })
        .await;
    }

    async fn admin(&self, address: &str, path: &str) -> Result<String, String> {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client
            .get(format!("http://{address}:{}{path}", self.admin_port))
            .send()
            .await
            .map_err(|error| error.to_string())?;
        answer.text().await.map_err(|error| error.to_string())
    }

    /// A machine that is in the cluster without kproxide, once pods can run on it.
    pub(crate) async fn join_static_node(&self, name: &str) {
        let spec = NodeSpec {
            reserved_memory_mib: OVERHEAD_MIB,
            ..NodeSpec::new(
                name,
                "00000000-0000-4000-8000-000000000001",
                CORES * 1_000,
                MEMORY_MIB,
            )
        };
        self.served.kubelets.start_node(spec);
        let path = format!("/api/v1/nodes/{name}");
        eventually(SOON, &format!("Node {name} open for pods"), async || {
            let node = self.api().find(&path).await.unwrap().unwrap_or_default();
            let taints = node["spec"]["taints"].as_array().map_or(0, Vec::len);
            if condition(&node, "Ready") == Some("True") && taints == 0 {
                Ok(())
            } else {
                Err(format!("{} {}", node["spec"], node["status"]["conditions"]))
            }
        })
        .await;
    }

    /// The state in a line, for failed waits.
    pub(crate) async fn describe(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let claims: Vec<_> = self
            .claims()
            .await
            .iter()
            .map(|claim| {
                format!(
                    "{}:{}",
                    text(&claim["metadata"]["name"]),
                    text(&claim["status"]["phase"])
                )
            })
            .collect();
        let nodes: Vec<_> = self
            .nodes()
            .await
            .iter()
            .map(|node| {
                format!(
                    "{}:{}",
                    text(&node["metadata"]["name"]),
                    condition(node, "Ready").unwrap_or("-")
                )
            })
            .collect();
        format!(
            "claims {claims:?}; Nodes {nodes:?}; VMs {:?}",
            self.placed()
        )
    }

    /// Takes the pod away as an uninstallation would. A case that does not come here has failed.
    pub(crate) async fn end(self) {
        let status = self.pod.remove().await.unwrap();
        assert!(status.success(), "kproxide ended with {status} on SIGTERM");
    }
}

fn is_anchor(name: &str) -> bool {
    name.starts_with("kproxide-anchor-")
}

#[expect(
    clippy::disallowed_methods,
    reason = "the control plane lives in real time"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
