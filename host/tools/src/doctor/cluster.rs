//! What Kubernetes says: its objects as a world of the planner.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use kproxide_planner::facts::{Delta, HostFacts};
use kproxide_planner::ids::ClusterName;
use kproxide_planner::world::World;
use tokio::time::timeout;

use super::Sources;
use crate::manifest::{NotListed, Object, changes, each, refuse};
use kproxide_common::chain::chain;
use kproxide_common::foreign;
use kproxide_controller::autoscaler::clock_off;
use kproxide_controller::judge::reasons::INVALID_SETTINGS;
use kproxide_controller::judge::{Finding, Group};
use kproxide_controller::judge::{named, reasons};
use kproxide_kube::client::Client;
use kproxide_kube::convert::ClusterConnection;
use kproxide_kube::watch::{Change, Kind};

/// For one answer of Kubernetes.
pub(super) const KUBERNETES_DEADLINE: Duration = Duration::from_secs(5);

/// What checks depend on. Pods are left out: there may be many, and none of them keeps kproxide from working.
const LISTED: [&str; 8] = [
    "proxmoxclusters",
    "nodeclasses",
    "nodepools",
    "nodeclaims",
    "ledgers",
    "nodes",
    "csidrivers",
    "csinodes",
];

/// Which VMs and Nodes are of machines.
const BOOKS: [&str; 2] = ["nodeclaims", "ledgers"];

/// Kinds of objects that the chart makes, and that Helm never deletes.
const KEPT: [&str; 3] = ["ProxmoxCluster", "NodeClass", "NodePool"];

/// Why there is nothing to check.
#[derive(Debug, thiserror::Error)]
pub enum NoKubernetes {
    #[error("Kubernetes does not answer: {0}")]
    Unreachable(String),
    #[error("Kubernetes refuses the credentials: {0}")]
    Refused(String),
}

/// What Kubernetes says beyond the planner's world.
#[derive(Default)]
pub(super) struct Seen {
    /// Each Node with its `status.nodeInfo.machineID`, if it has one.
    pub(super) machine_ids: BTreeMap<String, String>,
    /// Names of the CSIDrivers.
    pub(super) drivers: BTreeSet<String>,
    /// Objects of ours that Helm has made.
    pub(super) of_helm: Vec<OfHelm>,
    /// NodeClaims and the Ledger were listed, if there are any.
    pub(super) has_books: bool,
}

pub(super) struct OfHelm {
    pub(super) kind: String,
    pub(super) name: String,
    namespace: String,
    release: String,
}

impl OfHelm {
    /// Its namespace and name.
    pub(super) fn release(&self) -> (&str, &str) {
        (&self.namespace, &self.release)
    }
}

/// What was read.
pub(super) struct Read {
    pub(super) world: World,
    pub(super) seen: Seen,
    pub(super) connections: BTreeMap<ClusterName, ClusterConnection>,
    pub(super) findings: Vec<Finding>,
}

/// # Errors
/// The API server cannot be reached, or lets the caller see nothing.
pub(super) async fn read(sources: &Sources) -> Result<Read, NoKubernetes> {
    let lists = match &sources.kube {
        Some(kube) => listed(kube).await?,
        None => Vec::new(),
    };
    let mut read = Read {
        world: World::default(),
        seen: Seen {
            has_books: sources.kube.is_some(),
            ..Seen::default()
        },
        connections: BTreeMap::new(),
        findings: Vec::new(),
    };
    read.world.apply(Delta::Host(HostFacts {
        cluster_id: "doctor".to_owned(),
        armed_at: Some(Timestamp::UNIX_EPOCH),
        dry_run: true,
        key_known: true,
        ..HostFacts::default()
    }));
    let server = sources.kube.as_ref().and_then(Client::server_time);
    let ahead = server.map(|server| sources.clock.now().duration_since(server));
    if let Some(off) = ahead.and_then(clock_off) {
        let finding = Finding::error(Group::Kubernetes, "Clock", &reasons::CLOCK_OFF, off);
        read.findings.push(finding.seen_from(&sources.place));
    }
    for (policy, facts) in sources.policies.facts() {
        read.world.apply(Delta::Policy(policy, Some(facts)));
    }
    for object in &sources.objects {
        // Helm and the API server would refuse these.
        match refuse(object) {
            Ok(()) => read.take(vec![object.clone()]),
            Err(bad) => read.cannot_be_used(object, bad.problem),
        }
    }
    for (resource, list) in lists {
        match list {
            Ok(objects) => read.take(objects),
            // Each definition has a finding of its own.
            Err(NotListed::Undefined) => {}
            Err(NotListed::Forbidden(why) | NotListed::Failed(why)) => {
                let group = Group::Kubernetes;
                read.seen.has_books &= !BOOKS.contains(&resource);
                let finding = Finding::error(group, resource, &reasons::NOT_LISTED, why);
                read.findings.push(finding);
            }
        }
    }
    Ok(read)
}

