//! Whether the world has come to rest as it should be, and what of it must be the same with and without faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kproxide_lab::Lab;
use kproxide_simulator::pve::{PveSnapshot, VmView};
use serde_json::Value;

use crate::history::is_machine;
use crate::object::{CLAIMS, condition, condition_is_true, name, text};
use crate::scenario::{CORES, DISK_GIB, MEMORY_MIB, RESOURCE_POOL, Scenario, TAG};

/// What every run of a scenario must end in alike, with faults and without.
///
/// Names, UIDs, VMIDs, MAC addresses and hypervisors may differ: they follow from the order of launches, and a launch that a fault undid is made
/// again under another name. So may the Ledger's quarantine and back-off, which are the traces of such launches, and where each pod runs. What is
/// left is what was asked for, and that nothing else is there, which [`problems`] says of each run by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndState {
    /// Running pods of each Deployment.
    pods: BTreeMap<String, usize>,
    pools: BTreeMap<String, PoolState>,
    /// Cores, MiB and disk of every machine of ours, one line each, sorted.
    machines: Vec<String>,
}

/// What ends within this time ends while a run at rest is still looked at.
const SOON: SignedDuration = SignedDuration::from_mins(15);
/// The Ledger remembers for so long after a pause of a hypervisor how many failures led to it.
const BACKOFF_MEMORY: SignedDuration = SignedDuration::from_hours(3);
/// And for so long which machines were made in vain, and for which workloads.
const IN_VAIN_MEMORY: SignedDuration = SignedDuration::from_hours(1);
const TRIES_MEMORY: SignedDuration = SignedDuration::from_hours(24);

/// On a Node that is being drained.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Size of the drive that cloud-init reads.
const CLOUD_INIT: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PoolState {
    claims: usize,
    nodes: usize,
    vms: usize,
    ledger_entries: usize,
}

impl EndState {
    /// What a scenario ends in, whatever happens meanwhile: it follows from the last load alone, but for machines that `loadHeadroom` keeps if there are
    /// more of them than are needed.
    pub(crate) fn expected(scenario: &Scenario, ended: &Self) -> Self {
        let apps = scenario.apps.iter().zip(scenario.final_load());
        let mut state = Self {
            pods: apps
                .filter(|(_, count)| **count > 0)
                .map(|(app, count)| (app.name.clone(), *count as usize))
                .collect(),
            pools: BTreeMap::new(),
            machines: Vec::new(),
        };
        for (index, pool) in scenario.pools.iter().enumerate() {
            let (least, most) = (
                scenario.machines_needed(index),
                scenario.machines_at_most(index),
            );
            let had = ended.pools.get(pool.name).map_or(0, |had| had.claims);
            let needed = had.clamp(least as usize, most as usize);
            if needed > 0 {
                let of_pool = PoolState {
                    claims: needed,
                    nodes: needed,
                    vms: needed,
                    ledger_entries: needed,
                };
                state.pools.insert(pool.name.to_owned(), of_pool);
            }
            let disk = (DISK_GIB << 30) + CLOUD_INIT;
            let machine = format!(
                "{}: {CORES} cores, {} bytes, {disk} bytes of disk",
                pool.name,
                MEMORY_MIB << 20
            );
            state.machines.extend(std::iter::repeat_n(machine, needed));
        }
        state.machines.sort();
        state
    }

