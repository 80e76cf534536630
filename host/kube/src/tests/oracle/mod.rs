//! kproxide's filters against kube-scheduler's own: on drawn worlds of ordinary objects both must say the same of each
//! pod and Node, and kproxide must refuse for the reason of a plugin that refuses.

mod containers;
mod draw;
mod machine;
mod shrink;
mod storage;
mod volumes;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;

use kproxide_planner::World;
use kproxide_planner::facts::VolumeProblem;
use kproxide_planner::ids::{NodeName, PodKey};
use kproxide_planner::plan::report::Misfit;
use kproxide_planner::planning::Filters;
use kproxide_planner::planning::expected::Expected;
use kproxide_testkit::oracle::{Refusal, Scheduler, Verdicts};
use kproxide_testkit::require_controlplane;
use serde_json::Value;

use crate::watch::{Change, Kind};

/// How many worlds are drawn. See `tests/README.md`.
const WORLDS: &str = "KPROXIDE_ORACLE_WORLDS";

/// Worlds that have shown a difference once.
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/oracle");

/// What each plugin must decide of all verdicts, in percent: it is the first that refuses, as the scheduler asks them.
const LEAST_SHARE: f64 = 2.0;

const DECIDING: [&str; 11] = [
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
    "NodeVolumeLimits",
];

/// Worlds that are asked about before the first of them is answered. More could fill both pipes.
const AHEAD: usize = 4;

/// The Node of the machine to come.
const MACHINE: &str = "machine";

/// So many worlds are shown if there are more that differ.
const SHOWN: usize = 12;

#[test]
fn the_filters_say_what_kube_scheduler_says() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let mut scheduler = Scheduler::start(&programs);
    for (name, objects) in kept() {
        let found =
            found(&mut scheduler, objects).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(found.is_empty(), "{name}: {found:?}");
    }
    let worlds = std::env::var(WORLDS).map_or(1_000, |number| number.parse().expect("a number"));
    let mut shares = Shares::default();
    let mut differing: Vec<(u64, Vec<Value>)> = Vec::new();
    let mut asked: VecDeque<(u64, Case)> = VecDeque::new();
    for seed in 0..worlds + AHEAD as u64 {
        if seed < worlds {
            let case = Case::of(draw::world(seed));
            scheduler.ask(&case.question());
            asked.push_back((seed, case));
        }
        if seed < AHEAD as u64 {
            continue;
        }
        let (seed, case) = asked.pop_front().expect("as many as were asked");
        let judged = scheduler.answer();
        let mut judged = judged.unwrap_or_else(|error| panic!("world {seed}: {error}"));
        case.forget_others(&mut judged);
        shares.count(&judged);
        if !case.differences(&judged).is_empty() {
            differing.push((seed, case.objects));
        }
    }
    print!("{shares}");
    for (seed, objects) in differing.iter().take(SHOWN) {
        let mut first = None;
        let smallest = shrink::shrunk(objects.clone(), |objects| {
            let mut found = found(&mut scheduler, objects.to_vec()).ok()?;
            // Smaller, it may differ in another way, which is not what is looked for.
            let first = first.get_or_insert_with(|| found[0].plugins.clone());
            found.retain(|one| one.plugins == *first);
            (!found.is_empty()).then(|| found.into_iter().map(|one| one.text).collect())
        });
        println!("world {seed}, made smaller:\n{smallest}");
    }
    let seeds: Vec<u64> = differing.iter().map(|(seed, _)| *seed).collect();
    assert!(
        seeds.is_empty(),
        "{} of {worlds} worlds differ: {seeds:?}",
        seeds.len()
    );
    shares.check();
}

