//! What one seed's world is made of and what people do in it: hypervisors, other people's machines, static Nodes, pools, and
//! a load that rises, falls and settles. Nothing here goes wrong; that is `plan`'s.

mod display;
mod objects;
mod rules;

use std::time::Duration;

use kproxide_controller::config::LeaseTiming;
use kproxide_lab::config;
use kproxide_simulator::pve::topology::VmSpec;
use kproxide_simulator::rng::Seed;
use rand::Rng;
use rand::rngs::SmallRng;

pub(crate) use self::objects::foreign;
pub(crate) use self::rules::Rules;
use crate::incidents::Incident;
use crate::plan::Clock;

/// VMIDs that kproxide may use. Some are other people's.
pub(crate) const RANGE: std::ops::RangeInclusive<u32> = 500..=699;
/// The Proxmox resource pool of our machines. A foreign machine may stand in it too.
pub(crate) const RESOURCE_POOL: &str = "k8s";
/// The tag that our machines carry, and copies of them.
pub(crate) const TAG: &str = "kproxide";
/// Size of every machine of ours.
pub(crate) const CORES: u32 = 4;
pub(crate) const MEMORY_MIB: u64 = 8192;
pub(crate) const DISK_GIB: u64 = 20;
/// The name of a host-selection policy that traps, until it is mended.
pub(crate) const TRAP: &str = "trap";
/// What the add-ons of k3s ask of the static Node that they run on.
const ADDONS_MILLI_CORES: u32 = 200;
const AGENT_MILLI_CORES: u32 = 4000;
/// The encore: pods come all at once where no pool waits for more, otherwise so many times. The last stay for so long.
const ARRIVALS: u32 = 12;
const STAY: Duration = Duration::from_secs(7 * 60);

const GIB: u64 = 1 << 30;
/// Of a hypervisor: all machines of a pool fit on one.
pub(crate) const MEMORY_GIB: u64 = 64;
const LITTLE_MEMORY_GIB: u64 = 32;

/// Requests of a pod: thousandths of a core, and as many MiB. Machines are then always full by CPU before they are by memory, so that
/// how many of one size a machine carries is a division.
const SIZES: [u32; 4] = [80, 125, 125, 250];

/// Short ones are seldom: a host that asks often does little else.
const POLL_INTERVALS: [Duration; 5] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(60),
];
/// As above.
const LEASES: [LeaseTiming; 8] = [
    lease(15, 10, 2),
    lease(30, 20, 5),
    lease(30, 20, 5),
    lease(60, 40, 10),
    lease(60, 40, 10),
    lease(60, 40, 10),
    lease(60, 45, 15),
    lease(60, 45, 15),
];

const fn lease(duration: u64, renew_deadline: u64, retry: u64) -> LeaseTiming {
    LeaseTiming {
        duration: Duration::from_secs(duration),
        renew_deadline: Duration::from_secs(renew_deadline),
        retry: Duration::from_secs(retry),
    }
}

#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) hypervisors: u32,
    /// Memory of each of them. Where it is little, other people's machines and few of ours fill one.
    pub(crate) memory_gib: u64,
    /// A large idle Node that no pod of the load tolerates: it keeps `loadHeadroom` from being what keeps machines.
    pub(crate) roomy: bool,
    pub(crate) pools: Vec<Pool>,
    pub(crate) apps: Vec<App>,
    pub(crate) steps: Vec<Step>,
    pub(crate) foreign: Vec<VmSpec>,
    pub(crate) flags: Flags,
    /// How long hosts let a VMID rest (`--quarantine`); the run then goes on until none rests any more. Without it, hosts have their default of a day, and the run
    /// does not wait for that.
    pub(crate) quarantine: Option<Duration>,
    /// What the disks of a linked clone take, where they are slow.
    pub(crate) slow_clones: Option<Duration>,
    /// What people do once the world has come to rest and nothing goes wrong any more; each time counts from there. The last load is the one that there
    /// was before.
    pub(crate) encore: Vec<Step>,
    /// `maxMachinesPerHypervisor`
    pub(crate) per_hypervisor: Option<u32>,
    /// `concurrency`: clones at a time per storage and per hypervisor.
    pub(crate) clones: [u32; 2],
}

/// How hosts are started: what operators set differently, and what must hold whatever they set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) poll_interval: Duration,
    pub(crate) lease: LeaseTiming,
    /// Hosts keep an anchor on Proxmox.
    pub(crate) anchor: bool,
}

