//! The finalizer of NodePools, NodeClasses and ProxmoxClusters that machines need, and the annotation `hypervisor-off`.

use kproxide_planner::keys;
use kproxide_planner::plan::{FinalizerStep, Needed};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde_json::json;

use super::client::Client;
use super::convert::{annotation, carries};
use super::crd::{NodeClass, NodePool, ProxmoxCluster};
use super::error::{Cas, Error};
use super::view::CustomView;

/// Puts it on, or takes it off. Finalizers of others stay. Repeatable: an object that stands as it shall is left alone.
///
/// # Errors
/// Nothing is lost: the next plan asks for it again.
pub async fn set(client: &Client, step: &FinalizerStep) -> Result<Cas<()>, Error> {
    match &step.object {
        Needed::Pool(name) => {
            let api = client.all::<CustomView<NodePool>>();
            set_on(&api, "nodepools", name.as_str(), step).await
        }
        Needed::Class(name) => {
            let api = client.all::<CustomView<NodeClass>>();
            set_on(&api, "nodeclasses", name.as_str(), step).await
        }
        Needed::Cluster(name) => {
            let api = client.all::<CustomView<ProxmoxCluster>>();
            set_on(&api, "proxmoxclusters", name.as_str(), step).await
        }
    }
}

async fn set_on<K>(
    api: &Api<CustomView<K>>,
    resource: &'static str,
    name: &str,
    step: &FinalizerStep,
) -> Result<Cas<()>, Error>
where
    CustomView<K>: Resource<DynamicType = ()> + Clone + std::fmt::Debug,
    CustomView<K>: serde::de::DeserializeOwned,
{
    let failed = |verb| Error::of(verb, resource, name);
    let Some(found) = api.get_opt(name).await.map_err(failed("get"))? else {
        return Ok(Cas::Gone);
    };
    let meta = found.meta();
    if meta.uid.as_deref() != Some(step.uid.as_str()) {
        return Ok(Cas::Gone);
    }
    let off = annotation(meta, keys::HYPERVISOR_OFF).unwrap_or_default();
    let answers = |name: &&str| step.answering.iter().any(|it| **it == *name.trim());
    let still: Vec<&str> = off.split(',').filter(|name| !answers(name)).collect();
    let still = still.join(",");
    if carries(meta, keys::IN_USE) == step.in_use && still == off {
        return Ok(Cas::Written(()));
    }
    let others = meta.finalizers.iter().flatten().map(String::as_str);
    let others = others.filter(|finalizer| *finalizer != keys::IN_USE);
    let finalizers: Vec<&str> = others.chain(step.in_use.then_some(keys::IN_USE)).collect();
    let mut patch = json!({"metadata": {
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "finalizers": finalizers,
    }});
    if still != off {
        let still = Some(still).filter(|still| !still.is_empty());
        patch["metadata"]["annotations"] = json!({ keys::HYPERVISOR_OFF: still });
    }
    let written = api
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map(|_| ())
        .map_err(failed("patch"));
    Cas::of(written)
}
