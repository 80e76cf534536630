//! The controller's Deployment, seen from outside: its account, its pods, and the Secrets and ConfigMaps that it mounts.
//! They are read with the caller's rights, and stay in memory.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::timeout;

use super::cluster::KUBERNETES_DEADLINE;
use super::pod;
use crate::whatif::{holder, renewed};
use kproxide_controller::judge::{Finding, Group, Level};
use kproxide_controller::judge::{named, reasons};
use kproxide_kube::access::Account;
use kproxide_kube::client::Client;
use kproxide_policy::{PolicyFiles, mounted};

/// By so much the clocks of a replica and of the API server may differ.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(60);

/// Files by their paths in the pod.
pub type Files = BTreeMap<String, Vec<u8>>;

/// What is known of it.
#[derive(Default)]
pub struct Installation {
    /// Whose rights the controller has.
    pub account: Option<Account>,
    /// The mounted files that the caller may read.
    pub files: Files,
    /// The flags `--NAME=VALUE` of the container.
    flags: Vec<(String, String)>,
    pub findings: Vec<Finding>,
}

impl Installation {
    /// Reads it.
    pub async fn read(kube: &Client, namespace: &str, name: &str) -> Self {
        let object = named("Deployment", format!("{namespace}/{name}"));
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
        let mut found = Self::default();
        let deployment = match get(kube, &path).await {
            Some((200, deployment)) => deployment,
            Some((404, _)) => {
                let text = "there is none of that name";
                let reason = &reasons::NOT_INSTALLED;
                found
                    .findings
                    .push(Finding::warning(Group::Kubernetes, object, reason, text));
                return found;
            }
            Some((_, why)) => {
                let text = why.as_str().unwrap_or("it cannot be read").to_owned();
                let reason = &reasons::NOT_LISTED;
                found
                    .findings
                    .push(Finding::warning(Group::Kubernetes, object, reason, text));
                return found;
            }
            None => return found,
        };
        let pod = &deployment["spec"]["template"]["spec"];
        let account = pod["serviceAccountName"].as_str().unwrap_or("default");
        found.account = Some(Account::Service {
            namespace: namespace.to_owned(),
            name: account.to_owned(),
        });
        let container = &pod["containers"][0];
        for flag in container["args"].as_array().into_iter().flatten() {
            let flag = flag.as_str().and_then(|flag| flag.strip_prefix("--"));
            if let Some((name, value)) = flag.and_then(|flag| flag.split_once('=')) {
                found.flags.push((name.to_owned(), value.to_owned()));
            }
        }
        found.read_mounts(kube, namespace, pod, container).await;
        found.look_at_pods(kube, namespace, name, &deployment).await;
        // Without a pod nobody can lead, and that is said.
        if !(found.findings.iter()).any(|it| it.level == Level::Error) {
            found
                .look_at_lease(kube, namespace, name, &deployment)
                .await;
        }
        if found.findings.is_empty() {
            found
                .findings
                .push(Finding::ok(Group::Kubernetes, object, ""));
        }
        found
    }

