//! The law of loops over hours: machines come, are used or not, and go again. What no pod uses is made ever more rarely.

mod rows;

use std::collections::BTreeMap;

use super::*;
use crate::facts::*;
use crate::guard::loops::{self, Key, pods_digest, workload};
use crate::ids::{ClaimName, PodKey, PoolName};
use crate::world::World;
use jiff::SignedDuration;

/// Notes that kproxide made this machine for this pod.
pub(super) fn made_for_pod(scene: &mut Scene, pod: &str, machine: &str) {
    let world = scene.world();
    let pool: PoolName = "workers".into();
    let mut needs = world.pending().into_iter();
    let (shape, pods) = needs
        .find(|(_, pods)| pods.iter().any(|one| &**one.name() == pod))
        .expect("it is pending");
    let pod = pods.iter().next().expect("a shape has pods");
    let key = Key {
        workload: &workload(&pod),
        pods: &pods_digest(&shape.spec),
        pool: &pool,
        instance_type: &scene.class.instance_types[0].name,
        settings: &loops::settings(&world, &pool),
    };
    loops::made(&mut scene.ledger, &key, &machine.into());
}

/// A cluster whose machines come into service a minute after their claim. Each tick is 20 seconds.
pub(super) struct Play {
    pub(super) scene: Scene,
    last: Plan,
    pub(super) seconds: i64,
    /// When each machine was launched.
    pub(super) made: Vec<i64>,
    /// What the kubelets of new Nodes show otherwise than promised.
    pub(super) kubelet: fn(&mut NodeFacts),
    /// Puts pods on Nodes.
    pub(super) scheduler: fn(&mut Play),
    pub(super) said: String,
}

const TICK: i64 = 20;
const BOOTS: i64 = 60;

impl Play {
    pub(super) fn new() -> Self {
        let mut scene = Scene::default();
        scene.workers().scale_down.stabilization = SignedDuration::ZERO.into();
        scene.workers().scale_down.budget = 10;
        scene.workers().limits.max_nodes = 1000;
        let server = scene.node("server", node("cpu=64 memory=256Gi"));
        taints(server);
        Self {
            scene,
            last: Plan::default(),
            seconds: 0,
            made: Vec::new(),
            kubelet: |_| {},
            scheduler: |_| {},
            said: String::new(),
        }
    }

    pub(super) fn now(&self) -> i64 {
        NOW + self.seconds
    }

    pub(super) fn pod(&mut self, name: &str, owner: (&str, &str), requests: &str) {
        let mut pod = pending_pod(spec(requests));
        pod.owner = Some(Owner {
            kind: owner.0.into(),
            name: owner.1.into(),
            uid: "owner".into(),
        });
        pod.created = at(self.now());
        pod.unschedulable_since = Some(at(self.now()));
        self.scene.pods.insert(PodKey::new("default", name), pod);
    }

    /// A scheduler that puts each pod on the first Node of a machine with so much CPU.
    fn bind(&mut self) {
        let mut free: BTreeMap<_, _> = self.scene.nodes.iter().collect();
        free.retain(|name, node| {
            let claim = self.scene.claims.get(name.as_str());
            let serves = claim.is_some_and(|claim| claim.status.phase == Phase::Initialized);
            serves && node.ready && !node.unschedulable
        });
        let mut room: Vec<_> = free
            .into_iter()
            .map(|(name, node)| {
                let on = self.scene.pods.values();
                let on = on.filter(|pod| pod.node.as_ref() == Some(name));
                let taken: i64 = on.map(|pod| pod.spec.requests.milli_cores).sum();
                (name.clone(), node.allocatable.milli_cores - taken)
            })
            .collect();
        let waiting = self
            .scene
            .pods
            .values_mut()
            .filter(|pod| pod.node.is_none());
        for pod in waiting {
            let asked = pod.spec.requests.milli_cores;
            let Some((node, left)) = room.iter_mut().find(|(_, left)| *left >= asked) else {
                return;
            };
            *left -= asked;
            pod.node = Some(node.clone());
            pod.phase = PodPhase::Running;
            pod.unschedulable_since = None;
        }
    }

    pub(super) fn run(&mut self, seconds: i64) {
        for _ in 0..seconds / TICK {
            self.tick();
        }
    }

    fn world(&self) -> World {
        let mut world = World::default();
        world.remember(&self.last);
        for delta in self.scene.deltas() {
            world.apply(delta);
        }
        world
    }

