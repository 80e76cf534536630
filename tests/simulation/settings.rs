//! A law for each setting that names a time, a share or a number (S21): not before, not more, not too often. As in [`crate::history`], what counts is what
//! both servers saw, and never what a plan says of itself.
//!
//! Times hold always. What a plan adds up holds where nothing goes wrong, in the encore: faults make the world another one while a plan is acted on.
//! There, too, no more machines are made than the pods that wait need (S22), and none later than their pool's window says (L13).

mod packing;

use std::cell::Cell;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kproxide_lab::Lab;
use kproxide_simulator::kube::{Change, ChangeKind};
use serde_json::Value;

use self::packing::{Asks, Bins};
use crate::history::{Notice, Notices};
use crate::object::{CLAIMS, condition, drain_reason, name, text};
use crate::scenario::{CORES, Pool, Rules, Scenario};

const NODES: &str = "nodes";
const PODS: &str = "pods";
const MACHINE: u32 = CORES * 1000;
/// Kubernetes' times are whole seconds.
const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// A plan may be so old when what it plans begins.
const PLANNED: SignedDuration = SignedDuration::from_mins(2);
/// Machines that come within this time are of one plan.
const ONE_PLAN: SignedDuration = SignedDuration::from_secs(3);
/// L13: a tick, and the scheduler's.
const LATE: SignedDuration = SignedDuration::from_secs(30);

/// So long a pod waits for the room of one that ends, its grace and half a minute more.
const COMING_ROOM: SignedDuration = SignedDuration::from_secs(90);
/// A machine that is longer in coming may be given up, and is counted on no more (`timeouts.provision` of a class).
const GIVEN_UP: SignedDuration = SignedDuration::from_mins(5);
/// A drain that may go on no longer is undone in this time.
const UNDONE: SignedDuration = SignedDuration::from_secs(90);

/// Follows the world and holds it against what is set.
pub(crate) struct Settings<'a> {
    notices: Notices,
    scenario: &'a Scenario,
    /// Nothing goes wrong now.
    calm: &'a Cell<bool>,
    pods: BTreeMap<String, Pod>,
    nodes: BTreeMap<String, Node>,
    /// By name, when pods could come to a machine for the first time. A Node that somebody deletes registers again as
    /// the same machine.
    first_open: BTreeMap<String, Timestamp>,
    claims: BTreeMap<String, Claim>,
    /// Pods that waited until a moment ago: since when, for which pool, and until when.
    waited: Vec<(Timestamp, String, Timestamp)>,
    /// When a pod was last on its way out on a Node.
    ended: Option<Timestamp>,
    found: Vec<String>,
}

struct Pod {
    node: String,
    asks: Asks,
    /// It is refused by the scheduler.
    waits_since: Option<Timestamp>,
    /// It selects the machines of this pool.
    selects: String,
    of_load: bool,
}

struct Node {
    /// Of ours: its pool.
    pool: String,
    milli_cores: u32,
    created: Timestamp,
    control_plane: bool,
    not_ready_since: Option<Timestamp>,
    /// Since when pods may come.
    open_since: Option<Timestamp>,
}

struct Claim {
    name: String,
    pool: String,
    hypervisor: String,
    node: String,
    phase: String,
    from: Timestamp,
    deleted: bool,
    unneeded_since: Option<Timestamp>,
    /// Its drain began in calm.
    drains_since: Option<Timestamp>,
}

impl Claim {
    fn is_coming(&self) -> bool {
        !self.deleted
            && ["", "Pending", "Launching", "Launched", "Registered"].contains(&&*self.phase)
    }

    fn stays(&self) -> bool {
        self.is_coming() || self.serves()
    }

    fn serves(&self) -> bool {
        !self.deleted && self.phase == "Initialized"
    }
}

impl<'a> Settings<'a> {
    pub(crate) fn new(lab: &Lab, scenario: &'a Scenario, calm: &'a Cell<bool>) -> Self {
        Self {
            notices: Notices::new(lab, &[CLAIMS, NODES, PODS]),
            scenario,
            calm,
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            first_open: BTreeMap::new(),
            claims: BTreeMap::new(),
            waited: Vec::new(),
            ended: None,
            found: Vec::new(),
        }
    }

    /// Takes notes of every change, for as long as it is polled.
    pub(crate) async fn follow(&mut self, lab: &Lab) {
        while let Some(notice) = self.notices.next().await {
            match notice {
                Notice::Changed(change) => self.note(lab, &change),
                Notice::Review => {}
            }
        }
    }

