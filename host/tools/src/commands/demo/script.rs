//! What happens: a burst of pods, a server that dies, a policy that is swapped, load that falls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::DemoError;
use super::story::{Audience, Said, Seen, Story, What, machines};
use super::world::{self, APP, Load, Policy};
use crate::args::policy::Kind;
use kproxide_lab::{HostHandle, Lab, config};
use kproxide_policy::heard::{Heard, Line};
use kproxide_policy::{PolicyFile, PolicyFiles};

/// Nothing in the script takes longer in its own time; what does has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(60 * 60);
/// How often the script looks whether what it waits for has come.
const LOOK: Duration = Duration::from_secs(1);
/// Lines of policies that are told in one look.
const SAID_MAX: usize = 5;

/// Plays the whole demo. Returns when the summary was told.
pub(super) async fn play(
    seed: u64,
    policy: Policy,
    audience: &mut impl Audience,
) -> Result<(), DemoError> {
    let (heard, _listening) = Heard::listen();
    let lab = world::build(seed, &policy);
    let (name, policies) = ("kproxide-0", policy.library.clone());
    let (app, host) = lab
        .host_with(name, config(name), policies)
        .map_err(DemoError::Host)?;
    let mut stage = Stage {
        lab: &lab,
        host: &host,
        story: Story::new(&lab),
        heard,
        is_file: policy.taken.is_some(),
        is_swapped: false,
        audience,
    };
    let running = app.run();
    tokio::pin!(running);
    let scene = stage.act(policy);
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

/// Where it happens, and who is told.
struct Stage<'a, A> {
    lab: &'a Lab,
    host: &'a HostHandle,
    story: Story,
    /// What policies say.
    heard: Heard,
    /// The policy is the user's: it decides until the end.
    is_file: bool,
    /// A built-in policy was replaced.
    is_swapped: bool,
    audience: &'a mut A,
}