#[derive(Clone)]
pub(crate) struct Pool {
    pub(crate) name: &'static str,
    pub(crate) max_nodes: u32,
    pub(crate) budget: u32,
    pub(crate) host_selection: &'static str,
    /// Its Nodes carry a label that its pods select; otherwise its pods run on the static Node too.
    pub(crate) selected: bool,
    pub(crate) rules: Rules,
}

/// A Deployment.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) name: String,
    pub(crate) pool: usize,
    pub(crate) milli_cores: u32,
    /// Has a PodDisruptionBudget that lets half of its pods go.
    pub(crate) budgeted: bool,
    /// Why a Node carries one of its pods only.
    pub(crate) alone: Option<Alone>,
    /// Each of its pods has a volume of its own, which is made for it and reached from every Node.
    pub(crate) volume: bool,
}

/// Why a Node carries one pod of an app only.
#[derive(Clone, Copy)]
pub(crate) enum Alone {
    /// Each takes this port of its Node.
    HostPort(u16),
    /// Each keeps the others away from its Node.
    AntiAffinity,
}

impl App {
    /// How many of its pods so much CPU carries, on one Node.
    fn carried_by(&self, milli_cores: u32) -> u32 {
        match self.alone {
            Some(_) => 1,
            None => milli_cores / self.milli_cores,
        }
    }
}

/// What people do at some time after the host was started.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) at: Duration,
    pub(crate) act: Act,
}

#[derive(Clone)]
pub(crate) enum Act {
    /// So many pods of each app, in the order of `Scenario::apps`.
    Load(Vec<u32>),
    /// Somebody clones a machine of ours in the web interface, with name, tags, description and resource pool, to a VMID of our range.
    Copy(Onto),
    /// Somebody wants a Node of ours kept; `false`: none any more.
    Keep(bool),
    /// The kubelet of a Node of ours falls silent for good.
    Silence,
    /// The policy that traps answers from now on.
    Mend,
    Incident(Incident),
}

/// Where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onto {
    /// A VMID that is promised to a claim whose machine is not made yet.
    Promised,
    /// The last of the range.
    Last,
}

