//! Amounts of what pods ask and Nodes offer: exact integers, one vector.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::kubernetes::quantity::{Quantity, QuantityError};

/// A vector of amounts: CPU in thousandths of a core, the rest in whole units (bytes, pods, devices), rounded up when asked and down when offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resources {
    pub milli_cores: i64,
    pub memory_bytes: i64,
    pub ephemeral_bytes: i64,
    pub pods: i64,
    /// Extended resources by name, such as `nvidia.com/gpu`; never 0. Empty in the usual case, where it costs nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extended: BTreeMap<Arc<str>, i64>,
}

/// A list of requests or offers that cannot be read; names the resource and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmountError {
    pub resource: String,
    pub source: QuantityError,
}

impl fmt::Display for AmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the amount of {} cannot be read", self.resource)
    }
}

impl std::error::Error for AmountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl Resources {
    /// What a container asks, from Kubernetes' names and quantities; rounded up, negative amounts count as 0.
    pub fn requested<'a>(
        amounts: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, AmountError> {
        Self::read(amounts, Quantity::milli_up, Quantity::units_up)
    }

    /// What a Node offers, from Kubernetes' names and quantities; rounded down, negative amounts count as 0.
    pub fn offered<'a>(
        amounts: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, AmountError> {
        Self::read(amounts, Quantity::milli_down, Quantity::units_down)
    }

    /// As Kubernetes writes them, without those that are 0. [`Self::offered`] reads them.
    pub fn quantities(&self) -> BTreeMap<Arc<str>, String> {
        let Self {
            milli_cores,
            memory_bytes,
            ephemeral_bytes,
            pods,
            extended,
        } = self;
        let usual = [
            ("cpu", *milli_cores, "m"),
            ("memory", *memory_bytes, ""),
            ("ephemeral-storage", *ephemeral_bytes, ""),
            ("pods", *pods, ""),
        ];
        let usual = usual.map(|(name, amount, unit)| (Arc::from(name), amount, unit));
        let extended = extended
            .iter()
            .map(|(name, amount)| (name.clone(), *amount, ""));
        let all = usual.into_iter().chain(extended);
        all.filter(|(_, amount, _)| *amount != 0)
            .map(|(name, amount, unit)| (name, format!("{amount}{unit}")))
            .collect()
    }

