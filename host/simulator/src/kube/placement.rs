//! Whether a pod may stand on a node: the filters that the toy scheduler and the DaemonSet controller have.

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

use super::{
    neighbours::{PodTerm, Spread},
    object::{condition, condition_is_true, entries, items, meta_str},
    quantity::thousandths,
    selector::Operator,
    volumes::claim_names,
};

/// Annotation of a pod that a plugin of the cluster's own refuses on every node.
const REFUSED: &str = "scheduler.example/refused";

/// Amounts by resource name, in thousandths of the unit.
pub(crate) type Resources = BTreeMap<String, i64>;

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Taint {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) effect: String,
}

/// A toleration of a pod; an empty key or effect stands for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Toleration {
    key: String,
    exists: bool,
    value: String,
    effect: String,
    /// How long a NoExecute taint is tolerated; None is for ever.
    pub(crate) seconds: Option<i64>,
}

impl Toleration {
    pub(crate) fn exists(key: &str, effect: &str) -> Self {
        Self {
            key: key.to_owned(),
            exists: true,
            value: String::new(),
            effect: effect.to_owned(),
            seconds: None,
        }
    }

    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && (self.exists || self.value == taint.value)
    }
}

/// What a node offers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
    pub(crate) allocatable: Resources,
    pub(crate) ready: bool,
}

impl NodeView {
    pub(crate) fn of(node: &Value) -> Self {
        Self {
            name: meta_str(node, "name").to_owned(),
            uid: meta_str(node, "uid").to_owned(),
            labels: texts(&node["metadata"], "labels"),
            taints: items(&node["spec"], "taints").iter().map(taint).collect(),
            unschedulable: node["spec"]["unschedulable"] == true,
            allocatable: amounts(&node["status"], "allocatable"),
            ready: condition_is_true(node, "Ready"),
        }
    }
}

/// What the pods on a node take.
#[derive(Clone, Debug, Default)]
pub(crate) struct Used {
    pub(crate) amounts: Resources,
    pods: i64,
    /// One of each for each pod that takes it.
    ports: Vec<HostPort>,
}

/// A port of the node: protocol, number, address; `0.0.0.0` stands for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPort(String, i64, String);

impl HostPort {
    fn conflicts(&self, other: &Self) -> bool {
        let (Self(protocol, number, address), Self(protocol_2, number_2, address_2)) =
            (self, other);
        let all = "0.0.0.0";
        (protocol, number) == (protocol_2, number_2)
            && (address == address_2 || address == all || address_2 == all)
    }
}

impl Used {
    pub(crate) fn put(&mut self, needs: &PodNeeds) {
        self.pods += 1;
        add(&mut self.amounts, &needs.requests);
        self.ports.extend_from_slice(&needs.ports);
    }

    pub(crate) fn take_back(&mut self, needs: &PodNeeds) {
        self.pods -= 1;
        for (name, amount) in &needs.requests {
            *self.amounts.entry(name.clone()).or_default() -= amount;
        }
        for port in &needs.ports {
            if let Some(index) = self.ports.iter().position(|taken| taken == port) {
                self.ports.swap_remove(index);
            }
        }
    }
}

/// What a pod asks of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodNeeds {
    pub(crate) namespace: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) requests: Resources,
    pub(crate) tolerations: Vec<Toleration>,
    selector: BTreeMap<String, String>,
    /// Alternatives; None when the pod has no required node affinity.
    affinity: Option<Vec<Term>>,
    ports: Vec<HostPort>,
    /// Pods that must be near, and pods that must not.
    pub(crate) beside: Vec<PodTerm>,
    pub(crate) away: Vec<PodTerm>,
    /// The constraints that must hold.
    pub(crate) spread: Vec<Spread>,
    /// The claims that its volumes use.
    pub(crate) claims: Vec<String>,
    /// A plugin of the cluster's own, which nobody else knows, keeps it off every node.
    refused: bool,
    /// The first field that needs a filter which is not here.
    pub(crate) unsupported: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Term {
    labels: Vec<(String, Operator, Vec<String>)>,
    fields: Vec<(String, Operator, Vec<String>)>,
}

/// Why a node does not take a pod; the texts are kube-scheduler's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Misfit {
    Unschedulable,
    UntoleratedTaint,
    AffinityOrSelector,
    NoFreePorts,
    TooManyPods,
    Insufficient(String),
    NotSpread,
    NoTopology,
    NoFriend,
    Shunned,
    Closed,
    VolumeConflict,
    Plugin,
}

