//! Taints and tolerations, with Kubernetes' exact meaning (`k8s.io/api/core/v1`, `ToleratesTaint`).

use std::fmt;

use crate::facts::{Taint, TaintEffect, Toleration};
use crate::keys::{
    DRAINING_TAINT, NETWORK_UNAVAILABLE_TAINT, NOT_READY_TAINT, UNINITIALIZED_TAINT,
    UNREACHABLE_TAINT, UNREGISTERED_TAINT, UNSCHEDULABLE_TAINT,
};

/// Taints that a Node carries only on its way into service: set and removed by its kubelet, by Kubernetes' controllers, by
/// a cloud controller, by an agent of its network or storage, by us. A machine to come is looked at as if they were gone.
const PASSING: [&str; 8] = [
    UNREGISTERED_TAINT,
    UNSCHEDULABLE_TAINT,
    NOT_READY_TAINT,
    UNREACHABLE_TAINT,
    NETWORK_UNAVAILABLE_TAINT,
    UNINITIALIZED_TAINT,
    "node.cluster.x-k8s.io/uninitialized",
    "cni.istio.io/not-ready",
];

/// Keys that begin so are passing too: Cluster Autoscaler's, and those of Kubernetes' rules of Node readiness.
const PASSING_PREFIXES: [&str; 3] = [
    "startup-taint.",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "readiness.k8s.io/",
];

/// And keys that end so, such as `node.cilium.io/agent-not-ready`.
const PASSING_SUFFIX: &str = "/agent-not-ready";

pub fn is_passing(taint: &Taint) -> bool {
    let key = &*taint.key;
    PASSING.contains(&key)
        || PASSING_PREFIXES
            .iter()
            .any(|prefix| key.starts_with(prefix))
        || key.ends_with(PASSING_SUFFIX)
}

/// This taint keeps a Ready Node out of service for a while: something takes it off by itself, and until then the Node
/// takes no pods. `startup`: the pool's own such taints. A cordon does not, because it is a user's decision.
pub fn delays_service(startup: &[Taint], taint: &Taint) -> bool {
    let is = |other: &Taint| (&other.key, other.effect) == (&taint.key, taint.effect);
    let passes = is_passing(taint) && taint.effect != TaintEffect::PreferNoSchedule;
    startup.iter().any(is) || (passes && &*taint.key != UNSCHEDULABLE_TAINT)
}

/// The first taint that keeps a pod with these tolerations away. `PreferNoSchedule` keeps no pod away.
pub fn untolerated<'t>(
    tolerations: &[Toleration],
    taints: impl IntoIterator<Item = &'t Taint>,
) -> Option<&'t Taint> {
    taints.into_iter().find(|taint| {
        let keeps_away = match taint.effect {
            TaintEffect::NoSchedule | TaintEffect::NoExecute => true,
            TaintEffect::PreferNoSchedule => false,
        };
        keeps_away
            && !tolerations
                .iter()
                .any(|toleration| tolerates(toleration, taint))
    })
}

/// A pod with these tolerations can come back to a Node that is being drained.
pub fn tolerates_drain(tolerations: &[Toleration]) -> bool {
    tolerates_cordon(tolerations) && draining_toleration(tolerations).is_some()
}

/// By which of these a pod tolerates our taint of a Node that is being drained.
pub(crate) fn draining_toleration(tolerations: &[Toleration]) -> Option<&Toleration> {
    let draining = Taint {
        key: DRAINING_TAINT.into(),
        value: "".into(),
        effect: TaintEffect::NoSchedule,
    };
    tolerations.iter().find(|one| tolerates(one, &draining))
}

/// A cordoned Node takes only pods that tolerate Kubernetes' taint for a cordon.
pub fn tolerates_cordon(tolerations: &[Toleration]) -> bool {
    let cordon = Taint {
        key: UNSCHEDULABLE_TAINT.into(),
        value: "".into(),
        effect: TaintEffect::NoSchedule,
    };
    untolerated(tolerations, [&cordon]).is_none()
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let Toleration {
        key,
        exists,
        value,
        effect,
    } = toleration;
    effect.is_none_or(|effect| effect == taint.effect)
        && match key.as_deref() {
            None | Some("") => *exists,
            Some(key) => key == &*taint.key && (*exists || value == &taint.value),
        }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        match &**value {
            "" => write!(f, "{key}:{effect}"),
            value => write!(f, "{key}={value}:{effect}"),
        }
    }
}

