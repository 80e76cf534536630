//! Pods and DaemonSets: what they ask, where they may run, whether they can move.

mod affinity;
mod neighbours;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use kproxide_planner::facts::{
    DaemonSetFacts, HostPort, LabelSelector, Labels, MOST_REQUIREMENTS, Namespaces, Operator,
    Owner, PodClaim, PodFacts, PodPhase, PodSpec, PodTemplate, PodTerm, Requirement,
    SpreadConstraint, TaintEffect, Toleration,
};
use kproxide_planner::ids::{NodeName, PodKey, Uid};
use kproxide_planner::keys;
use kproxide_planner::kubernetes::eviction::{Protection, protection};
use kproxide_planner::kubernetes::resources::{
    InitContainer, PodLevelRequests, Resources, is_huge_pages, pod_requests,
};
use kube::api::ObjectMeta;

pub(super) use self::affinity::requirement_facts;
use self::affinity::{preferred_facts, term_facts};
use self::neighbours::{is_preferred, preferred_neighbours};
use self::requests::requests;
use super::storage::pod_claims;
use super::{created, filled, flagged_in};
use crate::crd::Amount;
use crate::view::{
    AffinityView, ContainerView, DaemonSetView, PodSpecView, PodStatusView, PodTermView, PodView,
    PodVolumeView, ResourcesView, SelectorView, SpreadView, TolerationView,
};
use kproxide_common::foreign::value;

/// Namespace and name; both are empty where the API server left them out.
pub fn object_key(meta: &ObjectMeta) -> PodKey {
    PodKey::new(
        meta.namespace.as_deref().unwrap_or_default(),
        super::name(meta),
    )
}

/// What planning reads of a pod. What cannot be read is a fact of its own, so that no pod is counted as smaller than it is.
pub fn pod_facts(pod: &PodView) -> PodFacts {
    let (metadata, spec, status) = (&pod.metadata, &pod.spec, &pod.status);
    let condition = |kind: &str| {
        status
            .conditions
            .iter()
            .find(|condition| condition.kind == kind)
    };
    let mut pod_spec = pod_spec_facts(spec, metadata.labels.as_ref(), status);
    if has_safe_volumes(metadata, &spec.volumes) {
        pod_spec.local_volumes = false;
        pod_spec.empty_dir = false;
    }
    let mut labels = metadata.labels.clone().unwrap_or_default();
    let mut claims = pod_claims(super::name(metadata), &spec.volumes);
    forget_surplus(&mut labels, &mut claims, &mut pod_spec);
    let karpenters = annotation(metadata, keys::KARPENTER_DO_NOT_DISRUPT);
    let start = status.start_time.unwrap_or_else(|| created(metadata));
    let karpenters = protection(karpenters, start);
    let safe_to_evict = annotation(metadata, keys::SAFE_TO_EVICT);
    PodFacts {
        uid: Uid::from(metadata.uid.as_deref().unwrap_or_default()),
        created: created(metadata),
        node: filled(&spec.node_name).map(NodeName::from),
        phase: match status.phase.as_deref() {
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some("Pending") | None => PodPhase::Pending,
            Some(_) => PodPhase::Unknown,
        },
        // The scheduler does not look at a pod with gates, whoever has written the condition.
        unschedulable_since: condition("PodScheduled")
            .filter(|_| spec.scheduling_gates.is_empty())
            .filter(|condition| {
                condition.status == "False" && condition.reason.as_deref() == Some("Unschedulable")
            })
            .map(|condition| {
                condition
                    .last_transition_time
                    .unwrap_or_else(|| created(metadata))
            }),
        bound_since: condition("PodScheduled")
            .filter(|condition| condition.status == "True")
            .and_then(|condition| condition.last_transition_time),
        nominated: filled(&status.nominated_node_name).map(NodeName::from),
        ready: condition("Ready").is_some_and(|condition| condition.status == "True"),
        deleting: metadata.deletion_timestamp.is_some(),
        grace_ends: metadata.deletion_timestamp.as_ref().map(|time| time.0),
        owner: owner(metadata),
        mirror: annotation(metadata, keys::MIRROR).is_some(),
        started: status.has_started(),
        runs_once: spec.restart_policy.as_deref() == Some("Never"),
        do_not_disrupt: flagged_in(metadata, keys::DO_NOT_DISRUPT)
            || safe_to_evict == Some("false")
            || karpenters == Protection::Always,
        protected_until: match karpenters {
            Protection::Until(end) => Some(end),
            Protection::No | Protection::Always => None,
        },
        safe_to_evict: safe_to_evict == Some("true"),
        on_completion: safe_to_evict == Some("on-completion"),
        labels,
        claims,
        spec: pod_spec,
    }
}