impl<A: Audience> Stage<'_, A> {
    async fn act(&mut self, policy: Policy) -> Result<(), DemoError> {
        let lab = self.lab;
        let mut files = policy.files;
        self.hand_over(&files).await?;
        // The Nodes that are there from the beginning.
        tokio::time::sleep(LOOK).await;
        self.scene("No load yet: three servers, one Node that is not ours, and no machine.")?;
        if let Some(taken) = policy.taken {
            self.say(What::Line(taken))?;
        }
        self.pass(Duration::from_secs(20)).await?;

        self.scene("30 pods arrive. Most find no room, so kproxide will make machines.")?;
        lab.apply([("deployments.apps", world::app(30))]);
        self.until("every pod runs", || pods_run(lab, 30)).await?;

        let dead = busiest(lab).ok_or(DemoError::NoMachine)?;
        self.scene(&format!(
            "Server {dead} dies. Its Nodes fall silent, so kproxide will replace them."
        ))?;
        lab.pve.set_hypervisor_online(&dead, false);
        self.until("every pod runs again, on other servers", || {
            let Load { running, all, .. } = Load::of(&lab.kube.list("pods"));
            (running, all) == (30, 30) && !carries_pods(lab, &dead)
        })
        .await?;

        self.scene(&format!(
            "{dead} is back. Its machines were replaced, so kproxide will destroy them."
        ))?;
        lab.pve.set_hypervisor_online(&dead, true);
        self.until("nothing is left of the dead machines", || {
            !machines(lab).any(|vm| vm.hypervisor == dead)
        })
        .await?;
        // What the server holds is read again within this time.
        self.pass(Duration::from_secs(30)).await?;

        let (swapped, effect) = match policy.name.as_str() {
            "pack" => ("max-memory", "it fills the emptiest server"),
            _ => ("pack", "it fills one server first"),
        };
        if self.is_file || policy.kind != Kind::HostSelection {
            self.scene("20 more pods arrive.")?;
        } else {
            self.scene(&format!(
                "The policy becomes {swapped}, and 20 pods arrive: {effect}."
            ))?;
            let file = kproxide_builtins::builtin(swapped).map(|it| PolicyFile::alone(it.wasm));
            files.extend(file.map(|file| (Arc::from(policy.name.as_str()), file)));
            self.hand_over(&files).await?;
            self.is_swapped = true;
        }
        scale(lab, 50);
        self.until("every pod runs", || pods_run(lab, 50)).await?;

        self.scene("The load falls to 4 pods. kproxide will remove what nobody needs.")?;
        scale(lab, 4);
        self.until("every machine is gone", || {
            pods_run(lab, 4) && nothing_of_ours(lab)
        })
        .await?;
        self.end()
    }

    /// Tells the summary.
    ///
    /// # Errors
    /// Something that the demo is there to show did not happen.
    fn end(&mut self) -> Result<(), DemoError> {
        let summary = self.story.summary(self.lab);
        let Seen {
            created,
            destroyed,
            rejected,
            reloads,
            most_machines: _,
        } = summary.seen;
        let left = u32::try_from(summary.machines_left).unwrap_or(u32::MAX);
        self.say(What::Summary(summary))?;
        for (missing, what) in [
            (created != destroyed + left, "the machines do not add up"),
            (created == 0, "no machine was made"),
            (destroyed == 0, "no machine was removed"),
            // Whom the user's policy rejects is its own business.
            (!self.is_file && rejected == 0, "no placement was rejected"),
            (self.is_swapped && reloads == 0, "no policy was swapped"),
        ] {
            if missing {
                return Err(DemoError::Incomplete(what.to_owned()));
            }
        }
        Ok(())
    }

    async fn hand_over(&self, files: &PolicyFiles) -> Result<(), DemoError> {
        self.host
            .policy_files
            .send(files.clone())
            .await
            .map_err(|_| DemoError::HostEnded)
    }

    /// Announces what happens next, before it happens.
    fn scene(&mut self, text: &str) -> Result<(), DemoError> {
        self.say(What::Scene(text.to_owned()))?;
        self.audience.look(self.lab, self.story.time())
    }

    fn say(&mut self, what: What) -> Result<(), DemoError> {
        let at = self.story.time();
        self.audience.hear(Said { at, what })
    }

    /// Lets time pass and tells what happens in it.
    async fn pass(&mut self, time: Duration) -> Result<(), DemoError> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            tokio::time::sleep(LOOK).await;
            for line in self.story.news(self.lab) {
                self.say(What::Line(line))?;
            }
            for line in said(self.heard.take()) {
                self.say(What::Line(line))?;
            }
            if let Some(reason) = self.story.refused.take() {
                return Err(DemoError::Refused(reason));
            }
            self.audience.look(self.lab, self.story.time())?;
        }
        Ok(())
    }

    async fn until(
        &mut self,
        what: &'static str,
        reached: impl Fn() -> bool,
    ) -> Result<(), DemoError> {
        let end = Instant::now() + PATIENCE;
        while !reached() {
            if Instant::now() >= end {
                let last = self.story.unhelped.as_ref();
                let why = last.map_or(String::new(), |note| {
                    format!("; the last that kproxide said: {note}")
                });
                return Err(DemoError::InVain { what, why });
            }
            self.pass(LOOK).await?;
        }
        self.say(What::Line(what.to_owned()))
    }
}

/// Lines of policies for the audience: in one second each once, and not more than a few.
fn said(lines: Vec<Line>) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for Line { policy, text, .. } in lines {
        let line = format!("{policy} says: {text}");
        if !told.contains(&line) {
            told.push(line);
        }
    }
    let more = told.len().saturating_sub(SAID_MAX);
    told.truncate(SAID_MAX);
    if more > 0 {
        told.push(format!("policies say {more} lines more in this second"));
    }
    told
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

/// So many pods are wanted, there are no others, and all of them run.
fn pods_run(lab: &Lab, wanted: usize) -> bool {
    let load = Load::of(&lab.kube.list("pods"));
    load.running == wanted && load.all == wanted && load.ending == 0
}

/// The server that carries most machines; of several, the last.
fn busiest(lab: &Lab) -> Option<String> {
    let mut servers = BTreeMap::<_, u32>::new();
    for vm in machines(lab) {
        *servers.entry(vm.hypervisor).or_default() += 1;
    }
    let most = servers.into_iter().max_by_key(|(_, machines)| *machines);
    most.map(|(server, _)| server)
}

/// A pod of the load that is to stay is bound to a machine of this server.
fn carries_pods(lab: &Lab, server: &str) -> bool {
    let mut pods = lab.kube.list("pods");
    pods.retain(|pod| world::is_load(pod) && world::stays(pod));
    machines(lab)
        .filter(|vm| vm.hypervisor == server)
        .any(|vm| pods.iter().any(|pod| pod["spec"]["nodeName"] == *vm.name))
}

/// Neither a machine is left nor what stands for one in Kubernetes.
fn nothing_of_ours(lab: &Lab) -> bool {
    machines(lab).next().is_none()
        && lab.kube.list("nodeclaims.kproxide.dev").is_empty()
        && lab.kube.list("nodes").len() == world::STATIC
}