    /// Every violation; none is as it should be.
    pub(crate) fn violations(self) -> Vec<String> {
        self.found
    }

    fn note(&mut self, lab: &Lab, change: &Change) {
        let (object, now) = (change.object.value(), lab.clock.now());
        let is_gone = change.kind == ChangeKind::Deleted;
        if change.resource.is(PODS) {
            self.note_pod(&object, is_gone, now);
        } else if change.resource.is(NODES) {
            let name = name(&object).to_owned();
            match is_gone {
                true => {
                    self.nodes.remove(&name);
                }
                false => self.note_node(name, &object, now),
            }
        } else {
            self.note_claim(lab, &object, is_gone, now);
        }
    }

    fn note_pod(&mut self, object: &Value, is_gone: bool, now: Timestamp) {
        let uid = text(&object["metadata"]["uid"]);
        let is_over = is_gone
            || object["metadata"]["deletionTimestamp"].is_string()
            || ["Succeeded", "Failed"].contains(&text(&object["status"]["phase"]));
        if object["metadata"]["deletionTimestamp"].is_string()
            && object["spec"]["nodeName"].is_string()
        {
            self.ended = Some(now);
        }
        let scheduled = condition(object, "PodScheduled");
        let refused = scheduled.filter(|it| it["reason"] == "Unschedulable");
        let waits_since = refused.and_then(|it| text(&it["lastTransitionTime"]).parse().ok());
        let waits_since = waits_since.filter(|_| !is_over);
        let before = self.pods.get(uid);
        if let Some(before) = before
            && let Some(since) = before.waits_since.filter(|_| waits_since.is_none())
        {
            self.waited
                .retain(|(_, _, until)| now.duration_since(*until) < PLANNED);
            self.waited.push((since, before.selects.clone(), now));
        }
        if is_over {
            self.pods.remove(uid);
            return;
        }
        // What it asks for does not change.
        let asks = before.map_or_else(|| requested(object), |pod| pod.asks);
        let pod = Pod {
            node: text(&object["spec"]["nodeName"]).to_owned(),
            asks,
            waits_since,
            selects: text(&object["spec"]["nodeSelector"]["load"]).to_owned(),
            of_load: object["metadata"]["namespace"] == "default",
        };
        self.pods.insert(uid.to_owned(), pod);
    }

    fn note_node(&mut self, name: String, object: &Value, now: Timestamp) {
        let labels = &object["metadata"]["labels"];
        let ready = condition(object, "Ready");
        let since = ready.and_then(|ready| text(&ready["lastTransitionTime"]).parse().ok());
        let is_ready = ready.is_some_and(|ready| ready["status"] == "True");
        let taints = object["spec"]["taints"].as_array();
        let is_open = is_ready
            && object["spec"]["unschedulable"] != true
            && taints.is_none_or(|taints| {
                let mut taints = taints.iter();
                taints.all(|taint| taint["effect"] == "PreferNoSchedule")
            });
        let before = self.nodes.get(&name);
        let opened = is_open.then_some(now);
        let node = Node {
            pool: text(&labels["kproxide.dev/pool"]).to_owned(),
            milli_cores: milli(text(&object["status"]["allocatable"]["cpu"])),
            created: text(&object["metadata"]["creationTimestamp"])
                .parse()
                .unwrap_or(now),
            control_plane: labels["node-role.kubernetes.io/control-plane"].is_string(),
            not_ready_since: since.filter(|_| !is_ready),
            open_since: opened.map(|now| before.and_then(|node| node.open_since).unwrap_or(now)),
        };
        if is_open && !node.pool.is_empty() {
            self.first_open.entry(name.clone()).or_insert(now);
        }
        self.nodes.insert(name, node);
    }

