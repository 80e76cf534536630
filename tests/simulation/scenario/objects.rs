//! The objects that a scenario's world is made of.

use std::time::Duration;

use kproxide_lab::{Lab, Setting};
use kproxide_simulator::kube::fixtures;
use kproxide_simulator::kubelet::NodeSpec;
use kproxide_simulator::pve::Topology;
use kproxide_simulator::pve::topology::VmSpec;
use kproxide_simulator::rng::Spread;
use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::rules::STORAGE_MILLI_CORES;
use super::{
    AGENT_MILLI_CORES, Alone, App, CORES, DISK_GIB, GIB, MEMORY_MIB, Pool, RANGE, RESOURCE_POOL,
    Scenario, TAG, TRAP,
};

impl Scenario {
    /// The world before any host runs.
    pub(crate) fn build(&self) -> Lab {
        let mut setting = Setting::new(self.seed, self.hypervisors);
        setting.topology = Topology {
            cluster: Some("homelab".into()),
            ..setting.topology
        };
        for hypervisor in &mut setting.topology.hypervisors {
            hypervisor.memory = self.memory_gib * GIB;
        }
        setting.topology.vms.extend(self.foreign.iter().cloned());
        if let Some(time) = self.slow_clones {
            setting.topology.timings.local.clone_linked = Spread::exactly(time.as_secs_f64());
        }
        // Kubelets that renew their Leases every ten seconds would be a quarter of all that is asked for; what counts is when a Node is silent. One that is away
        // for less than twenty seconds stays Ready.
        setting.pace.lease_interval = Duration::from_secs(80);
        setting.patience.node_monitor_grace = Duration::from_secs(100);
        let lab = Lab::new(setting);
        for node in self.static_nodes() {
            lab.kubelets.start_node(node);
        }
        lab.apply(fixtures::k3s_addons());
        lab.apply([self.cluster(), class()]);
        let network = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "network"},
            "provisioner": "network.example.com", "volumeBindingMode": "WaitForFirstConsumer",
        });
        lab.apply([("storageclasses.storage.k8s.io", network)]);
        lab.apply(self.pools.iter().map(Pool::object));
        for app in &self.apps {
            lab.apply([("deployments.apps", self.deployment(app))]);
            if app.budgeted {
                lab.apply([(
                    "poddisruptionbudgets.policy",
                    fixtures::disruption_budget("default", &app.name, json!("50%")),
                )]);
            }
        }
        lab
    }

    fn static_nodes(&self) -> Vec<NodeSpec> {
        let uuid = |number: u32| format!("a0000000-0000-4000-8000-{number:012}");
        let mut nodes = vec![
            NodeSpec::new("server-1", &uuid(1), 2000, 4096).control_plane(),
            NodeSpec::new("agent-1", &uuid(2), u64::from(AGENT_MILLI_CORES), 8192),
        ];
        if self.roomy {
            nodes.push(NodeSpec {
                taints: vec![
                    json!({"key": "dedicated", "value": "storage", "effect": "NoSchedule"}),
                ],
                ..NodeSpec::new("storage-1", &uuid(3), STORAGE_MILLI_CORES.into(), 65_536)
            });
        }
        nodes
    }

    fn cluster(&self) -> (&'static str, Value) {
        let [per_storage, per_hypervisor] = self.clones;
        let mut cluster = json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": "ProxmoxCluster", "metadata": {"name": "homelab"},
            "spec": {
                "endpoints": ["https://pve1:8006", "https://pve2:8006"], "tls": {"insecureSkipVerify": true}, "credentials": "homelab",
                "pool": RESOURCE_POOL, "vmidRange": {"first": RANGE.start(), "last": RANGE.end()},
                "concurrency": {"perStorage": per_storage, "perHypervisor": per_hypervisor},
            },
        });
        if let Some(most) = self.per_hypervisor {
            cluster["spec"]["maxMachinesPerHypervisor"] = json!(most);
        }
        ("proxmoxclusters.kproxide.dev", cluster)
    }

    fn deployment(&self, app: &App) -> Value {
        let (cpu, memory) = (
            format!("{}m", app.milli_cores),
            format!("{}Mi", app.milli_cores),
        );
        let mut deployment = fixtures::deployment("default", &app.name, 0, &cpu, &memory);
        let pool = &self.pools[app.pool];
        if pool.selected {
            deployment["spec"]["template"]["spec"]["nodeSelector"] = json!({"load": pool.name});
        }
        let spec = &mut deployment["spec"]["template"]["spec"];
        match app.alone {
            Some(Alone::HostPort(port)) => {
                spec["containers"][0]["ports"] =
                    json!([{"containerPort": port, "hostPort": port, "protocol": "TCP"}]);
            }
            Some(Alone::AntiAffinity) => {
                let term = json!({
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": app.name}},
                });
                spec["affinity"] = json!({"podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [term],
                }});
            }
            None => {}
        }
        if app.volume {
            spec["volumes"] = json!([{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {
                "storageClassName": "network", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            }}}}]);
        }
        deployment
    }
}