    pub(crate) fn of(lab: &Lab) -> Self {
        let mut state = Self {
            pods: BTreeMap::new(),
            pools: BTreeMap::new(),
            machines: Vec::new(),
        };
        for pod in lab.kube.list("pods").iter().filter(|pod| of_load(pod)) {
            *state
                .pods
                .entry(text(&pod["metadata"]["labels"]["app"]).to_owned())
                .or_default() += 1;
        }
        let claims = lab.kube.list(CLAIMS);
        let pools: BTreeMap<&str, &str> = claims
            .iter()
            .map(|claim| (name(claim), text(&claim["spec"]["pool"])))
            .collect();
        for claim in &claims {
            state
                .pools
                .entry(text(&claim["spec"]["pool"]).to_owned())
                .or_default()
                .claims += 1;
        }
        for node in lab.kube.list("nodes") {
            if let Some(pool) = node["metadata"]["labels"]["kproxide.dev/pool"].as_str() {
                state.pools.entry(pool.to_owned()).or_default().nodes += 1;
            }
        }
        for entry in ledger_entries(lab)
            .iter()
            .filter(|entry| entry["state"] != "quarantined")
        {
            state
                .pools
                .entry(text(&entry["pool"]).to_owned())
                .or_default()
                .ledger_entries += 1;
        }
        let snapshot = lab.pve.snapshot();
        for vm in machines(&snapshot) {
            let pool = pools.get(vm.name.as_str()).copied().unwrap_or_default();
            state.pools.entry(pool.to_owned()).or_default().vms += 1;
            let disk: u64 = snapshot
                .volumes
                .iter()
                .filter(|volume| volume.vmid == vm.vmid)
                .map(|volume| volume.size)
                .sum();
            state.machines.push(format!(
                "{pool}: {} cores, {} bytes, {disk} bytes of disk",
                vm.cores, vm.memory
            ));
        }
        state.machines.sort();
        state
    }
}

/// Everything that is not as it should be once the load is at its last level; empty: the world is at rest.
pub(crate) fn problems(lab: &Lab, scenario: &Scenario) -> Vec<String> {
    let mut found = Vec::new();
    let snapshot = lab.pve.snapshot();
    let nodes = objects(lab, "nodes");
    let claims = objects(lab, CLAIMS);
    check_pods(lab, scenario, &mut found);
    for (index, pool) in scenario.pools.iter().enumerate() {
        let of_pool = |claim: &&Arc<Value>| claim["spec"]["pool"] == pool.name;
        let count = claims.iter().filter(of_pool).count() as u64;
        let (needed, most) = (
            scenario.machines_needed(index),
            scenario.machines_at_most(index),
        );
        if !(u64::from(needed)..=u64::from(most)).contains(&count) {
            found.push(format!(
                "pool {} has {count} claims, its load needs {needed} to {most}",
                pool.name
            ));
        }
        check_nodes(lab, pool.name, count, &mut found);
    }
    for claim in &claims {
        check_claim(claim, &snapshot, &nodes, &mut found);
    }
    check_surplus(&snapshot, &nodes, &claims, &mut found);
    check_statuses(lab, &mut found);
    check_ledger(lab, &claims, &mut found);
    found
}

fn check_pods(lab: &Lab, scenario: &Scenario, found: &mut Vec<String>) {
    let mut pods = objects(lab, "pods");
    pods.retain(|pod| of_load(pod));
    for (app, wanted) in scenario.apps.iter().zip(scenario.final_load()) {
        let of_app: Vec<&Arc<Value>> = pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["app"] == app.name.as_str())
            .collect();
        let running = of_app
            .iter()
            .filter(|pod| {
                pod["status"]["phase"] == "Running"
                    && pod["metadata"]["deletionTimestamp"].is_null()
            })
            .count();
        if running != *wanted as usize || of_app.len() != running {
            found.push(format!(
                "{}: {running} of {} pods run, {wanted} are wanted",
                app.name,
                of_app.len()
            ));
        }
    }
}

