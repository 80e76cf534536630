//! Deletion: preconditions, finalizers, the grace of pods.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{
    State,
    error::ApiError,
    object::{finalizers, is_terminating, items, map_mut, meta_mut, meta_str, time},
    request::{DeleteOptions, Target},
    resource::ResourceId,
    store::Key,
};

/// What a delete did.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object is gone; this was its last version.
    Gone(Value),
    /// It is terminating: finalizers or a kubelet hold it.
    Terminating(Value),
}

impl State {
    pub(crate) fn delete(
        &mut self,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let id = target.id().clone();
        let mut object = self.read(target)?.to_value();
        let found = |field| meta_str(&object, field);
        for (wanted, field, name) in [
            (&options.uid, "uid", "UID"),
            (
                &options.resource_version,
                "resourceVersion",
                "ResourceVersion",
            ),
        ] {
            if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found(field)) {
                let why = format!(
                    "Precondition failed: {name} in precondition: {wanted}, {name} in object meta: {}",
                    found(field)
                );
                return Err(ApiError::conflict(&id, target.name(), &why));
            }
        }
        let grace = match id.is("pods") {
            true => pod_grace(&object, options.grace),
            false => 0,
        };
        let held = finalizers(&object).next().is_some();
        if options.dry_run {
            return Ok(Deleted::Terminating(object));
        }
        if options.orphan {
            self.orphan(meta_str(&object, "uid"));
        }
        if !held && grace == 0 {
            let key = Key::of(&object);
            let removed = self
                .store
                .remove(&id, &key)
                .map_or(object, |stored| stored.to_value());
            self.drop_custom_objects(&id, &removed);
            self.refresh_definitions(&id);
            return Ok(Deleted::Gone(removed));
        }
        let before = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
        if is_terminating(&object) && before.is_some_and(|before| before <= grace) {
            return Ok(Deleted::Terminating(object));
        }
        let end = self
            .clock
            .now()
            .saturating_add(SignedDuration::from_secs(grace))
            .unwrap_or(self.clock.now());
        let metadata = meta_mut(&mut object);
        metadata.insert("deletionTimestamp".to_owned(), json!(time(end)));
        metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".to_owned(), json!(generation + 1));
        }
        if id.is("namespaces") {
            map_mut(&mut object).insert("status".to_owned(), json!({"phase": "Terminating"}));
        }
        Ok(Deleted::Terminating(self.store.put(&id, object).to_value()))
    }

    /// Strips the owner from its dependents, so that the garbage collector leaves them alone.
    fn orphan(&mut self, uid: &str) {
        let resources: Vec<ResourceId> = self.registry.keys().cloned().collect();
        for id in resources {
            let owned: Vec<Value> = self
                .store
                .list(&id, None, None)
                .map(|stored| stored.to_value())
                .filter(|object| {
                    items(&object["metadata"], "ownerReferences")
                        .iter()
                        .any(|owner| owner["uid"] == uid)
                })
                .collect();
            for mut object in owned {
                if let Some(Value::Array(owners)) = meta_mut(&mut object).get_mut("ownerReferences")
                {
                    owners.retain(|owner| owner["uid"] != uid);
                }
                self.store.put(&id, object);
            }
        }
    }

    /// A definition takes its objects along. Their finalizers are not waited for; the real server would.
    fn drop_custom_objects(&mut self, id: &ResourceId, definition: &Value) {
        if !id.is("customresourcedefinitions.apiextensions.k8s.io") {
            return;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let spec = &definition["spec"];
        let custom = ResourceId::new(&text(&spec["group"]), &text(&spec["names"]["plural"]));
        let keys: Vec<Key> = self
            .store
            .list(&custom, None, None)
            .map(|stored| stored.key.clone())
            .collect();
        for key in keys {
            self.store.remove(&custom, &key);
        }
    }
}

/// The grace of a pod in seconds: what was asked for, else what its spec says; none for a pod that no kubelet runs.
fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let unbound = pod["spec"]["nodeName"]
        .as_str()
        .unwrap_or_default()
        .is_empty();
    let finished = ["Succeeded", "Failed"]
        .iter()
        .any(|phase| pod["status"]["phase"] == *phase);
    if unbound || finished {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(30);
    asked.unwrap_or(own).max(0)
}
