//! The program under measurement, as a process of its own.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kproxide_testkit::{eventually, free_port};

use crate::binary::repository;

/// An upper bound for a computer that builds something beside.
const SOON: Duration = Duration::from_secs(120);

/// What the chart tells glibc's allocator.
const ALLOCATOR: [&str; 2] = ["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_"];

pub(crate) struct Host {
    process: Child,
    admin: String,
    log: PathBuf,
    client: reqwest::Client,
}

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// `VmHWM`: the most that was ever resident.
    peak_kib: u64,
    /// `VmRSS`
    now_kib: u64,
}

impl Host {
    pub(crate) fn start(
        binary: &Path,
        folder: &Path,
        kubeconfig: &Path,
        credentials: &Path,
    ) -> Self {
        let admin = format!("127.0.0.1:{}", free_port().unwrap());
        let log = folder.join("log");
        let process = Command::new(binary)
            .args(["run", "--log-format=text", "--admin-address", &admin])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--credentials-dir")
            .arg(credentials)
            // Its own Node and namespace are those of no pod.
            .env_clear()
            .envs(ALLOCATOR.map(|name| (name, chart_value(name))))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self {
            process,
            admin,
            log,
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
        }
    }

    /// Every watch has delivered its first list.
    pub(crate) async fn ready(&mut self) {
        let url = format!("http://{}/readyz", self.admin);
        eventually(SOON, "the first lists", async || {
            self.still_runs();
            match self.client.get(&url).send().await {
                Ok(answer) if answer.status().is_success() => Ok(()),
                Ok(answer) => Err(answer.text().await.unwrap_or_default()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
    }

    /// Waits until a metric, summed over its labels, is at least so much.
    pub(crate) async fn until(&mut self, metric: &str, least: f64) {
        let url = format!("http://{}/metrics", self.admin);
        eventually(SOON, &format!("{metric} of {least}"), async || {
            self.still_runs();
            let answer = self.client.get(&url).send().await;
            let text = match answer {
                Ok(answer) => answer.text().await.unwrap_or_default(),
                Err(error) => error.to_string(),
            };
            let of_metric = |line: &&str| {
                let rest = line.strip_prefix(metric);
                rest.is_some_and(|rest| rest.starts_with([' ', '{']))
            };
            let sum: f64 = text
                .lines()
                .filter(of_metric)
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum();
            if sum >= least {
                Ok(())
            } else {
                Err(format!("{sum}"))
            }
        })
        .await;
    }

    /// Its world and its last plan.
    pub(crate) async fn debug_plan(&self) -> serde_json::Value {
        let url = format!("http://{}/debug/plan", self.admin);
        let answer = self.client.get(&url).send().await.unwrap();
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
    }

    pub(crate) fn memory(&self) -> Memory {
        let path = format!("/proc/{}/status", self.process.id());
        let status = fs::read_to_string(path).unwrap();
        let kib = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let number = line.and_then(|line| line.split_whitespace().next());
            number.unwrap().parse().unwrap()
        };
        Memory {
            peak_kib: kib("VmHWM:"),
            now_kib: kib("VmRSS:"),
        }
    }

    fn still_runs(&mut self) {
        if let Some(status) = self.process.try_wait().unwrap() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            panic!("kproxide ended with {status}:\n{log}");
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

impl Memory {
    pub(crate) fn peak_mb(self) -> u64 {
        self.peak_kib * 1024 / 1_000_000
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now_mb = self.now_kib * 1024 / 1_000_000;
        write!(f, "VmHWM {} MB, VmRSS {now_mb} MB", self.peak_mb())
    }
}

/// What the chart's Deployment gives an environment variable.
fn chart_value(name: &str) -> String {
    let path = repository("charts/kproxide/templates/deployment.yaml");
    let text = fs::read_to_string(path).unwrap();
    let (_, after) = text.split_once(&format!("- name: {name}\n")).unwrap();
    let (_, value) = after.split_once("value: \"").unwrap();
    value.split_once('"').unwrap().0.to_owned()
}