/// Where the two differ in the world of these objects, or what is wrong with it.
fn found(scheduler: &mut Scheduler, objects: Vec<Value>) -> Result<Vec<Difference>, String> {
    let case = Case::of(objects);
    let mut judged = scheduler.judge(&case.question())?;
    case.forget_others(&mut judged);
    Ok(case.differences(&judged))
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

#[derive(Debug)]
struct Difference {
    /// Which plugins refuse: kproxide's, then the scheduler's.
    plugins: Vec<String>,
    text: String,
}

/// A world, and what kproxide knows of it.
struct Case {
    objects: Vec<Value>,
    world: World,
    /// The object that describes a machine to come. Then it alone is judged.
    machine: Option<Value>,
}

impl Case {
    fn of(objects: Vec<Value>) -> Self {
        let is_machine = |object: &&Value| object["kind"] == "Machine";
        let machine = objects.iter().find(is_machine).cloned();
        let mut world = machine
            .as_ref()
            .map_or_else(World::default, |machine| machine::scene(machine).world());
        for object in objects.iter().filter(|object| !is_machine(object)) {
            let text = |field: &str| object[field].as_str().unwrap_or_default();
            let kind = Kind::of(text("apiVersion"), text("kind")).expect("a watched kind");
            for change in kind.read(object).expect("a readable object") {
                if let Change::Delta(delta) = change {
                    world.apply(delta);
                }
            }
        }
        Self {
            objects,
            world,
            machine,
        }
    }

    fn expected(&self) -> Option<Expected<'_>> {
        machine::expected(self.machine.as_ref()?, &self.world)
    }

    /// What kube-scheduler is shown.
    fn question(&self) -> Vec<Value> {
        let is_ordinary = |object: &&Value| object["kind"] != "Machine";
        let mut objects: Vec<Value> = self.objects.iter().filter(is_ordinary).cloned().collect();
        if let Some(machine) = self.expected() {
            objects.extend(machine::rendered(&machine, MACHINE, &objects));
        }
        objects
    }

    /// With a Node more, the scheduler may think otherwise of the Nodes that are there.
    fn forget_others(&self, judged: &mut Verdicts) {
        judged.retain(|(_, node), _| self.machine.is_none() || node == MACHINE);
    }

    /// Of the pods that wait for a claim that only one may use, kproxide plans for the first by name. kube-scheduler
    /// takes the one that it comes to first.
    fn is_choice(&self, misfit: &Misfit<'_>) -> bool {
        let Misfit::VolumeWait(wait) = misfit else {
            return false;
        };
        let VolumeProblem::InUse(other) = &wait.why else {
            return false;
        };
        let other = self.world.pod(other);
        other.is_some_and(|other| other.node().is_none())
    }

    /// Where kproxide says something else than the scheduler.
    fn differences(&self, judged: &Verdicts) -> Vec<Difference> {
        let filters = Filters::of(&self.world);
        let machine = self.expected();
        let difference = |((pod, node), refused): (&(String, String), &Vec<Refusal>)| {
            let (namespace, name) = pod.split_once('/').expect("namespace/name");
            let key = PodKey::new(namespace, name);
            let view = self.world.pod(&key).expect("it is there");
            if !view.spec().unsupported.is_empty() {
                return None;
            }
            let misfit = match &machine {
                Some(machine) => filters.misfit_on(&view, machine),
                None => filters.misfit(&view, &NodeName::from(node.as_str())),
            };
            if misfit.as_ref().is_some_and(|misfit| self.is_choice(misfit)) {
                return None;
            }
            let agrees = match &misfit {
                None => refused.is_empty(),
                Some(misfit) => refused.iter().any(|one| one.plugin == misfit.plugin()),
            };
            if agrees {
                return None;
            }
            let plugin = misfit.as_ref().map_or("none", Misfit::plugin);
            let theirs = refused.iter().map(|one| one.plugin.clone());
            let plugins = std::iter::once(plugin.to_owned()).chain(theirs).collect();
            let ours = misfit.map_or("fits".to_owned(), |misfit| format!("{plugin} ({misfit})"));
            let theirs: Vec<String> = refused.iter().map(Refusal::to_string).collect();
            let theirs = theirs.join(", ");
            let text = format!("{pod} on {node}: kproxide: {ours}; kube-scheduler: {theirs}");
            Some(Difference { plugins, text })
        };
        judged.iter().filter_map(difference).collect()
    }
}

/// How many verdicts each plugin decides.
#[derive(Default)]
struct Shares {
    verdicts: usize,
    fitting: usize,
    /// By plugin: where it refuses, and where it is the first that does.
    refused: BTreeMap<String, (usize, usize)>,
}

impl Shares {
    fn count(&mut self, judged: &Verdicts) {
        for refused in judged.values() {
            self.verdicts += 1;
            self.fitting += usize::from(refused.is_empty());
            for one in refused {
                let (refuses, decides) = self.refused.entry(one.plugin.clone()).or_default();
                *refuses += 1;
                *decides += usize::from(one.plugin == refused[0].plugin);
            }
        }
    }

    fn percent(&self, of: usize) -> f64 {
        100.0 * of as f64 / self.verdicts.max(1) as f64
    }

    fn check(&self) {
        for plugin in DECIDING {
            let (_, decides) = self.refused.get(plugin).copied().unwrap_or_default();
            let share = self.percent(decides);
            assert!(share >= LEAST_SHARE, "{plugin} decides {share:.1} %");
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
        for (plugin, (refuses, decides)) in &self.refused {
            let (refuses, decides) = (self.percent(*refuses), self.percent(*decides));
            writeln!(
                f,
                "  {plugin:<20} {refuses:>5.1} %, decides {decides:>5.1} %"
            )?;
        }
        Ok(())
    }
}
