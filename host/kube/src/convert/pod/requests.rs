//! What the containers of a pod ask for.

use super::*;

/// The one place where requests are added up, by the planner's rule.
pub(super) fn requests(
    spec: &PodSpecView,
    status: &PodStatusView,
    unsupported: &mut Unsupported,
) -> Resources {
    let mut of_container = |field: &str, container: &ContainerView, may_be_resized: bool| {
        let amounts = with_limits(&container.resources.requests, &container.resources.limits);
        let field = format!("{field}.resources.requests");
        let asked = read(&amounts, &field, unsupported);
        let mut statuses = status
            .container_statuses
            .iter()
            .chain(&status.init_container_statuses);
        let actual = statuses.find(|it| may_be_resized && it.name == container.name);
        let in_force =
            actual.and_then(|it| Some((it.resources.as_ref()?, &it.allocated_resources)));
        while_resized(asked, in_force, status, unsupported)
    };
    let containers: Vec<Resources> = spec
        .containers
        .iter()
        .map(|container| of_container("spec.containers", container, true))
        .collect();
    let init_containers: Vec<InitContainer> = spec
        .init_containers
        .iter()
        .map(|container| {
            let sidecar = is_sidecar(container);
            InitContainer {
                requests: of_container("spec.initContainers", container, sidecar),
                sidecar,
            }
        })
        .collect();
    let overhead =
        (!spec.overhead.is_empty()).then(|| read(&spec.overhead, "spec.overhead", unsupported));
    // Of CPU and memory, the sum of the containers comes before a limit of the pod.
    let is_asked = |name: &str| {
        let mut all = spec.containers.iter().chain(&spec.init_containers);
        let asks = |container: &ContainerView| {
            let ResourcesView {
                requests, limits, ..
            } = &container.resources;
            requests.contains_key(name) || limits.contains_key(name)
        };
        !is_huge_pages(name) && all.any(asks)
    };
    let pod_level = spec.resources.as_ref().map(|resources| {
        let mut limits = resources.limits.clone();
        limits.retain(|name, _| !is_asked(name));
        let amounts = with_limits(&resources.requests, &limits);
        let asked = read(&amounts, "spec.resources", unsupported);
        let in_force = status.resources.as_ref();
        let in_force = in_force.map(|it| (it, &status.allocated_resources));
        let mut actual = while_resized(asked, in_force, status, unsupported);
        actual
            .extended
            .retain(|name, _| amounts.contains_key(&**name));
        PodLevelRequests {
            milli_cores: amounts.contains_key("cpu").then_some(actual.milli_cores),
            memory_bytes: amounts
                .contains_key("memory")
                .then_some(actual.memory_bytes),
            extended: actual.extended,
        }
    });
    pod_requests(
        &containers,
        &init_containers,
        overhead.as_ref(),
        pod_level.as_ref(),
    )
}

/// A container or pod that is resized in place counts with the largest of what is asked, in force and granted, as in
/// kube-scheduler. What its kubelet can never grant does not count as asked. `actual`: in force, granted.
fn while_resized(
    asked: Resources,
    actual: Option<(&ResourcesView, &BTreeMap<String, Amount>)>,
    status: &PodStatusView,
    unsupported: &mut Unsupported,
) -> Resources {
    let Some((in_force, granted)) = actual else {
        return asked;
    };
    let mut conditions = status.conditions.iter();
    let pending = conditions.find(|condition| condition.kind == "PodResizePending");
    let is_infeasible = pending.is_some_and(|it| it.reason.as_deref() == Some("Infeasible"));
    let field = "status.containerStatuses";
    let mut effective = read(&in_force.requests, field, unsupported);
    effective.raise_to(&read(granted, field, unsupported));
    if !is_infeasible {
        effective.raise_to(&asked);
    }
    effective
}

/// Kubernetes uses a limit as the request if there is no request. In the template of a DaemonSet that has not happened
/// yet.
fn with_limits(
    requests: &BTreeMap<String, Amount>,
    limits: &BTreeMap<String, Amount>,
) -> BTreeMap<String, Amount> {
    let mut amounts = limits.clone();
    amounts.extend(requests.clone());
    amounts
}

fn read(
    amounts: &BTreeMap<String, Amount>,
    field: &str,
    unsupported: &mut Unsupported,
) -> Resources {
    let texts = amounts
        .iter()
        .map(|(name, Amount(text))| (name.as_str(), text.as_str()));
    Resources::requested(texts).unwrap_or_else(|problem| {
        unsupported.field(&format!("{field}: {problem}: {}", problem.source));
        Resources::default()
    })
}
