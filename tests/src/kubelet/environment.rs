//! A container's mount points, environment and arguments, by the kubelet's rules.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::controlplane::Api;

use super::LaunchError;
use super::volumes::{self, Source};

/// Folder in memory that every container finds, and that outlives its process as the pod does.
const SHARED_MEMORY: &str = "/dev/shm";

/// Where the container's mounts are on this machine.
#[derive(Clone, Debug)]
pub(super) struct Mounts {
    root: PathBuf,
    /// Path in the container and name of the volume that fills it, longest path first.
    list: Vec<(String, Option<String>)>,
}

impl Mounts {
    pub(super) fn of(container: &Value, root: PathBuf) -> Result<Self, LaunchError> {
        let mut list = vec![(SHARED_MEMORY.to_owned(), None)];
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            let (Some(path), Some(volume)) = (mount["mountPath"].as_str(), mount["name"].as_str())
            else {
                return Err(LaunchError::Unsupported(format!("volumeMount {mount}")));
            };
            if !mount["subPath"].is_null() || !mount["subPathExpr"].is_null() {
                return Err(LaunchError::Unsupported(format!(
                    "a subPath at {path}: such mounts never change"
                )));
            }
            list.push((
                path.trim_end_matches('/').to_owned(),
                Some(volume.to_owned()),
            ));
        }
        list.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Ok(Mounts { root, list })
    }

    /// Each folder with the name of the volume that fills it, if one does.
    pub(super) fn folders(&self) -> impl Iterator<Item = (PathBuf, Option<&str>)> {
        self.list
            .iter()
            .map(|(path, volume)| (self.place(path), volume.as_deref()))
    }

    /// The folder of the mount at exactly `path`.
    pub(super) fn find(&self, path: &str) -> Option<PathBuf> {
        self.list
            .iter()
            .any(|(mount, _)| mount == path)
            .then(|| self.place(path))
    }

    /// Where a path of the container is, if it is in a mount.
    pub(super) fn translate(&self, path: &str) -> Option<PathBuf> {
        self.list
            .iter()
            .any(|(mount, _)| ends_path(path.strip_prefix(mount.as_str())))
            .then(|| self.place(path))
    }

    /// `text` with every mount path in it moved to where the mount is. A mount path counts where a path can begin (at
    /// the start, after `=`, `,`, `:` or a blank) and is not part of a longer name.
    fn rewrite(&self, text: &str) -> String {
        let mut written = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let begins = written
                .chars()
                .next_back()
                .is_none_or(|before| "=,: ".contains(before));
            let mount = self
                .list
                .iter()
                .find(|(mount, _)| begins && ends_path(rest.strip_prefix(mount.as_str())));
            let taken = match mount {
                Some((mount, _)) => {
                    written.push_str(&self.place(mount).to_string_lossy());
                    mount.len()
                }
                None => {
                    written.push(first);
                    first.len_utf8()
                }
            };
            rest = &rest[taken..];
        }
        written
    }

    fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// Whether what follows a path's prefix shows that the prefix was a whole path.
fn ends_path(rest: Option<&str>) -> bool {
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ',', ':', ' ']))
}

/// What every container finds before its own variables.
pub(super) fn base(pod: &Value) -> BTreeMap<String, String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    [
        (
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ),
        ("HOME", "/"),
        ("HOSTNAME", name),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect()
}

/// The variables of `envFrom` and `env`, in the order in which later ones win and may refer to earlier ones.
pub(super) async fn resolve(
    api: &Api,
    pod: &Value,
    container: &Value,
    mounts: &Mounts,
) -> Result<BTreeMap<String, String>, LaunchError> {
    let mut env = BTreeMap::new();
    for from in container["envFrom"].as_array().into_iter().flatten() {
        let prefix = from["prefix"].as_str().unwrap_or_default();
        let (source, reference) = match (&from["configMapRef"], &from["secretRef"]) {
            (reference @ Value::Object(_), _) => (Source::ConfigMap, reference),
            (_, reference @ Value::Object(_)) => (Source::Secret, reference),
            _ => return Err(LaunchError::Unsupported(format!("envFrom {from}"))),
        };
        for (key, bytes) in volumes::read(api, pod, source, reference)
            .await?
            .unwrap_or_default()
        {
            env.insert(format!("{prefix}{key}"), utf8(&key, bytes)?);
        }
    }
    for variable in container["env"].as_array().into_iter().flatten() {
        let Some(name) = variable["name"].as_str() else {
            return Err(LaunchError::Unsupported(format!("env {variable}")));
        };
        let from = &variable["valueFrom"];
        let value = if from.is_null() {
            Some(expand(variable["value"].as_str().unwrap_or_default(), &env))
        } else {
            value_from(api, pod, from).await?
        };
        if let Some(value) = value {
            env.insert(name.to_owned(), value);
        }
    }
    Ok(env
        .into_iter()
        .map(|(name, value)| (name, mounts.rewrite(&value)))
        .collect())
}

async fn value_from(api: &Api, pod: &Value, from: &Value) -> Result<Option<String>, LaunchError> {
    if let Some(path) = from["fieldRef"]["fieldPath"].as_str() {
        return field(pod, path).map(Some);
    }
    let (source, reference) = match (&from["configMapKeyRef"], &from["secretKeyRef"]) {
        (reference @ Value::Object(_), _) => (Source::ConfigMap, reference),
        (_, reference @ Value::Object(_)) => (Source::Secret, reference),
        _ => return Err(LaunchError::Unsupported(format!("valueFrom {from}"))),
    };
    let key = reference["key"].as_str().unwrap_or_default();
    let found = volumes::read(api, pod, source, reference)
        .await?
        .and_then(|mut keys| keys.remove(key));
    match found {
        Some(bytes) => utf8(key, bytes).map(Some),
        None if reference["optional"] == true => Ok(None),
        None => Err(LaunchError::Missing(format!(
            "key {key} of {source} {}",
            reference["name"]
        ))),
    }
}