impl Misfit {
    /// Whether other pods are in the way, whose eviction could help.
    pub(crate) fn is_of_pods(&self) -> bool {
        match self {
            Self::NoFreePorts
            | Self::TooManyPods
            | Self::Insufficient(_)
            | Self::NotSpread
            | Self::Shunned
            | Self::Closed => true,
            Self::Unschedulable
            | Self::UntoleratedTaint
            | Self::AffinityOrSelector
            | Self::NoTopology
            | Self::NoFriend
            | Self::VolumeConflict
            | Self::Plugin => false,
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
            Self::UntoleratedTaint => f.write_str("node(s) had untolerated taint(s)"),
            Self::AffinityOrSelector => {
                f.write_str("node(s) didn't match Pod's node affinity/selector")
            }
            Self::NoFreePorts => {
                f.write_str("node(s) didn't have free ports for the requested pod ports")
            }
            Self::TooManyPods => f.write_str("Too many pods"),
            Self::Insufficient(resource) => write!(f, "Insufficient {resource}"),
            Self::NotSpread => f.write_str("node(s) didn't match pod topology spread constraints"),
            Self::NoTopology => f.write_str(
                "node(s) didn't match pod topology spread constraints (missing required label)",
            ),
            Self::NoFriend => f.write_str("node(s) didn't match pod affinity rules"),
            Self::VolumeConflict => f.write_str("node(s) had volume node affinity conflict"),
            Self::Plugin => f.write_str("node(s) were refused by a plugin"),
            Self::Shunned => f.write_str("node(s) didn't match pod anti-affinity rules"),
            Self::Closed => f.write_str("node(s) didn't satisfy existing pods anti-affinity rules"),
        }
    }
}

impl PodNeeds {
    /// The needs of a pod, or of a pod template.
    pub(crate) fn of(pod: &Value) -> Self {
        let spec = &pod["spec"];
        let namespace = meta_str(pod, "namespace");
        let required =
            &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        Self {
            namespace: namespace.to_owned(),
            labels: texts(&pod["metadata"], "labels"),
            beside: PodTerm::all(spec, "podAffinity", namespace),
            away: PodTerm::all(spec, "podAntiAffinity", namespace),
            requests: requests(pod),
            tolerations: items(spec, "tolerations").iter().map(toleration).collect(),
            selector: texts(spec, "nodeSelector"),
            affinity: required.is_object().then(|| {
                items(required, "nodeSelectorTerms")
                    .iter()
                    .map(term)
                    .collect()
            }),
            ports: ports(spec),
            spread: Spread::all(spec),
            claims: claim_names(meta_str(pod, "name"), spec),
            refused: pod["metadata"]["annotations"][REFUSED] == "true",
            unsupported: unsupported(spec),
        }
    }

    /// The fewer taints `PreferNoSchedule` it does not tolerate, the better: kube-scheduler gives that three times the weight
    /// of the free room.
    pub(crate) fn preference(&self, view: &NodeView) -> i64 {
        let soft = view
            .taints
            .iter()
            .filter(|taint| taint.effect == "PreferNoSchedule");
        let unwanted = soft.filter(|taint| !self.tolerations.iter().any(|it| it.tolerates(taint)));
        -i64::try_from(unwanted.count()).unwrap_or(i64::MAX)
    }

    /// The first filter that refuses the node, in the scheduler's order, with all reasons of that filter.
    pub(crate) fn misfits(&self, node: &NodeView, used: &Used) -> Vec<Misfit> {
        let tolerates_cordon = || {
            let cordon = Taint {
                key: "node.kubernetes.io/unschedulable".to_owned(),
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            };
            self.tolerations
                .iter()
                .any(|toleration| toleration.tolerates(&cordon))
        };
        if node.unschedulable && !tolerates_cordon() {
            return vec![Misfit::Unschedulable];
        }
        if self
            .untolerated(node, &["NoSchedule", "NoExecute"])
            .is_some()
        {
            return vec![Misfit::UntoleratedTaint];
        }
        if !self.selects(node) {
            return vec![Misfit::AffinityOrSelector];
        }
        let taken = |port: &HostPort| used.ports.iter().any(|taken| taken.conflicts(port));
        if self.ports.iter().any(taken) {
            return vec![Misfit::NoFreePorts];
        }
        if self.refused {
            return vec![Misfit::Plugin];
        }
        let mut misfits = Vec::new();
        if (used.pods + 1) * 1_000 > node.allocatable.get("pods").copied().unwrap_or(0) {
            misfits.push(Misfit::TooManyPods);
        }
        for (name, request) in self.requests.iter().filter(|(_, request)| **request > 0) {
            let amount = |of: &Resources| of.get(name).copied().unwrap_or(0);
            if amount(&used.amounts) + request > amount(&node.allocatable) {
                misfits.push(Misfit::Insufficient(name.clone()));
            }
        }
        misfits
    }

