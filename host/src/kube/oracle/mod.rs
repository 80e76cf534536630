//! kproxide's filters against kube-scheduler's own: on drawn worlds of ordinary objects both must say the same of each
//! pod and Node, and kproxide must refuse for the reason of a plugin that refuses.

mod draw;
mod scheduler;
mod shrink;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;

use kproxide_planner::World;
use kproxide_planner::ids::{NodeName, PodKey};
use kproxide_planner::planning::Filters;
use kproxide_testkit::require_controlplane;
use serde_json::Value;

use self::draw::Draw;
use self::scheduler::{Refusal, Scheduler, Verdicts};
use super::watch::{Change, changes_of};

/// How many worlds are drawn. See `tests/README.md`.
const WORLDS: &str = "KPROXIDE_ORACLE_WORLDS";

/// Worlds that have shown a difference once.
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/oracle");

/// What each plugin must decide of all verdicts, in percent: it alone refuses.
const LEAST_SHARE: f64 = 2.0;

const DECIDING: [&str; 7] = [
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
];

/// Worlds that are asked about before the first of them is answered. More could fill both pipes.
const AHEAD: usize = 4;

/// So many worlds are shown if there are more that differ.
const SHOWN: usize = 8;

#[test]
fn the_filters_say_what_kube_scheduler_says() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let mut scheduler = Scheduler::start(&programs);
    for (name, objects) in kept() {
        let judged = scheduler.judge(&objects);
        let judged = judged.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(
            differences(&objects, &judged),
            Vec::<String>::new(),
            "{name}"
        );
    }
    let worlds = std::env::var(WORLDS).map_or(5_000, |number| number.parse().expect("a number"));
    let mut shares = Shares::default();
    let mut differing: Vec<(u64, Vec<Value>)> = Vec::new();
    let mut asked: VecDeque<(u64, Vec<Value>)> = VecDeque::new();
    for seed in 0..worlds + AHEAD as u64 {
        if seed < worlds {
            let objects = draw::world(&mut Draw::new(seed));
            scheduler.ask(&objects);
            asked.push_back((seed, objects));
        }
        if seed < AHEAD as u64 {
            continue;
        }
        let (seed, objects) = asked.pop_front().expect("as many as were asked");
        let judged = scheduler.answer();
        let judged = judged.unwrap_or_else(|error| panic!("world {seed}: {error}"));
        shares.count(&judged);
        if !differences(&objects, &judged).is_empty() {
            differing.push((seed, objects));
        }
    }
    print!("{shares}");
    for (seed, objects) in differing.iter().take(SHOWN) {
        let smallest = shrink::shrunk(objects.clone(), |objects| {
            let judged = scheduler.judge(objects).ok()?;
            let found = differences(objects, &judged);
            (!found.is_empty()).then_some(found)
        });
        println!("world {seed}, made smaller:\n{smallest}");
    }
    assert_eq!(differing.len(), 0, "worlds differ, of {worlds}");
    shares.check();
}

fn kept() -> Vec<(String, Vec<Value>)> {
    let files = fs::read_dir(Path::new(KEPT)).expect("the kept worlds");
    let read = files.map(|file| {
        let path = file.expect("a file").path();
        let text = fs::read_to_string(&path).expect("a text");
        let objects = serde_json::from_str(&text).expect("a list of objects");
        (path.display().to_string(), objects)
    });
    let mut read: Vec<_> = read.collect();
    read.sort_by(|(a, _), (b, _)| a.cmp(b));
    read
}

/// Where kproxide says something else than the scheduler.
fn differences(objects: &[Value], judged: &Verdicts) -> Vec<String> {
    let mut world = World::default();
    for object in objects {
        for change in changes_of(object) {
            if let Change::Delta(delta) = change {
                world.apply(delta);
            }
        }
    }
    let filters = Filters::of(&world);
    let difference = |((pod, node), refused): (&(String, String), &Vec<Refusal>)| {
        let (namespace, name) = pod.split_once('/').expect("namespace/name");
        let view = world
            .pod(&PodKey::new(namespace, name))
            .expect("it is there");
        if !view.spec().unsupported.is_empty() {
            return None;
        }
        let misfit = filters.misfit(&view, &NodeName::from(node.as_str()));
        let agrees = match &misfit {
            None => refused.is_empty(),
            Some(misfit) => refused.iter().any(|one| one.plugin == misfit.plugin()),
        };
        let ours = misfit.map_or("fits".to_owned(), |misfit| {
            format!("{} ({misfit})", misfit.plugin())
        });
        let theirs: Vec<String> = refused.iter().map(Refusal::to_string).collect();
        let theirs = theirs.join(", ");
        (!agrees).then(|| format!("{pod} on {node}: kproxide: {ours}; kube-scheduler: {theirs}"))
    };
    judged.iter().filter_map(difference).collect()
}

fn full_name(object: &Value) -> String {
    let meta = &object["metadata"];
    match (meta["namespace"].as_str(), meta["name"].as_str()) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        (_, name) => name.unwrap_or_default().to_owned(),
    }
}

/// How many verdicts each plugin decides.
#[derive(Default)]
struct Shares {
    verdicts: usize,
    fitting: usize,
    /// By plugin: where it refuses, and where nobody else does.
    refused: BTreeMap<String, (usize, usize)>,
}

impl Shares {
    fn count(&mut self, judged: &Verdicts) {
        for refused in judged.values() {
            self.verdicts += 1;
            self.fitting += usize::from(refused.is_empty());
            for one in refused {
                let (refuses, alone) = self.refused.entry(one.plugin.clone()).or_default();
                *refuses += 1;
                *alone += usize::from(refused.len() == 1);
            }
        }
    }

    fn percent(&self, of: usize) -> f64 {
        100.0 * of as f64 / self.verdicts.max(1) as f64
    }

    fn check(&self) {
        for plugin in DECIDING {
            let (_, alone) = self.refused.get(plugin).copied().unwrap_or_default();
            let share = self.percent(alone);
            assert!(share >= LEAST_SHARE, "{plugin} decides {share:.1} % alone");
        }
    }
}

impl std::fmt::Display for Shares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fitting = self.percent(self.fitting);
        writeln!(
            f,
            "{} verdicts, {fitting:.1} % fit. Plugins refuse:",
            self.verdicts
        )?;
        for (plugin, (refuses, alone)) in &self.refused {
            let (refuses, alone) = (self.percent(*refuses), self.percent(*alone));
            writeln!(f, "  {plugin:<20} {refuses:>5.1} %, alone {alone:>5.1} %")?;
        }
        Ok(())
    }
}