/// The API server takes any number of these. A pod with more than kproxide looks at is not planned for, and keeps its Node.
fn forget_surplus(labels: &mut Labels, claims: &mut Vec<PodClaim>, spec: &mut PodSpec) {
    let most = MOST_REQUIREMENTS;
    let mut surplus = Vec::new();
    if labels.len() > most {
        *labels = mem::take(labels).into_iter().take(most).collect();
        surplus.push("metadata.labels");
    }
    if claims.len() > most {
        claims.truncate(most);
        claims.shrink_to_fit();
        surplus.push("spec.volumes");
    }
    if spec.requests.extended.len() > most {
        let extended = &mut spec.requests.extended;
        *extended = mem::take(extended).into_iter().take(most).collect();
        surplus.push("spec.containers.resources.requests");
    }
    if !surplus.is_empty() {
        let fields = surplus
            .iter()
            .map(|field| Arc::from(format!("{field}: more than {most}")));
        spec.unsupported.extend(fields);
        spec.unsupported.sort();
    }
}

/// Cluster Autoscaler's annotation names each volume of the pod that lies on its Node.
fn has_safe_volumes(metadata: &ObjectMeta, volumes: &[PodVolumeView]) -> bool {
    let Some(safe) = annotation(metadata, keys::SAFE_TO_EVICT_LOCAL_VOLUMES) else {
        return false;
    };
    let is_local = |volume: &&PodVolumeView| {
        volume.host_path.is_some() || volume.others.contains_key("emptyDir")
    };
    let safe: BTreeSet<&str> = safe.split(',').map(str::trim).collect();
    let mut local = volumes.iter().filter(is_local);
    local.all(|volume| safe.contains(&*volume.name))
}

/// The DaemonSet controller adds tolerations to the pods that it makes.
///
/// <https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations>
pub fn daemon_set_facts(set: &DaemonSetView) -> DaemonSetFacts {
    let template = &set.spec.template.spec;
    let labels = set.spec.template.metadata.labels.as_ref();
    let mut spec = pod_spec_facts(template, labels, &PodStatusView::default());
    let added = [
        (keys::NOT_READY_TAINT, TaintEffect::NoExecute),
        (keys::UNREACHABLE_TAINT, TaintEffect::NoExecute),
        (keys::DISK_PRESSURE_TAINT, TaintEffect::NoSchedule),
        (keys::MEMORY_PRESSURE_TAINT, TaintEffect::NoSchedule),
        (keys::PID_PRESSURE_TAINT, TaintEffect::NoSchedule),
        (keys::UNSCHEDULABLE_TAINT, TaintEffect::NoSchedule),
    ];
    let network = (template.host_network == Some(true))
        .then_some((keys::NETWORK_UNAVAILABLE_TAINT, TaintEffect::NoSchedule));
    spec.tolerations.extend(
        added
            .into_iter()
            .chain(network)
            .map(|(key, effect)| Toleration {
                key: Some(key.into()),
                exists: true,
                value: "".into(),
                effect: Some(effect),
            }),
    );
    let mut labels = labels.cloned().unwrap_or_default();
    forget_surplus(&mut labels, &mut Vec::new(), &mut spec);
    DaemonSetFacts {
        labels,
        spec,
        csi_drivers: template.volumes.iter().filter_map(socket_of).collect(),
    }
}

/// The CSI driver whose socket is in this folder of the Node, such as `/var/lib/kubelet/plugins/csi.example.com`.
fn socket_of(volume: &PodVolumeView) -> Option<Arc<str>> {
    let path = &volume.host_path.as_ref()?.path;
    let (_, driver) = path.trim_end_matches('/').rsplit_once("/plugins/")?;
    (!driver.contains('/')).then(|| driver.into())
}

/// The value of an annotation, if the object has it.
pub fn annotation<'m>(meta: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

fn owner(meta: &ObjectMeta) -> Option<Owner> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| Owner {
            kind: value(&owner.kind).into(),
            name: value(&owner.name).into(),
            uid: Uid::from(owner.uid.as_str()),
        })
}

