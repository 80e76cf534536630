//! Creates, replaces, patches and applies: from what a client sent to what is stored.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    State, admission,
    apply::{self, Apply},
    error::{ApiError, Cause},
    keep,
    object::{field_mut, finalizers, is_terminating, map_mut, meta_mut, meta_str, time},
    patch,
    request::{Target, WriteOptions},
    resource::Resource,
    scale, schema,
    store::{Key, Stored},
};

/// The formats of a PATCH, by content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchFormat {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchFormat {
    pub(crate) fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => Some(Self::Apply),
            _ => None,
        }
    }
}

/// What a write leaves.
#[derive(Debug)]
pub(crate) enum Written {
    /// A version that is, or was until it was removed, in the store.
    Stored(Arc<Stored>),
    /// What no version in the store is: of a dry run, a Scale, the answer of an eviction.
    Other(Value),
}

impl Written {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Stored(stored) => &stored.key.name,
            Self::Other(object) => meta_str(object, "name"),
        }
    }

    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Stored(stored) => stored.to_value(),
            Self::Other(object) => object,
        }
    }
}

impl State {
    pub(crate) fn read(&self, target: &Target) -> Result<Arc<Stored>, ApiError> {
        self.store
            .get(target.id(), &target.key())
            .cloned()
            .ok_or_else(|| ApiError::not_found(target.id(), target.name()))
    }

