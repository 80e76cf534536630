//! Our own objects, undecoded: one that another version of kproxide wrote must not stop the watch of the others.

use std::borrow::Cow;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{narrow_meta, or_default};

/// An object of kind `K` as the API server sent it.
#[derive(Deserialize)]
#[serde(default, bound = "")]
pub(in crate::kube) struct CustomView<K> {
    #[serde(deserialize_with = "narrow_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) spec: Map<String, Value>,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) status: Map<String, Value>,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K> Default for CustomView<K> {
    fn default() -> Self {
        Self {
            metadata: ObjectMeta::default(),
            spec: Map::new(),
            status: Map::new(),
            kind: PhantomData,
        }
    }
}

impl<K> Clone for CustomView<K> {
    fn clone(&self) -> Self {
        Self {
            metadata: self.metadata.clone(),
            spec: self.spec.clone(),
            status: self.status.clone(),
            kind: PhantomData,
        }
    }
}

impl<K> std::fmt::Debug for CustomView<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CustomView")
            .field("name", &self.metadata.name)
            .finish_non_exhaustive()
    }
}

impl<K: kube::Resource<DynamicType = ()>> CustomView<K> {
    /// The whole object.
    pub(in crate::kube) fn decode(&self) -> Result<K, serde_json::Error>
    where
        K: serde::de::DeserializeOwned,
    {
        let mut object = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": self.metadata,
            "spec": self.spec,
        });
        if !self.status.is_empty() {
            object["status"] = Value::Object(self.status.clone());
        }
        serde_json::from_value(object)
    }
}

impl<K: kube::Resource<DynamicType = ()>> kube::Resource for CustomView<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
