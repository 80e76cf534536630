//! RBAC as far as the chart uses it: what its roles grant, and what a request asks for.

use std::fmt;

use http::{Method, Uri};
use serde_json::Value;

use crate::HOME;

/// One verb on one resource, of one object if it has a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Permission {
    /// Of a Role, that is in [`HOME`] alone.
    at_home: bool,
    group: String,
    /// With its subresource, as in `pods/eviction`.
    resource: String,
    verb: String,
    name: Option<String>,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at_home: _,
            group,
            resource,
            verb,
            name,
        } = self;
        write!(f, "{verb} {resource}")?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        name.iter().try_for_each(|name| write!(f, " {name}"))
    }
}

impl Permission {
    pub(crate) fn is_watch(&self) -> bool {
        self.verb == "watch"
    }
}

/// The permissions of a ClusterRole or Role; none of another object.
pub(crate) fn granted(object: &Value) -> Vec<Permission> {
    let at_home = match object["kind"].as_str() {
        Some("ClusterRole") => false,
        Some("Role") => true,
        Some(_) | None => return Vec::new(),
    };
    let mut granted = Vec::new();
    for rule in object["rules"].as_array().unwrap() {
        let texts = |field: &str| -> Vec<String> {
            let list = rule[field].as_array().into_iter().flatten();
            list.map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let mut names: Vec<_> = texts("resourceNames").into_iter().map(Some).collect();
        if names.is_empty() {
            names.push(None);
        }
        for group in &texts("apiGroups") {
            for resource in &texts("resources") {
                for verb in &texts("verbs") {
                    granted.extend(names.iter().map(|name| Permission {
                        at_home,
                        group: group.clone(),
                        resource: resource.clone(),
                        verb: verb.clone(),
                        name: name.clone(),
                    }));
                }
            }
        }
    }
    granted
}

/// What a request needs to be allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked {
    group: String,
    resource: String,
    verb: &'static str,
    namespace: Option<String>,
    name: Option<String>,
}

/// As kube-apiserver words its refusal.
impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            group,
            resource,
            verb,
            namespace,
            name: _,
        } = self;
        write!(
            f,
            "cannot {verb} resource \"{resource}\" in API group \"{group}\""
        )?;
        match namespace {
            Some(namespace) => write!(f, " in the namespace \"{namespace}\""),
            None => write!(f, " at the cluster scope"),
        }
    }
}

impl Asked {
    /// `None`: discovery and health, which RBAC grants to everybody.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let words: Vec<&str> = uri
            .path()
            .split('/')
            .filter(|word| !word.is_empty())
            .collect();
        let (group, rest) = match words.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // A namespace itself is judged as an object within it.
            ["namespaces", name] => (Some(*name), rest),
            ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (resource, name) = match rest {
            [resource] => ((*resource).to_owned(), None),
            [resource, name] => ((*resource).to_owned(), Some((*name).to_owned())),
            [resource, name, sub] => (format!("{resource}/{sub}"), Some((*name).to_owned())),
            _ => return None,
        };
        let query = uri.query().unwrap_or_default();
        let watches = query
            .split('&')
            .any(|part| part == "watch=true" || part == "watch=1");
        let verb = match *method {
            Method::GET if name.is_some() => "get",
            Method::GET if watches => "watch",
            Method::GET => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if name.is_some() => "delete",
            Method::DELETE => "deletecollection",
            _ => return None,
        };
        Some(Self {
            group: group.to_owned(),
            resource,
            verb,
            namespace: namespace.map(str::to_owned),
            name,
        })
    }

    pub(crate) fn is_granted_by(&self, permission: &Permission) -> bool {
        let Permission {
            at_home,
            group,
            resource,
            verb,
            name,
        } = permission;
        *group == self.group
            && *resource == self.resource
            && verb == self.verb
            && (!at_home || self.namespace.as_deref() == Some(HOME))
            && (name.is_none() || *name == self.name)
    }
}

#[test]
fn a_name_and_a_namespace_narrow_what_is_granted() {
    let role = serde_json::json!({ "kind": "Role", "rules": [
        { "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["key"], "verbs": ["get"] },
    ] });
    let permissions = granted(&role);
    let [permission] = &permissions[..] else {
        panic!("one rule, one permission");
    };
    let may = |method: Method, path: &str| {
        let asked = Asked::of(&method, &path.parse().unwrap());
        asked.unwrap().is_granted_by(permission)
    };
    let home = format!("/api/v1/namespaces/{HOME}/secrets");
    assert!(may(Method::GET, &format!("{home}/key")));
    assert!(!may(Method::GET, &format!("{home}/another")));
    assert!(!may(Method::GET, &home));
    assert!(!may(Method::PATCH, &format!("{home}/key")));
    assert!(!may(Method::GET, "/api/v1/namespaces/default/secrets/key"));
    assert_eq!(Asked::of(&Method::GET, &"/version".parse().unwrap()), None);
}
