//! A pod's volumes as folders, in the layout and with the atomicity that programs get from a kubelet:
//!
//! ```text
//! mount/..generation-x7Qa/key     the files, never changed in place
//! mount/..data                 -> ..generation-x7Qa   renamed over the old link in one step
//! mount/key                    -> ..data/key
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::controlplane::Api;

use super::LaunchError;
use super::environment::{self, Mounts};

/// What volumes and variables are read from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    ConfigMap,
    Secret,
}

impl Source {
    fn resource(self) -> &'static str {
        match self {
            Source::ConfigMap => "configmaps",
            Source::Secret => "secrets",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::ConfigMap => "ConfigMap",
            Source::Secret => "Secret",
        })
    }
}

/// The files of a volume by their path in it, which may have folders.
type Files = BTreeMap<String, File>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    contents: Vec<u8>,
    mode: u32,
}

/// Fills every mount of the container, or brings it up to date.
pub(super) async fn mount_all(api: &Api, pod: &Value, mounts: &Mounts) -> Result<(), LaunchError> {
    for (folder, volume) in mounts.folders() {
        let io = || LaunchError::io(format!("mounting {}", folder.display()));
        fs::create_dir_all(&folder).map_err(io())?;
        let Some(name) = volume else {
            continue;
        };
        let volumes = pod["spec"]["volumes"].as_array();
        let volume =
            volumes.and_then(|volumes| volumes.iter().find(|volume| volume["name"] == name));
        let Some(volume) = volume else {
            return Err(LaunchError::Missing(format!("volume {name}")));
        };
        if volume["emptyDir"].is_null() {
            let files = files_of(api, pod, volume).await?;
            write_atomically(&folder, &files).map_err(io())?;
        }
    }
    Ok(())
}

async fn files_of(api: &Api, pod: &Value, volume: &Value) -> Result<Files, LaunchError> {
    if let Value::Object(projected) = &volume["projected"] {
        let default_mode = projected.get("defaultMode").and_then(Value::as_u64);
        let mut files = Files::new();
        for source in projected
            .get("sources")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            files.extend(files_of_source(api, pod, source, default_mode).await?);
        }
        return Ok(files);
    }
    let default_mode = ["configMap", "secret", "downwardAPI"]
        .iter()
        .find_map(|kind| volume[kind]["defaultMode"].as_u64());
    files_of_source(api, pod, volume, default_mode).await
}

/// A volume of one source and a source of a projected volume are written alike, up to the field with a Secret's name.
async fn files_of_source(
    api: &Api,
    pod: &Value,
    source: &Value,
    default_mode: Option<u64>,
) -> Result<Files, LaunchError> {
    let mode = |item: &Value| {
        item["mode"]
            .as_u64()
            .or(default_mode)
            .and_then(|mode| u32::try_from(mode).ok())
    };
    let file = |contents: Vec<u8>, item: &Value| File {
        contents,
        mode: mode(item).unwrap_or(0o644),
    };

    if let token @ Value::Object(_) = &source["serviceAccountToken"] {
        let contents = service_account_token(api, pod, token).await?.into_bytes();
        let path = token["path"].as_str().unwrap_or("token").to_owned();
        return Ok(Files::from([(path, file(contents, &Value::Null))]));
    }
    if let Some(items) = source["downwardAPI"]["items"].as_array() {
        return items
            .iter()
            .map(|item| {
                let (Some(path), Some(field)) = (
                    item["path"].as_str(),
                    item["fieldRef"]["fieldPath"].as_str(),
                ) else {
                    return Err(LaunchError::Unsupported(format!("downwardAPI item {item}")));
                };
                Ok((
                    path.to_owned(),
                    file(environment::field(pod, field)?.into_bytes(), item),
                ))
            })
            .collect();
    }
    let (kind, reference) = match (&source["configMap"], &source["secret"]) {
        (reference @ Value::Object(_), _) => (Source::ConfigMap, reference),
        (_, reference @ Value::Object(_)) => (Source::Secret, reference),
        _ => return Err(LaunchError::Unsupported(format!("volume {source}"))),
    };
    let Some(mut keys) = read(api, pod, kind, reference).await? else {
        return Ok(Files::new());
    };
    let Some(items) = reference["items"].as_array() else {
        return Ok(keys
            .into_iter()
            .map(|(key, contents)| (key, file(contents, &Value::Null)))
            .collect());
    };
    let mut files = Files::new();
    for item in items {
        let (Some(key), Some(path)) = (item["key"].as_str(), item["path"].as_str()) else {
            return Err(LaunchError::Unsupported(format!("volume item {item}")));
        };
        match keys.remove(key) {
            Some(contents) => {
                files.insert(path.to_owned(), file(contents, item));
            }
            None if reference["optional"] == true => {}
            None => {
                let name = reference["name"]
                    .as_str()
                    .or(reference["secretName"].as_str())
                    .unwrap_or_default();
                return Err(LaunchError::Missing(format!("key {key} of {kind} {name}")));
            }
        }
    }
    Ok(files)
}

