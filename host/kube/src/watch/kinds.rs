//! The table of the watched kinds: one row for each, and what its objects become.

use std::borrow::Cow;
use std::fmt;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kproxide_planner::facts::{ClassFacts, Delta, Labels};
use kproxide_planner::ids::ObjectKey;
use kproxide_planner::keys::FORGET_LEARNED;
use kube::Resource;
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Change, Report, full_name, run};
use crate::client::Client;
use crate::convert::{
    Unreadable, claim_facts, class_facts, cluster_facts, csi_driver_facts, csi_node_facts,
    daemon_set_facts, decoded, disruption_budget_facts, existence, hypervisors_off, ledger_facts,
    node_facts, pod_facts, pool_facts, storage_capacity_facts, storage_class_facts,
    volume_attachment_facts, volume_claim_facts, volume_facts,
};
use crate::crd::{Ledger, NodeClaim, NodeClass, NodePool, ProxmoxCluster};
use crate::view::{
    CsiDriverView, CsiNodeView, CustomView, DaemonSetView, DisruptionBudgetView, NamespaceView,
    NodeView, PodView, StorageCapacityView, StorageClassView, VolumeAttachmentView,
    VolumeClaimView, VolumeView,
};

/// An object as a watch delivers it.
pub(super) trait Watched:
    Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static
{
    const KIND: Kind;
    /// A field selector: which objects are watched. `None`: all.
    const ONLY: Option<&'static str>;

    /// What follows from the object as it is now, or from its absence; its name is `name` or `namespace/name`.
    fn changes(name: &str, object: Option<&Self>) -> Result<Vec<Change>, Unreadable>;

    fn selection(config: watcher::Config) -> watcher::Config {
        match Self::ONLY {
            Some(fields) => config.fields(fields),
            None => config,
        }
    }
}

/// What is done with the objects of one kind.
struct Entry {
    api_version: Cow<'static, str>,
    kind: Cow<'static, str>,
    resource: Cow<'static, str>,
    run: fn(Client, mpsc::Sender<Report>) -> BoxFuture<'static, ()>,
    path: String,
    read: fn(&Value) -> Result<Vec<Change>, Unreadable>,
}

impl Entry {
    fn of<K: Watched>() -> Self {
        Self {
            api_version: K::api_version(&()),
            kind: K::kind(&()),
            resource: K::plural(&()),
            path: K::url_path(&(), None),
            run: |client, reports| run::<K>(client, reports).boxed(),
            read: |object| {
                let read: K = decoded(K::kind(&()).as_ref(), object)?;
                K::changes(&full_name(&read), Some(&read))
            },
        }
    }
}

/// `Kind`, and `Watched` for each view.
macro_rules! watched {
    ($($kind:ident: $view:ty $(, only $fields:literal)?, |$name:ident, $object:ident| $changes:expr;)+) => {
        /// A kind of object that is watched.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($kind),+ }

        impl Kind {
            pub const ALL: [Self; [$(Kind::$kind),+].len()] = [$(Self::$kind),+];

            fn entry(self) -> Entry {
                match self { $(Self::$kind => Entry::of::<$view>()),+ }
            }
        }

        $(impl Watched for $view {
            const KIND: Kind = Kind::$kind;
            const ONLY: Option<&'static str> = [$(Some($fields),)? None][0];

            fn changes($name: &str, $object: Option<&Self>) -> Result<Vec<Change>, Unreadable> {
                $changes
            }
        })+
    };
}

watched! {
    Clusters: CustomView<ProxmoxCluster>,
        |name, cluster| Ok(of_cluster(name, cluster));
    Classes: CustomView<NodeClass>,
        |name, class| one(Delta::Class(name.into(), boxed(class, with_status)));
    Pools: CustomView<NodePool>,
        |name, pool| one(Delta::Pool(name.into(), boxed(pool, |it| pool_facts(&it.metadata, &it.spec))));
    Claims: CustomView<NodeClaim>,
        |name, claim| one(Delta::Claim(name.into(), claim.map(claim_facts).transpose()?.map(Box::new)));
    Ledger: CustomView<Ledger>, only "metadata.name=kproxide",
        |_name, ledger| one(Delta::Ledger(ledger.map(ledger_facts).transpose()?.map(Box::new)));
    Nodes: NodeView,
        |name, node| one(Delta::Node(name.into(), boxed(node, node_facts)));
    // Finished pods weigh nothing, and thousands of them may lie about.
    Pods: PodView, only "status.phase!=Succeeded,status.phase!=Failed",
        |name, pod| one(Delta::Pod(key(name), boxed(pod, pod_facts)));
    DaemonSets: DaemonSetView,
        |name, set| one(Delta::DaemonSet(key(name), boxed(set, daemon_set_facts)));
    DisruptionBudgets: DisruptionBudgetView,
        |name, budget| one(Delta::DisruptionBudget(key(name), boxed(budget, disruption_budget_facts)));
    Namespaces: NamespaceView,
        |name, namespace| one(Delta::Namespace(name.into(), boxed(namespace, labels)));
    VolumeAttachments: VolumeAttachmentView,
        |name, attachment| one(Delta::VolumeAttachment(name.into(), attachment.and_then(volume_attachment_facts)));
    VolumeClaims: VolumeClaimView,
        |name, claim| one(Delta::VolumeClaim(key(name), boxed(claim, volume_claim_facts)));
    Volumes: VolumeView,
        |name, volume| one(Delta::Volume(name.to_owned(), boxed(volume, volume_facts)));
    StorageClasses: StorageClassView,
        |name, class| one(Delta::StorageClass(name.to_owned(), boxed(class, storage_class_facts)));
    CsiNodes: CsiNodeView,
        |name, node| one(Delta::CsiNode(name.into(), boxed(node, csi_node_facts)));
    CsiDrivers: CsiDriverView,
        |name, driver| one(Delta::CsiDriver(name.to_owned(), boxed(driver, csi_driver_facts)));
    StorageCapacities: StorageCapacityView,
        |name, capacity| one(Delta::StorageCapacity(key(name), boxed(capacity, storage_capacity_facts)));
}

