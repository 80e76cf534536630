//! Our own objects, undecoded: one that another version of kproxide wrote must not stop the watch of the others.

use std::borrow::Cow;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::narrow_meta;

/// An object of kind `K` as the API server sends and takes it.
#[derive(Deserialize)]
#[serde(default, bound = "")]
pub struct CustomView<K> {
    #[serde(deserialize_with = "narrow_meta")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "levels")]
    pub(crate) spec: Map<String, Value>,
    #[serde(deserialize_with = "levels")]
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
    pub(crate) fn new(name: &str, spec: &impl Serialize) -> Self {
        let mut object = Self::default();
        object.metadata.name = Some(name.to_owned());
        object.spec = fields(spec);
        object
    }
}

/// So many levels below a part of an object are looked at. The settings of policies may be nested as their writer likes, serde_json gives up at 128, and
/// then nothing of the whole list is read.
const LEVELS: usize = 64;

/// It has more levels than are looked at.
pub(crate) fn is_too_deep(field: &Value) -> bool {
    fn levels(value: &Value) -> usize {
        let below = match value {
            Value::Array(items) => items.iter().map(levels).max(),
            Value::Object(fields) => fields.values().map(levels).max(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        1 + below.unwrap_or(0)
    }
    levels(field) > LEVELS
}

/// The fields of a part, with one level more than is looked at: enough to show that there are more.
fn levels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    Ok(match Levels(LEVELS + 1).deserialize(deserializer)? {
        Value::Object(fields) => fields,
        // A null means the same as a missing field.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    })
}

/// A value, and in the place of what lies below so many levels of it null.
struct Levels(usize);

impl<'de> DeserializeSeed<'de> for Levels {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.0 {
            0 => IgnoredAny::deserialize(deserializer).map(|_| Value::Null),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Levels {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = all.next_element_seed(Levels(self.0 - 1))? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = all.next_key::<String>()? {
            let value = all.next_value_seed(Levels(self.0 - 1))?;
            fields.insert(name, value);
        }
        Ok(fields.into())
    }
}

/// A part of an object to be written.
pub fn fields(part: &impl Serialize) -> Map<String, Value> {
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
