//! Every reason of the conditions of NodePools, NodeClasses and ProxmoxClusters. `charts/kproxide/CONDITIONS.md` lists them
//! for people, and a test holds it against this list.

use crate::kube::status::NOT_JUDGED;

/// A reason of a condition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) word: &'static str,
    /// Kinds of objects and the condition, for people.
    pub(crate) of: &'static str,
    pub(crate) means: &'static str,
    /// It may pass by itself, so kproxide waits for a minute before it says so.
    pub(crate) passes: bool,
}

pub(crate) const fn lasting(word: &'static str, of: &'static str, means: &'static str) -> Reason {
    Reason {
        word,
        of,
        means,
        passes: false,
    }
}

const fn passing(word: &'static str, of: &'static str, means: &'static str) -> Reason {
    Reason {
        word,
        of,
        means,
        passes: true,
    }
}

const ANY: &str = "Ready of NodePool, NodeClass, ProxmoxCluster";
const POOL: &str = "Ready of NodePool";
const CLASS: &str = "Ready of NodeClass";
const CLUSTER: &str = "Ready of ProxmoxCluster";

pub(crate) const READY: Reason = lasting("Ready", ANY, "It can be used.");
pub(crate) const UNKNOWN: Reason = lasting(
    NOT_JUDGED,
    ANY,
    "kproxide has not looked yet, or something is wrong since less than 60 s. If it stays, look at the ProxmoxClusters.",
);
pub(crate) const INVALID_SETTINGS: Reason = lasting(
    "InvalidSettings",
    ANY,
    "A field of the spec cannot be used. The message names the field and what to write.",
);

// NodePool.
pub(crate) const CLAIMS_UNDEFINED: Reason = lasting(
    "ClaimsUndefined",
    POOL,
    "A CustomResourceDefinition of kproxide is missing or is being deleted. Apply charts/kproxide/crds again.",
);
pub(crate) const BEING_DELETED: Reason = lasting(
    "BeingDeleted",
    "Ready of NodePool and NodeClass",
    "Somebody deletes the object. The message says what keeps it.",
);
pub(crate) const CLASS_MISSING: Reason = lasting(
    "ClassMissing",
    POOL,
    "There is no NodeClass of that name. Create it, or correct spec.nodeClass.",
);
pub(crate) const CLASS_NOT_READY: Reason = lasting(
    "ClassNotReady",
    POOL,
    "Its NodeClass is not Ready. The message repeats why.",
);
pub(crate) const CLUSTER_MISSING: Reason = lasting(
    "ClusterMissing",
    POOL,
    "There is no ProxmoxCluster of that name, or none at all. Create it, or correct spec.clusters.",
);
pub(crate) const NO_USABLE_CLUSTER: Reason = lasting(
    "NoUsableCluster",
    POOL,
    "None of its ProxmoxClusters is Ready. The message repeats why.",
);
pub(crate) const POLICY_MISSING: Reason = lasting(
    "PolicyMissing",
    POOL,
    "There is no policy of that name. Mount its file, or correct spec.policies.",
);
pub(crate) const POLICY_LOADING: Reason = lasting(
    "PolicyLoading",
    POOL,
    "The file of a policy is being compiled, and the pool waits for it. The message says which. It ends by itself.",
);
pub(crate) const POLICY_REFUSED: Reason = lasting(
    "PolicyRefused",
    "Ready and Degraded of NodePool",
    "The file of a policy cannot be used. The message says why, and what decides now. Mount a file that works. Ready is False if no file of that name answers.",
);
pub(crate) const POLICY_FAILED: Reason = lasting(
    "PolicyFailed",
    POOL,
    "A policy gives no usable answer. Correct its settings or its file.",
);
pub(crate) const LAUNCHES_FAIL: Reason = lasting(
    "LaunchesFail",
    POOL,
    "The last 3 launches of the pool failed. The message has the last failure. It ends when a machine comes into service.",
);
pub(crate) const FROZEN: Reason = lasting(
    "Frozen",
    POOL,
    "Too many machines went bad at once, so kproxide removes nothing. The message has the command that goes on.",
);
pub(crate) const ANCHOR_FOREIGN: Reason = lasting(
    "AnchorForeign",
    POOL,
    "A copy of this Kubernetes cluster may be at work, so kproxide does nothing in that Proxmox cluster. examples/manual/stops.md says how to go on.",
);
pub(crate) const ANCHOR_UNPROVEN: Reason = lasting(
    "AnchorUnproven",
    POOL,
    "kproxide watches the anchor of a Proxmox cluster for 12 minutes, and removes nothing there. It then goes on.",
);
pub(crate) const PAUSED: Reason = lasting(
    "Paused",
    "Paused of NodePool",
    "Somebody has paused it. Set spec.paused to false, or take the annotation kproxide.dev/pause off.",
);
pub(crate) const NOT_PAUSED: Reason =
    lasting("NotPaused", "Paused of NodePool", "It is not paused.");