    fn note_claim(&mut self, lab: &Lab, object: &Value, is_gone: bool, now: Timestamp) {
        let uid = text(&object["metadata"]["uid"]);
        if is_gone {
            self.claims.remove(uid);
            return;
        }
        let before = self.claims.get(uid);
        let is_new = before.is_none();
        let phase = text(&object["status"]["phase"]).to_owned();
        let begins = phase == "Draining" && before.is_none_or(|claim| claim.phase != phase);
        let was_unneeded = before.and_then(|claim| claim.unneeded_since);
        let unneeded = condition(object, "Unneeded").filter(|it| it["status"] == "True");
        let unneeded = unneeded.and_then(|it| text(&it["lastTransitionTime"]).parse().ok());
        let claim = Claim {
            name: name(object).to_owned(),
            pool: text(&object["spec"]["pool"]).to_owned(),
            hypervisor: match text(&object["status"]["hypervisor"]) {
                "" => text(&object["spec"]["hypervisor"]),
                // Somebody may have moved it.
                moved => moved,
            }
            .to_owned(),
            node: text(&object["status"]["nodeName"]).to_owned(),
            from: before.map_or(now, |claim| claim.from),
            deleted: object["metadata"]["deletionTimestamp"].is_string(),
            unneeded_since: unneeded.or(was_unneeded.filter(|_| phase == "Draining")),
            drains_since: match begins && self.calm.get() {
                true => Some(now),
                false => before.and_then(|claim| claim.drains_since),
            },
            phase,
        };
        let ends = claim.phase != "Draining" || claim.deleted;
        let drained = claim.drains_since.filter(|_| ends);
        let is_ours = object["spec"]["adopts"].is_null();
        let of = self
            .scenario
            .pools
            .iter()
            .find(|pool| pool.name == claim.pool);
        self.claims.insert(uid.to_owned(), claim);
        let Some(pool) = of else { return };
        if is_new && is_ours {
            self.check_launch(lab, uid, pool, now);
        }
        if begins {
            self.check_removal(uid, pool, drain_reason(object), now);
        }
        if let Some(since) = drained {
            self.check_drain(uid, pool, now.duration_since(since));
        }
        if self.calm.get() {
            self.check_clones(lab);
        }
    }

    fn say(&mut self, law: &str, claim: &str, what: String) {
        let name = &self.claims[claim].name;
        self.found.push(format!("{law}: {name}: {what}"));
    }

    fn of_pool<'s>(&'s self, pool: &'s Pool) -> impl Iterator<Item = &'s Claim> {
        self.claims.values().filter(|claim| claim.pool == pool.name)
    }

    /// Since when each pod waits that a machine of this pool would help.
    fn waiting(&self, pool: &Pool) -> impl Iterator<Item = (Timestamp, Asks)> {
        let wanted = if pool.selected { pool.name } else { "" };
        let of = self
            .pods
            .values()
            .filter(move |pod| pod.of_load && pod.selects == wanted);
        of.filter_map(|pod| Some((pod.waits_since?, pod.asks)))
    }

    fn check_launch(&mut self, lab: &Lab, uid: &str, pool: &Pool, now: Timestamp) {
        let rules = pool.rules;
        let window = SignedDuration::from_secs(rules.window.into());
        let hypervisor = &self.claims[uid].hypervisor;
        let there = self
            .claims
            .values()
            .filter(|it| it.stays() && it.hypervisor == *hypervisor);
        let there = there.count();
        if let Some(most) = self
            .scenario
            .per_hypervisor
            .filter(|most| there > *most as usize)
        {
            let what = format!(
                "the machine {there} of {hypervisor}, which may have {most} (maxMachinesPerHypervisor)"
            );
            self.say("S21", uid, what);
        }
        let asks_for_none = rules.min_nodes == 0 && rules.headroom == 0;
        let selects = if pool.selected { pool.name } else { "" };
        let waited = self.waited.iter().filter(|(_, of, _)| of == selects);
        let since = self.waiting(pool).map(|(since, _)| since);
        let first = since.chain(waited.map(|(since, _, _)| *since)).min();
        if asks_for_none && first.is_some_and(|first| now.duration_since(first) + SECOND < window) {
            let what = format!(
                "it is made before any pod has waited for {window:#} (scaleUp.stabilizationWindow)"
            );
            self.say("S21", uid, what);
        }
        if !self.calm.get() {
            return;
        }
        self.check_late(lab, uid, pool, window, now);
        let fresh = |claim: &&Claim| claim.is_coming() && now.duration_since(claim.from) < ONE_PLAN;
        let made = self.of_pool(pool).filter(fresh).count();
        let needed = self.needed(pool, now);
        if made > needed {
            let what = format!("{made} machines are made at once, {needed} are needed");
            self.say("S22", uid, what);
        }
    }