    fn read<'a>(
        amounts: impl IntoIterator<Item = (&'a str, &'a str)>,
        milli: fn(Quantity) -> i64,
        units: fn(Quantity) -> i64,
    ) -> Result<Self, AmountError> {
        let mut read = Self::default();
        for (name, text) in amounts {
            let quantity: Quantity = text.parse().map_err(|source| AmountError {
                resource: name.to_owned(),
                source,
            })?;
            match name {
                "cpu" => read.milli_cores = milli(quantity).max(0),
                "memory" => read.memory_bytes = units(quantity).max(0),
                "ephemeral-storage" => read.ephemeral_bytes = units(quantity).max(0),
                "pods" => read.pods = units(quantity).max(0),
                other => read.set_extended(other.into(), units(quantity).max(0)),
            }
        }
        Ok(read)
    }

    pub(crate) fn set_extended(&mut self, name: Arc<str>, amount: i64) {
        if amount == 0 {
            self.extended.remove(&name);
        } else {
            self.extended.insert(name, amount);
        }
    }

    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    pub fn extended(&self, name: &str) -> i64 {
        self.extended.get(name).copied().unwrap_or(0)
    }

    /// Sum, cut off at the largest number.
    pub fn add(&mut self, other: &Self) {
        self.each(other, i64::saturating_add);
    }

    /// Difference, cut off at the smallest number; may be negative.
    pub fn subtract(&mut self, other: &Self) {
        self.each(other, i64::saturating_sub);
    }

    /// `count` times `other`, cut off at the largest number.
    pub fn add_times(&mut self, other: &Self, count: i64) {
        self.each(other, |a, b| {
            clamp(i128::from(a) + i128::from(b) * i128::from(count))
        });
    }

    /// `count` times `other`, cut off at the smallest number.
    pub fn subtract_times(&mut self, other: &Self, count: i64) {
        self.each(other, |a, b| {
            clamp(i128::from(a) - i128::from(b) * i128::from(count))
        });
    }

    /// The larger of both, of each resource. What one of them lacks is 0.
    pub fn raise_to(&mut self, other: &Self) {
        self.each(other, i64::max);
        self.extended
            .retain(|name, amount| *amount > 0 || other.extended.contains_key(name));
    }

    /// The smaller of both, of each resource. What one of them lacks is 0.
    pub fn lower_to(&mut self, other: &Self) {
        self.each(other, i64::min);
        self.extended
            .retain(|name, amount| *amount < 0 || other.extended.contains_key(name));
    }

    fn each(&mut self, other: &Self, f: impl Fn(i64, i64) -> i64) {
        self.milli_cores = f(self.milli_cores, other.milli_cores);
        self.memory_bytes = f(self.memory_bytes, other.memory_bytes);
        self.ephemeral_bytes = f(self.ephemeral_bytes, other.ephemeral_bytes);
        self.pods = f(self.pods, other.pods);
        for (name, amount) in &other.extended {
            let sum = f(self.extended(name), *amount);
            self.set_extended(name.clone(), sum);
        }
    }

    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.add(other);
        sum
    }

    pub fn minus(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.subtract(other);
        rest
    }

    /// What is asked for here fits into what is free there. Resources that are not asked for do not matter.
    pub fn fits(&self, free: &Self) -> bool {
        let fits = |asked: i64, free: i64| asked <= 0 || asked <= free;
        fits(self.milli_cores, free.milli_cores)
            && fits(self.memory_bytes, free.memory_bytes)
            && fits(self.ephemeral_bytes, free.ephemeral_bytes)
            && fits(self.pods, free.pods)
            && self
                .extended
                .iter()
                .all(|(name, asked)| fits(*asked, free.extended(name)))
    }

    /// How many of these fit into what is free there; all of them if nothing is asked.
    pub fn times_in(&self, free: &Self) -> i64 {
        let times = |asked: i64, free: i64| match asked {
            ..=0 => i64::MAX,
            _ => free.max(0) / asked,
        };
        let mut least = times(self.milli_cores, free.milli_cores)
            .min(times(self.memory_bytes, free.memory_bytes))
            .min(times(self.ephemeral_bytes, free.ephemeral_bytes))
            .min(times(self.pods, free.pods));
        for (name, asked) in &self.extended {
            least = least.min(times(*asked, free.extended(name)));
        }
        least
    }

    /// The first resource of which more is asked than is there: its Kubernetes name, what is asked, what is there.
    pub fn first_lacking(&self, free: &Self) -> Option<Lack> {
        self.named()
            .into_iter()
            .map(|(resource, asked)| Lack {
                offered: free.amount(&resource),
                resource,
                asked,
            })
            .find(|lack| lack.asked > 0 && lack.asked > lack.offered)
    }

    fn named(&self) -> Vec<(Arc<str>, i64)> {
        let mut named = vec![
            (Arc::from("cpu"), self.milli_cores),
            (Arc::from("memory"), self.memory_bytes),
            (Arc::from("ephemeral-storage"), self.ephemeral_bytes),
            (Arc::from("pods"), self.pods),
        ];
        named.extend(
            self.extended
                .iter()
                .map(|(name, amount)| (name.clone(), *amount)),
        );
        named
    }

    pub(crate) fn set_amount(&mut self, resource: &str, amount: i64) {
        match resource {
            "cpu" => self.milli_cores = amount,
            "memory" => self.memory_bytes = amount,
            "ephemeral-storage" => self.ephemeral_bytes = amount,
            "pods" => self.pods = amount,
            other => self.set_extended(other.into(), amount),
        }
    }

    /// Of the resource with this name in Kubernetes.
    pub(crate) fn amount(&self, resource: &str) -> i64 {
        match resource {
            "cpu" => self.milli_cores,
            "memory" => self.memory_bytes,
            "ephemeral-storage" => self.ephemeral_bytes,
            "pods" => self.pods,
            other => self.extended(other),
        }
    }
}

/// More is asked of a resource than is offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lack {
    pub resource: Arc<str>,
    pub asked: i64,
    pub offered: i64,
}

impl Lack {
    pub fn asked_text(&self) -> String {
        amount_text(&self.resource, self.asked)
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "needs {} of {}, {} left",
            self.asked_text(),
            self.resource,
            amount_text(&self.resource, self.offered.max(0))
        )
    }
}

