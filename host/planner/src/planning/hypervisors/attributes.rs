//! What policies are told beyond the fields of their records: facts by key. `wit/policy.wit` lists the keys.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::sites::Hypervisor;
use crate::plan::question::{Attribute, AttributeValue};
use crate::planning::Planning;
use crate::world::NodeView;

/// What was measured longer ago is left out.
const MEASURED_MAX_AGE: SignedDuration = SignedDuration::from_mins(5);
/// Of one hypervisor, by name.
const STORAGES_MAX: usize = 16;

/// What stays from one decision to the next, so that labels may depend on it: what the operator says of a hypervisor, and
/// what it is made of.
pub(in crate::planning) fn lasting(hypervisor: &Hypervisor<'_>) -> Vec<Attribute> {
    let said = &hypervisor.cluster.hypervisor_attributes;
    let mut all = Attributes(said.get(&hypervisor.id.name).cloned().unwrap_or_default());
    all.integer(
        "pve.threads",
        Some(hypervisor.facts.threads.into()).filter(|it| *it > 0),
    );
    if let Some(details) = &hypervisor.facts.details {
        all.text("pve.cpu-model", details.cpu_model.as_ref());
        all.text("pve.kernel", details.kernel.as_ref());
        all.integer("pve.sockets", details.sockets.map(u64::from));
        all.text("pve.version", details.version.as_ref());
    }
    all.by_key()
}

/// That, and what Proxmox measures or shows now.
pub(in crate::planning) fn all(hypervisor: &Hypervisor<'_>, now: Timestamp) -> Vec<Attribute> {
    let mut all = Attributes(lasting(hypervisor));
    let facts = hypervisor.facts;
    if facts.threads > 0 {
        let promised = hypervisor.promised_milli_cores() as f64;
        let threads = f64::from(facts.threads) * 1000.0;
        all.number("pve.committed-cores-per-thread", Some(promised / threads));
    }
    let age = hypervisor.seen_at().map(|at| now.duration_since(at));
    if age.is_none_or(|age| age >= MEASURED_MAX_AGE) {
        return all.by_key();
    }
    all.integer("pve.guests", Some(facts.guests.into()));
    all.text("pve.ha-state", facts.ha_state.as_ref());
    all.integer("pve.uptime-seconds", facts.uptime_seconds);
    if let Some(details) = &facts.details {
        for (place, key) in ["pve.load-1m", "pve.load-5m", "pve.load-15m"]
            .iter()
            .enumerate()
        {
            all.number(key, details.load.map(|load| load[place]));
        }
        let tags = details.tags.as_ref().map(|tags| tags.join(";").into());
        all.text("pve.tags", tags.as_ref());
    }
    for (name, storage) in facts.storages.iter().take(STORAGES_MAX) {
        let key = |what| format!("pve.storage.{name}.{what}");
        all.text(&key("type"), Some(&storage.kind));
        if storage.active && storage.total_bytes > 0 {
            all.integer(&key("free-bytes"), Some(storage.available_bytes));
        }
    }
    all.by_key()
}

impl Planning<'_> {
    /// Of a machine that is wanted: the pods that wait for it. Of many pods alike nobody knows which will run on it, so the
    /// oldest of them counts.
    pub(in crate::planning) fn pods_waiting(&mut self, wanted: usize) -> Vec<Attribute> {
        let (mut count, mut oldest, mut highest) = (0_u64, None, None);
        for (need, pods) in self.placing.wanted[wanted].order.pods.clone() {
            let kept = &mut self.placing.waiting_since;
            let since = *kept.entry(need).or_insert_with(|| {
                let pods = self.needs[need].pods.iter();
                pods.filter_map(|pod| pod.unschedulable_since()).min()
            });
            count += u64::from(pods);
            oldest = oldest.into_iter().chain(since).min();
            highest = highest.max(Some(self.needs[need].spec.priority));
        }
        let seconds = oldest.map(|since| self.tick.now.duration_since(since).as_secs());
        let mut all = Attributes(Vec::new());
        all.integer("pods.waiting", Some(count));
        all.integer(
            "pods.oldest-seconds",
            seconds.map(|it| it.max(0).unsigned_abs()),
        );
        all.signed("pods.highest-priority", highest);
        all.by_key()
    }
}

/// Of a Node that can go: the pods that would have to move. What is said of its hypervisor stands there.
pub(in crate::planning) fn pods_moving(node: &NodeView<'_>, now: Timestamp) -> Vec<Attribute> {
    let (mut highest, mut youngest, mut jobs) = (None, None, 0);
    for pod in node.pods().filter(|pod| pod.is_movable()) {
        highest = highest.max(Some(pod.spec().priority));
        youngest = youngest.max(Some(pod.created()));
        jobs += u64::from(pod.is_of_job());
    }
    let seconds = youngest.map(|created| now.duration_since(created).as_secs());
    let mut all = Attributes(Vec::new());
    all.integer("pods.of-jobs", Some(jobs));
    all.integer(
        "pods.youngest-seconds",
        seconds.map(|it| it.max(0).unsigned_abs()),
    );
    all.signed("pods.highest-priority", highest);
    all.by_key()
}

struct Attributes(Vec<Attribute>);

impl Attributes {
    fn text(&mut self, key: &str, text: Option<&Arc<str>>) {
        let text = text.filter(|text| !text.is_empty());
        let text = text.map(|text| attribute(key, AttributeValue::Text(text.clone())));
        self.0.extend(text);
    }

    fn integer(&mut self, key: &str, integer: Option<u64>) {
        let integer = integer.map(|it| i64::try_from(it).unwrap_or(i64::MAX));
        self.0
            .extend(integer.map(|it| attribute(key, AttributeValue::Integer(it))));
    }

    fn signed(&mut self, key: &str, integer: Option<i32>) {
        let integer = integer.map(i64::from).map(AttributeValue::Integer);
        self.0.extend(integer.map(|it| attribute(key, it)));
    }

    fn number(&mut self, key: &str, number: Option<f64>) {
        let number = number.filter(|it| it.is_finite());
        self.0
            .extend(number.map(|it| attribute(key, AttributeValue::Number(it))));
    }

    fn by_key(mut self) -> Vec<Attribute> {
        self.0.sort_by(|a, b| a.key.cmp(&b.key));
        self.0
    }
}

fn attribute(key: &str, value: AttributeValue) -> Attribute {
    let key = key.into();
    Attribute { key, value }
}