    /// How many machines must be made now, by a packing of our own.
    fn needed(&self, pool: &Pool, now: Timestamp) -> usize {
        let mut bins = Bins::new(MACHINE);
        for (name, node) in &self.nodes {
            let is_of = match pool.selected {
                true => node.pool == pool.name,
                false => !node.control_plane,
            };
            if is_of && node.open_since.is_some() {
                let mut on_it = self.pods.values().filter(|pod| pod.node == *name);
                let has_loner = on_it.any(|pod| pod.asks.alone);
                bins.add(node.milli_cores.saturating_sub(self.on(name)), has_loner);
            }
        }
        let older = |claim: &&Claim| now.duration_since(claim.from) >= ONE_PLAN;
        let mut stay = 0;
        for claim in self
            .of_pool(pool)
            .filter(older)
            .filter(|claim| claim.stays())
        {
            stay += 1;
            if claim.is_coming() && now.duration_since(claim.from) < GIVEN_UP {
                bins.add(MACHINE, false);
            }
        }
        bins.put(self.waiting(pool).map(|(_, asks)| asks).collect());
        bins.keep_free(pool.rules.headroom);
        bins.made()
            .max((pool.rules.min_nodes as usize).saturating_sub(stay))
    }

    /// What pods on a Node ask for.
    fn on(&self, node: &str) -> u32 {
        let pods = self.pods.values().filter(|pod| pod.node == node);
        pods.map(|pod| pod.asks.milli_cores).sum()
    }

    /// L13: the first machine of several comes when the first pod has waited for the window, if any hypervisor may take
    /// one. Where a pod ends, pods wait for its room (`--coming-room`).
    fn check_late(
        &mut self,
        lab: &Lab,
        uid: &str,
        pool: &Pool,
        window: SignedDuration,
        now: Timestamp,
    ) {
        let was_late = |claim: &Claim| claim.name != self.claims[uid].name && claim.is_coming();
        let opened = |node: &Node| {
            let since = node.open_since.filter(|_| node.pool == pool.name);
            since.is_some_and(|since| now.duration_since(since) < LATE)
        };
        let may_wait = |ended: Timestamp| now.duration_since(ended) < COMING_ROOM + LATE;
        if self.of_pool(pool).any(was_late)
            || self.nodes.values().any(opened)
            || self.ended.is_some_and(may_wait)
        {
            return;
        }
        let first = self.waiting(pool).map(|(since, _)| since).min();
        let waited = first.map(|first| now.duration_since(first));
        if let Some(waited) = waited.filter(|waited| *waited > window + LATE)
            && !pauses(lab)
        {
            let what = format!(
                "it is made after a pod has waited for {waited:#}, its pool's window is {window:#}"
            );
            self.say("L13", uid, what);
        }
    }