impl Kind {
    /// The resource, as RBAC and logs name it.
    pub fn resource(self) -> Cow<'static, str> {
        self.entry().resource
    }

    /// The kind of objects with this `apiVersion` and `kind`. `None`: no watch is interested in them.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| {
            let entry = one.entry();
            entry.api_version == api_version && entry.kind == kind
        })
    }

    /// Where the API server lists all objects of the kind.
    pub fn path(self) -> String {
        self.entry().path
    }

    /// What follows from an object that no watch has delivered, such as one in a file.
    pub fn read(self, object: &Value) -> Result<Vec<Change>, Unreadable> {
        (self.entry().read)(object)
    }

    /// Its watch, to be awaited.
    pub(super) fn run(
        self,
        client: Client,
        reports: mpsc::Sender<Report>,
    ) -> BoxFuture<'static, ()> {
        (self.entry().run)(client, reports)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource())
    }
}

fn one(delta: Delta) -> Result<Vec<Change>, Unreadable> {
    Ok(vec![Change::Delta(delta)])
}

fn boxed<K, F>(object: Option<&K>, facts: impl Fn(&K) -> F) -> Option<Box<F>> {
    object.map(|object| Box::new(facts(object)))
}

fn key(name: &str) -> ObjectKey {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    ObjectKey::new(namespace, name)
}

fn labels(namespace: &NamespaceView) -> Labels {
    namespace.metadata.labels.clone().unwrap_or_default()
}

fn of_cluster(name: &str, cluster: Option<&CustomView<ProxmoxCluster>>) -> Vec<Change> {
    let read = cluster.map(|cluster| {
        let (mut facts, connection) = cluster_facts(&cluster.spec);
        facts.existence = existence(&cluster.metadata);
        facts.off = hypervisors_off(&cluster.metadata);
        (Box::new(facts), connection)
    });
    let (facts, connection) = read.unzip();
    vec![
        Change::Connection(name.into(), connection.flatten()),
        Change::Delta(Delta::Cluster(name.into(), facts)),
    ]
}

/// Beside its specification a class keeps what its Nodes have shown.
fn with_status(class: &CustomView<NodeClass>) -> ClassFacts {
    let mut facts = class_facts(&class.spec);
    facts.existence = existence(&class.metadata);
    let annotations = class.metadata.annotations.as_ref();
    if let Some(word) = annotations.and_then(|all| all.get(FORGET_LEARNED)) {
        facts.digest = format!("{} {word}", facts.digest).into();
    }
    let learned = class.status.get("learned").cloned();
    // Rows of another version of kproxide are learned anew.
    facts.learned = learned
        .and_then(|rows| serde_json::from_value(rows).ok())
        .unwrap_or_default();
    facts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn s12_settings_that_are_nested_too_deep_are_a_problem_of_their_pool_alone() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(140), "}".repeat(140));
        let policies = format!(r#"{{"hostSelection":{{"settings":{deep}}}}}"#);
        let list = format!(
            r#"{{"kind":"NodePoolList","apiVersion":"kproxide.dev/v1","metadata":{{}},"items":[
                {{"metadata":{{"name":"a"}},"spec":{{"nodeClass":"c","weight":7,"policies":{policies}}}}},
                {{"metadata":{{"name":"b"}},"spec":{{"nodeClass":"c","weight":7}}}}]}}"#
        );
        let list: kube::core::ObjectList<CustomView<NodePool>> =
            serde_json::from_str(&list).unwrap();
        let [a, b] = [0, 1].map(|index| {
            let changes = Watched::changes("p", list.items.get(index)).unwrap();
            match &changes[..] {
                [Change::Delta(Delta::Pool(_, Some(facts)))] => {
                    (facts.weight, facts.problem.clone())
                }
                other => panic!("{other:?}"),
            }
        });
        let problem = "spec.policies: it is nested too deep";
        assert_eq!(a, (7, Some(problem.to_owned())));
        assert!(b.0 == 7 && b.1.as_deref() != Some(problem), "{b:?}");
    }

    #[test]
    fn the_one_ledger_is_watched() {
        let only = <CustomView<Ledger> as Watched>::ONLY;
        assert_eq!(
            only,
            Some(&*format!("metadata.name={}", crate::crd::LEDGER_NAME))
        );
    }

    #[test]
    fn f66_an_unreadable_claim_is_not_a_claim_that_is_gone() {
        let claim: CustomView<NodeClaim> =
            serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"pool": 7}}))
                .unwrap();
        let changes = Watched::changes("c", Some(&claim));
        assert!(
            matches!(&changes, Err(of) if of.object == "NodeClaim/c"),
            "{changes:?}"
        );
    }
}