fn pod_spec_facts(spec: &PodSpecView, labels: Option<&Labels>, status: &PodStatusView) -> PodSpec {
    let PodSpecView {
        node_name: _,
        node_selector,
        affinity:
            AffinityView {
                node_affinity,
                pod_affinity,
                pod_anti_affinity,
            },
        tolerations,
        priority,
        scheduler_name,
        scheduling_gates: _,
        restart_policy: _,
        host_network,
        containers,
        init_containers,
        overhead: _,
        resources,
        volumes,
        topology_spread_constraints,
        resource_claims,
    } = spec;
    let mut unsupported = Unsupported::default();

    let preferred_node_affinity = node_affinity.preferred.iter().filter_map(preferred_facts);
    let preferred_node_affinity = preferred_node_affinity.collect();
    let node_affinity = node_affinity.required.as_ref().map(|required| {
        required
            .node_selector_terms
            .iter()
            .map(|term| term_facts(term, &mut unsupported))
            .collect()
    });
    let tolerations = tolerations
        .iter()
        .filter_map(|one| toleration_facts(one, &mut unsupported))
        .collect();
    let requests = requests(spec, status, &mut unsupported);

    let none = Labels::new();
    let labels = labels.unwrap_or(&none);
    let mut terms = |field: &str, terms: &[PodTermView]| -> Vec<PodTerm> {
        let terms = terms.iter();
        let read = terms.map(|term| pod_term_facts(field, term, labels, &mut unsupported));
        read.collect()
    };
    let pod_affinity = terms("spec.affinity.podAffinity", &pod_affinity.required);
    let pod_anti_affinity = terms("spec.affinity.podAntiAffinity", &pod_anti_affinity.required);
    let preferred_neighbours = preferred_neighbours(spec, labels);
    let spread = topology_spread_constraints
        .iter()
        .filter(|one| !is_preferred(one))
        .map(|one| spread_facts(one, labels, &mut unsupported))
        .collect();
    let all_containers = || containers.iter().chain(init_containers);
    let claims_devices = all_containers().any(|container| !container.resources.claims.is_empty())
        || resources
            .as_ref()
            .is_some_and(|resources| !resources.claims.is_empty());
    if claims_devices || !resource_claims.is_empty() {
        unsupported.field("spec.resourceClaims");
    }
    let local_volumes = volumes.iter().any(|volume| volume.host_path.is_some());
    let mut empty_dir = false;
    for kind in volumes.iter().flat_map(|volume| volume.others.keys()) {
        match kind.as_str() {
            "emptyDir" => empty_dir = true,
            // Nothing about these depends on the Node. What claims ask follows from their volumes.
            "configMap" | "secret" | "projected" | "downwardAPI" | "nfs" | "image" | "gitRepo"
            | "cephfs" | "glusterfs" | "csi" | "fc" | "flexVolume" => {}
            // Two pods with one of these may exclude each other, or it is attached as a claim's volume is.
            other => unsupported.field(&format!("spec.volumes.{other}")),
        }
    }

    let template = PodTemplate {
        requests,
        node_selector: node_selector.clone(),
        node_affinity,
        tolerations,
        priority: priority.unwrap_or_default(),
        scheduler_name: scheduler_name.as_deref().map(|name| value(name).into()),
        local_volumes,
        empty_dir,
        host_ports: host_ports(containers, init_containers, *host_network == Some(true)),
        pod_affinity,
        pod_anti_affinity,
        spread,
        unsupported: unsupported.sorted(),
        too_many: None,
    };
    let mut spec = PodSpec {
        template: template.into(),
        preferred_node_affinity,
        preferred_neighbours,
        volumes: Vec::new(),
        volume_wait: None,
    };
    spec.forget_surplus();
    spec
}

/// Of the init containers, only sidecars hold their ports for as long as the pod runs. On the host's network each port is one of the host: the API
/// server says so in pods, but not in the template of a DaemonSet.
fn host_ports(
    containers: &[ContainerView],
    init_containers: &[ContainerView],
    on_host_network: bool,
) -> Vec<HostPort> {
    let sidecars = init_containers.iter().filter(|one| is_sidecar(one));
    let ports = sidecars
        .chain(containers)
        .flat_map(|container| &container.ports);
    let taken = ports.filter_map(|port| {
        let of_host = port.host_port.filter(|port| *port > 0);
        let number = of_host.or(port.container_port.filter(|_| on_host_network))?;
        let given = |text: &Option<String>, default: &str| -> Arc<str> {
            let text = text.as_deref().filter(|text| !text.is_empty());
            value(text.unwrap_or(default)).into()
        };
        Some(HostPort {
            port: u16::try_from(number).ok()?,
            protocol: given(&port.protocol, "TCP"),
            address: given(&port.host_ip, HostPort::EVERY_ADDRESS),
        })
    });
    let taken: BTreeSet<HostPort> = taken.collect();
    taken.into_iter().collect()
}

fn is_sidecar(init_container: &ContainerView) -> bool {
    init_container.restart_policy.as_deref() == Some("Always")
}

/// Names of fields that are not evaluated, each once.
#[derive(Default)]
struct Unsupported(Vec<Arc<str>>);

impl Unsupported {
    fn field(&mut self, name: &str) {
        self.0.push(value(name).into());
    }

