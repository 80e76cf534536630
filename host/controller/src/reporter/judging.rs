//! What is known goes to the judge, once a tick.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kproxide_planner::claim::Waits;
use kproxide_planner::ids::{ClaimName, ClusterName};
use kproxide_planner::plan::report::Report;
use kproxide_planner::world::World;

use super::Reporter;
use crate::judge::{Finding, Known, judge, named, reasons, uses};
use crate::observe::Clusters;
use kproxide_kube::events::{About, Event};

impl Reporter {
    /// What is known of the credentials of each cluster, from now on.
    pub fn judge_credentials(&mut self, clusters: &Clusters) {
        self.excess = clusters.excess();
        self.lacking = clusters.lacking();
        self.unused = clusters.unused();
    }

    /// Why files of join scripts cannot be read, by their paths, from now on.
    pub fn judge_join_files(&mut self, problems: BTreeMap<Arc<str>, String>) {
        self.join_problems = problems;
    }

    /// What keeps claims from going on, from now on.
    pub fn judge_claims(&mut self, held_up: BTreeMap<ClaimName, Waits>) {
        self.held_up = held_up;
    }

    /// An Event for each claim that has waited for long: once, whatever the words that an error has each time.
    pub(super) fn report_waits(&mut self, world: &World, now: Timestamp) {
        for (name, claim) in world.claims() {
            let object = named("NodeClaim", name);
            let mut about = self.findings.iter().filter(|it| it.object == object);
            let Some(waits) = about.find(|it| *it.reason == reasons::WAITS) else {
                continue;
            };
            let (about, word) = (About::claim(name, &claim.uid), waits.reason.word);
            let message = waits.message.clone();
            let subject = (about.clone(), word);
            if !self.said.is_said(&subject, SignedDuration::MAX, now) {
                self.said
                    .is_news(subject, &message, SignedDuration::MAX, now);
                tracing::warn!(claim = %name, text = message, "waits");
                self.events.say(Event::warning(about, word, message));
            }
        }
    }

    pub(super) fn judge(&mut self, report: &Report, world: &World, now: Timestamp) {
        let known = Known {
            report,
            key_problem: self.key_problem.as_ref(),
            lacking: &self.lacking,
            excess: &self.excess,
            unused: &self.unused,
            join_problems: &self.join_problems,
            refusals: &self.refusals,
            unfit: &self.unfit,
            held_up: &self.held_up,
            sees_books: true,
            now,
        };
        let mut findings = judge(world, &known);
        self.holding.count(&mut findings, now);
        self.findings = findings;
    }

    /// What is said of an object in its conditions.
    pub(super) fn findings_of(&self, object: &str) -> Vec<Finding> {
        let about = self.findings.iter().filter(|it| it.object == object);
        about
            .filter(|it| it.condition().is_some())
            .cloned()
            .collect()
    }

    /// Events about credentials with which kproxide works, although something is wrong: once each pool that may use the cluster, if they
    /// may do too much; the cluster itself, if those in the Secret cannot be used.
    pub(super) fn report_credentials(&mut self, world: &World, now: Timestamp) {
        let mut told = std::mem::take(&mut self.excess_reported);
        let known = told.clone();
        // After a change of a ProxmoxCluster nothing is known of its credentials for a moment. That is no news.
        let unknown = |cluster: &ClusterName| {
            world.clusters().contains_key(cluster) && !self.excess.contains_key(cluster)
        };
        told.retain(|(cluster, ..)| unknown(cluster));
        let mut unused = Vec::new();
        for (cluster, facts) in world.clusters() {
            let object = named("ProxmoxCluster", cluster);
            for finding in self.findings.iter().filter(|it| it.object == object) {
                if *finding.reason == reasons::NEW_CREDENTIALS_UNUSABLE {
                    let about = About::cluster(cluster, &facts.existence.uid);
                    unused.push((about, finding.message.clone()));
                } else if *finding.reason == reasons::TOKEN_OVER_PRIVILEGED {
                    let pools = tell_excess(cluster, finding, world, &known);
                    for (about, message, is_news) in pools {
                        if is_news {
                            let word = finding.reason.word;
                            tracing::warn!(%cluster, ?about, text = message, "credentials");
                            let event = Event::warning(about.clone(), word, message.clone());
                            self.events.say(event);
                        }
                        told.insert((cluster.clone(), about, message));
                    }
                }
            }
        }
        self.excess_reported = told;
        for (about, why) in unused {
            self.warn(about, reasons::NEW_CREDENTIALS_UNUSABLE.word, &why, now);
        }
    }
}

/// Each pool that may use the cluster, with what it is told, and whether it was not told before.
fn tell_excess(
    cluster: &ClusterName,
    finding: &Finding,
    world: &World,
    known: &BTreeSet<(ClusterName, About, String)>,
) -> Vec<(About, String, bool)> {
    let pools = world.pools().iter();
    let pools = pools.filter(|(_, pool)| uses(pool, cluster));
    let told = pools.map(|(name, pool)| {
        let about = About::pool(name, &pool.existence.uid);
        let message = format!("ProxmoxCluster {cluster}: {}", finding.message);
        let subject = (cluster.clone(), about.clone(), message.clone());
        let is_news = !known.contains(&subject);
        (about, message, is_news)
    });
    told.collect()
}