type List = (&'static str, Result<Vec<Object>, NotListed>);

async fn listed(kube: &Client) -> Result<Vec<List>, NoKubernetes> {
    reach(kube).await?;
    let lists = each(kube, &LISTED, KUBERNETES_DEADLINE).await;
    let refused = lists.iter().filter_map(|(_, list)| match list {
        Err(NotListed::Forbidden(why)) => Some(why),
        Err(NotListed::Undefined | NotListed::Failed(_)) | Ok(_) => None,
    });
    match (refused.clone().next(), refused.count() == LISTED.len()) {
        (Some(why), true) => Err(NoKubernetes::Refused(why.clone())),
        (Some(_) | None, _) => Ok(lists),
    }
}

/// Kinds that kproxide watches and the API server does not list. One object of each is enough to see that.
pub(super) async fn unlisted(sources: &Sources) -> Vec<Finding> {
    let Some(kube) = &sources.kube else {
        return Vec::new();
    };
    let looks = Kind::ALL.into_iter().map(async |kind| {
        let uri = format!("{}?limit=1", kind.path());
        let why = match timeout(KUBERNETES_DEADLINE, kube.ask(&uri)).await {
            // What the controller may not do is told beside this. The caller need not be allowed to see pods.
            Ok(Ok((200 | 403, _))) => return None,
            // Each definition of ours has a finding of its own.
            Ok(Ok((404, _))) if is_ours(kind) => return None,
            Ok(Ok((404, _))) => "the API server does not serve them. See whether --runtime-config switches them off".to_owned(),
            // These are told already.
            _ if LISTED.contains(&&*kind.resource()) => return None,
            Ok(Ok((_, message))) => foreign::said(message.as_str().unwrap_or_default()),
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("no answer within {} s", KUBERNETES_DEADLINE.as_secs()),
        };
        let text = format!("{kind} cannot be listed, and kproxide removes nothing as long as it cannot watch them: {why}");
        let object = named("Watch", kind.resource());
        let finding = Finding::error(Group::Kubernetes, object, &reasons::WATCH_FAILS, text);
        Some(finding.typing([format!("kubectl get --raw '{uri}'")]))
    });
    join_all(looks).await.into_iter().flatten().collect()
}

fn is_ours(kind: Kind) -> bool {
    use Kind::{Claims, Classes, Clusters, Ledger, Pools};
    matches!(kind, Claims | Classes | Clusters | Ledger | Pools)
}

/// Whether there is an API server, and it knows the caller. Everybody that it knows may ask for its version.
pub(super) async fn reach(kube: &Client) -> Result<(), NoKubernetes> {
    let asked = timeout(KUBERNETES_DEADLINE, kube.ask("/version")).await;
    match asked {
        Ok(Ok((401, message))) => Err(NoKubernetes::Refused(
            message.as_str().unwrap_or("Unauthorized").to_owned(),
        )),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(NoKubernetes::Unreachable(chain(&error))),
        Err(_) => Err(NoKubernetes::Unreachable(format!(
            "no answer within {} s",
            KUBERNETES_DEADLINE.as_secs()
        ))),
    }
}

impl Read {
    fn take(&mut self, objects: Vec<Object>) {
        for object in objects {
            self.seen.note(&object);
            match changes(&object) {
                Ok(changes) => changes.into_iter().for_each(|change| match change {
                    Change::Delta(delta) => self.world.receive(delta),
                    Change::Connection(cluster, Some(connection)) => {
                        self.connections.insert(cluster, connection);
                    }
                    Change::Connection(_, None) | Change::Unreadable(_) => {}
                }),
                Err(bad) => self.cannot_be_used(&object, bad.problem),
            }
        }
        self.world.regroup();
    }

    fn cannot_be_used(&mut self, object: &Object, problem: String) {
        let (group, object) = (Group::Configuration, named(object.kind(), object.name()));
        let finding = Finding::error(group, object, &INVALID_SETTINGS, problem);
        self.findings.push(finding);
    }
}

impl Seen {
    fn note(&mut self, object: &Object) {
        let name = object.name().to_owned();
        if object.kind() == "CSIDriver" {
            self.drivers.insert(name);
        } else if object.kind() == "Node"
            && let Some(id) = object.value["status"]["nodeInfo"]["machineID"].as_str()
            && !id.is_empty()
        {
            self.machine_ids.insert(name, id.to_owned());
        } else if KEPT.contains(&object.kind()) {
            let annotations = &object.value["metadata"]["annotations"];
            let text = |key: &str| annotations[key].as_str().map(str::to_owned);
            let namespace = text("meta.helm.sh/release-namespace");
            let release = namespace.zip(text("meta.helm.sh/release-name"));
            self.of_helm
                .extend(release.map(|(namespace, release)| OfHelm {
                    kind: object.kind().to_owned(),
                    name,
                    namespace,
                    release,
                }));
        }
    }
}
