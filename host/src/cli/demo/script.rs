//! What happens: a burst of pods, a hypervisor that goes down, a policy that is swapped, load that falls.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::DemoError;
use super::story::{Audience, Said, Seen, Story, What};
use super::world::{self, APP, POOL, Policy, pods, pods_running};
use crate::lab::{self, HostHandle, Lab};
use crate::policy::PolicyFiles;

/// Nothing in the script takes longer in its own time; what does has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(60 * 60);
/// How often the script looks whether what it waits for has come.
const LOOK: Duration = Duration::from_secs(1);

/// Plays the whole demo. Returns when the summary was told.
pub(super) async fn play(
    seed: u64,
    policy: Policy,
    audience: &mut impl Audience,
) -> Result<(), DemoError> {
    let lab = world::build(seed, &policy.name);
    let (app, host) = lab
        .host("kproxide-0", lab::config("kproxide-0"))
        .map_err(DemoError::Host)?;
    let mut stage = Stage {
        lab: &lab,
        host: &host,
        story: Story::new(&lab),
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
    audience: &'a mut A,
}

impl<A: Audience> Stage<'_, A> {
    async fn act(&mut self, policy: Policy) -> Result<(), DemoError> {
        let lab = self.lab;
        let mut files = policy.files;
        self.hand_over(&files).await?;
        self.scene("three hypervisors, one static Node, and no load")?;
        self.pass(Duration::from_secs(20)).await?;

        self.scene("30 pods of 500m / 512Mi arrive")?;
        lab.apply([("deployments.apps", world::app(30))]);
        self.until("every pod runs", || pods_running(&lab.kube) == 30)
            .await?;

        self.scene("hypervisor pve2 goes down, and 10 more pods arrive")?;
        lab.pve.set_hypervisor_online("pve2", false);
        scale(lab, 40);
        self.until("every pod runs without pve2", || {
            pods_running(&lab.kube) == 40
        })
        .await?;

        let swapped = if policy.name == "pack" {
            "max-memory"
        } else {
            "pack"
        };
        self.scene(&format!(
            "pve2 is back; a file {}.wasm appears in the policy directory: it is {swapped}",
            policy.name
        ))?;
        lab.pve.set_hypervisor_online("pve2", true);
        let module = kproxide_builtins::builtin(swapped).map(|builtin| Arc::from(builtin.wasm));
        files.extend(module.map(|module| (Arc::from(policy.name.as_str()), Ok(module))));
        self.hand_over(&files).await?;
        scale(lab, 60);
        self.until("every pod runs", || pods_running(&lab.kube) == 60)
            .await?;

        self.scene("the load falls to 4 pods")?;
        scale(lab, 4);
        let settled =
            || pods_running(&lab.kube) == 4 && pods(&lab.kube) == 4 && nothing_surplus(lab);
        self.until("the surplus machines are gone", settled).await?;
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
        self.say(What::Summary(summary))?;
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

    async fn hand_over(&self, files: &PolicyFiles) -> Result<(), DemoError> {
        self.host
            .policy_files
            .send(files.clone())
            .await
            .map_err(|_| DemoError::HostEnded)
    }

    fn scene(&mut self, text: &str) -> Result<(), DemoError> {
        self.say(What::Scene(text.to_owned()))
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
                return Err(DemoError::InVain { what });
            }
            self.pass(LOOK).await?;
        }
        self.say(What::Line(what.to_owned()))
    }
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

/// No claim is left that the load does not need: the static Node and at most one machine carry four pods.
fn nothing_surplus(lab: &Lab) -> bool {
    let claims = lab.kube.list("nodeclaims.kproxide.dev");
    let of_pool = claims
        .iter()
        .filter(|claim| claim["spec"]["pool"] == POOL)
        .count();
    of_pool == super::story::machines(lab) && of_pool <= 1
}