/// The arguments of the process: the rest of `command`, whose first word is the binary, and `args`.
pub(super) fn arguments(
    container: &Value,
    env: &BTreeMap<String, String>,
    mounts: &Mounts,
) -> Result<Vec<String>, LaunchError> {
    let command = container["command"]
        .as_array()
        .into_iter()
        .flatten()
        .skip(1);
    let args = container["args"].as_array().into_iter().flatten();
    command
        .chain(args)
        .map(|arg| match arg.as_str() {
            Some(arg) => Ok(mounts.rewrite(&expand(arg, env))),
            None => Err(LaunchError::Unsupported(format!("argument {arg}"))),
        })
        .collect()
}

/// The value of a downward-API field.
pub(super) fn field(pod: &Value, path: &str) -> Result<String, LaunchError> {
    let unsupported = || LaunchError::Unsupported(format!("fieldPath {path}"));
    let map_entry = |field: &str| {
        let key = path
            .strip_prefix(field)?
            .strip_prefix("['")?
            .strip_suffix("']")?;
        Some(
            pod["metadata"][field.trim_start_matches("metadata.")][key]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        )
    };
    match path {
        "metadata.name"
        | "metadata.namespace"
        | "metadata.uid"
        | "spec.nodeName"
        | "spec.serviceAccountName" => {
            let pointer = format!("/{}", path.replace('.', "/"));
            pod.pointer(&pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
                .ok_or_else(unsupported)
        }
        "status.podIP" | "status.hostIP" => Ok("127.0.0.1".to_owned()),
        _ => map_entry("metadata.labels")
            .or_else(|| map_entry("metadata.annotations"))
            .ok_or_else(unsupported),
    }
}

/// Replaces `$(NAME)` by the variable's value. An unknown one stays as it is, and `$$` is a plain `$`.
fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
            continue;
        }
        let reference = rest.strip_prefix('(').and_then(|open| open.split_once(')'));
        match reference.and_then(|(name, after)| env.get(name).map(|value| (value, after))) {
            Some((value, after)) => {
                expanded.push_str(value);
                rest = after;
            }
            None => expanded.push('$'),
        }
    }
    expanded + rest
}

fn utf8(key: &str, bytes: Vec<u8>) -> Result<String, LaunchError> {
    String::from_utf8(bytes)
        .map_err(|_| LaunchError::Unsupported(format!("key {key} as a variable: not UTF-8")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mounts() -> Mounts {
        let container = json!({ "volumeMounts": [
            { "name": "policies", "mountPath": "/etc/kproxide/policies" },
            { "name": "etc", "mountPath": "/etc/kproxide/" },
            { "name": "tmp", "mountPath": "/tmp" },
        ]});
        Mounts::of(&container, PathBuf::from("/T/root")).unwrap()
    }

    #[test]
    fn mount_paths_are_moved_where_they_are_paths() {
        let check = |text: &str, expected: &str| assert_eq!(mounts().rewrite(text), expected);
        check(
            "--policy-dir=/etc/kproxide/policies",
            "--policy-dir=/T/root/etc/kproxide/policies",
        );
        check(
            "/etc/kproxide/ca.crt,/tmp",
            "/T/root/etc/kproxide/ca.crt,/T/root/tmp",
        );
        check("--state-dir=/dev/shm/a", "--state-dir=/T/root/dev/shm/a");
        check("/etc/kproxided", "/etc/kproxided");
        check("/var/tmp", "/var/tmp");
        check("https://pve/tmp", "https://pve/tmp");
    }

    #[test]
    fn only_paths_in_a_mount_have_a_place() {
        assert_eq!(
            mounts().translate("/tmp/a"),
            Some(PathBuf::from("/T/root/tmp/a"))
        );
        assert_eq!(mounts().translate("/tmpa"), None);
        assert_eq!(mounts().find("/tmp"), Some(PathBuf::from("/T/root/tmp")));
        assert_eq!(mounts().find("/tmp/a"), None);
    }

    #[test]
    fn a_sub_path_is_refused_by_name() {
        let container =
            json!({ "volumeMounts": [{ "name": "v", "mountPath": "/a", "subPath": "b" }] });
        let error = Mounts::of(&container, PathBuf::from("/T/root"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("subPath at /a"), "{error}");
    }

    #[test]
    fn references_expand_as_in_kubernetes() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        let check = |text: &str, expected: &str| assert_eq!(expand(text, &env), expected);
        check("x$(A)y", "x1y");
        check("$(B)", "$(B)");
        check("$$(A)", "$(A)");
        check("100$", "100$");
        check("$(A", "$(A");
    }

    #[test]
    fn fields_of_the_pod_are_found() {
        let pod = json!({
            "metadata": { "name": "p", "labels": { "app.kubernetes.io/name": "kproxide" } },
            "spec": { "nodeName": "n" },
        });
        assert_eq!(field(&pod, "spec.nodeName").unwrap(), "n");
        assert_eq!(
            field(&pod, "metadata.labels['app.kubernetes.io/name']").unwrap(),
            "kproxide"
        );
        assert!(field(&pod, "status.phase").is_err());
    }
}
