//! Our own objects, undecoded: one that another version of kproxide wrote must not stop the watch of the others.

use std::borrow::Cow;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{narrow_meta, or_default};

/// An object of kind `K` as the API server sends and takes it.
#[derive(Deserialize)]
#[serde(default, bound = "")]
pub(crate) struct CustomView<K> {
    #[serde(deserialize_with = "narrow_meta")]
    pub(in crate::kube) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(in crate::kube) spec: Map<String, Value>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) status: Map<String, Value>,
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

impl<K> CustomView<K> {
    /// An object to be written.
    pub(in crate::kube) fn new(name: &str, spec: &impl Serialize) -> Self {
        let mut object = Self::default();
        object.metadata.name = Some(name.to_owned());
        object.spec = fields(spec);
        object
    }
}

/// A part of an object to be written.
pub(in crate::kube) fn fields(part: &impl Serialize) -> Map<String, Value> {
    let value = serde_json::to_value(part).expect("our records are plain data");
    let Value::Object(fields) = value else {
        unreachable!("a record has fields: {value}");
    };
    fields
}

impl<K: kube::Resource<DynamicType = ()>> Serialize for CustomView<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("CustomView", 5)?;
        object.serialize_field("apiVersion", &K::api_version(&()))?;
        object.serialize_field("kind", &K::kind(&()))?;
        object.serialize_field("metadata", &self.metadata)?;
        object.serialize_field("spec", &self.spec)?;
        if !self.status.is_empty() {
            object.serialize_field("status", &self.status)?;
        }
        object.end()
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