    pub(super) fn tick(&mut self) {
        self.seconds += TICK;
        (self.scheduler)(self);
        let now = at(self.now());
        self.scene.inventory.taken_at = Some(now);
        let plan = plan(&self.world(), now, Limits::default(), reasonable);
        check_sound(&plan);
        if let Some(ledger) = &plan.ledger {
            self.scene.ledger = ledger.clone();
        }
        let whys = plan
            .report
            .pending
            .iter()
            .map(|row| format!("{:?}", row.outcome));
        self.said = whys.collect();
        let gone: Vec<ClaimName> = self
            .scene
            .claims
            .iter()
            .filter(|(_, claim)| claim.deleting_since.is_some())
            .map(|(name, _)| name.clone())
            .collect();
        for Launch { claim, .. } in &plan.launches {
            self.made.push(self.seconds);
            assert!(!self.scene.claims.contains_key(claim));
        }
        let before: Vec<ClaimName> = self.scene.claims.keys().cloned().collect();
        self.scene = acted(&self.scene, &plan);
        for (name, claim) in &mut self.scene.claims {
            if !before.contains(name) {
                claim.created = now;
                // What has not begun would be withdrawn when its pods are gone.
                claim.status.phase = Phase::Launching;
                claim.status.conditions = vec![condition(Condition::Reserved, now)];
            }
            if claim.status.draining_since.is_some_and(|since| since < now) {
                claim.status.phase = Phase::Terminating;
                claim.deleting_since = Some(now);
                continue;
            }
            let removed = plan.advances.iter().find(|advance| advance.claim == *name);
            let removed = removed.filter(|_| claim.deleting_since.is_none());
            if let Some(Verdict::Remove(reason)) = removed.map(|advance| &advance.verdict) {
                let drained = ClaimCondition {
                    reason: reason.as_str().to_owned(),
                    ..condition(Condition::Drained, now)
                };
                claim.status.conditions.push(drained);
                claim.status.phase = Phase::Draining;
                claim.status.draining_since = Some(now);
            }
        }
        for name in gone {
            self.scene.guest(name.as_str(), None);
            self.scene.claims.remove(&name);
            self.scene.nodes.remove(name.as_str());
        }
        self.come_into_service();
        self.last = plan;
    }

    fn come_into_service(&mut self) {
        let now = self.now();
        let due = self.scene.claims.iter().filter(|(_, claim)| {
            claim.status.phase < Phase::Initialized
                && claim.deleting_since.is_none()
                && claim.created <= at(now - BOOTS)
        });
        let due: Vec<ClaimName> = due.map(|(name, _)| name.clone()).collect();
        for name in due {
            // With what the scene knows of a machine in service, and what the claim says.
            let claim = self.scene.claims[&name].clone();
            let entries = self.scene.ledger.entries.clone();
            self.scene
                .machine(name.as_str(), &claim.spec.hypervisor.clone());
            self.scene.ledger.entries = entries;
            let vmid = self.scene.claims[&name].spec.vmid;
            let guest = self.scene.inventory.guests.remove(&vmid).unwrap();
            self.scene.inventory.guests.insert(claim.spec.vmid, guest);
            let made = self.scene.claim(name.as_str());
            made.spec = claim.spec;
            made.created = claim.created;
            made.status.conditions = vec![condition(Condition::Initialized, at(now))];
            let node = self.scene.nodes.get_mut(name.as_str()).unwrap();
            node.created = at(now);
            node.ready_since = at(now);
            (self.kubelet)(node);
        }
    }
}

pub(super) fn taints(node: &mut NodeFacts) {
    node.taints.push(Taint {
        key: "example.com/theirs".into(),
        value: "".into(),
        effect: TaintEffect::NoSchedule,
    });
}

/// The causes that kproxide does not know, sees at once, and learns too late.
const CAUSES: [fn(&mut NodeFacts); 3] = [|_| {}, taints, |node| node.labels.clear()];

#[test]
fn a_pod_that_no_machine_helps_is_tried_five_times_in_two_hours_and_four_times_a_day() {
    for (index, kubelet) in CAUSES.into_iter().enumerate() {
        let mut play = Play::new();
        play.kubelet = kubelet;
        play.pod("web-1", ("ReplicaSet", "web"), "cpu=1");
        play.run(2 * 3600);
        assert!(
            (2..=5).contains(&play.made.len()),
            "cause {index}: {:?}",
            play.made
        );
        let rests: Vec<i64> = play.made.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(rests[0] >= 300 + 180, "cause {index}: {rests:?}");
        assert!(rests.is_sorted(), "cause {index}: {rests:?}");
        let first_day = play.made.len();
        play.run(22 * 3600);
        assert!(
            play.made.len() - first_day <= 6,
            "cause {index}: {:?}",
            play.made
        );
        let before = play.made.len();
        play.run(48 * 3600);
        let made = play.made.len() - before;
        assert!((4..=8).contains(&made), "cause {index}: {made} in two days");
    }
}