impl Scenario {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Seed(seed).stream("simulation", "scenario");
        let hypervisors = [3, 4, 4, 4, 5, 6][rng.random_range(0..6)];
        let names = ["workers", "batch"];
        let count = if rng.random_ratio(1, 4) { 2 } else { 1 };
        let roomy = count > 1 || rng.random_bool(0.5);
        let pools: Vec<Pool> = names[..count]
            .iter()
            .map(|name| Pool::draw(name, roomy, &mut rng))
            .collect();
        let mut apps = Vec::new();
        for (pool, of) in pools.iter().enumerate() {
            for index in 0..[2, 2, 2, 3][rng.random_range(0..4)] {
                apps.push(App {
                    name: format!("{}-{index}", of.name),
                    pool,
                    milli_cores: SIZES[rng.random_range(0..SIZES.len())],
                    budgeted: index == 0,
                    alone: None,
                    volume: false,
                });
            }
        }
        let mut ports = Seed(seed).stream("simulation", "host ports");
        if ports.random_ratio(1, 6) {
            let app = ports.random_range(0..apps.len());
            apps[app].alone = Some(Alone::HostPort(8080));
        }
        let mut rest = Seed(seed).stream("simulation", "anti-affinity and volumes");
        if rest.random_ratio(1, 6) && apps.iter().all(|app| app.alone.is_none()) {
            let app = rest.random_range(0..apps.len());
            apps[app].alone = Some(Alone::AntiAffinity);
        }
        for app in &mut apps {
            app.volume = rest.random_ratio(1, 6);
        }
        let mut steps = steps(&apps, &pools, &mut rng);
        keep_a_node(
            &mut steps,
            &mut Seed(seed).stream("simulation", "kept Nodes"),
        );
        let foreign = foreign(hypervisors, &mut rng);
        let most: u32 = pools.iter().map(|pool| pool.max_nodes).sum();
        let mut of_cluster = Seed(seed).stream("simulation", "cluster");
        let mut scenario = Self {
            seed,
            hypervisors,
            memory_gib: if Seed(seed).stream("simulation", "memory").random_ratio(1, 3) {
                LITTLE_MEMORY_GIB
            } else {
                MEMORY_GIB
            },
            roomy,
            pools,
            apps,
            steps,
            foreign,
            flags: Flags::draw(&mut Seed(seed).stream("simulation", "flags")),
            quarantine: None,
            slow_clones: None,
            encore: Vec::new(),
            // All fit where one hypervisor is away.
            per_hypervisor: of_cluster
                .random_bool(0.5)
                .then(|| most.div_ceil(hypervisors - 1)),
            clones: [
                of_cluster.random_range(1..=2),
                of_cluster.random_range(1..=2),
            ],
        };
        let mut rng = Seed(seed).stream("simulation", "rules");
        scenario.draw_rules(&mut rng);
        scenario.encore = scenario.draw_encore();
        scenario
    }

    /// What [`Rules`] there are, of worlds whose end follows from them: pods of pools that are selected run nowhere else.
    fn draw_rules(&mut self, rng: &mut SmallRng) {
        for pool in &mut self.pools {
            let roomy = pool.rules;
            pool.rules = Rules::draw(rng);
            pool.rules.load_headroom = roomy.load_headroom;
            if !pool.selected {
                pool.rules.headroom = 0;
                // Pods may run on such a machine that would be on the static Node without it.
                pool.rules.min_nodes = 0;
            }
        }
        if self.roomy && self.pools.len() == 1 && rng.random_bool(0.5) {
            let binding = Rules::binding(self.requested(), self.machines_needed(0));
            self.pools[0].rules.load_headroom = binding.unwrap_or(Rules::PLAIN.load_headroom);
        }
    }

    /// Of all pods of the last load, and of the add-ons.
    fn requested(&self) -> u32 {
        let apps = self.apps.iter().zip(self.final_load());
        let pods = apps.map(|(app, count)| app.milli_cores * count);
        pods.sum::<u32>() + ADDONS_MILLI_CORES
    }

    /// Pods come until one machine more is needed, or two where they come a few at a time, faster than any window of a pool; later all of them go at once.
    fn draw_encore(&self) -> Vec<Step> {
        let slowest = self.pools.iter().map(|pool| pool.rules.window).max();
        let slowest = slowest.unwrap_or(0);
        let arrivals = if slowest > 0 { ARRIVALS } else { 1 };
        let gap = Duration::from_secs((slowest / 3).into());
        let last = self.final_load().to_vec();
        let more = |(index, app): (usize, &App)| {
            let pool = &self.pools[app.pool];
            let room = pool
                .max_nodes
                .saturating_sub(self.machines_at_most(app.pool))
                .min(arrivals.min(2));
            let pods = room * app.carried_by(CORES * 1000);
            let chunk = pods.saturating_sub(1) / arrivals;
            if last[index] > 0 { chunk } else { 0 }
        };
        let more: Vec<u32> = self.apps.iter().enumerate().map(more).collect();
        if more.iter().all(|more| *more == 0) {
            return Vec::new();
        }
        let load = |times: u32| {
            let apps = last.iter().zip(&more);
            Act::Load(apps.map(|(count, more)| count + more * times).collect())
        };
        let coming = (1..=arrivals).map(|times| Step {
            at: gap * (times - 1),
            act: load(times),
        });
        let end = Step {
            at: gap * arrivals + STAY,
            act: load(0),
        };
        coming.chain([end]).collect()
    }

    /// Pods of each app that are wanted in the end.
    pub(crate) fn final_load(&self) -> &[u32] {
        let loads = self.steps.iter().rev().filter_map(|step| match &step.act {
            Act::Load(load) => Some(load.as_slice()),
            Act::Copy(_) | Act::Keep(_) | Act::Silence | Act::Mend | Act::Incident(_) => None,
        });
        loads.into_iter().next().unwrap_or_default()
    }

    /// Whether more is wanted at some time than a pool may have machines for.
    pub(crate) fn wants_too_much(&self) -> bool {
        self.steps.iter().any(|step| match &step.act {
            Act::Load(load) => self.pools.iter().enumerate().any(|(index, pool)| {
                let apps = self.apps.iter().zip(load);
                let of_pool = apps.filter(|(app, _)| app.pool == index);
                let cores = of_pool.map(|(app, count)| app.milli_cores * count);
                let elsewhere = if pool.selected {
                    0
                } else {
                    AGENT_MILLI_CORES - ADDONS_MILLI_CORES
                };
                cores.sum::<u32>() > pool.max_nodes * CORES * 1000 + elsewhere
                    || self.apps.iter().zip(load).any(|(app, count)| {
                        app.pool == index && *count > pool.elsewhere(app) + pool.carries(app)
                    })
            }),
            Act::Copy(_) | Act::Keep(_) | Act::Silence | Act::Mend | Act::Incident(_) => false,
        })
    }

    /// The most pods that are wanted at one time.
    pub(crate) fn most_pods(&self) -> u32 {
        let loads = self.steps.iter().filter_map(|step| match &step.act {
            Act::Load(load) => Some(load.iter().sum()),
            Act::Copy(_) | Act::Keep(_) | Act::Silence | Act::Mend | Act::Incident(_) => None,
        });
        loads.max().unwrap_or(0)
    }

    /// Scenarios with something less that people do, each with what it lacks. The last step stays: it is the load that there is in the end.
    pub(crate) fn smaller(&self) -> Vec<(String, Self)> {
        let mut plain = self.clone();
        plain.flags = Flags::default();
        let flags = (self.flags != plain.flags).then(|| ("the flags".to_owned(), plain));
        let droppable = 0..self.steps.len().saturating_sub(1);
        droppable
            .map(|index| {
                let mut smaller = self.clone();
                let step = smaller.steps.remove(index);
                let what = match step.act {
                    Act::Load(_) => "load",
                    Act::Copy(_) => "copy",
                    Act::Keep(_) => "wish to keep a Node, or its end,",
                    Act::Silence => "silence",
                    Act::Mend => "mending",
                    Act::Incident(_) => "incident",
                };
                (format!("the {what} at {}", Clock(step.at)), smaller)
            })
            .chain(flags)
            .collect()
    }

    /// For a test: in the end more pods are wanted than the pools may have machines for.
    #[cfg(test)]
    pub(crate) fn want_too_much(&mut self) {
        let app = &self.apps[0];
        let a_machine = app.carried_by(CORES * 1000);
        let mut load = vec![0; self.apps.len()];
        // The static Node takes no more than one machine would.
        load[0] = a_machine * (self.pools[app.pool].max_nodes + 2);
        self.steps = vec![Step {
            at: Duration::from_secs(20),
            act: Act::Load(load),
        }];
    }

    pub(crate) fn has_trap(&self) -> bool {
        self.pools.iter().any(|pool| pool.host_selection == TRAP)
    }

    /// When the last step is done.
    pub(crate) fn end(&self) -> Duration {
        self.steps.last().map_or(Duration::ZERO, |step| step.at)
    }

    /// How many machines of a pool the final load needs, no fewer: in the end each pool has pods of one size only, so that no
    /// history of who was placed where can make a difference.
    pub(crate) fn machines_needed(&self, pool: usize) -> u32 {
        let of = &self.pools[pool];
        let apps = self.apps.iter().zip(self.final_load());
        let of_pool = apps.filter(|(app, _)| app.pool == pool);
        let (mut machines, mut milli_cores) = (0, 0);
        for (app, count) in of_pool {
            let pods = count.saturating_sub(of.elsewhere(app));
            machines += pods.div_ceil(app.carried_by(CORES * 1000));
            milli_cores += pods * app.milli_cores;
        }
        of.rules.machines_for(machines, milli_cores)
    }

    /// And no more: as many as it needs, or as `loadHeadroom` keeps if there were more before.
    pub(crate) fn machines_at_most(&self, pool: usize) -> u32 {
        let kept = match self.pools.len() {
            1 => self.pools[0].rules.kept_by_load(self.requested()),
            _ => 0,
        };
        kept.max(self.machines_needed(pool))
    }
}

