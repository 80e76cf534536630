//! What happens: a burst of pods, a hypervisor that goes down, a policy that is swapped, load that falls.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use kproxide_simulator::kube::Kube;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::Instant;

use super::lines::{Lines, Seen};
use super::world::{self, APP, POOL, Policy};
use crate::app::AppError;
use crate::lab::{HostHandle, Lab};
use crate::policy::PolicyFiles;

/// Nothing in the script takes longer in its own time; what does has failed.
const PATIENCE: Duration = Duration::from_secs(60 * 60);
/// How often the script looks whether what it waits for has come.
const LOOK: Duration = Duration::from_secs(1);

/// Why the demo did not come to its end.
#[derive(Debug, Error)]
pub(super) enum DemoError {
    #[error("the host ended")]
    Host(#[source] AppError),
    #[error("the host ended before the demo did")]
    HostEnded,
    #[error("waited {minutes} minutes in vain until {what}", minutes = PATIENCE.as_secs() / 60)]
    InVain { what: &'static str },
    #[error("{0}")]
    Incomplete(String),
    #[error("the output is closed")]
    Output(#[from] std::io::Error),
}

/// Plays the whole demo. Returns when the summary is printed.
pub(super) async fn play(seed: u64, policy: Policy, out: &mut impl Write) -> Result<(), DemoError> {
    let lab = world::build(seed, &policy.name);
    let (app, host) = lab
        .host("kproxide-0", world::config())
        .map_err(DemoError::Host)?;
    let mut lines = Lines::new(&lab);
    let running = app.run();
    tokio::pin!(running);
    let scene = act(&lab, &host, policy, &mut lines, out);
    tokio::pin!(scene);
    tokio::select! {
        biased;
        ended = &mut running => {
            ended.map_err(DemoError::Host)?;
            return Err(DemoError::HostEnded);
        }
        played = &mut scene => played?,
    }
    host.stop.cancel();
    running.await.map_err(DemoError::Host)
}

async fn act(
    lab: &Lab,
    host: &HostHandle,
    policy: Policy,
    lines: &mut Lines,
    out: &mut impl Write,
) -> Result<(), DemoError> {
    let mut files = policy.files;
    hand_over(host, &files).await?;
    lines.scene(out, "three hypervisors, one static Node, and no load")?;
    pass(lab, lines, out, Duration::from_secs(20)).await?;

    lines.scene(out, "30 pods of 500m / 512Mi arrive")?;
    lab.apply([("deployments.apps", world::app(30))]);
    until(lab, lines, out, "every pod runs", || {
        pods_running(&lab.kube) == 30
    })
    .await?;

    lines.scene(out, "hypervisor pve2 goes down, and 10 more pods arrive")?;
    lab.pve.set_hypervisor_online("pve2", false);
    scale(lab, 40);
    until(lab, lines, out, "every pod runs without pve2", || {
        pods_running(&lab.kube) == 40
    })
    .await?;

    let swapped = if policy.name == "pack" {
        "max-memory"
    } else {
        "pack"
    };
    lines.scene(
        out,
        &format!(
            "pve2 is back; a file {}.wasm appears in the policy directory: it is {swapped}",
            policy.name
        ),
    )?;
    lab.pve.set_hypervisor_online("pve2", true);
    let module = kproxide_builtins::builtin(swapped).map(|builtin| Arc::from(builtin.wasm));
    files.extend(module.map(|module| (Arc::from(policy.name.as_str()), Ok(module))));
    hand_over(host, &files).await?;
    scale(lab, 60);
    until(lab, lines, out, "every pod runs", || {
        pods_running(&lab.kube) == 60
    })
    .await?;

    lines.scene(out, "the load falls to 4 pods")?;
    scale(lab, 4);
    let settled = || pods_running(&lab.kube) == 4 && pods(&lab.kube) == 4 && nothing_surplus(lab);
    until(lab, lines, out, "the surplus machines are gone", settled).await?;

    let Seen {
        created,
        destroyed,
        rejected,
        reloads,
        ..
    } = lines.seen();
    lines.summary(out, lab, pods_running(&lab.kube))?;
    for (missing, what) in [
        (created == 0, "no machine was made"),
        (destroyed == 0, "no machine was removed"),
        (rejected == 0, "no placement was rejected"),
        (reloads == 0, "no policy was swapped"),
    ] {
        if missing {
            return Err(DemoError::Incomplete(what.to_owned()));
        }
    }
    Ok(())
}

async fn hand_over(host: &HostHandle, files: &PolicyFiles) -> Result<(), DemoError> {
    host.policy_files
        .send(files.clone())
        .await
        .map_err(|_| DemoError::HostEnded)
}

/// Lets time pass and tells what happens in it.
async fn pass(
    lab: &Lab,
    lines: &mut Lines,
    out: &mut impl Write,
    time: Duration,
) -> Result<(), DemoError> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        tokio::time::sleep(LOOK).await;
        lines.tell(out, lab)?;
    }
    Ok(())
}

async fn until(
    lab: &Lab,
    lines: &mut Lines,
    out: &mut impl Write,
    what: &'static str,
    reached: impl Fn() -> bool,
) -> Result<(), DemoError> {
    let end = Instant::now() + PATIENCE;
    while !reached() {
        if Instant::now() >= end {
            return Err(DemoError::InVain { what });
        }
        pass(lab, lines, out, LOOK).await?;
    }
    lines.reached(out, what)?;
    Ok(())
}

fn scale(lab: &Lab, replicas: u32) {
    lab.kube
        .patch(
            "deployments.apps",
            "",
            "default",
            APP,
            json!({ "spec": { "replicas": replicas } }),
        )
        .expect("the Deployment was made at the beginning");
}

fn of_app(pod: &Value) -> bool {
    pod["metadata"]["namespace"] == "default" && pod["metadata"]["deletionTimestamp"].is_null()
}

fn pods(kube: &Kube) -> usize {
    kube.list("pods")
        .iter()
        .filter(|pod| pod["metadata"]["namespace"] == "default")
        .count()
}

fn pods_running(kube: &Kube) -> usize {
    kube.list("pods")
        .iter()
        .filter(|pod| of_app(pod) && pod["status"]["phase"] == "Running")
        .count()
}

/// No claim is left that the load does not need: the static Node and at most one machine carry four pods.
fn nothing_surplus(lab: &Lab) -> bool {
    let claims = lab.kube.list("nodeclaims.kproxide.dev");
    let of_pool = claims
        .iter()
        .filter(|claim| claim["spec"]["pool"] == POOL)
        .count();
    of_pool == super::lines::machines(lab) && of_pool <= 1
}