    fn check_removal(&mut self, uid: &str, pool: &Pool, reason: &str, now: Timestamp) {
        let rules = pool.rules;
        let claim = &self.claims[uid];
        let Some(node) = self.nodes.get(&claim.node) else {
            return;
        };
        let seconds = |time: u32| SignedDuration::from_secs(time.into());
        let mut early = Vec::new();
        let mut not_before = |what: &'static str, since: Option<Timestamp>, time: u32| {
            let age = since.map(|since| now.duration_since(since));
            if let Some(age) = age.filter(|age| *age + SECOND < seconds(time)) {
                early.push(format!(
                    "it is removed ({reason}) after {age:#} of {time} s ({what})"
                ));
            }
        };
        match reason {
            "Repair" => not_before("repairAfter", node.not_ready_since, rules.repair_after),
            "Empty" | "Underutilized" => {
                not_before(
                    "scaleDown.minNodeAge",
                    Some(node.created),
                    rules.min_node_age,
                );
                not_before(
                    "scaleDown.unneededTime",
                    claim.unneeded_since,
                    rules.unneeded_time,
                );
                // One that came while the plan was acted on was not seen.
                let is_of_pool = |name: &String| {
                    let node = self.nodes.get(name);
                    node.is_some_and(|node| node.pool == pool.name)
                };
                let there = self.first_open.iter().filter(|(name, _)| is_of_pool(name));
                let newest = there.map(|(_, since)| *since).max();
                let newest = newest.filter(|since| now.duration_since(*since) > PLANNED / 2);
                not_before("scaleDown.stabilization", newest, rules.stabilization);
            }
            _ => {}
        }
        let is_ours = ["Empty", "Underutilized"].contains(&reason);
        if rules.unneeded_time > 0 && is_ours && claim.unneeded_since.is_none() {
            early.push(
                "it is removed and was never said to be unneeded (scaleDown.unneededTime)"
                    .to_owned(),
            );
        }
        for what in early {
            self.say("S21", uid, what);
        }
        if is_ours && self.calm.get() {
            self.check_left(uid, pool, reason);
        }
    }

    /// What the removals of a plan leave all together.
    fn check_left(&mut self, uid: &str, pool: &Pool, reason: &str) {
        let Rules {
            min_nodes,
            load_headroom,
            headroom,
            ..
        } = pool.rules;
        let mut wrong = Vec::new();
        let left = self.of_pool(pool).filter(|claim| claim.stays()).count();
        if left < min_nodes as usize {
            wrong.push(format!(
                "its removal leaves {left} machines of {min_nodes} (limits.minNodes)"
            ));
        }
        let goes = |node: &str| {
            let claim = self.claims.values().find(|claim| claim.node == node);
            claim.is_some_and(|claim| !claim.stays())
        };
        // Of Nodes that stay, and of those that pods may come to: what they have and what is requested of them.
        let (mut all, mut free) = (0_u32, 0_u32);
        let mut requested = 0_u32;
        for (name, node) in self.nodes.iter().filter(|(_, node)| !node.control_plane) {
            let on = self.on(name);
            requested += on;
            let stays = !goes(name);
            if stays && node.not_ready_since.is_none() {
                all += node.milli_cores;
            }
            if stays && node.open_since.is_some() && node.pool == pool.name {
                free += node.milli_cores.saturating_sub(on);
            }
        }
        let wanted = f64::from(requested) * (1.0 + load_headroom);
        if reason == "Underutilized" && wanted >= f64::from(all) {
            wrong.push(format!(
                "its removal leaves {all} thousandths of a core, {wanted:.0} are to stay (scaleDown.loadHeadroom)"
            ));
        }
        let coming = self.of_pool(pool).filter(|claim| claim.is_coming()).count() as u32;
        let moving: u32 = match pool.selected {
            true => self
                .of_pool(pool)
                .filter(|claim| !claim.stays())
                .map(|claim| self.on(&claim.node))
                .sum(),
            false => 0,
        };
        let free = (free + coming * MACHINE).saturating_sub(moving);
        if free < headroom {
            wrong.push(format!("its removal leaves {free} thousandths of a core free, {headroom} are to be (headroom)"));
        }
        for what in wrong {
            self.say("S21", uid, what);
        }
    }

    fn check_drain(&mut self, uid: &str, pool: &Pool, took: SignedDuration) {
        let most = SignedDuration::from_secs(pool.rules.drain_timeout.into());
        if let Some(claim) = self.claims.get_mut(uid) {
            claim.drains_since = None;
        }
        if took > most + UNDONE {
            self.say(
                "S21",
                uid,
                format!("its drain takes {took:#} (drainTimeout is {most:#})"),
            );
        }
    }

    /// Each hypervisor has a storage of its own, so that either number bounds what is made on it at one time.
    fn check_clones(&mut self, lab: &Lab) {
        let most = self.scenario.clones.into_iter().min().unwrap_or(0);
        let snapshot = lab.pve.snapshot();
        let cloning = |vm: &&kproxide_simulator::pve::VmView| vm.lock.as_deref() == Some("clone");
        let mut at_once: BTreeMap<&str, u32> = BTreeMap::new();
        for vm in snapshot.vms.iter().filter(cloning) {
            *at_once.entry(&vm.hypervisor).or_default() += 1;
        }
        for (hypervisor, count) in at_once {
            if count > most {
                self.found.push(format!("S21: {count} clones are made on {hypervisor} at once, {most} may be (concurrency)"));
            }
        }
    }
}

/// The Ledger says that some hypervisor is left alone for a while.
fn pauses(lab: &Lab) -> bool {
    let ledgers = lab.kube.objects("ledgers.kproxide.dev");
    ledgers.iter().any(|ledger| {
        let rows = &ledger.value()["spec"]["backoff"];
        rows.as_array().is_some_and(|rows| !rows.is_empty())
    })
}

/// Thousandths of a core.
fn milli(quantity: &str) -> u32 {
    match quantity.strip_suffix('m') {
        Some(milli) => milli.parse().unwrap_or(0),
        None => quantity.parse::<u32>().map_or(0, |cores| cores * 1000),
    }
}

fn requested(pod: &Value) -> Asks {
    let containers = pod["spec"]["containers"].as_array();
    let containers = || containers.into_iter().flatten();
    let cpu = containers().map(|it| &it["resources"]["requests"]["cpu"]);
    let mut ports = containers()
        .filter_map(|it| it["ports"].as_array())
        .flatten();
    Asks {
        milli_cores: cpu.map(|cpu| milli(text(cpu))).sum(),
        alone: ports.any(|port| port["hostPort"].is_u64())
            || pod["spec"]["affinity"]["podAntiAffinity"].is_object(),
    }
}