    /// The first taint with one of these effects that the pod does not tolerate.
    pub(crate) fn untolerated<'n>(
        &self,
        node: &'n NodeView,
        effects: &[&str],
    ) -> Option<&'n Taint> {
        node.taints.iter().find(|taint| {
            effects.contains(&taint.effect.as_str())
                && !self
                    .tolerations
                    .iter()
                    .any(|toleration| toleration.tolerates(taint))
        })
    }

    /// Whether it says which pods must be near, or must not.
    pub(crate) fn wants_neighbours(&self) -> bool {
        !self.beside.is_empty() || !self.away.is_empty()
    }

    /// Whether other pods that come or go may let it fit.
    pub(crate) fn is_social(&self) -> bool {
        self.wants_neighbours() || !self.spread.is_empty()
    }

    /// Whether the pod is made for one node, as those of a DaemonSet are.
    pub(crate) fn is_pinned(&self) -> bool {
        let pinned = |term: &Term| !term.fields.is_empty();
        self.affinity
            .as_ref()
            .is_some_and(|terms| terms.iter().any(pinned))
    }

    /// Whether node selector and required node affinity fit the node.
    pub(crate) fn selects(&self, node: &NodeView) -> bool {
        let selected = self
            .selector
            .iter()
            .all(|(key, value)| node.labels.get(key) == Some(value));
        selected
            && self
                .affinity
                .as_ref()
                .is_none_or(|terms| terms.iter().any(|term| term.matches(node)))
    }
}

impl Term {
    pub(crate) fn matches(&self, node: &NodeView) -> bool {
        // A term without requirements selects nothing.
        let empty = self.labels.is_empty() && self.fields.is_empty();
        let labels = self.labels.iter().all(|(key, operator, values)| {
            operator.holds(node.labels.get(key).map(String::as_str), values)
        });
        let fields = self.fields.iter().all(|(key, operator, values)| {
            key == "metadata.name" && operator.holds(Some(&node.name), values)
        });
        !empty && labels && fields
    }
}

fn texts(parent: &Value, field: &str) -> BTreeMap<String, String> {
    entries(parent, field)
        .map(|(key, value)| {
            (
                key.to_owned(),
                value.as_str().unwrap_or_default().to_owned(),
            )
        })
        .collect()
}

fn taint(taint: &Value) -> Taint {
    let text = |field: &str| taint[field].as_str().unwrap_or_default().to_owned();
    Taint {
        key: text("key"),
        value: text("value"),
        effect: text("effect"),
    }
}

fn toleration(toleration: &Value) -> Toleration {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default().to_owned();
    Toleration {
        key: text("key"),
        exists: toleration["operator"] == "Exists",
        value: text("value"),
        effect: text("effect"),
        seconds: toleration["tolerationSeconds"].as_i64(),
    }
}

pub(crate) fn term(term: &Value) -> Term {
    let requirements = |field: &str| {
        items(term, field)
            .iter()
            .filter_map(|requirement| {
                let values = items(requirement, "values").iter();
                Some((
                    requirement["key"].as_str()?.to_owned(),
                    Operator::parse(requirement["operator"].as_str()?)?,
                    values
                        .filter_map(|value| Some(value.as_str()?.to_owned()))
                        .collect(),
                ))
            })
            .collect()
    };
    Term {
        labels: requirements("matchExpressions"),
        fields: requirements("matchFields"),
    }
}

fn amounts(parent: &Value, field: &str) -> Resources {
    entries(parent, field)
        .filter_map(|(name, amount)| {
            // JSON numbers are quantities too.
            let text = amount
                .as_str()
                .map_or_else(|| amount.to_string(), str::to_owned);
            Some((name.to_owned(), thousandths(&text)?))
        })
        .collect()
}

fn add(total: &mut Resources, more: &Resources) {
    for (name, amount) in more {
        *total.entry(name.clone()).or_default() += amount;
    }
}