#[test]
fn the_first_round_is_not_limited_and_the_second_is_one_machine() {
    let mut play = Play::new();
    play.kubelet = taints;
    for number in 0..8 {
        play.pod(&format!("web-{number}"), ("ReplicaSet", "web"), "cpu=3");
    }
    play.run(60);
    assert_eq!(play.made.len(), 8);
    play.run(2 * 3600);
    assert!((9..=12).contains(&play.made.len()), "{:?}", play.made);
}

#[test]
fn another_workload_of_equal_pods_does_not_rest() {
    let mut play = Play::new();
    play.scheduler = |play| {
        let keep = |pod: &PodFacts| &*pod.owner.as_ref().unwrap().name == "web";
        let kept: Vec<_> = play.scene.pods.extract_if(.., |_, pod| keep(pod)).collect();
        play.bind();
        play.scene.pods.extend(kept);
    };
    play.pod("web-1", ("ReplicaSet", "web"), "cpu=3");
    play.run(1800);
    let before = play.made.len();
    assert!(before <= 3, "{:?}", play.made);
    for number in 0..6 {
        play.pod(&format!("api-{number}"), ("ReplicaSet", "api"), "cpu=3");
    }
    play.run(180);
    assert!(play.made.len() - before >= 5, "{:?}", play.made);
    let waiting = play.scene.pods.values().filter(|pod| pod.node.is_none());
    assert_eq!(waiting.count(), 1, "all of api run");
}

#[test]
fn a_used_machine_and_a_persons_word_end_the_rest() {
    let changes: [fn(&mut Play); 4] = [
        |play| play.scene.workers().retry = Some("1".into()),
        |play| play.scene.class.digest = "other".into(),
        |play| {
            let templates = play
                .scene
                .inventory
                .templates
                .get_mut(&"debian".into())
                .unwrap();
            templates[0].digest = "rebuilt".into();
        },
        |play| {
            for pod in play.scene.pods.values_mut() {
                pod.spec = spec("cpu=2");
            }
        },
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut play = Play::new();
        play.kubelet = taints;
        play.pod("web-1", ("ReplicaSet", "web"), "cpu=1");
        play.run(3600);
        // Until its last machine is gone.
        while !play.said.contains("InVain") {
            assert!(play.seconds < 7200, "{}", play.said);
            play.tick();
        }
        let before = play.made.len();
        play.run(60);
        assert_eq!(play.made.len(), before, "it rests");
        change(&mut play);
        play.run(60);
        assert_eq!(play.made.len(), before + 1, "change {index}");
    }
    let mut play = Play::new();
    play.pod("web-1", ("ReplicaSet", "web"), "cpu=1");
    play.run(500);
    assert_eq!(play.scene.ledger.tries[0].rounds, 1);
    play.scheduler = Play::bind;
    play.run(60);
    assert_eq!(
        play.scene.ledger.tries,
        [],
        "the machine that stood there is used"
    );
}