    fn sorted(mut self) -> Vec<Arc<str>> {
        self.0.sort();
        self.0.dedup();
        self.0
    }
}

/// `labels`: those of the pod.
fn spread_facts(
    constraint: &SpreadView,
    labels: &Labels,
    unsupported: &mut Unsupported,
) -> SpreadConstraint {
    let SpreadView {
        topology_key,
        when_unsatisfiable: _,
        label_selector,
        max_skew,
        min_domains,
        node_affinity_policy,
        node_taints_policy,
        match_label_keys,
    } = constraint;
    let at_least_1 = |number: &Option<i64>| {
        number
            .and_then(|it| u32::try_from(it).ok())
            .map_or(1, |it| it.max(1))
    };
    let field = "spec.topologySpreadConstraints.labelSelector";
    let selector = selector_facts(field, label_selector.as_ref(), unsupported);
    SpreadConstraint {
        topology_key: topology_key.as_str().into(),
        selector: selector.map(|mut selector| {
            let more = of_own_labels(match_label_keys, Operator::In, labels);
            selector.match_expressions.extend(more);
            selector
        }),
        max_skew: at_least_1(max_skew),
        min_domains: at_least_1(min_domains),
        any_affinity: node_affinity_policy.as_deref() == Some("Ignore"),
        honors_taints: node_taints_policy.as_deref() == Some("Honor"),
    }
}

/// `labels`: those of the pod.
fn pod_term_facts(
    field: &str,
    term: &PodTermView,
    labels: &Labels,
    unsupported: &mut Unsupported,
) -> PodTerm {
    let PodTermView {
        topology_key,
        label_selector,
        namespaces,
        namespace_selector,
        match_label_keys,
        mismatch_label_keys,
    } = term;
    let selector = selector_facts(field, label_selector.as_ref(), unsupported);
    let named: BTreeSet<Arc<str>> = namespaces.iter().map(|name| name.as_str().into()).collect();
    let namespaces = match namespace_selector {
        None if named.is_empty() => Namespaces::Own,
        None => Namespaces::Named(named.into_iter().collect()),
        Some(selector) if *selector == SelectorView::default() => Namespaces::All,
        Some(selector) => {
            let field = format!("{field}.namespaceSelector");
            let read = selector_facts(&field, Some(selector), unsupported);
            Namespaces::Selected(read.unwrap_or_default(), named.into_iter().collect())
        }
    };
    PodTerm {
        topology_key: topology_key.as_str().into(),
        selector: selector.map(|mut selector| {
            let more = &mut selector.match_expressions;
            more.extend(of_own_labels(match_label_keys, Operator::In, labels));
            more.extend(of_own_labels(mismatch_label_keys, Operator::NotIn, labels));
            selector
        }),
        namespaces,
    }
}

/// `matchLabelKeys` and `mismatchLabelKeys` stand for the pod's own values of these labels, as far as it has them.
fn of_own_labels<'a>(
    keys: &'a [String],
    operator: Operator,
    labels: &'a Labels,
) -> impl Iterator<Item = Requirement> + 'a {
    keys.iter().filter_map(move |key| {
        Some(Requirement {
            key: key.as_str().into(),
            operator,
            values: vec![labels.get(key)?.as_str().into()],
        })
    })
}

fn selector_facts(
    field: &str,
    selector: Option<&SelectorView>,
    unsupported: &mut Unsupported,
) -> Option<LabelSelector> {
    let selector = selector?;
    let expressions = selector.match_expressions.iter();
    let read: Vec<Requirement> = expressions.filter_map(requirement_facts).collect();
    if read.len() < selector.match_expressions.len() {
        unsupported.field(field);
    }
    Some(LabelSelector {
        match_labels: selector.match_labels.clone(),
        match_expressions: read,
    })
}

fn toleration_facts(
    toleration: &TolerationView,
    unsupported: &mut Unsupported,
) -> Option<Toleration> {
    let exists = match toleration.operator.as_deref() {
        Some("Exists") => true,
        Some("Equal" | "") | None => false,
        Some(other) => {
            unsupported.field(&format!("spec.tolerations: operator {other}"));
            return None;
        }
    };
    let effect = match toleration.effect.as_deref() {
        Some("") | None => None,
        Some(word) => match TaintEffect::from_word(word) {
            Some(effect) => Some(effect),
            None => {
                unsupported.field(&format!("spec.tolerations: effect {word}"));
                return None;
            }
        },
    };
    Some(Toleration {
        key: filled(&toleration.key).map(Arc::from),
        exists,
        value: toleration.value.as_deref().unwrap_or_default().into(),
        effect,
    })
}

#[cfg(test)]
mod tests;
