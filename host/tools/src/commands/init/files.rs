//! The folder: values for the chart, one manifest with Secrets, and a page.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};

use super::Problem;
use super::join::Joining;
use super::offers::Class;
use super::proxmox::{Cluster, POOL, Trusted, VMID_RANGE, ca_path};
use crate::args::{Image, Init};
use crate::doctor::Files;
use kproxide_common::paths::{CREDENTIALS, JOIN};
use kproxide_pve::endpoints;

const VALUES: &str = "values.yaml";
const SECRETS: &str = "secrets.yaml";
const PAGE: &str = "README.md";
/// The one NodeClass and the one NodePool.
const NAME: &str = "default";
const JOIN_SECRET: &str = "join";
/// The chart's default for the key of the script.
const JOIN_KEY: &str = "command";
const CA_KEY: &str = "ca.crt";

/// A folder in which nothing stands in the way.
pub(super) struct Folder(PathBuf);

/// What was written, as doctor and a person need it.
pub(super) struct Written {
    pub(super) values: String,
    /// What the pod will have mounted.
    pub(super) mounted: Files,
    pub(super) page: PathBuf,
    pub(super) commands: Vec<String>,
}

impl Folder {
    /// Writes nothing yet.
    ///
    /// # Errors
    /// One of the files is there, and may not be written over.
    pub(super) fn claim(path: &Path, may_overwrite: bool) -> Result<Self, Problem> {
        if path.exists() && !path.is_dir() {
            return Err(Problem::input(format!(
                "{} is a file: give --out with the name of a folder",
                path.display()
            )));
        }
        let mut there = [VALUES, SECRETS, PAGE].iter().map(|name| path.join(name));
        let there = there.find(|file| file.symlink_metadata().is_ok());
        match there {
            Some(file) if !may_overwrite => Err(Problem::input(format!(
                "{} is there already: give --force to write over it, or --out with another folder",
                file.display()
            ))),
            Some(_) | None => Ok(Self(path.to_owned())),
        }
    }

    /// # Errors
    /// The operating system refuses; says which file.
    pub(super) fn write(
        self,
        args: &Init,
        clusters: &[Cluster],
        class: &Class,
        joining: Option<&Joining>,
    ) -> Result<Written, Problem> {
        let values = values(args, clusters, class, joining)?;
        let secrets = manifest(&args.namespace, clusters, joining)?;
        let commands = commands(args, &self.0);
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| Problem::other(format!("{path}: {error}"))
        };
        fs::create_dir_all(&self.0).map_err(failed(&self.0))?;
        for (name, text, mode) in [
            (SECRETS, &secrets, 0o600),
            (VALUES, &values, 0o644),
            (PAGE, &page(&commands), 0o644),
        ] {
            let path = self.0.join(name);
            write(&path, text, mode).map_err(failed(&path))?;
        }
        Ok(Written {
            values,
            mounted: mounted(clusters, joining),
            page: self.0.join(PAGE),
            commands,
        })
    }
}

/// The mode counts from the beginning, so that nobody reads a secret before it does.
pub(super) fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// Where the token may go.
fn allowed(cluster: &Cluster) -> String {
    let pins = match &cluster.trusted {
        Trusted::Fingerprints(all) => all.as_slice(),
        Trusted::Authority(..) | Trusted::Publicly => &[],
    };
    endpoints::file(&cluster.endpoints, pins)
}

fn secret_of(cluster: &Cluster) -> String {
    format!("{}-credentials", cluster.name)
}

fn ca_of(cluster: &Cluster) -> String {
    format!("{}-ca", cluster.name)
}

/// Only what differs from the defaults of the chart and of the API.
fn values(
    args: &Init,
    clusters: &[Cluster],
    class: &Class,
    joining: Option<&Joining>,
) -> Result<String, Problem> {
    let entries = clusters.iter().map(|it| (it.name.clone(), entry(it)));
    let mut template = json!({ "name": class.template });
    if class.is_local {
        template["placement"] = json!("local");
    }
    if let Some(storage) = &class.storage {
        template["storage"] = json!(storage);
    }
    let mut of_class = json!({ "spec": { "template": template } });
    if joining.is_some() {
        of_class["joinScript"] = json!({ "existingSecret": JOIN_SECRET });
    }
    let mut parts = vec![
        json!({ "clusters": entries.collect::<Map<_, _>>() }),
        json!({ "nodeClasses": { NAME: of_class } }),
        json!({ "nodePools": { NAME: {} } }),
    ];
    if args.image == Image::Imported {
        let image = json!({ "pullPolicy": "Never", "architectures": [architecture()] });
        parts.push(json!({ "image": image }));
    }
    let mut text = String::from(
        "# Values for the chart of kproxide, by `kproxide init`: only what differs from the defaults.\n",
    );
    for part in parts {
        text.push('\n');
        text.push_str(&yaml(&part)?);
    }
    Ok(text)
}

