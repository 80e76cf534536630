//! A simulated Proxmox cluster that `setup.sh` has prepared, a Kubernetes beside it, and what `kproxide init` is told of
//! both.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use kproxide_simulator::kube::fixtures;
use kproxide_simulator::pve::Topology;
use kproxide_simulator::serve::Served;
use serde_json::json;

use crate::books::FINGERPRINT;
use crate::cluster::{Cluster, Ended};
use crate::life::setting;
use crate::{LOCAL, succeeded};

/// A simulated Proxmox cluster on loopback, and the servers' programs for `setup.sh`.
pub(crate) struct World {
    pub(crate) served: Served,
    pub(crate) cluster: Cluster,
    /// What `setup.sh` has printed, with the address and the fingerprint where it is really served.
    pub(crate) printed: BTreeMap<String, String>,
}

impl World {
    pub(crate) async fn prepared(topology: Topology, more: &[&str]) -> World {
        let served = Served::start(setting(topology.clone())).await.unwrap();
        World::prepare(served, &topology, more).await
    }

    /// By `setup.sh`, with more of its options.
    pub(crate) async fn prepare(served: Served, topology: &Topology, more: &[&str]) -> World {
        let cluster = Cluster::new(served.pve.clone(), topology);
        cluster.books().tell_simulation();
        let ended = succeeded(cluster.setup("pve1", &[&LOCAL[..], more].concat()).await);
        let mut printed = told(&ended);
        let real = [
            ("endpoint", "https://10.99.0.1:8006", served.pve_wire.url()),
            (
                "fingerprint",
                FINGERPRINT,
                served.pve_wire.fingerprint().to_owned(),
            ),
        ];
        for (key, expected, real) in real {
            let made_up = printed.insert(key.to_owned(), real);
            assert_eq!(made_up.as_deref(), Some(expected));
        }
        World {
            served,
            cluster,
            printed,
        }
    }

    /// The kubeconfig of its Kubernetes, which says of itself what one of kubeadm does, and has one Node.
    pub(crate) fn kubeconfig(&self) -> String {
        let simulated = self.served.kube.as_ref().unwrap();
        let url = simulated.wire.url();
        let published = format!("clusters: [{{cluster: {{server: '{url}'}}}}]");
        for (namespace, name, data) in [
            (
                "kube-system",
                "kubeadm-config",
                json!({"ClusterConfiguration": ""}),
            ),
            (
                "kube-system",
                "kube-root-ca.crt",
                json!({"ca.crt": simulated.wire.ca_pem()}),
            ),
            (
                "kube-public",
                "cluster-info",
                json!({"kubeconfig": published}),
            ),
        ] {
            let metadata = json!({"name": name, "namespace": namespace});
            let object = json!({"metadata": metadata, "data": data});
            simulated.kube.create("configmaps", object).unwrap();
        }
        let node = fixtures::control_plane_node("control", "4", "8Gi");
        fixtures::add_node(&simulated.kube, node).unwrap();
        let path = self.path("kubeconfig");
        fs::write(&path, simulated.kubeconfig()).unwrap();
        path.display().to_string()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.cluster.folder.path().join(name)
    }

    /// A file with a secret.
    pub(crate) fn secret(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, format!("{text}\n")).unwrap();
        path.display().to_string()
    }

    /// The flags for all that `setup.sh` has printed, for a Proxmox cluster of this name.
    pub(crate) fn flags(&self, name: Option<&str>) -> Vec<String> {
        let named = |value: &str| match name {
            Some(name) => format!("{name}={value}"),
            None => value.to_owned(),
        };
        let flags = self.printed.iter().flat_map(|(key, value)| {
            let value = match &**key {
                "token-secret" => named(&self.secret("token-secret", value)),
                "template" => value.clone(),
                _ => named(value),
            };
            let flag = match &**key {
                "token-secret" => "--token-secret-file".to_owned(),
                key => format!("--{key}"),
            };
            [flag, value]
        });
        flags.collect()
    }
}

/// The lines that `setup.sh` ends with, by their keys.
pub(crate) fn told(ended: &Ended) -> BTreeMap<String, String> {
    let (_, values) = ended.out.split_once("`kproxide init` asks").unwrap();
    let lines = values.lines().filter_map(|line| line.strip_prefix("  "));
    let pairs = lines.filter_map(|line| line.split_once(": "));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