/// A claim has exactly its machine and its Node, and both are as it says.
fn check_claim(
    claim: &Value,
    snapshot: &PveSnapshot,
    nodes: &[Arc<Value>],
    found: &mut Vec<String>,
) {
    let name = name(claim);
    let mut wrong = |what: String| found.push(format!("claim {name}: {what}"));
    if claim["status"]["phase"] != "Initialized"
        || !claim["metadata"]["deletionTimestamp"].is_null()
    {
        wrong(format!(
            "is {} and not in service",
            claim["status"]["phase"]
        ));
    }
    let vms: Vec<&VmView> = machines(snapshot)
        .filter(|vm| u64::from(vm.vmid) == claim["spec"]["vmid"])
        .collect();
    let [vm] = vms[..] else {
        wrong(format!("has {} machines", vms.len()));
        return;
    };
    // A machine that was taken over keeps the marker of the claim that it was made for.
    let adopted = claim["spec"]["adopts"]["claimUID"].as_str();
    let uid = adopted.unwrap_or(text(&claim["metadata"]["uid"]));
    let description = vm.description.as_deref().unwrap_or_default();
    let boot_disk = snapshot
        .volumes
        .iter()
        .filter(|volume| volume.vmid == vm.vmid)
        .map(|volume| volume.size >> 30)
        .max();
    let as_specified = [
        ("name", vm.name == name),
        (
            "hypervisor",
            vm.hypervisor == text(&claim["spec"]["hypervisor"]),
        ),
        ("running", vm.running),
        ("lock", vm.lock.is_none()),
        ("resource pool", vm.pool.as_deref() == Some(RESOURCE_POOL)),
        (
            "tags",
            vm.config.get("tags").is_some_and(|tags| tags == TAG),
        ),
        (
            "marker",
            description.contains(&format!("claim={uid} vmid={}", vm.vmid))
                && !description.contains("tombstone"),
        ),
        ("cores", vm.cores == u64::from(CORES)),
        ("memory", vm.memory == MEMORY_MIB << 20),
        ("disk", boot_disk == Some(DISK_GIB)),
    ];
    for (what, holds) in as_specified {
        if !holds {
            wrong(format!("its machine's {what} is not as specified: {vm:?}"));
        }
    }
    let of_claim = |node: &&Arc<Value>| node["metadata"]["labels"]["kproxide.dev/claim"] == name;
    let its: Vec<&Arc<Value>> = nodes.iter().filter(of_claim).collect();
    let [node] = its[..] else {
        wrong(format!("has {} Nodes", its.len()));
        return;
    };
    let same_machine = vm.smbios_uuid.as_deref().is_some_and(|uuid| {
        uuid.eq_ignore_ascii_case(text(&node["status"]["nodeInfo"]["systemUUID"]))
    });
    if !same_machine {
        wrong("its Node is another machine".to_owned());
    }
    for (key, value) in labels_wanted(claim, vm) {
        let found = &node["metadata"]["labels"][&key];
        if *found != *value {
            wrong(format!("its Node's label {key} is {found} and not {value}"));
        }
    }
    if node["spec"]["unschedulable"] == true
        || !node["metadata"]["labels"][EXCLUDED].is_null()
        || node["spec"]["taints"].as_array().is_some_and(|taints| {
            taints
                .iter()
                .any(|taint| taint["effect"] != "PreferNoSchedule")
        })
    {
        let labels = &node["metadata"]["labels"];
        wrong(format!("its Node is closed: {labels} {}", node["spec"]));
    }
}

