//! What the last tick found.

use prometheus::{Error, IntGauge};

use kproxide_common::metrics::{Register, Rows, Table};

const HYPERVISOR: &[&str] = &["cluster", "hypervisor"];
const POOL: &[&str] = &["pool"];

/// What the last tick of the leading replica found. The others show none of it.
#[derive(Clone, Debug)]
pub struct Found {
    pub pending_pods: Table,
    pub unhelped_pods: Table,
    pub claims: Table,
    pub nodes: Table,
    pub kept_nodes: Table,
    pub hypervisor_online: Table,
    pub hypervisor_cores: Amounts,
    pub hypervisor_memory: Amounts,
    pub cluster_reachable: Table,
    pub anchor_problem: Table,
    pub pool_paused: Table,
    pub pool_min_nodes: Table,
    pub pool_max_nodes: Table,
    pub pool_max_cores: Table,
    pub pool_max_memory: Table,
    pub policy_info: Table,
    pub policy_refused: Table,
    pub troubles: Table,
    pub frozen: IntGauge,
    pub orphans: IntGauge,
    /// All of these.
    tables: Vec<Table>,
}

/// How much of something there is on a hypervisor.
#[derive(Clone, Debug)]
pub struct Amounts {
    pub capacity: Table,
    pub given: Table,
    pub free: Table,
}

impl Found {
    #[expect(clippy::too_many_lines, reason = "a list")]
    pub(super) fn new(register: &mut Register) -> Result<Self, Error> {
        Ok(Self {
            pending_pods: register.table(
                "kproxide_pending_pods",
                "Pods that the scheduler cannot place, by what kproxide does about them.",
                &["outcome"],
            )?,
            unhelped_pods: register.table(
                "kproxide_unhelped_pods",
                "Of those, the pods that get no machine, by pool and why. A pod counts once for each pool.",
                &["pool", "reason"],
            )?,
            claims: register.table(
                "kproxide_claims",
                "NodeClaims, by pool and phase.",
                &["pool", "phase"],
            )?,
            nodes: register.table(
                "kproxide_nodes",
                "Nodes of kproxide's machines, by where the VM is and by state: ready, not-ready, cordoned or draining.",
                &["pool", "cluster", "hypervisor", "state"],
            )?,
            kept_nodes: register.table(
                "kproxide_kept_nodes",
                "Nodes that kproxide does not remove, by why.",
                &["pool", "reason"],
            )?,
            hypervisor_online: register.table(
                "kproxide_hypervisor_online",
                "1 while the Proxmox server is online and answers.",
                HYPERVISOR,
            )?,
            hypervisor_cores: Amounts {
                capacity: register.table(
                    "kproxide_hypervisor_capacity_cores",
                    "Threads of the Proxmox server's processors.",
                    HYPERVISOR,
                )?,
                given: register.table(
                    "kproxide_hypervisor_given_cores",
                    "Cores that the Proxmox server has promised to VMs, those of others included.",
                    HYPERVISOR,
                )?,
                free: register.table(
                    "kproxide_hypervisor_free_cores",
                    "Cores that it may still promise, by overcommit and systemReserved of the ProxmoxCluster.",
                    HYPERVISOR,
                )?,
            },
            hypervisor_memory: Amounts {
                capacity: register.table(
                    "kproxide_hypervisor_capacity_bytes",
                    "Memory of the Proxmox server.",
                    HYPERVISOR,
                )?,
                given: register.table(
                    "kproxide_hypervisor_given_bytes",
                    "Memory that the Proxmox server has promised to VMs, those of others included; what it uses, if that is more.",
                    HYPERVISOR,
                )?,
                free: register.table(
                    "kproxide_hypervisor_free_bytes",
                    "Memory that it may still promise, by overcommit and systemReserved of the ProxmoxCluster.",
                    HYPERVISOR,
                )?,
            },
            cluster_reachable: register.table(
                "kproxide_cluster_reachable",
                "1 while a Proxmox cluster answers and is quorate.",
                &["cluster"],
            )?,
            anchor_problem: register.table(
                "kproxide_anchor_problem",
                "1 while the anchor VM of a Proxmox cluster is missing, stuck, unproven or foreign.",
                &["cluster", "problem"],
            )?,
            pool_paused: register.table(
                "kproxide_pool_paused",
                "1 while the NodePool is paused, by its spec or its annotation.",
                POOL,
            )?,
            pool_min_nodes: register.table(
                "kproxide_pool_min_nodes",
                "limits.minNodes of the NodePool.",
                POOL,
            )?,
            pool_max_nodes: register.table(
                "kproxide_pool_max_nodes",
                "limits.maxNodes of the NodePool.",
                POOL,
            )?,
            pool_max_cores: register.table(
                "kproxide_pool_max_cores",
                "limits.cpuCores of the NodePool, if it has that limit.",
                POOL,
            )?,
            pool_max_memory: register.table(
                "kproxide_pool_max_memory_bytes",
                "limits.memoryMiB of the NodePool, if it has that limit.",
                POOL,
            )?,
            policy_info: register.table(
                "kproxide_policy_info",
                "Always 1. Which bytes answer for a policy's name: the SHA-256 of its file.",
                &["kind", "policy", "digest"],
            )?,
            policy_refused: register.table(
                "kproxide_policy_refused",
                "1 while the file of a policy is refused. The one before it answers, or the built-in one of that name.",
                &["policy"],
            )?,
            troubles: register.table(
                "kproxide_troubles",
                "What is wrong, as `kproxide status` says it: how many objects of a kind, the reason, and what does not go on (all, launches, removals, machine, nothing). NodeClaims and Nodes are counted without their names.",
                &["kind", "name", "reason", "stops", "level"],
            )?,
            frozen: register.gauge(
                "kproxide_frozen",
                "1 while nothing is removed because too many machines went bad at once.",
            )?,
            orphans: register.gauge(
                "kproxide_orphans",
                "VMs of kproxide that no NodeClaim names.",
            )?,
            tables: register.tables.clone(),
        })
    }

    pub(super) fn clear(&self) {
        for table in &self.tables {
            table.show(&Rows::default());
        }
        self.frozen.set(0);
        self.orphans.set(0);
    }
}