fn raise(total: &mut Resources, other: &Resources) {
    for (name, amount) in other {
        let slot = total.entry(name.clone()).or_default();
        *slot = (*slot).max(*amount);
    }
}

/// The requests of a pod: containers run together with the sidecars; each init container runs alone with the sidecars
/// started before it; pod-level requests replace the sum; the overhead comes on top.
fn requests(pod: &Value) -> Resources {
    let spec = &pod["spec"];
    let mut running = Resources::new();
    let mut sidecars = Resources::new();
    let mut starting = Resources::new();
    for container in items(spec, "initContainers") {
        let is_sidecar = container["restartPolicy"] == "Always";
        let mut peak = match is_sidecar {
            true => in_resize(
                pod,
                container,
                of_container(pod, "initContainerStatuses", container),
            ),
            false => amounts(&container["resources"], "requests"),
        };
        add(&mut peak, &sidecars);
        if is_sidecar {
            sidecars.clone_from(&peak);
        }
        raise(&mut starting, &peak);
    }
    for container in items(spec, "containers") {
        let status = of_container(pod, "containerStatuses", container);
        add(&mut running, &in_resize(pod, container, status));
    }
    add(&mut running, &sidecars);
    raise(&mut running, &starting);
    let whole = in_resize(pod, spec, Some(&pod["status"]));
    for (name, _) in entries(&spec["resources"], "requests") {
        running.insert(name.to_owned(), whole.get(name).copied().unwrap_or(0));
    }
    add(&mut running, &amounts(spec, "overhead"));
    running
}

fn of_container<'p>(pod: &'p Value, list: &str, container: &Value) -> Option<&'p Value> {
    let mut statuses = items(&pod["status"], list).iter();
    statuses.find(|status| status["name"] == container["name"])
}

/// The requests of a container, or of a whole pod, whose size may just be changing.
fn in_resize(pod: &Value, asking: &Value, status: Option<&Value>) -> Resources {
    let asked = amounts(&asking["resources"], "requests");
    let Some(status) = status.filter(|status| status["resources"].is_object()) else {
        return asked;
    };
    let mut actual = amounts(&status["resources"], "requests");
    raise(&mut actual, &amounts(status, "allocatedResources"));
    let pending = condition(pod, "PodResizePending");
    if pending.is_none_or(|pending| pending["reason"] != "Infeasible") {
        raise(&mut actual, &asked);
    }
    actual
}

/// Ports of the node: of containers and sidecars, and on the host's network all of them.
fn ports(spec: &Value) -> Vec<HostPort> {
    let sidecars = items(spec, "initContainers")
        .iter()
        .filter(|container| container["restartPolicy"] == "Always");
    let containers = items(spec, "containers").iter().chain(sidecars);
    let ports = containers.flat_map(|container| items(container, "ports"));
    ports
        .filter_map(|port| {
            let own = port["hostPort"].as_i64().filter(|number| *number > 0);
            let number = match spec["hostNetwork"] == true {
                true => own.or(port["containerPort"].as_i64())?,
                false => own?,
            };
            let text = |field: &str, default: &str| {
                let text = port[field].as_str().filter(|text| !text.is_empty());
                text.unwrap_or(default).to_owned()
            };
            Some(HostPort(
                text("protocol", "TCP"),
                number,
                text("hostIP", "0.0.0.0"),
            ))
        })
        .collect()
}

fn unsupported(spec: &Value) -> Option<String> {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = items(&spec["affinity"][kind], required);
        if let Some(field) = terms.iter().find_map(PodTerm::unsupported) {
            return Some(format!("spec.affinity.{kind}[*].{field}"));
        }
    }
    for constraint in items(spec, "topologySpreadConstraints") {
        let field = "matchLabelKeys";
        if !constraint[field].is_null() && Spread::must_hold(constraint) {
            return Some(format!("spec.topologySpreadConstraints[*].{field}"));
        }
    }
    if !items(spec, "resourceClaims").is_empty() {
        return Some("spec.resourceClaims".to_owned());
    }
    let local = [
        "emptyDir",
        "configMap",
        "secret",
        "downwardAPI",
        "projected",
        "hostPath",
        "persistentVolumeClaim",
        "ephemeral",
    ];
    items(spec, "volumes")
        .iter()
        .flat_map(|volume| volume.as_object().into_iter().flatten())
        .map(|(field, _)| field.as_str())
        .find(|field| *field != "name" && !local.contains(field))
        .map(|field| format!("spec.volumes[*].{field}"))
}

#[cfg(test)]
mod tests;
