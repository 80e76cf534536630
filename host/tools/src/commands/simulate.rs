//! `kproxide simulate serve`: serves the simulated APIs to another process, such as `kproxide run`.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kproxide_simulator::kube::fixtures;
use kproxide_simulator::kubelet::{Kubelets, NodeSpec, Pace};
use kproxide_simulator::physics::Guests;
use kproxide_simulator::pve::Topology;
use kproxide_simulator::pve::topology::{HypervisorSpec, VmSpec};
use kproxide_simulator::remote;
use kproxide_simulator::serve::{Cluster, Served, Setting, SimulatedKube, Token};
use kproxide_simulator::wire::Wire;
use serde_json::{Value, json};
use thiserror::Error as ThisError;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::Exit;
use super::exit::Mistake;
use crate::args::Serve;
use kproxide_common::clock::Clock;
use kproxide_kube::crd;

/// The cluster's name in `examples/values/minimal.yaml`, which is the folder of its credentials too.
const CREDENTIALS: &str = "proxmox";
/// The default of `kproxide run --namespace`.
const NAMESPACE: &str = "kproxide";
const TEMPLATE: &str = "k8s-node";
/// The API's default for `spec.pool` of a ProxmoxCluster.
const POOL: &str = "kproxide";
const GIB: u64 = 1 << 30;

/// # Errors
/// A port is taken, a file cannot be read or written, the cluster to join is out of reach.
pub fn serve(args: &Serve, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let hypervisors = hypervisors(&args.hypervisors)
        .map_err(|error| Mistake(format!("--hypervisors: {error}")))?;
    Runtime::new()?.block_on(async {
        let cluster = match &args.kubeconfig {
            Some(path) => Cluster::Real(remote::reach(path).await?),
            None => Cluster::Simulated {
                port: args.kube_port,
            },
        };
        let topology = topology(hypervisors);
        let setting = Setting {
            seed: args.seed,
            now: Clock::System.now(),
            topology: if args.instant {
                topology.instant()
            } else {
                topology
            },
            guests: if args.instant {
                Guests::instant()
            } else {
                Guests::default()
            },
            pace: if args.instant {
                Pace::INSTANT
            } else {
                Pace::REAL
            },
            pve_port: args.pve_port,
            cluster,
        };
        let served = Served::start(setting).await?;
        if let Some(simulated) = &served.kube {
            furnish(simulated, &served.kubelets);
        }
        // Absolute paths, because the reader of the files may run in another folder.
        let folder = std::path::absolute(&args.out)?;
        served.write_files(&folder, CREDENTIALS)?;
        writeln!(
            out,
            "Proxmox VE: {}  fingerprint {}",
            served.pve_wire.url(),
            served.pve_wire.fingerprint()
        )?;
        if let Some(simulated) = &served.kube {
            writeln!(out, "Kubernetes: {}", simulated.wire.url())?;
        }
        let objects = folder.join("objects.json");
        fs::write(&objects, format!("{:#}\n", self::objects(&served.pve_wire)))?;
        if let Some(token) = &served.token {
            let file = folder.join("secret.json");
            fs::write(file, format!("{:#}\n", secret(token)))?;
        }
        let kubeconfig = args.kubeconfig.clone();
        let kubeconfig = kubeconfig.unwrap_or_else(|| folder.join("kubeconfig"));
        write!(out, "{}", next_steps(&folder, &kubeconfig, &served))?;
        writeln!(out, "connection files: {}", folder.display())?;
        out.flush()?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(Exit::Success)
    })
}

/// What kproxide needs of its own kinds to use this Proxmox: one object of each, as kubectl takes them.
fn objects(proxmox: &Wire) -> Value {
    let object = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": kind, "metadata": { "name": "default" }, "spec": spec,
        })
    };
    let cluster = json!({
        "endpoints": [proxmox.url()], "tls": { "fingerprints": [proxmox.fingerprint()] },
        "credentials": CREDENTIALS, "pool": POOL, "vmidRange": { "first": 20_000, "last": 20_099 },
    });
    let class = json!({
        "template": { "name": TEMPLATE, "placement": "local" },
        "instanceTypes": [{ "name": "large", "cores": 8, "memoryMiB": 16_384 }],
    });
    let pool = json!({ "nodeClass": "default", "limits": { "maxNodes": 3 } });
    json!({
        "apiVersion": "v1", "kind": "List",
        "items": [object("ProxmoxCluster", cluster), object("NodeClass", class), object("NodePool", pool)],
    })
}

/// What a kproxide that runs in the cluster reads in place of the folder with credentials: its namespace and the Secret.
fn secret(token: &Token) -> Value {
    let Token { id, secret } = token;
    let meta = json!({ "name": CREDENTIALS, "namespace": NAMESPACE });
    json!({
        "apiVersion": "v1", "kind": "List",
        "items": [
            { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } },
            {
                "apiVersion": "v1", "kind": "Secret", "metadata": meta,
                "data": { "token-id": STANDARD.encode(id), "token-secret": STANDARD.encode(secret) },
            },
        ],
    })
}