impl Pool {
    fn object(&self) -> (&'static str, Value) {
        let labels = if self.selected {
            json!({"load": self.name})
        } else {
            json!({})
        };
        let settings = if self.host_selection == TRAP {
            json!({"do": "panic"})
        } else {
            json!({})
        };
        let mut pool = json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": self.name},
            "spec": {
                "nodeClass": "debian", "clusters": ["homelab"], "labels": labels,
                "limits": {"minNodes": self.rules.min_nodes, "maxNodes": self.max_nodes},
                "policies": {"hostSelection": {"use": self.host_selection, "settings": settings}},
                "labelTemplates": {"topology.kubernetes.io/zone": "{{ .TargetHost }}"},
            },
        });
        for (field, value) in self.rules.spec(self.budget) {
            pool["spec"][field] = value;
        }
        ("nodepools.kproxide.dev", pool)
    }
}

fn class() -> (&'static str, Value) {
    let class = json!({
        "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": "debian"},
        "spec": {
            "template": {"name": "k8s-node", "placement": "local"},
            "instanceTypes": [{"name": "medium", "cores": CORES, "memoryMiB": MEMORY_MIB, "diskGiB": DISK_GIB}],
            "cloudInit": {"dhcp": true}, "join": {"template": {}}, "tags": [TAG],
        },
    });
    ("nodeclasses.kproxide.dev", class)
}

/// Machines of other people that look more or less like ours.
pub(crate) fn foreign(hypervisors: u32, rng: &mut SmallRng) -> Vec<VmSpec> {
    let mut foreign = Vec::new();
    let mut place = |vmid: u32, name: &str, running: bool| {
        let node = format!("pve{}", rng.random_range(1..=hypervisors));
        let mut vm = VmSpec::machine(vmid, name, &node, "local-lvm", 8 * GIB);
        vm.running = running;
        vm
    };
    foreign.push(place(101, "nas", true));
    // In the middle of our range, without anything of ours.
    foreign.push(place(502, "database", true));
    foreign.push(place(505, "router-spare", false));
    // Our prefix, our tag, our resource pool, and a marker that somebody wrote by hand.
    let mut lookalike = place(501, "workers-2b7kq", true);
    lookalike.pool = Some(RESOURCE_POOL.to_owned());
    lookalike.config.insert("tags".into(), TAG.into());
    let marker = "kproxide: v1 cid=6d1f claim=0e4c9f6e-0000-4000-8000-000000000000 vmid=501 n=abc mac=00000000000000000000000000000000";
    lookalike.config.insert("description".into(), marker.into());
    foreign.push(lookalike);
    // Our tag and pool outside of our range.
    let mut outside = place(300, "workers-old", false);
    outside.pool = Some(RESOURCE_POOL.to_owned());
    outside.config.insert("tags".into(), TAG.into());
    foreign.push(outside);
    foreign
}