fn entry(cluster: &Cluster) -> Value {
    let mut spec = json!({ "endpoints": cluster.endpoints });
    let mut entry = json!({ "credentials": { "existingSecret": secret_of(cluster) } });
    match &cluster.trusted {
        Trusted::Fingerprints(all) => {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            spec["tls"] = json!({ "fingerprints": all });
        }
        Trusted::Authority(..) => {
            entry["caConfigMap"] = json!({ "name": ca_of(cluster), "key": CA_KEY });
        }
        Trusted::Publicly => {}
    }
    if cluster.pool != POOL {
        spec["pool"] = json!(cluster.pool);
    }
    if cluster.vmid_range != VMID_RANGE {
        let (first, last) = cluster.vmid_range;
        spec["vmidRange"] = json!({ "first": first, "last": last });
    }
    if !cluster.has_all_servers() {
        spec["hypervisors"] = json!({ "include": cluster.servers });
    }
    entry["spec"] = spec;
    entry
}

/// In the words of Kubernetes: that of this program, with which `cargo image` makes images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn manifest(
    namespace: &str,
    clusters: &[Cluster],
    joining: Option<&Joining>,
) -> Result<String, Problem> {
    let object = |kind: &str, name: &str, field: &str, data: Value| {
        json!({
            "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": namespace }, field: data,
        })
    };
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace },
    })];
    for cluster in clusters {
        let data = json!({
            "token-id": cluster.token_id, "token-secret": cluster.token_secret.expose_secret(),
            endpoints::FILE: allowed(cluster),
        });
        objects.push(object("Secret", &secret_of(cluster), "stringData", data));
        if let Trusted::Authority(_, pem) = &cluster.trusted {
            let data = json!({ CA_KEY: String::from_utf8_lossy(pem) });
            objects.push(object("ConfigMap", &ca_of(cluster), "data", data));
        }
    }
    if let Some(joining) = joining {
        let data = json!({ JOIN_KEY: joining.script.expose_secret() });
        objects.push(object("Secret", JOIN_SECRET, "stringData", data));
    }
    let texts: Result<Vec<String>, Problem> = objects.iter().map(yaml).collect();
    Ok(texts?.join("---\n"))
}

/// The same for doctor, which looks before there is a pod.
fn mounted(clusters: &[Cluster], joining: Option<&Joining>) -> Files {
    let mut files = Files::new();
    let mut add = |path: String, text: &str| files.insert(path, text.as_bytes().to_vec());
    for cluster in clusters {
        let folder = format!("{CREDENTIALS}/{}", cluster.name);
        add(format!("{folder}/token-id"), &cluster.token_id);
        add(
            format!("{folder}/token-secret"),
            cluster.token_secret.expose_secret(),
        );
        add(format!("{folder}/{}", endpoints::FILE), &allowed(cluster));
    }
    if let Some(joining) = joining {
        add(format!("{JOIN}/{NAME}"), joining.script.expose_secret());
    }
    for cluster in clusters {
        if let Trusted::Authority(_, pem) = &cluster.trusted {
            let path = ca_path(&cluster.name).display().to_string();
            files.insert(path, pem.clone());
        }
    }
    files
}

/// As a person types them, in the folder of the sources.
fn commands(args: &Init, folder: &Path) -> Vec<String> {
    let file = |name: &str| quoted(&folder.join(name).display().to_string());
    let namespace = &args.namespace;
    let connection = |kubeconfig: &str, context: &str| {
        let path = args.connection.kubeconfig.as_ref();
        let path = path.map(|path| path.display().to_string());
        let flags = [
            (kubeconfig, path),
            (context, args.connection.context.clone()),
        ];
        let flags = flags.into_iter();
        let flags = flags.filter_map(|(flag, value)| Some(format!(" {flag} {}", quoted(&value?))));
        flags.collect::<String>()
    };
    let (kubectl, helm) = (
        connection("--kubeconfig", "--context"),
        connection("--kubeconfig", "--kube-context"),
    );
    let doctor = match namespace == "kproxide" {
        true => String::new(),
        false => format!(" --namespace {namespace}"),
    };
    vec![
        format!("kubectl{kubectl} apply -f {}", file(SECRETS)),
        format!(
            "helm install kproxide charts/kproxide{helm} --namespace {namespace} --values {}",
            file(VALUES)
        ),
        format!("kproxide doctor{kubectl}{doctor}"),
        format!("kubectl{kubectl} scale nodepool {NAME} --replicas=1"),
    ]
}

fn page(commands: &[String]) -> String {
    let block = |index: usize| format!("```sh\n{}\n```\n", commands[index]);
    format!(
        "# kproxide in this cluster

`kproxide init` has written this folder: `{VALUES}` for the chart, and `{SECRETS}` with the namespace and the Secrets.
Run the commands in the folder of kproxide's sources. With a packaged chart, write its file for `charts/kproxide`.

1. Create the namespace and the Secrets. `{SECRETS}` holds the token of Proxmox and that of this cluster: remove it
   afterwards, or keep it as safe as they are, and out of version control.

{}
2. Install kproxide. After a change of `{VALUES}`, `helm upgrade` with the same words brings it into the cluster.

{}
3. Look for what is wrong. Each finding says what mends it.

{}
4. Ask for a first machine. It must become a Node. (`--replicas=0` takes it back when nothing needs it.)

{}",
        block(0),
        block(1),
        block(2),
        block(3)
    )
}

fn quoted(word: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "@%+=:,./_-".contains(it);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn yaml(value: &Value) -> Result<String, Problem> {
    serde_saphyr::to_string(value).map_err(|error| Problem::other(error.to_string()))
}