/// The keys of a ConfigMap or Secret in the pod's namespace; nothing if it does not exist and may be absent.
pub(super) async fn read(
    api: &Api,
    pod: &Value,
    kind: Source,
    reference: &Value,
) -> Result<Option<BTreeMap<String, Vec<u8>>>, LaunchError> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let name = reference["name"]
        .as_str()
        .or(reference["secretName"].as_str())
        .unwrap_or_default();
    let path = format!("/api/v1/namespaces/{namespace}/{}/{name}", kind.resource());
    let Some(object) = api.find(&path).await? else {
        if reference["optional"] == true {
            return Ok(None);
        }
        return Err(LaunchError::Missing(format!("{kind} {namespace}/{name}")));
    };
    let (plain, encoded) = match kind {
        Source::ConfigMap => (&object["data"], &object["binaryData"]),
        Source::Secret => (&Value::Null, &object["data"]),
    };
    let mut keys = BTreeMap::new();
    for (key, value) in plain.as_object().into_iter().flatten() {
        keys.insert(
            key.clone(),
            value.as_str().unwrap_or_default().as_bytes().to_vec(),
        );
    }
    for (key, value) in encoded.as_object().into_iter().flatten() {
        // The API server has checked the encoding when the object was written.
        keys.insert(
            key.clone(),
            STANDARD
                .decode(value.as_str().unwrap_or_default())
                .unwrap_or_default(),
        );
    }
    Ok(Some(keys))
}

async fn service_account_token(
    api: &Api,
    pod: &Value,
    source: &Value,
) -> Result<String, LaunchError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let seconds = source["expirationSeconds"].as_u64().unwrap_or(3600);
    let account = text(&pod["spec"]["serviceAccountName"]);
    let namespace = text(&pod["metadata"]["namespace"]);
    let audience = source["audience"].as_str();
    Ok(api
        .token_for(&namespace, &account, audience, Duration::from_secs(seconds))
        .await?)
}

fn write_atomically(mount: &Path, files: &Files) -> io::Result<()> {
    let data = mount.join("..data");
    let old = fs::read_link(&data).ok();
    if old.is_some() && read_back(&data)? == *files {
        return Ok(());
    }

    let generation = tempfile::Builder::new()
        .prefix("..generation-")
        .tempdir_in(mount)?
        .keep();
    for (path, file) in files {
        let path = generation.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, &file.contents)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
    }
    // Made for its owner alone; a kubelet's is open to all who may enter the mount.
    fs::set_permissions(&generation, fs::Permissions::from_mode(0o755))?;

    let name = generation
        .file_name()
        .ok_or(io::ErrorKind::InvalidFilename)?;
    let next = mount.join("..data_tmp");
    symlink(name, &next)?;
    fs::rename(&next, &data)?;

    let entries: BTreeSet<&str> = files
        .keys()
        .filter_map(|path| path.split('/').next())
        .collect();
    for &entry in &entries {
        let link = mount.join(entry);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(entry), &link)?;
        }
    }
    for found in fs::read_dir(mount)? {
        let found = found?;
        let name = found.file_name();
        let name = name.to_string_lossy();
        // What is a folder here is another mount.
        if !name.starts_with("..") && !entries.contains(&*name) && found.file_type()?.is_symlink() {
            fs::remove_file(found.path())?;
        }
    }
    if let Some(old) = old {
        fs::remove_dir_all(mount.join(old))?;
    }
    Ok(())
}

fn read_back(folder: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                folders.push((entry.path(), format!("{path}/")));
            } else {
                let mode = metadata.permissions().mode() & 0o7777;
                files.insert(
                    path,
                    File {
                        contents: fs::read(entry.path())?,
                        mode,
                    },
                );
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        let file = |text: &str| File {
            contents: text.into(),
            mode: 0o640,
        };
        list.iter()
            .map(|(path, text)| ((*path).to_owned(), file(text)))
            .collect()
    }

    /// Everything below `mount` that a program sees, hidden generations left out.
    fn visible(mount: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(mount)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with(".."))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_mount_has_the_layout_of_a_kubelet() {
        let mount = tempfile::tempdir().unwrap();
        write_atomically(mount.path(), &files(&[("key", "1"), ("lab/token-id", "2")])).unwrap();
        assert_eq!(visible(mount.path()), ["key", "lab"]);
        assert_eq!(
            fs::read_link(mount.path().join("key")).unwrap(),
            Path::new("..data/key")
        );
        assert_eq!(
            fs::read_to_string(mount.path().join("lab/token-id")).unwrap(),
            "2"
        );
        let mode = fs::metadata(mount.path().join("key"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn an_update_swaps_everything_and_leaves_nothing_behind() {
        let mount = tempfile::tempdir().unwrap();
        write_atomically(mount.path(), &files(&[("goes", "1"), ("stays", "1")])).unwrap();
        write_atomically(mount.path(), &files(&[("comes", "2"), ("stays", "2")])).unwrap();
        assert_eq!(visible(mount.path()), ["comes", "stays"]);
        assert_eq!(fs::read_to_string(mount.path().join("stays")).unwrap(), "2");
        // `..data` and one generation.
        assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 2 + 2);
    }

    #[test]
    fn what_did_not_change_is_not_touched() {
        let mount = tempfile::tempdir().unwrap();
        write_atomically(mount.path(), &files(&[("a", "1"), ("b/c", "1")])).unwrap();
        let before = fs::read_link(mount.path().join("..data")).unwrap();
        write_atomically(mount.path(), &files(&[("a", "1"), ("b/c", "1")])).unwrap();
        assert_eq!(fs::read_link(mount.path().join("..data")).unwrap(), before);
    }
}