impl Default for Flags {
    /// Those of `kproxide run`, but for the anchor: small worlds are about one thing.
    fn default() -> Self {
        let config = config("kproxide-0");
        Self {
            poll_interval: config.timing.poll_interval,
            lease: config.lease,
            anchor: false,
        }
    }
}

impl Flags {
    fn draw(rng: &mut SmallRng) -> Self {
        Self {
            poll_interval: POLL_INTERVALS[rng.random_range(0..POLL_INTERVALS.len())],
            lease: LEASES[rng.random_range(0..LEASES.len())],
            anchor: rng.random_ratio(1, 3),
        }
    }
}

impl Pool {
    fn draw(name: &'static str, selected: bool, rng: &mut SmallRng) -> Self {
        let policies = [
            "spread",
            "max-memory",
            "max-cpu",
            "balanced",
            "round-robin",
            "pack",
        ];
        Self {
            name,
            max_nodes: rng.random_range(3..=5),
            budget: rng.random_range(1..=3),
            host_selection: policies[rng.random_range(0..policies.len())],
            selected,
            rules: Rules {
                // Without the large Node, it would keep as many machines as there happened to be when the load fell.
                load_headroom: if selected {
                    Rules::PLAIN.load_headroom
                } else {
                    0.0
                },
                ..Rules::PLAIN
            },
        }
    }