/// As a manifest has it, on one line.
impl fmt::Display for Toleration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.key.as_ref().map(|key| format!("key: {key}")));
        match self.exists {
            true => parts.push("operator: Exists".to_owned()),
            false => parts.push(format!("value: {}", self.value)),
        }
        parts.extend(self.effect.map(|effect| format!("effect: {effect}")));
        write!(f, "{{{}}}", parts.join(", "))
    }
}

impl TaintEffect {
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute];
        all.into_iter().find(|effect| effect.to_string() == word)
    }
}

impl fmt::Display for TaintEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str, effect: TaintEffect) -> Taint {
        Taint {
            key: key.into(),
            value: value.into(),
            effect,
        }
    }

    fn toleration(
        key: Option<&str>,
        exists: bool,
        value: &str,
        effect: Option<TaintEffect>,
    ) -> Toleration {
        Toleration {
            key: key.map(Into::into),
            exists,
            value: value.into(),
            effect,
        }
    }

    #[test]
    fn tolerations_mean_what_kubernetes_says() {
        use TaintEffect::{NoExecute, NoSchedule};
        let taint = taint("gpu", "a", NoSchedule);
        for (toleration, expected) in [
            (toleration(Some("gpu"), false, "a", Some(NoSchedule)), true),
            (toleration(Some("gpu"), false, "a", None), true),
            (toleration(Some("gpu"), true, "", None), true),
            (toleration(None, true, "", None), true),
            (toleration(Some(""), true, "", None), true),
            (toleration(None, false, "a", None), false),
            (toleration(Some("gpu"), false, "b", None), false),
            (toleration(Some("gpu"), false, "", None), false),
            (toleration(Some("gpu"), true, "", Some(NoExecute)), false),
            (toleration(Some("cpu"), true, "", None), false),
        ] {
            assert_eq!(tolerates(&toleration, &taint), expected, "{toleration:?}");
        }
    }

    #[test]
    fn r4_known_startup_taints_pass_and_others_stay() {
        let delays = |key: &str| delays_service(&[], &taint(key, "", TaintEffect::NoSchedule));
        for key in [
            NOT_READY_TAINT,
            NETWORK_UNAVAILABLE_TAINT,
            UNINITIALIZED_TAINT,
            "node.cluster.x-k8s.io/uninitialized",
            "cni.istio.io/not-ready",
            "node.cilium.io/agent-not-ready",
            "ebs.csi.aws.com/agent-not-ready",
            "startup-taint.cluster-autoscaler.kubernetes.io/net",
            "ignore-taint.cluster-autoscaler.kubernetes.io/disk",
            "readiness.k8s.io/storage",
        ] {
            assert!(delays(key), "{key}");
        }
        for key in [
            UNSCHEDULABLE_TAINT,
            "node.kubernetes.io/disk-pressure",
            "node.kubernetes.io/out-of-service",
            "node.cloudprovider.kubernetes.io/shutdown",
            "status-taint.cluster-autoscaler.kubernetes.io/x",
            "nvidia.com/gpu",
            "CriticalAddonsOnly",
            "agent-not-ready",
        ] {
            assert!(!delays(key), "{key}");
        }
        let own = taint("example.com/booting", "x", TaintEffect::NoExecute);
        let other = taint("example.com/booting", "", TaintEffect::NoSchedule);
        let startup = [own.clone()];
        assert!(delays_service(&startup, &own) && !delays_service(&startup, &other));
    }

    #[test]
    fn preferences_keep_nobody_away() {
        let taints = [
            taint("soft", "", TaintEffect::PreferNoSchedule),
            taint("hard", "x", TaintEffect::NoExecute),
        ];
        assert_eq!(
            untolerated(&[], &taints)
                .map(ToString::to_string)
                .as_deref(),
            Some("hard=x:NoExecute")
        );
        assert_eq!(untolerated(&[], &taints[..1]), None);
    }

    #[test]
    fn a_cordon_is_tolerated_like_its_taint() {
        assert!(!tolerates_cordon(&[]));
        assert!(tolerates_cordon(&[toleration(
            Some(UNSCHEDULABLE_TAINT),
            true,
            "",
            None
        )]));
        assert!(tolerates_cordon(&[toleration(None, true, "", None)]));
    }
}