/// For people: the commands that come next.
fn next_steps(folder: &Path, kubeconfig: &Path, served: &Served) -> String {
    let (folder, kubeconfig) = (folder.display(), kubeconfig.display());
    let url = served.pve_wire.url();
    let crds = match served.kube {
        Some(_) => String::new(),
        None => format!(
            "  kproxide crds | kubectl --kubeconfig {kubeconfig} apply --server-side -f -\n"
        ),
    };
    format!(
        "next, in another terminal:
{crds}  kubectl --kubeconfig {kubeconfig} apply --server-side --validate=false -f {folder}/objects.json
  kproxide run --kubeconfig {kubeconfig} --credentials-dir {folder}/credentials
a kproxide that runs in the cluster needs a Secret instead of that folder:
  kubectl --kubeconfig {kubeconfig} apply --server-side --validate=false -f {folder}/secret.json
to let a server die (`kproxide simulate serve --help` has what else can happen):
  curl --cacert {folder}/ca.pem --request POST '{url}/_sim/hypervisor?name=NAME&online=0'
"
    )
}

/// A k3s-like cluster with our CRDs and the namespace of our Lease, so that `kproxide run` has everything but its own objects.
fn furnish(simulated: &SimulatedKube, kubelets: &Kubelets) {
    simulated
        .kube
        .create("namespaces", json!({ "metadata": { "name": NAMESPACE } }))
        .expect("a new cluster has four other namespaces");
    for crd in crd::crds() {
        let object = serde_json::to_value(crd).expect("a CRD is plain data");
        simulated
            .kube
            .create("customresourcedefinitions.apiextensions.k8s.io", object)
            .expect("our CRDs are valid");
    }
    let server = "a0000000-0000-4000-8000-000000000001";
    let agent = "a0000000-0000-4000-8000-000000000002";
    kubelets.start_node(NodeSpec::new("server-1", server, 2_000, 4_096).control_plane());
    kubelets.start_node(NodeSpec::new("agent-1", agent, 4_000, 8_192));
    for (resource, object) in fixtures::k3s_addons() {
        simulated
            .kube
            .create(resource, object)
            .expect("a new cluster has no add-ons");
    }
}

/// The demo's cluster with these hypervisors; each has its own template `k8s-node`.
fn topology(hypervisors: Vec<HypervisorSpec>) -> Topology {
    let vms = (9001..)
        .zip(&hypervisors)
        .map(|(vmid, hypervisor)| {
            VmSpec::template(vmid, TEMPLATE, &hypervisor.name, "local-lvm", 10 * GIB)
        })
        .collect();
    let mut usual = Topology::of(1);
    for pool in &mut usual.pools {
        pool.name = POOL.into();
    }
    Topology {
        hypervisors,
        vms,
        ..usual
    }
}

#[derive(Debug, ThisError, PartialEq, Eq)]
enum ListError {
    #[error("{0:?} is not name:threads:GiB, such as pve1:16:64")]
    Form(String),
    #[error("{0:?} is no host name: letters, digits and dashes")]
    Name(String),
    #[error("{0} occurs twice")]
    Twice(String),
}

fn hypervisors(list: &str) -> Result<Vec<HypervisorSpec>, ListError> {
    let mut hypervisors: Vec<HypervisorSpec> = Vec::new();
    for item in list.split(',').map(str::trim) {
        let form = || ListError::Form(item.to_owned());
        let [name, threads, memory] = item.split(':').collect::<Vec<_>>()[..] else {
            return Err(form());
        };
        let threads = threads
            .parse::<u32>()
            .ok()
            .filter(|threads| (1..=8192).contains(threads))
            .ok_or_else(form)?;
        let gib = memory
            .parse::<u64>()
            .ok()
            .filter(|gib| (1..=1 << 20).contains(gib))
            .ok_or_else(form)?;
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !plain {
            return Err(ListError::Name(name.to_owned()));
        }
        if hypervisors.iter().any(|other| other.name == name) {
            return Err(ListError::Twice(name.to_owned()));
        }
        hypervisors.push(HypervisorSpec::new(name, threads, gib * GIB));
    }
    Ok(hypervisors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hypervisors_are_read() {
        let read = hypervisors("pve1:16:64, b:2:8").unwrap();
        let short: Vec<_> = read
            .iter()
            .map(|one| (one.name.as_str(), one.threads, one.memory / GIB))
            .collect();
        assert_eq!(short, [("pve1", 16, 64), ("b", 2, 8)]);
    }

    #[test]
    fn a_bad_list_names_the_part_and_the_fix() {
        let check = |list: &str, expected: &str| {
            assert_eq!(hypervisors(list).unwrap_err().to_string(), expected)
        };
        check(
            "pve1:16",
            "\"pve1:16\" is not name:threads:GiB, such as pve1:16:64",
        );
        check(
            "a:1:1,b:0:1",
            "\"b:0:1\" is not name:threads:GiB, such as pve1:16:64",
        );
        check(
            "a b:1:1",
            "\"a b\" is no host name: letters, digits and dashes",
        );
        check("a:1:1,a:1:1", "a occurs twice");
    }
}