    /// Creates the object and returns it as stored. The key of a generated name is in the result.
    pub(crate) fn create(
        &mut self,
        target: &Target,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let resource = &*target.resource;
        self.identify(target, &mut object)?;
        if !meta_str(&object, "resourceVersion").is_empty() {
            return Err(ApiError::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.name_it(resource, &mut object);
        let now = time(self.clock.now());
        let uid = self.ids.uid();
        let metadata = meta_mut(&mut object);
        metadata.retain(|field, _| {
            ![
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "selfLink",
            ]
            .contains(&field.as_str())
        });
        metadata.insert("uid".to_owned(), json!(uid));
        metadata.insert("creationTimestamp".to_owned(), json!(now));
        if resource.counts_generations {
            metadata.insert("generation".to_owned(), json!(1));
        }
        // A Node is born with the status its kubelet reports; all other statuses are their controllers' to write.
        let has_status = resource
            .version(&target.version)
            .is_some_and(|version| version.status);
        if has_status && !resource.id.is("nodes") {
            map_mut(&mut object).remove("status");
        }
        if resource.id.is("pods") {
            let id = super::resource::ResourceId::new("", "limitranges");
            let namespace = meta_str(&object, "namespace").to_owned();
            let ranges = self.store.list(&id, Some(&namespace), None);
            let ranges: Vec<_> = ranges.map(|range| range.value()).collect();
            admission::limit(&mut object, &ranges);
        }
        admission::default_new(resource, &mut object);
        self.settle(target, &mut object, options)?;
        if resource
            .id
            .is("customresourcedefinitions.apiextensions.k8s.io")
        {
            schema::establish(&mut object, &now);
        }
        let key = Key::of(&object);
        if self.store.get(&resource.id, &key).is_some() {
            return Err(ApiError::already_exists(&resource.id, &key.name));
        }
        if options.dry_run {
            return Ok(Written::Other(object));
        }
        let stored = self.store.put(&resource.id, object);
        self.refresh_definitions(&resource.id);
        Ok(Written::Stored(stored))
    }

    /// Replaces the object, or the part of it that the subresource names.
    pub(crate) fn update(
        &mut self,
        target: &Target,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let live = match self.read(target) {
            Ok(live) => live,
            Err(_)
                if target.subresource.is_empty()
                    && target.id().is("leases.coordination.k8s.io") =>
            {
                return self.create(target, object, options);
            }
            Err(error) => return Err(error),
        };
        if target.subresource == "scale" {
            let changed = scale::set(target, &live.value(), &object)?;
            let plain = Target {
                subresource: String::new(),
                ..target.clone()
            };
            let written = self.replace(&plain, live, changed, options)?;
            return Ok(Written::Other(scale::get(target, &written.into_value())));
        }
        if target.resource.needs_version && meta_str(&object, "resourceVersion").is_empty() {
            let cause = Cause {
                reason: "FieldValueInvalid",
                field: "metadata.resourceVersion".to_owned(),
                message: "Invalid value: 0x0: must be specified for an update".to_owned(),
            };
            return Err(ApiError::invalid(
                target.id(),
                &target.resource.kind,
                target.name(),
                &[cause],
            ));
        }
        self.replace(target, live, object, options)
    }

    /// Applies a patch to the live object; server-side apply creates it when it does not exist.
    pub(crate) fn patch(
        &mut self,
        target: &Target,
        format: PatchFormat,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let live = match (self.read(target), format) {
            (Ok(live), _) => live,
            (Err(_), PatchFormat::Apply) if target.subresource.is_empty() => {
                let created = self.apply(target, &json!({}), &body, options)?;
                return self.create(target, created, options);
            }
            (Err(error), _) => return Err(error),
        };
        let scaled = target.subresource == "scale";
        let base = || match scaled {
            true => scale::get(target, &live.value()),
            false => live.to_value(),
        };
        let patched = match format {
            PatchFormat::Json => {
                let mut patched = base();
                patch::json_patch(&mut patched, &body)?;
                patched
            }
            PatchFormat::Strategic if target.resource.custom => {
                return Err(ApiError::unsupported_media_type(
                    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ));
            }
            PatchFormat::Strategic => {
                let mut patched = base();
                patch::strategic(&mut patched, &body);
                patched
            }
            PatchFormat::Apply if !scaled => self.apply(target, &live.value(), &body, options)?,
            PatchFormat::Merge | PatchFormat::Apply => {
                let mut patched = base();
                patch::merge(&mut patched, &body);
                patched
            }
        };
        if scaled {
            return self.update(target, patched, options);
        }
        self.replace(target, live, patched, options)
    }

    fn apply(
        &self,
        target: &Target,
        live: &Value,
        body: &Value,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        if body["metadata"]["managedFields"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
        {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let version = target.resource.version(&target.version);
        let schema = version.map_or(&Value::Null, |version| &version.schema);
        let mut config = body.clone();
        self.identify(target, &mut config)?;
        let is_status = target.subresource == "status";
        let has_status = version.is_some_and(|version| version.status);
        match is_status {
            true => map_mut(&mut config).retain(|field, _| field != "spec"),
            false if has_status => {
                map_mut(&mut config).remove("status");
            }
            false => {}
        }
        Apply {
            config: &config,
            manager: &options.manager,
            force: options.force,
            subresource: &target.subresource,
            api_version: &target.resource.api_version(&target.version),
            schema,
            now: &time(self.clock.now()),
        }
        .onto(live)
    }

    /// The common end of every change: checks preconditions, keeps what the client may not touch, and stores what differs.
    fn replace(
        &mut self,
        target: &Target,
        present: Arc<Stored>,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let live = present.value();
        let resource = target.resource.clone();
        let id = &resource.id;
        self.identify(target, &mut object)?;
        let version = meta_str(&object, "resourceVersion");
        if !version.is_empty() && version != meta_str(&live, "resourceVersion") {
            return Err(ApiError::stale(id, target.name()));
        }
        let (uid, live_uid) = (meta_str(&object, "uid"), meta_str(&live, "uid"));
        if !uid.is_empty() && uid != live_uid {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {live_uid}"
            );
            return Err(ApiError::conflict(id, target.name(), &why));
        }
        keep::untouchable(target, &live, &mut object)?;
        self.settle(target, &mut object, options)?;
        if resource.counts_generations && !desired(&live).eq(desired(&object)) {
            let generation = live["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            meta_mut(&mut object).insert("generation".to_owned(), json!(generation));
        }
        let is_apply = object["metadata"]["managedFields"] != live["metadata"]["managedFields"];
        let changes = is_apply || object != *live;
        if changes && !is_apply {
            let schema = resource
                .version(&target.version)
                .map_or(&Value::Null, |version| &version.schema);
            let now = time(self.clock.now());
            apply::record_update(
                &live,
                &mut object,
                &options.manager,
                &target.subresource,
                schema,
                &now,
            );
        }
        if !changes {
            return Ok(Written::Stored(present));
        }
        if options.dry_run {
            return Ok(Written::Other(object));
        }
        let key = Key::of(&object);
        if is_terminating(&object)
            && finalizers(&object).next().is_none()
            && !self.has_grace(&object)
        {
            let last = self.store.put(id, object);
            let removed = self.store.remove(id, &key);
            self.refresh_definitions(id);
            return Ok(Written::Stored(removed.unwrap_or(last)));
        }
        let stored = self.store.put(id, object);
        self.refresh_definitions(id);
        Ok(Written::Stored(stored))
    }

    /// A terminating pod with grace left is removed by its kubelet, not by the last finalizer.
    fn has_grace(&self, object: &Value) -> bool {
        object["kind"] == "Pod"
            && object["metadata"]["deletionGracePeriodSeconds"]
                .as_i64()
                .unwrap_or(0)
                > 0
    }

    /// Checks that the object is of the target's type, name and namespace, and fills in what is missing.
    fn identify(&self, target: &Target, object: &mut Value) -> Result<(), ApiError> {
        let resource = &*target.resource;
        if !object.is_object() {
            return Err(ApiError::bad_request(
                "the object provided is unrecognized (must be of type Object)",
            ));
        }
        let api_version = resource.api_version(&target.version);
        for (field, expected) in [
            ("apiVersion", api_version.as_str()),
            ("kind", resource.kind.as_str()),
        ] {
            match object[field].as_str() {
                None | Some("") => *field_mut(object, field) = json!(expected),
                Some(found) if found != expected => {
                    return Err(ApiError::bad_request(format!(
                        "the {field} in the data ({found}) does not match the expected {field} ({expected})"
                    )));
                }
                Some(_) => {}
            }
        }
        if let Some(namespace) = &target.namespace {
            match meta_str(object, "namespace") {
                "" => {
                    meta_mut(object).insert("namespace".to_owned(), json!(namespace));
                }
                found if found != namespace => {
                    return Err(ApiError::bad_request(
                        "the namespace of the provided object does not match the namespace sent on the request",
                    ));
                }
                _ => {}
            }
        } else if !resource.namespaced {
            meta_mut(object).remove("namespace");
        }
        if let Some(name) = &target.name {
            match meta_str(object, "name") {
                "" => {
                    meta_mut(object).insert("name".to_owned(), json!(name));
                }
                found if found != name => {
                    return Err(ApiError::bad_request(format!(
                        "the name of the object ({found}) does not match the name on the URL ({name})"
                    )));
                }
                _ => {}
            }
        }
        // Stored in the storage version; served versions differ in nothing but the name of the version.
        *field_mut(object, "apiVersion") = json!(resource.api_version(&resource.storage_version));
        Ok(())
    }

    fn name_it(&mut self, resource: &Resource, object: &mut Value) {
        let prefix = meta_str(object, "generateName").to_owned();
        if !meta_str(object, "name").is_empty() || prefix.is_empty() {
            return;
        }
        loop {
            let name = self.ids.name(&prefix);
            let key = Key::new(meta_str(object, "namespace"), name.as_str());
            if self.store.get(&resource.id, &key).is_none() {
                meta_mut(object).insert("name".to_owned(), json!(name));
                return;
            }
        }
    }

    /// Schema, defaults and validation of an object that is about to be stored.
    fn settle(
        &self,
        target: &Target,
        object: &mut Value,
        options: &WriteOptions,
    ) -> Result<(), ApiError> {
        let resource = &*target.resource;
        let name = meta_str(object, "name").to_owned();
        if resource.namespaced {
            let namespace = meta_str(object, "namespace");
            let namespaces = super::resource::ResourceId::new("", "namespaces");
            if self
                .store
                .get(&namespaces, &Key::new("", namespace))
                .is_none()
            {
                return Err(ApiError::not_found(&namespaces, namespace));
            }
        }
        let mut causes = admission::check_metadata(object);
        if resource.id.is("nodes") {
            causes.extend(admission::check_taints(object));
        }
        if resource
            .id
            .is("customresourcedefinitions.apiextensions.k8s.io")
        {
            causes.extend(schema::check_definition(object));
        }
        if let Some(version) = resource
            .version(&target.version)
            .filter(|_| resource.custom)
        {
            let unknown = schema::prune(&version.schema, object);
            if options.strict && !unknown.is_empty() {
                let list: Vec<String> = unknown
                    .iter()
                    .map(|path| format!("unknown field \"{path}\""))
                    .collect();
                return Err(ApiError::bad_request(format!(
                    "strict decoding error: {}",
                    list.join(", ")
                )));
            }
            schema::default(&version.schema, object);
            causes.extend(schema::validate(&version.schema, object));
        }
        match causes.is_empty() {
            true => Ok(()),
            false => Err(ApiError::invalid(
                &resource.id,
                &resource.kind,
                &name,
                &causes,
            )),
        }
    }

    /// Serves what the definitions say after one of them changed.
    pub(crate) fn refresh_definitions(&mut self, changed: &super::resource::ResourceId) {
        if !changed.is("customresourcedefinitions.apiextensions.k8s.io") {
            return;
        }
        self.registry = super::resource::built_in();
        let definitions: Vec<Arc<Value>> = self
            .store
            .list(changed, None, None)
            .map(|stored| stored.value())
            .collect();
        for definition in &definitions {
            let resource = Resource::from_definition(definition);
            self.registry
                .insert(resource.id.clone(), Arc::new(resource));
        }
    }
}

/// The fields in which an object says what is wanted: all but those that every object has, and the status.
fn desired(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(field, _)| {
        !["metadata", "status", "apiVersion", "kind"].contains(&field.as_str())
    })
}