pub(crate) const MAX_NODES: Reason = lasting(
    "MaxNodes",
    "LimitReached of NodePool",
    "It has as many machines as limits.maxNodes allows. If pods wait, set it higher.",
);
pub(crate) const CPU_CORES: Reason = lasting(
    "CpuCores",
    "LimitReached of NodePool",
    "One more machine would have more cores than limits.cpuCores allows. If pods wait, set it higher.",
);
pub(crate) const MEMORY: Reason = lasting(
    "Memory",
    "LimitReached of NodePool",
    "One more machine would have more memory than limits.memoryMiB allows. If pods wait, set it higher.",
);
pub(crate) const ADDRESSES: Reason = lasting(
    "AddressesUsedUp",
    "LimitReached of NodePool",
    "The ipPool of its NodeClass has no free address. Add a range, or wait until addresses have rested.",
);
pub(crate) const BELOW_LIMITS: Reason = lasting(
    "BelowLimits",
    "LimitReached of NodePool",
    "One more machine would be within its limits.",
);
pub(crate) const CLUSTER_NOT_READY: Reason = lasting(
    "ClusterNotReady",
    "Degraded of NodePool",
    "One of its ProxmoxClusters is not Ready. The message repeats why. kproxide uses the others.",
);
pub(crate) const CLUSTERS_READY: Reason = lasting(
    "ClustersReady",
    "Degraded of NodePool",
    "Each of its ProxmoxClusters is Ready. The newest files of its policies answer.",
);
pub(crate) const ONLY_CLUSTER_NOT_READY: Reason = lasting(
    "OnlyClusterNotReady",
    "Degraded of NodePool",
    "It has one ProxmoxCluster only, which is not Ready. So there is no other one to use, and its condition Ready says why.",
);

// NodeClass.
pub(crate) const TEMPLATE_MISSING: Reason = lasting(
    "TemplateMissing",
    CLASS,
    "No Proxmox cluster has a template of that name, or the credentials may not see it. Create it with examples/proxmox/setup.sh.",
);
pub(crate) const TEMPLATE_UNUSABLE: Reason = passing(
    "TemplateUnusable",
    CLASS,
    "There is a VM of that name, but it cannot be cloned. The message says why.",
);
pub(crate) const CLONE_IMPOSSIBLE: Reason = passing(
    "CloneImpossible",
    CLASS,
    "The template is there, but on no server can it be cloned as spec.template asks. The message says why.",
);
pub(crate) const JOIN_FILE_MISSING: Reason = lasting(
    "JoinFileMissing",
    CLASS,
    "The file of join.guestExec cannot be read. Mount the Secret with the script, or correct commandSecretFile.",
);

// ProxmoxCluster.
pub(crate) const KEY_UNUSABLE: Reason = lasting(
    "OwnershipKeyUnusable",
    CLUSTER,
    "The Secret with the ownership key is missing or was replaced. Restore the Secret that the message names.",
);
pub(crate) const UNREACHABLE: Reason = passing(
    "Unreachable",
    CLUSTER,
    "No endpoint answers, or not as Proxmox does. The message has the error.",
);
pub(crate) const CREDENTIALS_REFUSED: Reason = lasting(
    "CredentialsRefused",
    CLUSTER,
    "Proxmox refuses the credentials, or the Secret cannot be read. Correct the Secret; kproxide picks it up.",
);
pub(crate) const CERTIFICATE_UNTRUSTED: Reason = lasting(
    "CertificateUntrusted",
    CLUSTER,
    "The certificate of an endpoint is not the one that spec.tls names. Compare it with `pvenode cert info` on that server, then correct spec.tls.",
);
pub(crate) const NO_QUORUM: Reason = passing(
    "NoQuorum",
    CLUSTER,
    "The Proxmox cluster has no quorum. Start its servers, or mend its network.",
);
pub(crate) const UNKNOWN_HYPERVISOR: Reason = lasting(
    "UnknownHypervisor",
    CLUSTER,
    "spec.hypervisors names a server that the Proxmox cluster does not have. Correct the name.",
);
pub(crate) const POOL_MISSING: Reason = lasting(
    "PoolMissing",
    CLUSTER,
    "The Proxmox pool of spec.pool is not there, or the credentials may not see it. Create it, or correct the name.",
);
pub(crate) const PRIVILEGES_MISSING: Reason = lasting(
    "PrivilegesMissing",
    CLUSTER,
    "The credentials lack a privilege that machines need. The message has the pveum command.",
);
pub(crate) const STORAGE_MISSING: Reason = lasting(
    "StorageMissing",
    CLUSTER,
    "No server has the storage that a NodeClass names. Correct template.storage, or make the storage.",
);
pub(crate) const VMIDS_USED_UP: Reason = lasting(
    "VmidsUsedUp",
    CLUSTER,
    "Each VMID of spec.vmidRange is in use or rests. Make the range larger, or wait until VMIDs have rested.",
);
pub(crate) const TOKEN_FITS: Reason = lasting(
    "Fits",
    "TokenFits of ProxmoxCluster",
    "The credentials may do what kproxide needs, and no more.",
);
pub(crate) const TOKEN_OVER_PRIVILEGED: Reason = lasting(
    "TokenOverPrivileged",
    "TokenFits of ProxmoxCluster",
    "The credentials may do more than kproxide needs. Give only the roles of examples/proxmox/setup.sh.",
);
pub(crate) const NEW_CREDENTIALS_UNUSABLE: Reason = lasting(
    "NewCredentialsUnusable",
    "TokenFits of ProxmoxCluster",
    "kproxide cannot use what the Secret has now, and goes on with the credentials before. Correct the Secret before kproxide restarts.",
);