    /// How many pods of an app run without a machine of the pool.
    fn elsewhere(&self, app: &App) -> u32 {
        if self.selected {
            0
        } else {
            app.carried_by(AGENT_MILLI_CORES - ADDONS_MILLI_CORES)
        }
    }

    /// How many pods of an app all machines carry that the pool may have.
    fn carries(&self, app: &App) -> u32 {
        match app.alone {
            Some(_) => self.max_nodes,
            None => self.max_nodes * CORES * 1000 / app.milli_cores,
        }
    }

    /// As many pods of an app as a quarter of the machines that the pool may have carry; of one whose pods take a port, half of them: a quarter
    /// would be one.
    fn a_quarter(&self, app: &App) -> u32 {
        match app.alone {
            Some(_) => self.carries(app) / 2,
            None => self.carries(app) / 4,
        }
    }
}

/// The load rises and falls a few times, somebody copies a machine of ours meanwhile, and in the end one size of pod is left in each pool.
fn steps(apps: &[App], pools: &[Pool], rng: &mut SmallRng) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = Duration::from_secs(20);
    // Some loads change before the world has followed, most stay for a while.
    let (levels, lengths) = if rng.random_ratio(1, 3) {
        (2, 300..=900)
    } else {
        ([2, 2, 3][rng.random_range(0..3)], 2600..=4000)
    };
    // Not with the first load: there must be something to copy.
    let copied_in = rng.random_range(1..levels);
    for level in 0..levels {
        let load = apps.iter().map(|app| {
            let most = pools[app.pool].a_quarter(app);
            // The first mostly makes machines; later ones may be for fewer pods, and for none.
            let least = if level == 0 { most / 2 } else { 0 };
            rng.random_range(least..=most)
        });
        let mut load: Vec<u32> = load.collect();
        // Now and then more than a pool may have machines for: some stay pending for a while.
        if rng.random_ratio(1, 20) {
            let of = rng.random_range(0..apps.len());
            let (app, pool) = (&apps[of], &pools[apps[of].pool]);
            let room = pool.elsewhere(app) + pool.max_nodes * app.carried_by(CORES * 1000);
            load[of] = room + rng.random_range(1..=40);
        }
        steps.push(Step {
            at,
            act: Act::Load(load),
        });
        if level == copied_in {
            let onto = [Onto::Promised, Onto::Promised, Onto::Last][rng.random_range(0..3)];
            steps.push(Step {
                at,
                act: Act::Copy(onto),
            });
        }
        at += Duration::from_secs(rng.random_range(lengths.clone()));
    }
    let mut last: Vec<u32> = vec![0; apps.len()];
    for (index, pool) in pools.iter().enumerate() {
        let of_pool: Vec<usize> = (0..apps.len())
            .filter(|app| apps[*app].pool == index)
            .collect();
        let kept = of_pool[rng.random_range(0..of_pool.len())];
        let app = &apps[kept];
        // Beyond what the static Node takes; two at least, so that the budget of half of them lets one go.
        last[kept] = pool.elsewhere(app) + rng.random_range(2..=pool.a_quarter(app).max(2));
    }
    steps.push(Step {
        at,
        act: Act::Load(last),
    });
    steps
}

/// In some worlds somebody wants a Node kept from a while after the first load on, until the last one.
fn keep_a_node(steps: &mut Vec<Step>, rng: &mut SmallRng) {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return;
    };
    let (from, until) = (first.at + Duration::from_secs(300), last.at);
    if from >= until || !rng.random_ratio(1, 3) {
        return;
    }
    for (at, keep) in [(from, true), (until, false)] {
        let later = steps.iter().position(|step| step.at >= at);
        let act = Act::Keep(keep);
        steps.insert(later.unwrap_or(steps.len()), Step { at, act });
    }
}
