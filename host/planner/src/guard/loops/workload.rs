//! Whose pod it is: the controller that a person wrote, not the one that it makes.

use std::hash::{DefaultHasher, Hash};
use std::sync::Arc;

use crate::facts::{OF_NAMESPACE, Owner, PodSpec};
use crate::ids::{Digest, digest};
use crate::keys::POD_TEMPLATE_HASH;
use crate::world::PodView;

/// A CronJob adds the minute of the run to the names of its Jobs: since 2001 a number of at least eight digits.
const CRON_DIGITS: usize = 8;

/// `KIND NAMESPACE/NAME` of the pod's Deployment, CronJob or other controller.
pub(crate) fn workload(pod: &PodView<'_>) -> Arc<str> {
    let namespace = pod.namespace();
    let Some(owner) = pod.owner().filter(|owner| is_named(owner)) else {
        return format!("pods without controller in {namespace}").into();
    };
    let name = &*owner.name;
    let made = match &*owner.kind {
        "ReplicaSet" => {
            let hash = pod.labels().get(POD_TEMPLATE_HASH);
            let of_template = name
                .rsplit_once('-')
                .filter(|(_, end)| hash.is_some_and(|hash| hash == end));
            of_template.map(|(name, _)| ("Deployment", name))
        }
        "Job" => {
            let is_minute = |end: &str| {
                end.len() >= CRON_DIGITS && end.bytes().all(|byte| byte.is_ascii_digit())
            };
            let of_minute = name.rsplit_once('-').filter(|(_, end)| is_minute(end));
            of_minute.map(|(name, _)| ("CronJob", name))
        }
        _ => None,
    };
    let (kind, name) = made.unwrap_or((&owner.kind, name));
    format!("{kind} {namespace}/{name}").into()
}

/// As Kubernetes names kinds and objects. Whoever makes a pod writes its controller, and with a blank it would name another namespace.
fn is_named(owner: &Owner) -> bool {
    let is_word = |text: &str| {
        let mut letters = text.bytes();
        !text.is_empty() && letters.all(|it| it.is_ascii_alphanumeric() || b".-".contains(&it))
    };
    is_word(&owner.kind) && is_word(&owner.name)
}

/// For all pods of the same namespace.
pub(super) fn of_namespace(workload: &str) -> Arc<str> {
    format!("{OF_NAMESPACE}{}", namespace_of(workload)).into()
}

/// Of `KIND NAMESPACE/NAME`, or what ends with `in NAMESPACE`.
pub(super) fn namespace_of(workload: &str) -> &str {
    let named = workload.rsplit(' ').next().unwrap_or(workload);
    named
        .split_once('/')
        .map_or(named, |(namespace, _)| namespace)
}

/// Digest of what the scheduler reads of such pods, without the names of their volumes.
pub(crate) fn pods_digest(spec: &PodSpec) -> Digest {
    let mut hasher = DefaultHasher::new();
    if spec.volumes.is_empty() && spec.volume_wait.is_none() {
        spec.hash(&mut hasher);
        return digest(&hasher);
    }
    let mut alike = spec.clone();
    alike.volume_wait = None;
    for volume in std::mem::take(&mut alike.volumes) {
        volume.reach.hash(&mut hasher);
    }
    alike.hash(&mut hasher);
    digest(&hasher)
}
