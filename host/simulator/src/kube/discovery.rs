//! Discovery and health: the documents by which clients find the resources.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{State, error::ApiError, resource::Resource};

/// The version that the server claims to be.
const GIT_VERSION: &str = "v1.36.3";

impl State {
    /// The document at a path that names no object or collection.
    pub(crate) fn discover(&self, segments: &[String]) -> Result<Value, ApiError> {
        let words: Vec<&str> = segments.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["version"] => Ok(json!({
                "major": "1", "minor": "36", "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
                "buildDate": "2026-01-01T00:00:00Z", "goVersion": "", "compiler": "gc", "platform": "linux/amd64",
            })),
            ["api"] => Ok(
                json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
            ),
            ["api", "v1"] => Ok(self.resources("", "v1")),
            ["apis"] => {
                let groups: Vec<Value> = self
                    .groups()
                    .iter()
                    .map(|(group, versions)| api_group(group, versions))
                    .collect();
                Ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
            }
            ["apis", group] => {
                let groups = self.groups();
                let versions = groups.get(group).ok_or_else(ApiError::no_such_path)?;
                let mut document = api_group(group, versions);
                document["kind"] = json!("APIGroup");
                document["apiVersion"] = json!("v1");
                Ok(document)
            }
            ["apis", group, version]
                if self
                    .groups()
                    .get(group)
                    .is_some_and(|versions| versions.contains(version)) =>
            {
                Ok(self.resources(group, version))
            }
            _ => Err(ApiError::no_such_path()),
        }
    }

    /// The named groups with their served versions.
    fn groups(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut groups = BTreeMap::<&str, Vec<&str>>::new();
        for resource in self
            .registry
            .values()
            .filter(|resource| !resource.id.group.is_empty())
        {
            let versions = groups.entry(&resource.id.group).or_default();
            for version in &resource.versions {
                if !versions.contains(&version.name.as_str()) {
                    versions.push(&version.name);
                }
            }
        }
        groups
    }

    fn resources(&self, group: &str, version: &str) -> Value {
        let resources: Vec<Value> = self
            .registry
            .values()
            .filter(|resource| *resource.id.group == *group)
            .flat_map(|resource| entries(resource, version))
            .collect();
        let group_version = match group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        };
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
    }
}

fn api_group(group: &str, versions: &[&str]) -> Value {
    let entry =
        |version: &str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    json!({
        "name": group,
        "versions": versions.iter().map(|version| entry(version)).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(|version| entry(version)),
    })
}

fn entries(resource: &Resource, version: &str) -> Vec<Value> {
    let Some(served) = resource.version(version) else {
        return Vec::new();
    };
    let plural = &resource.id.plural;
    let sub = |name: &str, kind: &str, verbs: Value| {
        json!({
            "name": format!("{plural}/{name}"),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind,
            "verbs": verbs,
        })
    };
    let mut list = vec![json!({
        "name": &**plural,
        "singularName": resource.singular,
        "shortNames": resource.short_names,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    })];
    if served.status {
        list.push(sub(
            "status",
            &resource.kind,
            json!(["get", "patch", "update"]),
        ));
    }
    if served.scale.is_some() {
        let mut scale = sub("scale", "Scale", json!(["get", "patch", "update"]));
        scale["group"] = json!("autoscaling");
        scale["version"] = json!("v1");
        list.push(scale);
    }
    if resource.id.is("pods") {
        let mut eviction = sub("eviction", "Eviction", json!(["create"]));
        eviction["group"] = json!("policy");
        eviction["version"] = json!("v1");
        list.push(eviction);
        list.push(sub("binding", "Binding", json!(["create"])));
    }
    list
}