#[test]
fn machines_that_are_used_are_never_limited() {
    // A CronJob each minute whose pods run for half a minute.
    let mut play = Play::new();
    play.scheduler = |play| {
        let minute = play.seconds / 60;
        let now = play.now();
        play.scene
            .pods
            .retain(|_, pod| pod.node.is_none() || pod.created > at(now - 90));
        if play.seconds % 60 == 0 {
            play.pod(
                &format!("report-{minute}"),
                ("Job", &format!("report-{}", 28_000_000 + minute)),
                "cpu=3",
            );
        }
        play.bind();
    };
    play.run(7200);
    assert!(play.scene.ledger.tries.iter().all(|row| row.rounds == 0));
    assert!(
        play.scene
            .pods
            .values()
            .filter(|pod| pod.node.is_none())
            .count()
            <= 2
    );

    // A load that swings every five minutes.
    let mut play = Play::new();
    play.scene.workers().scale_down.min_node_age = SignedDuration::ZERO.into();
    play.scheduler = |play| {
        if play.seconds % 600 == 20 {
            for number in 0..10 {
                play.pod(&format!("web-{number}"), ("ReplicaSet", "web"), "cpu=3");
            }
        } else if play.seconds % 600 == 320 {
            play.scene.pods.clear();
        }
        let waits = |pod: &PodFacts, now: i64| pod.node.is_none() && pod.created < at(now - 180);
        let now = play.now();
        let late = play.scene.pods.values().filter(|pod| waits(pod, now));
        let late = late.count();
        assert_eq!(
            late, 0,
            "at {}: {} {:?}",
            play.seconds, play.said, play.last.report.nodes
        );
        play.bind();
    };
    play.run(7200);
    assert!(play.made.len() >= 100, "{}", play.made.len());

    // A cold burst.
    let mut play = Play::new();
    play.scheduler = Play::bind;
    for name in ["alpha", "beta", "gamma"] {
        let hypervisor = play.scene.hypervisor(name);
        hypervisor.threads = 512;
        hypervisor.memory_bytes = 1 << 41;
    }
    for number in 0..500 {
        play.pod(&format!("web-{number:03}"), ("ReplicaSet", "web"), "cpu=1");
    }
    play.run(1800);
    assert!(play.made.len() >= 125, "{}", play.made.len());
    assert!(play.scene.pods.values().all(|pod| pod.node.is_some()));
    assert_eq!(play.scene.ledger.tries, []);
}

#[test]
fn pods_that_are_gone_before_the_machine_is_in_service_count_from_the_third_time() {
    let mut play = Play::new();
    play.scene.workers().scale_down.min_node_age = SignedDuration::ZERO.into();
    play.scheduler = |play| {
        let now = play.now();
        play.scene.pods.retain(|_, pod| pod.created > at(now - 40));
        if play.seconds % 300 == 20 {
            let minute = 28_000_000 + play.seconds / 60;
            play.pod(
                &format!("short-{minute}"),
                ("Job", &format!("short-{minute}")),
                "cpu=1",
            );
        }
    };
    play.run(3 * 300);
    // Not for the pause of the pool: whoever makes such pods would stop it for all.
    assert_eq!((play.made.len(), play.scene.ledger.in_vain.len()), (3, 0));
    play.run(2 * 3600);
    assert!(play.made.len() <= 7, "{:?}", play.made);
    play.scene.pods.clear();
    play.pod("short-28999999", ("Job", "short-28999999"), "cpu=1");
    play.tick();
    assert!(play.said.contains("too_late: true"), "{}", play.said);
}

#[test]
fn more_than_ten_machines_in_vain_in_an_hour_pause_the_pool() {
    let mut play = Play::new();
    play.kubelet = taints;
    for number in 0..11 {
        play.pod(
            &format!("web-{number:02}"),
            ("ReplicaSet", &format!("web{number:02}")),
            "cpu=3",
        );
    }
    play.run(400);
    assert_eq!(play.scene.ledger.in_vain.len(), 11);
    play.pod("other", ("ReplicaSet", "other"), "cpu=1");
    play.run(60);
    assert_eq!(play.made.len(), 11);
    let [(pool, why)] = &play.last.report.unusable[..] else {
        panic!("{:?}", play.last.report.unusable);
    };
    let text = why.to_string();
    assert_eq!(pool.as_str(), "workers");
    assert!(
        text.contains("LaunchesPaused") && text.contains("kproxide.dev/retry"),
        "{text}"
    );
    let mut again = Play {
        scene: play.scene.clone(),
        last: play.last.clone(),
        made: vec![],
        said: String::new(),
        ..play
    };
    again.scene.workers().retry = Some("now".into());
    again.run(20);
    assert!(!again.made.is_empty(), "a person has asked for it");
    again.scene = play.scene;
    again.made.clear();
    again.run(3600);
    assert!(!again.made.is_empty(), "an hour is over");
}

#[test]
fn no_second_machine_is_made_while_an_unused_one_is_drained() {
    let mut play = Play::new();
    play.scene.workers().scale_down.unneeded_time = SignedDuration::ZERO.into();
    play.kubelet = taints;
    play.pod("web-1", ("ReplicaSet", "web"), "cpu=1");
    let mut drained = 0;
    for _ in 0..60 {
        let before = play.made.len();
        let drains = |play: &Play| {
            let mut claims = play.scene.claims.values();
            claims.any(|claim| claim.status.phase == Phase::Draining)
        };
        let is_drained = drains(&play);
        play.tick();
        if is_drained {
            drained += 1;
            assert_eq!(play.made.len(), before, "{:?}", play.made);
        }
    }
    assert!(drained > 0, "no machine was drained");
}
