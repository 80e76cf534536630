//! What there is: three hypervisors, a small k3s with its usual add-ons, one pool.

use std::error::Error;

use kproxide_planner::facts::PolicyKind;
use kproxide_simulator::kube::fixtures;
use kproxide_simulator::kubelet::NodeSpec;
use kproxide_simulator::pve::Topology;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::args::Demo;
use crate::args::policy::Kind;
use crate::commands::exit::Mistake;
use crate::commands::policy::given::{Given, Tools, no_settings, settings};
use kproxide_lab::{Lab, Setting};
use kproxide_policy::{Library, PolicyFiles, self_test};

/// The pool's name.
pub(super) const POOL: &str = "workers";
/// The Deployment that the demo scales.
pub(super) const APP: &str = "web";

/// Nodes that are no machines of ours.
pub(super) const STATIC: usize = 2;

/// Which policy decides, and what.
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) kind: Kind,
    settings: Value,
    /// The module, where it is a file of the user's.
    pub(super) files: PolicyFiles,
    /// What asks policies in the simulated world.
    pub(super) library: Library,
    /// The file's own words for itself.
    pub(super) taken: Option<String>,
}

/// The policy that the flags name, if kproxide takes it. Processes of policies are awaited on the runtime of this call, in the simulated world too.
///
/// # Errors
/// There is no such policy, or it is refused: says why.
pub(super) async fn policy(args: &Demo) -> Result<Policy, Box<dyn Error>> {
    let text = args.policy();
    let given =
        Given::read(text).map_err(|Mistake(problem)| Mistake(format!("--policy {problem}")))?;
    let settings = settings(args.settings.as_deref())?.unwrap_or_else(no_settings);
    let refused = |problem: String| format!("--policy {text}: kproxide refuses it: {problem}");
    let tools = Tools::new()?;
    let module = given.load(&tools).await.map_err(refused)?;
    let kind = PolicyKind::from(args.kind);
    let kinds = module.kinds();
    if !kinds.contains(&kind) {
        let kinds: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
        let (kind, kinds) = (kind.as_str(), kinds.join(", "));
        return Err(Mistake(format!(
            "--policy {text} makes no {kind} decisions: give --kind {kinds}, or another policy"
        ))
        .into());
    }
    let (verdict, _) = tools.check_settings(&module, &settings).await;
    verdict.map_err(|error| refused(error.to_string()))?;
    let tested = self_test::run(&tools.engine, &module, &given.name, kind, &settings).await;
    tested.map_err(refused)?;
    let is_file = kproxide_builtins::builtin(text).is_none();
    let (version, digest) = (&module.info().version, module.digest().as_str());
    let taken = format!(
        "The policy {text} was taken (version {version}, sha256:{digest}). It decides {} from now on.",
        kind.as_str()
    );
    let mut files = PolicyFiles::new();
    if is_file {
        files.insert(given.name.clone(), vec![given.file()]);
    }
    Ok(Policy {
        name: given.name.to_string(),
        kind: args.kind,
        settings: serde_json::from_str(&settings)?,
        files,
        library: Library::new(tools.engine.clone().in_real_time(Handle::current())),
        taken: is_file.then_some(taken),
    })
}

/// The world before anything happens.
pub(super) fn build(seed: u64, policy: &Policy) -> Lab {
    let mut setting = Setting::new(seed, 3);
    setting.topology = Topology {
        cluster: Some("homelab".into()),
        ..setting.topology
    };
    let lab = Lab::new(setting);
    lab.kubelets.start_node(NodeSpec {
        labels: [(
            "node-role.kubernetes.io/control-plane".to_owned(),
            "true".to_owned(),
        )]
        .into(),
        taints: vec![
            json!({ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }),
        ],
        ..NodeSpec::new(
            "server-1",
            "a0000000-0000-4000-8000-000000000001",
            2000,
            4096,
        )
    });
    lab.kubelets.start_node(NodeSpec::new(
        "agent-1",
        "a0000000-0000-4000-8000-000000000002",
        4000,
        8192,
    ));
    lab.apply(fixtures::k3s_addons());
    lab.apply(objects(policy));
    lab
}

fn objects(policy: &Policy) -> [(&'static str, Value); 3] {
    let place = match policy.kind {
        Kind::HostSelection => "hostSelection",
        Kind::ScaleDown => "scaleDown",
        Kind::Labels => "labels",
    };
    let used = json!({ place: { "use": policy.name, "settings": policy.settings } });
    // Templates are for go-template: another policy would get them as a setting.
    let templates = match policy.name.as_str() {
        name if policy.kind == Kind::Labels && name != "go-template" => json!({}),
        _ => json!({ "topology.kubernetes.io/zone": "{{ .TargetHost }}" }),
    };
    let meta = |name: &str| json!({ "name": name });
    [
        (
            "proxmoxclusters.kproxide.dev",
            json!({
                "apiVersion": "kproxide.dev/v1alpha1", "kind": "ProxmoxCluster", "metadata": meta("homelab"),
                "spec": {
                    "endpoints": ["https://pve1:8006"], "tls": { "insecureSkipVerify": true }, "credentials": "homelab",
                    "pool": "k8s", "vmidRange": { "first": 500, "last": 599 },
                },
            }),
        ),
        (
            "nodeclasses.kproxide.dev",
            json!({
                "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodeClass", "metadata": meta("debian"),
                "spec": {
                    "template": { "name": "k8s-node", "placement": "local" },
                    "instanceTypes": [{ "name": "medium", "cores": 4, "memoryMiB": 8192 }],
                    "cloudInit": { "dhcp": true },
                    "join": { "template": {} },
                },
            }),
        ),
        (
            "nodepools.kproxide.dev",
            json!({
                "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodePool", "metadata": meta(POOL),
                "spec": {
                    "nodeClass": "debian", "clusters": ["homelab"], "limits": { "maxNodes": 12 },
                    "policies": used,
                    "repairAfter": "2m",
                    "labelTemplates": templates,
                    "scaleDown": { "stabilization": "2m", "minNodeAge": "2m", "unneededTime": "30s", "budget": 2 },
                },
            }),
        ),
    ]
}

/// The Deployment whose load rises and falls.
pub(super) fn app(replicas: u32) -> Value {
    fixtures::deployment("default", APP, replicas, "500m", "512Mi")
}

/// The pods of the load, counted in one way wherever they are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Ready, as Kubernetes knows it.
    pub(super) running: usize,
    /// No Node was found for them yet.
    pub(super) pending: usize,
    /// All but those that end: each of these has a successor, or is wanted no longer.
    pub(super) all: usize,
    pub(super) ending: usize,
}

impl Load {
    pub(super) fn of(pods: &[Value]) -> Self {
        let mut load = Self::default();
        for pod in pods.iter().filter(|pod| is_load(pod)) {
            if !stays(pod) {
                load.ending += 1;
                continue;
            }
            load.all += 1;
            load.pending += usize::from(pod["spec"]["nodeName"].is_null());
            load.running += usize::from(is_ready(pod));
        }
        load
    }
}

/// It is not about to end.
pub(super) fn stays(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
}

/// A pod or a Node has the condition Ready.
pub(super) fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// True for pods of [`APP`]: the add-ons live elsewhere.
pub(super) fn is_load(pod: &Value) -> bool {
    pod["metadata"]["namespace"] == "default"
}