/// What a Node must carry: what its claim says, and where it stands, by name of those who made it.
fn labels_wanted(claim: &Value, vm: &VmView) -> BTreeMap<String, String> {
    let spec = &claim["spec"];
    let of_claim = spec["labels"].as_object().into_iter().flatten();
    let mut labels: BTreeMap<String, String> = of_claim
        .map(|(key, value)| (key.clone(), text(value).to_owned()))
        .collect();
    let ours = [
        ("kproxide.dev/pool", text(&spec["pool"])),
        ("kproxide.dev/class", text(&spec["class"])),
        ("kproxide.dev/claim", name(claim)),
        (
            "node.kubernetes.io/instance-type",
            text(&spec["instanceType"]),
        ),
        ("topology.kubernetes.io/region", text(&spec["cluster"])),
        // The pools' template says the same.
        ("topology.kubernetes.io/zone", &vm.hypervisor),
    ];
    labels.extend(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}

/// No machine, volume or Node of ours without a claim.
fn check_surplus(
    snapshot: &PveSnapshot,
    nodes: &[Arc<Value>],
    claims: &[Arc<Value>],
    found: &mut Vec<String>,
) {
    let vmids: BTreeSet<u64> = claims
        .iter()
        .filter_map(|claim| claim["spec"]["vmid"].as_u64())
        .collect();
    for vm in machines(snapshot).filter(|vm| !vmids.contains(&vm.vmid.into())) {
        found.push(format!("VM {} has no claim", vm.vmid));
    }
    for volume in &snapshot.volumes {
        if !snapshot.vms.iter().any(|vm| vm.vmid == volume.vmid) {
            found.push(format!("volume {} has no machine", volume.volid));
        }
    }
    for node in nodes {
        let (name, claim) = (
            name(node),
            &node["metadata"]["labels"]["kproxide.dev/claim"],
        );
        let has_claim = claims
            .iter()
            .any(|other| other["metadata"]["name"] == *claim);
        // Somebody's VM may have joined under the name that a machine of ours had.
        let is_guest = snapshot.vms.iter().any(|vm| vm.name == name);
        let is_ours = machines(snapshot).any(|vm| vm.name == name);
        let made_by_people =
            ["server-1", "agent-1", "storage-1"].contains(&name) || (is_guest && !is_ours);
        if !has_claim && !made_by_people {
            found.push(format!("Node {name} has no claim"));
        }
    }
    let running = snapshot
        .tasks
        .iter()
        .filter(|task| task.exit.is_none())
        .count();
    if running > 0 {
        found.push(format!("{running} tasks are running"));
    }
}

/// What the Ledger lets go of while a run that seems to be at rest is still looked at: numbers whose rest ends, and failures that are forgotten.
pub(crate) fn about_to_end(lab: &Lab) -> Vec<String> {
    let now = lab.clock.now();
    let ends_soon = |row: &Value, lasts: SignedDuration| {
        let until = text(&row["until"]).parse::<Timestamp>();
        until.is_ok_and(|until| until + lasts < now + SOON)
    };
    let mut found = Vec::new();
    for entry in ledger_rows(lab, "entries") {
        if ends_soon(&entry, SignedDuration::ZERO) {
            let (vmid, until) = (&entry["vmid"], &entry["until"]);
            found.push(format!(
                "the number {vmid} rests until {until}, which is soon"
            ));
        }
    }
    for row in ledger_rows(lab, "backoff") {
        if ends_soon(&row, BACKOFF_MEMORY) {
            let (hypervisor, until) = (&row["hypervisor"], &row["until"]);
            found.push(format!(
                "the pause of {hypervisor} until {until} is forgotten soon"
            ));
        }
    }
    // Machines in vain, and the workloads that they were made for.
    let kinds = [
        ("inVain", IN_VAIN_MEMORY),
        ("tries", TRIES_MEMORY),
        ("failedLaunches", BACKOFF_MEMORY),
    ];
    for (rows, lasts) in kinds {
        for row in ledger_rows(lab, rows) {
            let at = text(&row["at"]).parse::<Timestamp>();
            if at.is_ok_and(|at| at + lasts < now + SOON) {
                found.push(format!("a row of {rows} is forgotten soon: {row}"));
            }
        }
    }
    found
}

/// L8: a host that is well leads.
pub(crate) fn nobody_leads(lab: &Lab) -> Option<String> {
    let now = lab.clock.now();
    let leads = |lease: &Arc<Value>| {
        let spec = &lease["spec"];
        let renewed: Option<Timestamp> = text(&spec["renewTime"]).parse().ok();
        let lasts = SignedDuration::from_secs(spec["leaseDurationSeconds"].as_i64().unwrap_or(0));
        text(&spec["holderIdentity"]).starts_with("kproxide-")
            && renewed.is_some_and(|at| now <= at + lasts)
    };
    let leases = objects(lab, "leases.coordination.k8s.io");
    (!leases.iter().any(leads)).then(|| "L8: nobody leads".to_owned())
}

/// The Ledger holds an entry in use for each claim, nothing promised, and nothing that passes with time.
fn check_ledger(lab: &Lab, claims: &[Arc<Value>], found: &mut Vec<String>) {
    for ledger in objects(lab, "ledgers.kproxide.dev") {
        for field in ["removals", "orphans", "freeze"] {
            let left = &ledger["spec"][field];
            if !left.is_null() && left.as_array().is_none_or(|rows| !rows.is_empty()) {
                found.push(format!("the Ledger's {field} are {left}"));
            }
        }
    }
    let entries = ledger_entries(lab);
    let live = |claim: &Arc<Value>| {
        entries.iter().any(|entry| {
            entry["state"] == "live"
                && entry["claim"] == claim["metadata"]["name"]
                && entry["vmid"] == claim["spec"]["vmid"]
        })
    };
    for claim in claims.iter().filter(|claim| !live(claim)) {
        found.push(format!(
            "claim {} is not in the Ledger",
            claim["metadata"]["name"]
        ));
    }
    let counted = entries
        .iter()
        .filter(|entry| entry["state"] != "quarantined")
        .count();
    if counted != claims.len() {
        found.push(format!(
            "the Ledger has {counted} entries in use or promised for {} claims",
            claims.len()
        ));
    }
}

/// As many as there are: a Node for each claim.
fn check_nodes(lab: &Lab, pool: &str, count: u64, found: &mut Vec<String>) {
    let object = lab.kube.object("nodepools.kproxide.dev", "", pool);
    let object = object.map(|object| object.value()).unwrap_or_default();
    let said = &object["status"]["nodes"];
    if *said != count {
        found.push(format!("pool {pool} says {said} Nodes, it has {count}"));
    }
}

/// What kproxide says of itself is true: two leaders may have written it, and the earlier one's word may have come last.
fn check_statuses(lab: &Lab, found: &mut Vec<String>) {
    for kind in ["proxmoxclusters", "nodeclasses", "nodepools"] {
        for object in objects(lab, &format!("{kind}.kproxide.dev")) {
            // Launches that failed before the load fell are the last that there were.
            let launched = condition(&object, "Ready");
            let launched = launched.is_none_or(|it| it["reason"] != "LaunchesFail");
            if launched && !condition_is_true(&object, "Ready") {
                found.push(format!(
                    "{kind} {} is not Ready: {}",
                    object["metadata"]["name"], object["status"]
                ));
            }
        }
    }
}

/// The plan of the last tick wants nothing, but perhaps to move an anchor on.
pub(crate) fn check_empty(debug: &[u8]) -> Result<(), String> {
    let debug: Value = serde_json::from_slice(debug).map_err(|error| error.to_string())?;
    let plan = &debug["plan"];
    let is_empty = |field: &str| plan[field].as_array().is_some_and(Vec::is_empty);
    let keeps = plan["advances"]
        .as_array()
        .is_some_and(|advances| advances.iter().all(|advance| advance["verdict"] == "Keep"));
    // What else that write changes is an effect, and there are none at rest.
    let stands = plan["ledger"].is_null() || !is_empty("anchors");
    if stands && is_empty("launches") && is_empty("unneeded") && keeps {
        Ok(())
    } else {
        Err(format!("the plan at rest is not empty: {plan}"))
    }
}

/// Machines that hosts made.
fn machines(snapshot: &PveSnapshot) -> impl Iterator<Item = &VmView> {
    let ours: BTreeSet<u64> = snapshot
        .births
        .iter()
        .filter(|birth| is_machine(birth))
        .map(|birth| birth.incarnation)
        .collect();
    snapshot
        .vms
        .iter()
        .filter(move |vm| ours.contains(&vm.incarnation))
}

pub(crate) fn ledger_entries(lab: &Lab) -> Vec<Value> {
    ledger_rows(lab, "entries")
}

/// The rows of one of the Ledger's lists.
fn ledger_rows(lab: &Lab, list: &str) -> Vec<Value> {
    let ledgers = objects(lab, "ledgers.kproxide.dev");
    ledgers
        .iter()
        .flat_map(|ledger| ledger["spec"][list].as_array().cloned().unwrap_or_default())
        .collect()
}

/// All objects of a resource, which the store keeps parsed: copies would be most of what a look costs.
fn objects(lab: &Lab, resource: &str) -> Vec<Arc<Value>> {
    let objects = lab.kube.objects(resource);
    objects.iter().map(|object| object.value()).collect()
}

fn of_load(pod: &Value) -> bool {
    pod["metadata"]["namespace"] == "default"
}
