//! Two Proxmox clusters of two servers each, with a pool each, and what `/metrics` shows of them minute by minute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kproxide_simulator::clock::Clock as WorldClock;
use kproxide_simulator::physics::{Guests, Physics};
use kproxide_simulator::pve::{Pve, Topology};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::super::degraded::lively;
use super::super::furnished;
use kproxide_controller::app::App;
use kproxide_controller::config::Config;
use kproxide_controller::metrics::Metrics;
use kproxide_controller::observe::Connect;
use kproxide_kube::client::Client;
use kproxide_lab::{EPOCH, HostHandle, Lab, Setting, config};
use kproxide_policy::PolicyFiles;
use kproxide_pve::auth::Credentials;
use kproxide_pve::client::Client as PveClient;
use kproxide_pve::transport::Endpoint;

pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// Name and labels of a series, as the exposition writes them.
pub(super) type Series = String;

/// What each series showed, by the minute.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) minutes: usize,
    pub(super) series: BTreeMap<Series, BTreeMap<usize, f64>>,
}

impl Samples {
    pub(super) fn take(&mut self, metrics: &Metrics) {
        let text = metrics.render().unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let value = value.parse().unwrap();
            let values = self.series.entry(series.to_owned()).or_default();
            values.insert(self.minutes, value);
        }
        self.minutes += 1;
    }

    /// Those that the last minute shows.
    pub(super) fn now(&self) -> BTreeMap<&str, f64> {
        let last = self.minutes - 1;
        let series = self.series.iter();
        series
            .filter_map(|(name, values)| Some((&**name, *values.get(&last)?)))
            .collect()
    }

    pub(super) fn add(&mut self, other: Samples) {
        for (series, values) in other.series {
            let later = values.into_iter();
            let later = later.map(|(minute, value)| (minute + self.minutes, value));
            self.series.entry(series).or_default().extend(later);
        }
        self.minutes += other.minutes;
    }
}

/// The labels of a series: name and value of each.
pub(super) fn labels(series: &str) -> Vec<(&str, &str)> {
    let Some((_, labels)) = series.split_once('{') else {
        return Vec::new();
    };
    let labels = labels.trim_end_matches('}');
    let pairs = labels.strip_suffix('"').unwrap_or(labels).split("\",");
    let pairs = pairs.map(|pair| pair.split_once("=\"").unwrap());
    pairs.collect()
}

/// The name of a metric, without what a histogram adds.
pub(super) fn metric(series: &str) -> &str {
    let name = series.split('{').next().unwrap();
    let ends = ["_bucket", "_sum", "_count"];
    let end = ends.iter().find_map(|end| name.strip_suffix(end));
    end.filter(|name| name.ends_with("_seconds") || name.ends_with("_fuel"))
        .unwrap_or(name)
}

pub(super) struct Stage {
    pub(super) lab: Lab,
    /// The second Proxmox cluster.
    pub(super) away: Pve,
    _world: JoinSet<()>,
}

impl Stage {
    /// `pool`: fields in place of a lively pool's own.
    pub(super) fn new(pool: Value) -> Self {
        let pool_in = |cluster: &str| {
            let mut spec = lively();
            spec["clusters"] = json!([cluster]);
            spec["nodeClass"] = json!("debian");
            for (field, value) in pool.as_object().unwrap() {
                spec[field] = value.clone();
            }
            spec
        };
        let class = json!({ "timeouts": { "join": "5m" } });
        let lab = furnished(Setting::new(1, 2), class, pool_in("home"));
        let epoch = WorldClock::starting_at(EPOCH.parse().unwrap());
        let away = Pve::new(Topology::of(2), epoch, 2);
        let (_physics, joins) =
            Physics::new(away.clone(), lab.kubelets.clone(), Guests::default(), 2);
        let mut world = JoinSet::new();
        world.spawn(joins);
        let object = |kind: &str, name: &str, spec: Value| json!({ "apiVersion": "kproxide.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec });
        let cluster = json!({
            "endpoints": ["https://away:8006"], "tls": { "insecureSkipVerify": true }, "credentials": "away",
            "pool": "k8s", "vmidRange": { "first": 500, "last": 599 },
        });
        lab.apply([
            (
                "proxmoxclusters.kproxide.dev",
                object("ProxmoxCluster", "away", cluster),
            ),
            (
                "nodepools.kproxide.dev",
                object("NodePool", "spare", pool_in("away")),
            ),
        ]);
        Self {
            lab,
            away,
            _world: world,
        }
    }

    pub(super) fn config(&self) -> Config {
        Config {
            policy_dirs: vec!["/policies".into()],
            ..config("kproxide-0")
        }
    }

    pub(super) fn host(&self, config: Config) -> (App, HostHandle) {
        let connect: Connect = {
            let (home, away) = (self.lab.pve.clone(), self.away.clone());
            Arc::new(move |connection, concurrency| {
                let is_away = connection.credentials == "away";
                let pve = if is_away { &away } else { &home };
                let endpoint = Endpoint::new("lab", pve.service());
                let credentials = Arc::new(|| Credentials::token("kproxide@pve!ci", "secret"));
                Ok(PveClient::new(vec![endpoint], credentials, concurrency))
            })
        };
        let kube = Client::from_service(self.lab.kube.as_user("kproxide-0").service());
        let host = self.lab.host_over("kproxide-0", config, kube, connect);
        host.unwrap()
    }

    /// The story's samples, one a minute.
    pub(super) async fn watched(&self, story: impl AsyncFnOnce(&HostHandle)) -> Samples {
        let (app, host) = self.host(self.config());
        host.policy_files.send(PolicyFiles::new()).await.unwrap();
        sampled(app, host, story).await
    }

    pub(super) fn patch(&self, resource: &str, name: &str, patch: Value) {
        let patched = self.lab.kube.patch(resource, "", "", name, patch);
        patched.unwrap();
    }
}

pub(super) async fn sampled(
    app: App,
    host: HostHandle,
    story: impl AsyncFnOnce(&HostHandle),
) -> Samples {
    let metrics = app.metrics();
    let mut samples = Samples::default();
    let sampling = async {
        loop {
            sleep(MINUTE).await;
            samples.take(&metrics);
        }
    };
    let story = async {
        tokio::select! {
            biased;
            () = story(&host) => {}
            () = sampling => {}
        }
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
    samples
}

/// The values of each label of each metric.
pub(super) fn values(samples: &Samples) -> BTreeMap<(&str, &str), BTreeSet<&str>> {
    let mut values: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for series in samples.series.keys() {
        for (label, value) in labels(series) {
            if label != "le" {
                let of_it = values.entry((metric(series), label)).or_default();
                of_it.insert(value);
            }
        }
    }
    values
}
