//! The pods that a pod likes to stand with, and those that it likes to stand away from.

use kproxide_planner::facts::{LabelSelector, Labels, PodTerm, PreferredNeighbours};
use kproxide_planner::keys::HOSTNAME;

use super::{Unsupported, pod_term_facts, spread_facts};
use crate::view::{PodAffinityView, PodSpecView, SpreadView};

/// What each pod in a domain counts for a spread with `ScheduleAnyway`: as much as the largest weight of an
/// anti-affinity.
const SPREAD_WEIGHT: i32 = -100;

/// `ScheduleAnyway`: the scheduler ranks Nodes by such a spread, and rules none out.
pub(super) fn is_preferred(spread: &SpreadView) -> bool {
    spread.when_unsatisfiable.as_deref() == Some("ScheduleAnyway")
}

/// Without those whose domain is one host, and those that a later Kubernetes may mean: the pod runs without what it
/// prefers.
pub(super) fn preferred_neighbours(
    spec: &PodSpecView,
    labels: &Labels,
) -> Vec<PreferredNeighbours> {
    let of_terms = |affinity: &PodAffinityView, sign: i32| -> Vec<_> {
        let terms = affinity.preferred.iter().filter_map(|preferred| {
            let mut unread = Unsupported::default();
            let term = pod_term_facts("", &preferred.pod_affinity_term, labels, &mut unread);
            unread.0.is_empty().then_some(PreferredNeighbours {
                weight: sign * preferred.weight.clamp(1, 100),
                term,
                is_spread: false,
            })
        });
        terms.collect()
    };
    let spreads = spec.topology_spread_constraints.iter();
    let of_spread = spreads.filter(|it| is_preferred(it)).filter_map(|spread| {
        let mut unread = Unsupported::default();
        let spread = spread_facts(spread, labels, &mut unread);
        // As for a spread that must hold, kube-scheduler counts no pod for a selector of all.
        let selector = spread
            .selector
            .filter(|selector| *selector != LabelSelector::default())?;
        let term = PodTerm {
            topology_key: spread.topology_key,
            selector: Some(selector),
            ..PodTerm::default()
        };
        unread.0.is_empty().then_some(PreferredNeighbours {
            weight: SPREAD_WEIGHT,
            term,
            is_spread: true,
        })
    });
    let with = of_terms(&spec.affinity.pod_affinity, 1);
    let away = of_terms(&spec.affinity.pod_anti_affinity, -1);
    let all = with.into_iter().chain(away).chain(of_spread);
    all.filter(|it| &*it.term.topology_key != HOSTNAME)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::convert::pod::pod_facts;
    use crate::view::PodView;

    #[test]
    fn what_pods_prefer_of_zones_is_kept() {
        let selector = |app: &str| json!({"matchLabels": {"app": app}});
        let term = |weight: i32, key: &str, app: &str| json!({"weight": weight, "podAffinityTerm": {"topologyKey": key, "labelSelector": selector(app)}});
        let spread = |key: &str, when: &str| json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector("web")});
        let (zone, wanted) = (
            "topology.kubernetes.io/zone",
            "preferredDuringSchedulingIgnoredDuringExecution",
        );
        let new = json!({"matchExpressions": [{"key": "app", "operator": "IsNew"}]});
        let pod: PodView = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "affinity": {
                    "podAffinity": {wanted: [term(5, zone, "cache"), term(5, HOSTNAME, "cache")]},
                    "podAntiAffinity": {wanted: [
                        term(7, "rack", "db"),
                        // An operator of a later Kubernetes.
                        {"weight": 9, "podAffinityTerm": {"topologyKey": zone, "labelSelector": new}},
                    ]},
                },
                "topologySpreadConstraints": [
                    spread(zone, "ScheduleAnyway"),
                    spread(HOSTNAME, "ScheduleAnyway"),
                    spread(zone, "DoNotSchedule"),
                ],
            },
        }))
        .unwrap();
        let spec = pod_facts(&pod).spec;
        let app = |it: &PreferredNeighbours| {
            it.term.selector.as_ref().unwrap().match_labels["app"].clone()
        };
        let preferred = spec.preferred_neighbours.iter();
        let preferred = preferred.map(|it| (it.weight, it.term.topology_key.to_string(), app(it)));
        let of = |weight: i32, key: &str, app: &str| (weight, key.to_owned(), app.to_owned());
        let expected = [
            of(5, zone, "cache"),
            of(-7, "rack", "db"),
            of(-100, zone, "web"),
        ];
        assert_eq!(preferred.collect::<Vec<_>>(), expected);
        assert_eq!(spec.spread.len(), 1);
        assert_eq!(
            spec.unsupported,
            [],
            "the pod is served without what it prefers"
        );
    }
}