    /// The value of a flag of the container.
    pub fn flag<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        let mut flags = self.flags.iter().rev();
        let flag = flags.find(|(flag, _)| flag == name);
        flag.map_or(default, |(_, value)| value)
    }

    /// The policies in ConfigMaps that it mounts in its policy directories.
    pub fn policies(&self) -> PolicyFiles {
        let flags = self.flags.iter();
        let folders = flags.filter(|(name, _)| name == "policy-dir");
        let folders: Vec<PathBuf> = folders.map(|(_, value)| value.into()).collect();
        mounted(&folders, &self.files)
    }

    async fn read_mounts(
        &mut self,
        kube: &Client,
        namespace: &str,
        pod: &Value,
        container: &Value,
    ) {
        for volume in pod["volumes"].as_array().into_iter().flatten() {
            let mounts = container["volumeMounts"].as_array();
            let mut mounts = mounts.into_iter().flatten();
            let Some(mount) = mounts.find(|mount| mount["name"] == volume["name"]) else {
                continue;
            };
            let folder = mount["mountPath"].as_str().unwrap_or_default();
            let projected = volume["projected"]["sources"].as_array();
            let sources = projected.into_iter().flatten().chain([volume]);
            for source in sources {
                for (kind, resource) in [("secret", "secrets"), ("configMap", "configmaps")] {
                    let part = &source[kind];
                    let name = part["name"].as_str().or(part["secretName"].as_str());
                    if let Some(name) = name {
                        let from = format!("/api/v1/namespaces/{namespace}/{resource}/{name}");
                        self.read_source(kube, &from, part, folder).await;
                    }
                }
            }
        }
    }

    async fn read_source(&mut self, kube: &Client, path: &str, part: &Value, folder: &str) {
        let is_optional = part["optional"] == true;
        let mut words = path.rsplit('/');
        let name = words.next().unwrap_or_default();
        let kind = match words.next() {
            Some("secrets") => "Secret",
            Some(_) | None => "ConfigMap",
        };
        let object = named(kind, name);
        let group = Group::Kubernetes;
        let found = match get(kube, path).await {
            Some((200, found)) => found,
            Some((404, _)) if !is_optional => {
                let text = "there is none, and the pod of the controller mounts it";
                let reason = &reasons::SECRET_MISSING;
                self.findings
                    .push(Finding::error(group, object, reason, text));
                return;
            }
            Some((403, _)) => {
                let text = "you may not read it, so what is in it was not looked at";
                let reason = &reasons::NOT_LISTED;
                self.findings
                    .push(Finding::warning(group, object, reason, text));
                return;
            }
            Some(_) | None => return,
        };
        let read = |key: &str| -> Option<Vec<u8>> {
            let text = found["data"][key].as_str();
            match (kind, text) {
                ("Secret", text) => STANDARD.decode(text?).ok(),
                (_, Some(text)) => Some(text.as_bytes().to_vec()),
                (_, None) => STANDARD.decode(found["binaryData"][key].as_str()?).ok(),
            }
        };
        let items = part["items"].as_array().into_iter().flatten();
        let mut items: Vec<(String, String)> = items
            .filter_map(|item| {
                let text = |field: &str| item[field].as_str().map(str::to_owned);
                Some((text("key")?, text("path")?))
            })
            .collect();
        if items.is_empty() {
            let keys = ["data", "binaryData"].map(|field| found[field].as_object());
            let keys = keys.into_iter().flatten().flatten();
            items = keys.map(|(key, _)| (key.clone(), key.clone())).collect();
        }
        for (key, path) in items {
            match read(&key) {
                Some(bytes) => {
                    self.files.insert(format!("{folder}/{path}"), bytes);
                }
                None if !is_optional => {
                    let text =
                        format!("it has no key {key}, and the pod of the controller mounts it");
                    let reason = &reasons::SECRET_MISSING;
                    let finding = Finding::error(group, object.clone(), reason, text);
                    self.findings.push(finding);
                }
                None => {}
            }
        }
    }

    /// Whether a replica leads.
    async fn look_at_lease(
        &mut self,
        kube: &Client,
        namespace: &str,
        name: &str,
        deployment: &Value,
    ) {
        let group = Group::Kubernetes;
        if deployment["spec"]["replicas"] == 0 {
            let object = named("Deployment", format!("{namespace}/{name}"));
            let text = "spec.replicas is 0, so no replica leads";
            let command =
                format!("kubectl scale deployment {name} --namespace {namespace} --replicas 1");
            let finding = Finding::error(group, object, &reasons::NO_LEADER, text);
            self.findings.push(finding.typing([command]));
            return;
        }
        let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
        // A dry run takes no Lease.
        if args.into_iter().flatten().any(|flag| flag == "--dry-run") {
            return;
        }
        let lease = self.flag("name", name);
        let object = named("Lease", format!("{namespace}/{lease}"));
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease}");
        let lease = get(kube, &path).await;
        let now = kube.server_time();
        // A change of the leader takes some seconds.
        let since = lease.as_ref().and_then(|(_, lease)| renewed(lease));
        let finding = match lease {
            Some((200, lease)) if holder(&lease).is_none() => "nobody holds it",
            Some((200, lease)) if now.is_some_and(|now| has_expired(&lease, now)) => {
                "its holder has not renewed it in time"
            }
            Some((404, _)) => "there is none: no replica has ever led",
            Some((403, _)) => {
                let text = "you may not read it, so whether a replica leads is not known";
                let reason = &reasons::NOT_LISTED;
                self.findings
                    .push(Finding::warning(group, object, reason, text));
                return;
            }
            Some(_) | None => return,
        };
        let command = format!("kubectl get pods,leases --namespace {namespace}");
        let finding = Finding {
            since,
            ..Finding::error(group, object, &reasons::NO_LEADER, finding)
        };
        if now.is_none_or(|now| finding.is_ripe(now)) {
            self.findings.push(finding.typing([command]));
        }
    }

    /// Why no pod of the controller has a Node: Node by Node, and in the scheduler's words.
    async fn look_at_pods(
        &mut self,
        kube: &Client,
        namespace: &str,
        name: &str,
        deployment: &Value,
    ) {
        let labels = deployment["spec"]["selector"]["matchLabels"].as_object();
        let labels = labels.into_iter().flatten();
        let labels: Vec<String> = labels
            .filter_map(|(key, value)| Some(format!("{key}%3D{}", value.as_str()?)))
            .collect();
        let selector = labels.join(",");
        let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}");
        let Some((200, pods)) = get(kube, &path).await else {
            return;
        };
        let pods = pods["items"].as_array().map_or(&[][..], Vec::as_slice);
        let has_node = |pod: &Value| {
            let phase = pod["status"]["phase"].as_str();
            pod["spec"]["nodeName"].is_string() && !matches!(phase, Some("Succeeded" | "Failed"))
        };
        let is_wanted = deployment["spec"]["replicas"] != 0;
        let why = match is_wanted && !pods.iter().any(has_node) {
            true => pod::refusal(kube, namespace, name, &deployment["spec"]["template"]).await,
            false => None,
        };
        let reason = &reasons::POD_UNSCHEDULABLE;
        let mut refused = Vec::new();
        for pod in pods {
            let conditions = pod["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let refusal =
                conditions.find(|it| it["type"] == "PodScheduled" && it["status"] == "False");
            if let Some(refusal) = refusal {
                let words = refusal["message"].as_str().unwrap_or_default();
                let text = match &why {
                    Some(why) => format!("{why}. The scheduler says: {words}"),
                    None => words.to_owned(),
                };
                let pod = pod["metadata"]["name"].as_str().unwrap_or_default();
                let object = named("Pod", format!("{namespace}/{pod}"));
                refused.push(Finding::error(Group::Kubernetes, object, reason, text));
            }
        }
        // The scheduler has not spoken yet, or there is not even a pod.
        if let (true, Some(why)) = (refused.is_empty(), why) {
            let object = named("Deployment", format!("{namespace}/{name}"));
            refused.push(Finding::error(Group::Kubernetes, object, reason, why));
        }
        self.findings.extend(refused);
    }
}

/// Nobody has renewed it in time. Without a time in it, that is not known.
fn has_expired(lease: &Value, now: Timestamp) -> bool {
    let renewed = lease["spec"]["renewTime"].as_str();
    let Some(renewed) = renewed.and_then(|it| it.parse::<Timestamp>().ok()) else {
        return false;
    };
    let seconds = lease["spec"]["leaseDurationSeconds"].as_i64();
    let lasts = SignedDuration::from_secs(seconds.unwrap_or_default());
    now.duration_since(renewed) > lasts.saturating_add(CLOCKS_DIFFER)
}

/// Status and answer. `None`: no answer in time, which other checks say.
pub(super) async fn get(kube: &Client, path: &str) -> Option<(u16, Value)> {
    timeout(KUBERNETES_DEADLINE, kube.ask(path))
        .await
        .ok()?
        .ok()
}
