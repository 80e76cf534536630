//! From an HTTP request to what it asks for.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::extract::Query;
use http::{Method, Uri};
use serde_json::Value;

use super::{
    audit::Verb,
    error::ApiError,
    resource::{Resource, ResourceId},
    selector::{FieldSelector, LabelSelector, Selector},
    store::Key,
};

/// The object or collection that a request is about.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    pub(crate) version: String,
    /// None in a request across all namespaces and for cluster-scoped resources.
    pub(crate) namespace: Option<String>,
    /// None for a collection.
    pub(crate) name: Option<String>,
    /// Empty for the object itself.
    pub(crate) subresource: String,
}

impl Target {
    pub(crate) fn id(&self) -> &ResourceId {
        &self.resource.id
    }

    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace.clone().unwrap_or_default(), self.name())
    }
}

/// What a path under `/api` or `/apis` names.
#[derive(Debug)]
pub(crate) enum Place {
    /// The groups, the versions of a group or the resources of a version.
    Discovery(Vec<String>),
    /// A collection or an object.
    Target(Target),
}

/// Splits a path; unknown groups, versions and resources are 404.
pub(crate) fn place(
    path: &str,
    registry: &BTreeMap<ResourceId, Arc<Resource>>,
) -> Result<Place, ApiError> {
    let segments: Vec<String> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(percent_decode)
        .collect();
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match words.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        [
            "api" | "apis" | "version" | "healthz" | "readyz" | "livez" | "openapi",
            ..,
        ] => {
            return Ok(Place::Discovery(segments));
        }
        _ => return Err(ApiError::no_such_path()),
    };
    // `namespaces` is both a prefix and a resource; its own subresources are the only third words after a name.
    let (namespace, rest) = match rest {
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
        rest => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, None, ""),
        [plural, name] => (*plural, Some((*name).to_owned()), ""),
        [plural, name, subresource] => (*plural, Some((*name).to_owned()), *subresource),
        _ => return Err(ApiError::no_such_path()),
    };
    let resource = registry
        .get(&ResourceId::new(group, plural))
        .filter(|resource| resource.version(version).is_some())
        .filter(|resource| namespace.is_none() || resource.namespaced)
        .filter(|resource| name.is_none() || namespace.is_some() == resource.namespaced)
        .ok_or_else(ApiError::no_such_path)?;
    Ok(Place::Target(Target {
        resource: resource.clone(),
        version: version.to_owned(),
        namespace,
        name,
        subresource: subresource.to_owned(),
    }))
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let decoded = match tail {
            [high, low, ..] if *first == b'%' => std::str::from_utf8(&[*high, *low])
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 16).ok()),
            _ => None,
        };
        bytes.push(decoded.unwrap_or(*first));
        rest = &rest[if decoded.is_some() { 3 } else { 1 }..];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The query parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params(BTreeMap<String, String>);

impl Params {
    pub(crate) fn of(uri: &Uri) -> Result<Self, ApiError> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        Ok(Self(pairs.into_iter().collect()))
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), "true" | "1")
    }

    fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.text(name) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| ApiError::bad_request(format!("invalid value {text:?} for {name}"))),
        }
    }

    pub(crate) fn limit(&self) -> Result<usize, ApiError> {
        let limit = self.number("limit")?.unwrap_or(0);
        Ok(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    pub(crate) fn resource_version(&self) -> Result<Option<u64>, ApiError> {
        self.number("resourceVersion")
    }

    pub(crate) fn timeout(&self) -> Result<Option<Duration>, ApiError> {
        Ok(self.number("timeoutSeconds")?.map(Duration::from_secs))
    }

    pub(crate) fn selector(&self, resource: &Resource) -> Result<Selector, ApiError> {
        Ok(Selector {
            labels: LabelSelector::parse(self.text("labelSelector"))?,
            fields: FieldSelector::parse(self.text("fieldSelector"), resource)?,
        })
    }

    pub(crate) fn write_options(&self) -> WriteOptions {
        WriteOptions {
            dry_run: self.text("dryRun") == "All",
            manager: match self.text("fieldManager") {
                "" => "unknown".to_owned(),
                manager => manager.to_owned(),
            },
            force: self.flag("force"),
            strict: self.text("fieldValidation") == "Strict",
        }
    }

    /// The options of a delete from the query and the body, which wins.
    pub(crate) fn delete_options(&self, body: &Value) -> DeleteOptions {
        let text = |field: &str| body["preconditions"][field].as_str().map(str::to_owned);
        let grace = self.text("gracePeriodSeconds").parse().ok();
        let propagation = body["propagationPolicy"]
            .as_str()
            .unwrap_or_else(|| self.text("propagationPolicy"));
        DeleteOptions {
            dry_run: self.text("dryRun") == "All" || body["dryRun"] == serde_json::json!(["All"]),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            grace: body["gracePeriodSeconds"].as_i64().or(grace),
            orphan: propagation == "Orphan",
        }
    }
}

/// How a write is to be done.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) manager: String,
    /// Server-side apply takes fields from other managers.
    pub(crate) force: bool,
    /// Unknown fields are an error, not pruned.
    pub(crate) strict: bool,
}

/// How an object is to be deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    /// Seconds; only pods know grace.
    pub(crate) grace: Option<i64>,
    pub(crate) orphan: bool,
}

/// The verb of a request, in the words of RBAC.
pub(crate) fn verb(method: &Method, target: &Target, params: &Params) -> Result<Verb, ApiError> {
    let one = target.name.is_some();
    match method.as_str() {
        "GET" | "HEAD" if params.flag("watch") => Ok(Verb::Watch),
        "GET" | "HEAD" if one => Ok(Verb::Get),
        "GET" | "HEAD" => Ok(Verb::List),
        "POST" if !one || !target.subresource.is_empty() => Ok(Verb::Create),
        "PUT" if one => Ok(Verb::Update),
        "PATCH" if one => Ok(Verb::Patch),
        "DELETE" if one => Ok(Verb::Delete),
        "DELETE" => Ok(Verb::DeleteCollection),
        _ => Err(ApiError::method_not_allowed()),
    }
}