/// In the order of the list for people.
const LISTED: [&Reason; 44] = [
    &READY,
    &UNKNOWN,
    &INVALID_SETTINGS,
    &CLAIMS_UNDEFINED,
    &BEING_DELETED,
    &CLASS_MISSING,
    &CLASS_NOT_READY,
    &CLUSTER_MISSING,
    &NO_USABLE_CLUSTER,
    &POLICY_MISSING,
    &POLICY_LOADING,
    &POLICY_REFUSED,
    &POLICY_FAILED,
    &LAUNCHES_FAIL,
    &FROZEN,
    &ANCHOR_FOREIGN,
    &ANCHOR_UNPROVEN,
    &PAUSED,
    &NOT_PAUSED,
    &MAX_NODES,
    &CPU_CORES,
    &MEMORY,
    &ADDRESSES,
    &BELOW_LIMITS,
    &CLUSTER_NOT_READY,
    &CLUSTERS_READY,
    &ONLY_CLUSTER_NOT_READY,
    &TEMPLATE_MISSING,
    &TEMPLATE_UNUSABLE,
    &CLONE_IMPOSSIBLE,
    &JOIN_FILE_MISSING,
    &KEY_UNUSABLE,
    &UNREACHABLE,
    &CREDENTIALS_REFUSED,
    &CERTIFICATE_UNTRUSTED,
    &NO_QUORUM,
    &UNKNOWN_HYPERVISOR,
    &POOL_MISSING,
    &PRIVILEGES_MISSING,
    &STORAGE_MISSING,
    &VMIDS_USED_UP,
    &TOKEN_FITS,
    &TOKEN_OVER_PRIVILEGED,
    &NEW_CREDENTIALS_UNUSABLE,
];

/// The reason of this word.
pub(crate) fn of(word: &str) -> Option<&'static Reason> {
    LISTED.into_iter().find(|reason| reason.word == word)
}

#[cfg(test)]
mod tests {
    use kproxide_planner::claim::READY_REASONS;
    use kproxide_planner::reasons::REMOVABLE_REASONS;

    use super::*;

    fn root(path: &str) -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
    }

    #[test]
    fn every_reason_is_a_word_and_stands_in_the_list() {
        let source = include_str!("reasons.rs");
        let shipped = source.split("mod tests {").next().unwrap();
        assert_eq!(shipped.matches(": Reason =").count(), LISTED.len());
        for (index, reason) in LISTED.iter().enumerate() {
            let is_word = |letter: char| letter.is_ascii_alphabetic();
            assert!(reason.word.chars().all(is_word), "{reason:?}");
            assert!(reason.word.starts_with(char::is_uppercase), "{reason:?}");
            let others = &LISTED[..index];
            assert!(
                others.iter().all(|other| other.word != reason.word),
                "{reason:?}"
            );
        }
    }

    /// With `KPROXIDE_UPDATE=1` the list is written anew.
    #[test]
    fn the_list_for_people_is_this_one() {
        let mut table =
            String::from("| reason | condition | what it says, and what to do |\n|---|---|---|\n");
        for Reason {
            word,
            of,
            means,
            passes,
        } in LISTED.into_iter().chain(crate::doctor::reasons::LISTED)
        {
            let waits = match passes {
                true => " kproxide says so after 60 s.",
                false => "",
            };
            table += &format!("| `{word}` | {of} | {means}{waits} |\n");
        }
        for (word, means) in READY_REASONS {
            table += &format!("| `{word}` | Ready of NodeClaim | {means} |\n");
        }
        for (word, means) in REMOVABLE_REASONS {
            table += &format!("| `{word}` | Removable of NodeClaim | {means} |\n");
        }
        let path = root("../charts/kproxide/CONDITIONS.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once("| reason |").unwrap();
        let (_, after) = rest.split_once("\n\n").unwrap();
        let expected = format!("{before}{table}\n{after}");
        if std::env::var_os("KPROXIDE_UPDATE").is_some() {
            std::fs::write(&path, &expected).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }
}
