//! What goes when something else has gone: dependents of deleted owners, and the contents of deleted namespaces.

use super::{Controllers, Work};
use crate::kube::{
    object::{field_mut, finalizers, is_terminating},
    request::DeleteOptions,
    resource::ResourceId,
    store::{Change, ChangeKind, Key, Stored},
};

impl Controllers {
    /// Keeps track of owners and marks dependents without any.
    pub(super) fn note_owners(&mut self, change: &Change) {
        let Change {
            resource,
            object,
            previous,
            ..
        } = change;
        // Most updates concern no owner.
        if change.kind == ChangeKind::Modified
            && previous.as_ref().is_some_and(|previous| {
                (&previous.uid, &previous.owners) == (&object.uid, &object.owners)
            })
        {
            return;
        }
        let dependent = (resource.clone(), object.key.clone());
        let before = previous
            .as_ref()
            .map(|previous| previous.owners.as_slice())
            .unwrap_or_default();
        for owner in before {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(&dependent);
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        if change.kind == ChangeKind::Deleted {
            self.uids.remove(&object.uid);
            let orphans = self
                .dependents
                .get(&object.uid)
                .cloned()
                .unwrap_or_default();
            self.work.extend(
                orphans
                    .into_iter()
                    .map(|(resource, key)| Work::Garbage(resource, key)),
            );
            return;
        }
        self.uids.insert(object.uid.clone());
        for owner in &object.owners {
            self.dependents
                .entry(owner.clone())
                .or_default()
                .insert(dependent.clone());
        }
        if change.kind == ChangeKind::Added && !object.owners.is_empty() {
            self.work.insert(Work::Garbage(dependent.0, dependent.1));
        }
    }

    /// Deletes an object all of whose owners are gone.
    pub(super) fn collect_garbage(&mut self, resource: &ResourceId, key: &Key) {
        let stored = self.kube.lock().store.get(resource, key).cloned();
        let Some(stored) = stored else { return };
        let owned = stored.owners.iter().any(|owner| self.uids.contains(owner));
        if !stored.owners.is_empty() && !owned && !stored.terminating {
            self.delete(resource, &stored);
        }
    }

    fn delete(&self, resource: &ResourceId, stored: &Stored) {
        let Key { namespace, name } = &stored.key;
        let options = DeleteOptions::of_uid(&stored.uid);
        // What is gone already is what was wanted.
        let _ = self
            .kube
            .delete_with(&resource.to_string(), namespace, name, &options);
    }

    pub(super) fn work_on_namespace_of(&mut self, key: &Key) {
        let namespace = self.kube.look("namespaces", "", &key.namespace);
        if namespace.is_some_and(|namespace| is_terminating(&namespace)) {
            self.work.insert(Work::Namespace(key.namespace.clone()));
        }
    }

    /// Empties a namespace that is being deleted, then lets it go.
    pub(super) fn reconcile_namespace(&mut self, name: &str) {
        let Some(namespace) = self.kube.look("namespaces", "", name) else {
            return;
        };
        if !is_terminating(&namespace) || finalizers(&namespace).next().is_none() {
            return;
        }
        let contents: Vec<(ResourceId, std::sync::Arc<Stored>)> = {
            let state = self.kube.lock();
            let resources = state
                .registry
                .values()
                .filter(|resource| resource.namespaced);
            resources
                .flat_map(|resource| {
                    let objects = state.store.list(&resource.id, Some(name), None);
                    objects.map(|stored| (resource.id.clone(), stored.clone()))
                })
                .collect()
        };
        for (resource, stored) in contents.iter().filter(|(_, stored)| !stored.terminating) {
            self.delete(resource, stored);
        }
        if contents.is_empty() {
            let mut namespace = std::sync::Arc::unwrap_or_clone(namespace);
            *field_mut(field_mut(&mut namespace, "spec"), "finalizers") = serde_json::json!([]);
            let _ = self.kube.write("namespaces", "", namespace);
        } else {
            // Objects with finalizers of others leave when those let them.
            let again = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
            self.set_timer(again, Work::Namespace(name.to_owned()));
        }
    }
}
