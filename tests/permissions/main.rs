//! Least privilege, shown by taking away: the whole program on both simulators and on virtual time, before an API server that enforces the
//! chart's roles. Under all of them a machine lives its life; without any single verb of them something named does not come about, and the log
//! names the verb. A verb whose loss nobody notices does not belong into the chart. (Without a watch its kind is listed again and again: that some lives
//! come to their end all the same is what the watches are built for, so of those the log alone has to tell.)

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests too: they panic where a set-up fails"
)]

mod guard;
mod life;
mod rules;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::thread;

use kproxide_testkit::require_controlplane;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::life::{Life, live};
use crate::rules::{Permission, granted};

const THREADS: usize = 2;
/// The namespace of a host in a lab.
const HOME: &str = "kube-system";

/// What the chart grants, as Helm renders it; nothing where there is no Helm.
fn permissions() -> Option<BTreeSet<Permission>> {
    let programs = require_controlplane()?;
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/kproxide");
    let chart = chart.display().to_string();
    let given = [
        "clusters.proxmox.spec.endpoints={https://pve1.example:8006}",
        "clusters.proxmox.credentials.existingSecret=proxmox",
        "nodeClasses.default.spec.template.name=k8s-node",
    ]
    .join(",");
    let args = [
        "template",
        "kproxide",
        &chart,
        "--namespace",
        HOME,
        "--no-hooks",
        "--set",
        &given,
    ];
    // In real time: Helm is a process.
    let rendered = Runtime::new()
        .unwrap()
        .block_on(programs.helm(&args))
        .unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    Some(objects.iter().flat_map(granted).collect())
}

/// A life of its own world, in virtual time.
fn lived_under(permissions: &BTreeSet<Permission>) -> Life {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(live(permissions))
}

/// What broke without each of these; an error where that cannot be noticed.
fn without_each<'a>(
    some: &[&'a Permission],
    all: &BTreeSet<Permission>,
) -> Vec<(&'a Permission, Result<String, String>)> {
    let without = |missing: &Permission| {
        let mut left = all.clone();
        left.remove(missing);
        let Life {
            end, denied, log, ..
        } = lived_under(&left);
        let told = denied
            .iter()
            .any(|refusal| log.contains(&refusal.to_string()));
        match end {
            Err(broken) if told => Ok(broken),
            Err(broken) => Err(format!("{broken}, but no line of the log names it")),
            Ok(()) if told && missing.is_watch() => {
                Ok("changes are seen by lists alone, and the log says so".to_owned())
            }
            Ok(()) => Err("nothing breaks".to_owned()),
        }
    };
    some.iter()
        .map(|missing| (*missing, without(missing)))
        .collect()
}

#[test]
fn a_machine_lives_and_goes_under_exactly_the_permissions_of_the_chart() {
    let Some(permissions) = permissions() else {
        return;
    };
    let Life {
        end, used, denied, ..
    } = lived_under(&permissions);
    end.unwrap_or_else(|broken| panic!("{broken}; refused: {denied:?}"));
    assert!(denied.is_empty(), "asked for and not granted: {denied:?}");
    let unused: Vec<_> = permissions.difference(&used).collect();
    assert!(unused.is_empty(), "granted and never used: {unused:?}");
}

#[test]
fn without_any_single_permission_something_named_breaks_and_the_log_says_what_is_missing() {
    let Some(permissions) = permissions() else {
        return;
    };
    assert!(permissions.len() > 40, "{permissions:?}");
    let permissions = &permissions;
    let all: Vec<_> = permissions.iter().collect();
    let half = all.len().div_ceil(THREADS);
    let lives: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = all
            .chunks(half)
            .map(|some| scope.spawn(move || without_each(some, permissions)))
            .collect();
        let lives = threads.into_iter().map(|thread| thread.join().unwrap());
        lives.flatten().collect()
    });
    let mut table = String::new();
    let mut unnoticed = Vec::new();
    for (missing, life) in lives {
        match life {
            Ok(broken) => writeln!(table, "{:<58} {broken}", missing.to_string()).unwrap(),
            Err(why) => unnoticed.push(format!("{missing}: {why}")),
        }
    }
    // Straight to standard output: the test runner keeps what is printed otherwise for tests that fail.
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "without                                                    what broke\n{table}"
    )
    .unwrap();
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
}