/// Such as `hugepages-2Mi`: bytes, which are no memory any more.
pub fn is_huge_pages(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

/// An amount as a person writes it: `500m`, `2`, `512Mi`, `1.5Gi`.
pub fn amount_text(resource: &str, amount: i64) -> String {
    match resource {
        "cpu" if amount % 1000 == 0 => (amount / 1000).to_string(),
        "cpu" => format!("{amount}m"),
        "memory" | "ephemeral-storage" => bytes_text(amount),
        _ => amount.to_string(),
    }
}

fn bytes_text(bytes: i64) -> String {
    for (suffix, unit) in [("Gi", 1i64 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)] {
        if bytes.unsigned_abs() >= unit.unsigned_abs() {
            let tenths = i128::from(bytes) * 10 / i128::from(unit);
            return match tenths % 10 {
                0 => format!("{}{suffix}", tenths / 10),
                rest => format!("{}.{}{suffix}", tenths / 10, rest.abs()),
            };
        }
    }
    bytes.to_string()
}

/// An init container: it runs before the others, or beside them from then on if its `restartPolicy` is `Always`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitContainer {
    pub requests: Resources,
    pub sidecar: bool,
}

/// `spec.resources.requests`: replaces the containers' sum of each resource that it names. Kubernetes allows CPU, memory and huge pages here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodLevelRequests {
    pub milli_cores: Option<i64>,
    pub memory_bytes: Option<i64>,
    pub extended: BTreeMap<Arc<str>, i64>,
}

/// What a pod asks of a Node, by kube-scheduler's rule (`k8s.io/component-helpers/resource`, `PodRequests`), and 1 of `pods`.
///
/// Sidecars run beside the containers, and beside the init containers after them; of the other init containers the largest counts.
/// Requests of the pod as a whole replace the sum; the runtime's overhead comes on top.
pub fn pod_requests(
    containers: &[Resources],
    init_containers: &[InitContainer],
    overhead: Option<&Resources>,
    pod_level: Option<&PodLevelRequests>,
) -> Resources {
    let mut total = Resources::default();
    for container in containers {
        total.add(container);
    }
    let mut sidecars = Resources::default();
    let mut largest_start = Resources::default();
    for container in init_containers {
        let running = if container.sidecar {
            total.add(&container.requests);
            sidecars.add(&container.requests);
            sidecars.clone()
        } else {
            sidecars.plus(&container.requests)
        };
        largest_start.raise_to(&running);
    }
    total.raise_to(&largest_start);
    if let Some(PodLevelRequests {
        milli_cores,
        memory_bytes,
        extended,
    }) = pod_level
    {
        total.milli_cores = milli_cores.unwrap_or(total.milli_cores);
        total.memory_bytes = memory_bytes.unwrap_or(total.memory_bytes);
        for (name, amount) in extended {
            total.set_extended(name.clone(), *amount);
        }
    }
    if let Some(overhead) = overhead {
        total.add(overhead);
    }
    total.pods = 1;
    total
}

/// Cut off at the smallest and the largest number.
fn clamp(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// A sum that is exact whatever is added and taken away again: a World's running totals never drift.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExactSum {
    amounts: [i128; 4],
    extended: BTreeMap<Arc<str>, i128>,
}

impl ExactSum {
    pub(crate) fn add(&mut self, part: &Resources) {
        self.change(part, 1);
    }

    pub(crate) fn subtract(&mut self, part: &Resources) {
        self.change(part, -1);
    }

    fn change(&mut self, part: &Resources, sign: i128) {
        let parts = [
            part.milli_cores,
            part.memory_bytes,
            part.ephemeral_bytes,
            part.pods,
        ];
        for (amount, part) in self.amounts.iter_mut().zip(parts) {
            *amount += sign * i128::from(part);
        }
        for (name, part) in &part.extended {
            let amount = self.extended.entry(name.clone()).or_default();
            *amount += sign * i128::from(*part);
            if *amount == 0 {
                self.extended.remove(name);
            }
        }
    }

    pub(crate) fn value(&self) -> Resources {
        let [milli_cores, memory_bytes, ephemeral_bytes, pods] = self.amounts.map(clamp);
        Resources {
            milli_cores,
            memory_bytes,
            ephemeral_bytes,
            pods,
            extended: self
                .extended
                .iter()
                .map(|(name, amount)| (name.clone(), clamp(*amount)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
