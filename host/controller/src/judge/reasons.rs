//! Every reason that kproxide gives: in conditions, Events, metrics, and in what `status`, `explain` and `doctor` say. This is the one
//! list of them. `charts/kproxide/CONDITIONS.md` shows it to people, and a test holds it against this one.

use serde::{Deserialize, Serialize};

use kproxide_kube::crd::ConditionStatus;
use kproxide_kube::status::NOT_JUDGED;
/// The type of the condition that says whether an object can be used.
pub use kproxide_kube::status::READY as READY_CONDITION;

/// One word for what is so with an object.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    pub word: &'static str,
    pub of: Of,
    /// Of the condition, if it stands in one.
    pub status: ConditionStatus,
    pub stops: Stops,
    /// It is said only after it was so for this many seconds: silence may end by itself. What Proxmox or Kubernetes states is said at
    /// once.
    pub after: u32,
    pub means: &'static str,
    /// What to do. Empty: each message says it, or nothing is to be done.
    pub remedy: &'static str,
}

/// Where a reason is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Of {
    /// The condition that it stands in.
    pub condition: Option<&'static str>,
    /// For people.
    pub text: &'static str,
}

/// What does not go on as long as it is so. In this order a person mends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stops {
    /// Launches and removals.
    All,
    Launches,
    Removals,
    /// What is to be done with one machine, or with those of one server.
    Machine,
    /// It is a risk, or not as somebody wished.
    Nothing,
    /// Another object is to be mended, and has a finding of its own.
    Follows,
}

impl Stops {
    /// For programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Launches => "launches",
            Self::Removals => "removals",
            Self::Machine => "machine",
            Self::Nothing => "nothing",
            Self::Follows => "follows",
        }
    }
}

const fn condition(condition: &'static str, text: &'static str) -> Of {
    Of {
        condition: Some(condition),
        text,
    }
}

const fn said(text: &'static str) -> Of {
    Of {
        condition: None,
        text,
    }
}

const ANY: Of = condition(
    READY_CONDITION,
    "Ready of NodePool, NodeClass, ProxmoxCluster",
);
const POOL: Of = condition(READY_CONDITION, "Ready of NodePool");
const POOL_OR_CLASS: Of = condition(READY_CONDITION, "Ready of NodePool and NodeClass");
const CLASS: Of = condition(READY_CONDITION, "Ready of NodeClass");
const CLUSTER: Of = condition(READY_CONDITION, "Ready of ProxmoxCluster");
const CLAIM: Of = condition(READY_CONDITION, "Ready of NodeClaim");
const PAUSES: Of = condition(PAUSED_CONDITION, "Paused of NodePool");
const LIMITS: Of = condition(LIMIT_REACHED, "LimitReached of NodePool");
const DEGRADES: Of = condition(DEGRADED, "Degraded of NodePool");
const TOKEN: Of = condition(TOKEN_FITS_CONDITION, "TokenFits of ProxmoxCluster");
const OF_CLAIM: Of = said("a condition of NodeClaim of this name");
const SERVER: Of = said("status and doctor, of a Proxmox server");
const SAID: Of = said("status and doctor");
const DOCTOR: Of = said("doctor");

/// The condition `Paused` of a NodePool.
pub const PAUSED_CONDITION: &str = "Paused";
/// One more machine of the NodePool would pass a limit.
pub const LIMIT_REACHED: &str = "LimitReached";
/// The NodePool can use only some of its ProxmoxClusters.
pub const DEGRADED: &str = "Degraded";
/// The credentials of a Proxmox cluster may do no more than kproxide needs, and are those in its Secret.
pub const TOKEN_FITS_CONDITION: &str = "TokenFits";

/// A row: name, word, where it is given, status of the condition, what it stops, after how many seconds it is said; what it means; what to
/// do.
macro_rules! reasons {
    ($($name:ident $word:tt $of:ident $status:ident $stops:ident $after:literal $means:literal $remedy:literal)*) => {
        $(pub static $name: Reason = Reason {
            word: $word,
            of: $of,
            status: ConditionStatus::$status,
            stops: Stops::$stops,
            after: $after,
            means: $means,
            remedy: $remedy,
        };)*

        /// In the order of the list for people.
        static LISTED: &[&Reason] = &[$(&$name),*];
    };
}

/// The reason of this word.
pub fn of(word: &str) -> Option<&'static Reason> {
    LISTED.iter().copied().find(|reason| reason.word == word)
}

reasons! {
    READY "Ready" ANY True Nothing 0
        "It can be used."
        ""
    UNKNOWN NOT_JUDGED ANY Unknown Nothing 0
        "kproxide has not looked yet, or something is wrong since less than 60 s."
        "If it stays, look at the ProxmoxClusters."
    INVALID_SETTINGS "InvalidSettings" ANY False Launches 0
        "A field of the spec cannot be used. The message names the field and what to write."
        ""

    // NodePool.
    CLAIMS_UNDEFINED "ClaimsUndefined" POOL False All 0
        "A CustomResourceDefinition of kproxide is missing or is being deleted."
        "Apply charts/kproxide/crds again."
    BEING_DELETED "BeingDeleted" POOL_OR_CLASS False Nothing 0
        "Somebody deletes the object. The message says what keeps it."
        ""
    CLASS_MISSING "ClassMissing" POOL False Launches 0
        "There is no NodeClass of that name."
        "Create it, or correct spec.nodeClass."
    CLASS_NOT_READY "ClassNotReady" POOL False Follows 0
        "Its NodeClass is not Ready. The message repeats why."
        ""
    CLUSTER_MISSING "ClusterMissing" POOL False Launches 0
        "There is no ProxmoxCluster of that name, or none at all."
        "Create it, or correct spec.clusters."
    NO_USABLE_CLUSTER "NoUsableCluster" POOL_OR_CLASS False Follows 0
        "None of its ProxmoxClusters is Ready. The message repeats why."
        ""
    POLICY_MISSING "PolicyMissing" POOL False Launches 0
        "There is no policy of that name."
        "Mount its file, or correct spec.policies."
    POLICY_LOADING "PolicyLoading" POOL False Launches 0
        "The file of a policy is being compiled, and the pool waits for it. The message says which. It ends by itself."
        ""
    POLICY_REFUSED "PolicyRefused" POOL False Launches 0
        "The file of a policy cannot be used, and no file of that name answers. The message says why, and what decides now."
        "Mount a file that works."
    POLICY_OUTDATED "PolicyOutdated" DEGRADES True Nothing 0
        "The newest file of a policy cannot be used, so an earlier one answers, or the built-in one. The message says why."
        "Mount a file that works."
    POLICY_FAILED "PolicyFailed" POOL False Launches 0
        "A policy gives no usable answer."
        "Correct its settings or its file."
    LAUNCHES_FAIL "LaunchesFail" POOL False Launches 0
        "The last 3 launches of the pool failed. The message has the last failure. It ends when a machine comes into service."
        ""
    FROZEN "Frozen" POOL False Removals 0
        "Too many machines went bad at once, so kproxide removes nothing. The message has the command that goes on."
        ""
    ANCHOR_FOREIGN "AnchorForeign" POOL False All 0
        "A copy of this Kubernetes cluster may be at work, so kproxide does nothing in that Proxmox cluster."
        "examples/manual/stops.md says how to go on."
    ANCHOR_UNPROVEN "AnchorUnproven" POOL False Removals 0
        "kproxide watches the anchor of a Proxmox cluster for 12 minutes, and removes nothing there. It then goes on."
        ""
    PAUSED "Paused" PAUSES True All 0
        "Somebody has paused it."
        "Set spec.paused to false, or take the annotation kproxide.dev/pause off."
    NOT_PAUSED "NotPaused" PAUSES False Nothing 0
        "It is not paused."
        ""
    MAX_NODES "MaxNodes" LIMITS True Launches 0
        "It has as many machines as limits.maxNodes allows."
        "If pods wait, set it higher."
    CPU_CORES "CpuCores" LIMITS True Launches 0
        "One more machine would have more cores than limits.cpuCores allows."
        "If pods wait, set it higher."
    MEMORY "Memory" LIMITS True Launches 0
        "One more machine would have more memory than limits.memoryMiB allows."
        "If pods wait, set it higher."
    ADDRESSES "AddressesUsedUp" LIMITS True Launches 0
        "The ipPool of its NodeClass has no free address."
        "Add a range, or wait until addresses have rested."
    ADDRESSES_REUSED "AddressesReused" LIMITS False Nothing 0
        "Each address of the ipPool of its NodeClass is in use or rests. kproxide takes those again that have rested for an hour, and not for `--quarantine`."
        "Add a range."
    BELOW_LIMITS "BelowLimits" LIMITS False Nothing 0
        "One more machine would be within its limits."
        ""
    CLUSTER_NOT_READY "ClusterNotReady" DEGRADES True Follows 0
        "One of its ProxmoxClusters is not Ready. The message repeats why. kproxide uses the others."
        ""
    NOT_DEGRADED "NotDegraded" DEGRADES False Nothing 0
        "The newest files of its policies answer. If it has several ProxmoxClusters, each can be used. If it has one, the condition Ready says whether that can."
        ""

    // NodeClass.
    TEMPLATE_MISSING "TemplateMissing" CLASS False Launches 0
        "No Proxmox cluster has a template of that name, or the credentials may not see it."
        "`pvesh get /cluster/resources --type vm` on a Proxmox server shows which there are. Create it with examples/proxmox/setup.sh."
    TEMPLATE_UNUSABLE "TemplateUnusable" CLASS False Launches 60
        "There is a VM of that name, but it cannot be cloned. The message says why."
        ""
    CLONE_IMPOSSIBLE "CloneImpossible" CLASS False Launches 0
        "The template is there, but on no server can it be cloned as spec.template asks. The message says why."
        ""
    JOIN_FILE_MISSING "JoinFileMissing" CLASS False Launches 0
        "The file of join.guestExec cannot be read."
        "Mount the Secret with the script, or correct commandSecretFile."
    NO_AGENT "NoAgent" CLASS False Launches 0
        "The template has no guest agent, by which the join script is run."
        "Enable it, and install qemu-guest-agent in it."
    NO_CLOUD_INIT "NoCloudInit" SAID False Launches 0
        "The template has no cloud-init drive, so its machines get no name and no address."
        "Add the drive."
    NO_ROOM "NoRoom" POOL_OR_CLASS False Launches 0
        "No server has room for one machine of a size."
        "Make room, or offer a smaller size."
    STORAGE_FULL "StorageFull" POOL_OR_CLASS False Launches 0
        "The storages have too little space for one machine of a size."
        "`pvesm list STORAGE` on the server shows what fills it. Free some, or name another storage."
    NO_HYPERVISOR "NoHypervisor" POOL_OR_CLASS False Launches 0
        "No server can take a machine of any size. The message says why, by server."
        ""

    // ProxmoxCluster.
    KEY_UNUSABLE "OwnershipKeyUnusable" CLUSTER False All 0
        "The Secret with the ownership key is missing or was replaced."
        "Restore the Secret that the message names."
    UNREACHABLE "Unreachable" CLUSTER False All 60
        "No endpoint answers, or not as Proxmox does. The message has the error."
        "Look whether one of spec.endpoints answers from the Node of kproxide's pod: `curl --insecure ENDPOINT/api2/json/version` (401 is an answer)."
    CREDENTIALS_REFUSED "CredentialsRefused" CLUSTER False All 0
        "Proxmox refuses the credentials, or the Secret cannot be read."
        "`pveum user token list USER@REALM` on a Proxmox server shows whether the token is there and until when. Correct the Secret; kproxide picks it up."
    ENDPOINT_NOT_ALLOWED "EndpointNotAllowed" CLUSTER False All 0
        "The Secret with the credentials has a key endpoints, and an address of spec.endpoints, or a fingerprint of spec.tls, is not in it. kproxide sends the credentials nowhere."
        "Look who has changed the ProxmoxCluster. Correct it, or the key endpoints of the Secret."
    CERTIFICATE_UNTRUSTED "CertificateUntrusted" CLUSTER False All 0
        "The certificate of an endpoint is not the one that spec.tls names."
        "Compare it with `pvenode cert info` on that server, then correct spec.tls."
    NO_QUORUM "NoQuorum" CLUSTER False All 0
        "The Proxmox cluster has no quorum."
        "Start its servers, or mend the network between them: `pvecm status` on one of them shows which are missing."
    UNKNOWN_HYPERVISOR "UnknownHypervisor" CLUSTER False Launches 0
        "spec.hypervisors names a server that the Proxmox cluster does not have."
        "Correct the name."
    POOL_MISSING "PoolMissing" CLUSTER False Launches 0
        "The Proxmox pool of spec.pool is not there, or the credentials may not see it."
        "Create it, or correct the name."
    PRIVILEGES_MISSING "PrivilegesMissing" CLUSTER False All 0
        "The credentials lack a privilege that machines need. The message has the pveum command."
        ""
    STORAGE_MISSING "StorageMissing" CLUSTER False Launches 0
        "No server has the storage that a NodeClass names."
        "Correct template.storage, or make the storage."
    VMIDS_USED_UP "VmidsUsedUp" CLUSTER False Launches 0
        "Each VMID of spec.vmidRange is in use or rests."
        "Make the range larger, or wait until VMIDs have rested."
    VMIDS_REUSED "VmidsReused" CLUSTER True Nothing 0
        "Each VMID of spec.vmidRange is in use or rests. kproxide takes those again that have rested for an hour, and not for `--quarantine`."
        "Make the range larger."
    TOKEN_FITS "Fits" TOKEN True Nothing 0
        "The credentials may do what kproxide needs, and no more."
        ""
    TOKEN_OVER_PRIVILEGED "TokenOverPrivileged" TOKEN False Nothing 0
        "The credentials may do more than kproxide needs."
        "Give only the roles of examples/proxmox/setup.sh."
    NEW_CREDENTIALS_UNUSABLE "NewCredentialsUnusable" TOKEN False Nothing 0
        "kproxide cannot use what the Secret has now, and goes on with the credentials before. Correct the Secret before kproxide restarts."
        ""

    // Servers, machines and Nodes.
    SIZE_NOWHERE "SizeNowhere" SAID False Nothing 0
        "No server can take a machine of one of the sizes of a NodeClass. The others are made."
        "Make room, or offer a smaller size."
    NODE_DOUBTED "NodeDoubted" SAID True Nothing 60
        "One Node offers much less than a machine of its instance type has, or holds far fewer volumes, or its static pods ask for much, and no second Node of that type shows it. kproxide plans as if it were not so."
        "Look at the kubelet of that Node: its configuration differs, or somebody has changed it."
    HYPERVISOR_OFFLINE "HypervisorOffline" SERVER False Machine 0
        "Proxmox says that the server is offline. kproxide makes no machine there, and does nothing to those that are there."
        "Start the server. If it will not come back, examples/manual/stops.md says how its machines are replaced."
    HYPERVISOR_SILENT "HypervisorSilent" SERVER False Machine 60
        "Proxmox says that the server is online, but its daemons do not answer."
        "Restart pveproxy and pvedaemon on it."
    ORPHAN "Orphan" SAID False Nothing 0
        "A VM of kproxide's has no NodeClaim. The message says what becomes of it."
        ""
    MACHINE_UNKNOWN "MachineUnknown" SAID False Nothing 0
        "A VM carries a marker of kproxide and serves as a Node, but the Ledger does not know it, and the Node is younger than the Ledger. kproxide removed that machine and somebody restored it, or somebody copied the marker, or the Ledger is from a backup. kproxide leaves the VM alone."
        "If it is yours, type the line, and kproxide takes it over. If not, remove it."
    ANCHOR_MISSING "AnchorMissing" SAID False Nothing 0
        "The anchor VM of a Proxmox cluster is missing, so kproxide would not notice a copy of this Kubernetes cluster."
        ""
    ANCHOR_STUCK "AnchorStuck" SAID False Nothing 0
        "Proxmox does not let kproxide change its anchor VM, so a copy of this Kubernetes cluster could act."
        ""
    NODE_NOT_READY "NodeNotReady" CLAIM False Machine 0
        "Its Node is not Ready. kproxide replaces the machine after repairAfter."
        "Look at the kubelet there."
    ZONE_OUTDATED "ZoneOutdated" CLAIM True Nothing 0
        "Its VM has moved to another server, and the zone label of its Node still names the first one. The message says why kproxide leaves it."
        ""
    MACHINES_OUTDATED "MachinesOutdated" SAID False Nothing 0
        "Labels of a NodePool or the size of an instance type have changed, and machines that were made before stay as they are."
        "To make them anew, annotate their NodeClaims with kproxide.dev/replace=true."
    NODE_GONE "NodeGone" CLAIM False Machine 0
        "Its Node is gone. kproxide replaces the machine after repairAfter, unless the Node comes back."
        ""
    SERVER_OFFLINE "ServerOffline" CLAIM False Follows 0
        "The Proxmox server that its machine is on is offline. The message names it."
        ""
    NODE_SET_ASIDE "NodeSetAside" SAID False Machine 600
        "Somebody has cordoned the Node of a machine, or it has a taint that its NodePool does not name, so new pods do not go there. It counts in maxNodes."
        ""
    NODE_UUID_COPIED "NodeUUIDCopied" SAID False Nothing 0
        "A Node shows the UUID of a machine whose Node it is not. kproxide does nothing with it. Either somebody copied a machine, or root on one machine tries to pass for another."
        ""
    STUCK_LOCKED "StuckLocked" OF_CLAIM True Machine 0
        "The VM of a machine is locked, and nothing of kproxide's works on it. The message says what to do."
        ""
    OWNERSHIP_MISMATCH "OwnershipMismatch" OF_CLAIM True Machine 0
        "The VM with the VMID of a machine is not proven to be kproxide's, so kproxide does nothing to it. The message says what to do."
        ""
    PROTECTED_VM "ProtectedVM" OF_CLAIM True Machine 0
        "The VM of a machine is protected in Proxmox, so it cannot be destroyed."
        "Take its protection off if it may go."
    NOT_PROVEN_OFF "NotProvenOff" OF_CLAIM True Machine 0
        "Nobody knows whether the VM of a dead Node still runs, so its pods are not ended. The message says what to do."
        ""
    STALLED "Stalled" OF_CLAIM True Machine 0
        "A removal waits for longer than 60 s. The message says for what, and the condition since when."
        ""
    WAITS "Waits" SAID False Machine 0
        "Something keeps a NodeClaim from going on for longer than 60 s. The message says what, and since when stands beside it."
        ""
    LAUNCHES_PAUSED "LaunchesPaused" SAID False Launches 0
        "No pod used the last machines of the NodePool, so it makes none for a while. The message says until when."
        ""
    REMOVALS_WAIT "RemovalsWait" SAID False Removals 0
        "Many machines were removed in a short time, so the removals of the NodePool wait. The message says until when."
        ""

    // What only doctor looks for.

    // Kubernetes.
    NOT_LISTED "NotListed" SAID False Nothing 0
        "Kubernetes does not list objects that doctor has to see."
        "Ask as somebody who may read them, or in the pod."
    DEFINITION_MISSING "DefinitionMissing" DOCTOR False All 0
        "A CustomResourceDefinition of kproxide is missing or is being deleted."
        "Apply it: kproxide crds | kubectl apply -f -"
    DEFINITION_OLD "DefinitionOld" DOCTOR False Launches 0
        "A CustomResourceDefinition lacks a field that this kproxide knows."
        "Apply it: kproxide crds | kubectl apply -f -"
    NOT_INSTALLED "NotInstalled" DOCTOR False All 0
        "There is no Deployment of the controller."
        "Install the chart, or give --namespace and --name."
    RIGHT_MISSING "RightMissing" DOCTOR False All 0
        "The controller may not do what it needs in Kubernetes."
        "Install the ClusterRole and Role of the chart again."
    SECRET_MISSING "SecretMissing" DOCTOR False All 0
        "A Secret or ConfigMap that the controller mounts is missing, or a key in it."
        "Make it with that key."
    POD_UNSCHEDULABLE "PodUnschedulable" DOCTOR False All 0
        "No Node takes the controller's pod."
        "Without allowManagedNodes the pod runs only on Nodes that kproxide did not make. Make room on one of these, or change nodeSelector, affinity or tolerations in the chart's values."
    CLOCK_OFF "ClockOff" SAID False Removals 0
        "The clock here and that of the API server differ, so kproxide would remove nothing."
        "Set the clock by NTP."
    WATCH_FAILS "WatchFails" SAID False Removals 60
        "A watch of the API server fails, so kproxide does not know which pods are on a Node and which may leave."
        "kproxide tries again by itself. Its log has the error, and doctor says which kind of objects cannot be listed, and why."
    NO_LEADER "NoLeader" SAID False All 30
        "No replica of kproxide leads, so nothing is done."
        "`kubectl get pods --all-namespaces` shows whether its pod runs."
    OTHER "Other" SAID False Nothing 0
        "The controller is of another version, and says something for which this command has no word. The message begins with its reason."
        "Use the command of the controller's version."
    LEADER_SILENT "LeaderSilent" SAID False Nothing 0
        "The replica that leads does not answer `kproxide status` and `explain`."
        "Look at its pod, or give --admin an address."
    NO_POOL "NoPool" DOCTOR False Launches 0
        "There is no NodePool, so kproxide makes no machine."
        "Give nodePools in the values of the chart, or apply one."

    // Proxmox.
    ENDPOINT_DOWN "EndpointDown" DOCTOR False Nothing 0
        "One address of spec.endpoints does not answer as it must."
        "Correct or mend it; kproxide uses the others meanwhile."
    ANY_ENDPOINT "AnyEndpoint" DOCTOR False Nothing 0
        "The Secret with the credentials has no key endpoints, so they go to each server that a ProxmoxCluster names."
        "Add the key to the Secret: one address of spec.endpoints on each line."
    NAME_UNKNOWN "NameUnknown" DOCTOR False Nothing 0
        "DNS does not know the host of an endpoint."
        "Correct spec.endpoints, or use an address, or set hostAliases."
    PROXMOX_CLOCK "ProxmoxClockOff" DOCTOR False Nothing 0
        "The clock of a Proxmox server is more than 30 s off the clock here, and its machines start with it."
        "Set both by NTP: `chronyc tracking` shows on the server whether it does."
    VERSION_OLD "VersionOld" DOCTOR False All 0
        "Proxmox VE is older than 8."
        "Upgrade it."
    NOT_EVERYWHERE "NotEverywhere" SAID False Nothing 0
        "The template cannot be cloned on a server that machines may be on."
        "Mend it there, or exclude the server."
    NOT_EMPTIED "NotEmptied" SAID False Nothing 300
        "A server is to be emptied (spec.hypervisors.drain, or onMaintenance: replace), and machines there stay. The message names them, with the reason of their condition Removable."
        "Make room on other servers, or remove what holds the machine: `kproxide explain claim` says it."
    DISK_LARGER "DiskLarger" SAID False Nothing 0
        "The template's disk is larger than an instance type asks, so machines get the larger one."
        "Set diskGiB higher."
    BRIDGE_MISSING "BridgeMissing" DOCTOR False Launches 0
        "A server lacks the bridge of the template, so its machines do not start."
        "Make the bridge, or exclude the server."
    VMIDS_TAKEN "VmidsTaken" SAID False Nothing 0
        "VMs that are not kproxide's have numbers of spec.vmidRange."
        "Move those VMs to other numbers, or use a range of which nobody takes numbers. It must hold the numbers of your machines as long as they are there."
    ADDRESSES_FEW "AddressesFew" SAID False Nothing 0
        "The ipPool of a NodeClass has fewer free addresses than the number of machines that its NodePools may still make."
        "Add a range, or set limits.maxNodes lower. Addresses of removed machines are free again after `--quarantine`."
    POOL_SHARED "PoolShared" SAID False Nothing 0
        "The Proxmox pool has VMs that are not in this cluster's books."
        "Give each Kubernetes cluster a pool of its own."

    // Joining.
    JOIN_PLACEHOLDER "JoinPlaceholder" DOCTOR False Launches 0
        "The join script still has a placeholder."
        "Edit the script, and make the Secret again."
    JOIN_TAINT "JoinTaintMissing" DOCTOR False Launches 0
        "The join script does not register the Node with the taint that keeps pods away until kproxide knows it."
        "Add --node-taint kproxide.dev/unregistered=:NoExecute (k3s, RKE2; of a kubelet --register-with-taints)."
    JOIN_SYNTAX "JoinSyntax" DOCTOR False Launches 0
        "The shell cannot read the join script."
        "Correct it, and make the Secret again."
    JOIN_SERVER "JoinServerSilent" DOCTOR False Launches 0
        "The server that the join script names does not answer."
        "Correct its address, or open the port."
    JOIN_VERSION "JoinVersionNewer" DOCTOR False Launches 0
        "The join script installs a Kubernetes that is newer than the API server."
        "Install that of the server."
    JOIN_AUTHORITY "JoinTokenForeign" DOCTOR False Launches 0
        "The token of the join script belongs to another cluster than its server."
        "Copy the token from that server."
    JOIN_TOKEN "JoinTokenExpired" DOCTOR False Launches 0
        "The bootstrap token of the join script is unknown or has expired."
        "Make one that does not expire, and write it into the script: with `kproxide init --force`, or in its Secret."
    JOIN_TOKEN_EXPIRES "JoinTokenExpires" DOCTOR False Nothing 0
        "The bootstrap token of the join script works now, and will expire."
        "Make one that does not expire, and write it into the script: with `kproxide init --force`, or in its Secret."

    // Nodes.
    MACHINE_ID_TWICE "MachineIdTwice" DOCTOR False Nothing 0
        "Two Nodes have one machine ID: their template was not cleaned."
        "Empty /etc/machine-id in the template."
    NODE_WITHOUT_CLAIM "NodeWithoutClaim" SAID False Nothing 0
        "A Node looks like a machine of kproxide, and no NodeClaim has it."
        "Delete the Node if its machine is gone."
    CSI_DRIVER_MISSING "CsiDriverMissing" DOCTOR False Nothing 0
        "spec.csi of a NodeClass names a driver that the cluster does not have."
        "Correct the name, or install the driver."
    CSI_NODE_MISSING "CsiNodeMissing" DOCTOR False Nothing 0
        "On no Node of a NodeClass runs the CSI driver that its spec.csi names."
        "Look at the driver's DaemonSet."
    LEFT_OVER "LeftOver" DOCTOR False Nothing 0
        "Helm made the object, and its values no longer have it."
        "Delete it if you want its machines gone."
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kproxide_planner::claim::READY_REASONS;
    use kproxide_planner::reasons::kept::REMOVABLE_REASONS;

    use super::*;

    fn root(path: &str) -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
    }

    #[test]
    fn every_reason_is_a_word_of_its_own() {
        let words: BTreeSet<&str> = LISTED.iter().map(|it| it.word).collect();
        assert_eq!(words.len(), LISTED.len());
        for Reason { word, means, .. } in LISTED {
            assert!(word.chars().all(|it| it.is_ascii_alphabetic()), "{word}");
            assert!(word.starts_with(char::is_uppercase), "{word}");
            assert!(means.ends_with('.'), "{word}: {means}");
        }
    }

    /// With `KPROXIDE_UPDATE=1` the list is written anew.
    #[test]
    fn the_list_for_people_is_this_one() {
        let mut table = String::from(
            "| reason | where | stops | what it says, and what to do |\n|---|---|---|---|\n",
        );
        for Reason {
            word,
            of,
            status: _,
            stops,
            after,
            means,
            remedy,
        } in LISTED
        {
            let stops = match stops {
                Stops::All => "launches, removals",
                Stops::Launches => "launches",
                Stops::Removals => "removals",
                Stops::Machine => "one machine",
                Stops::Nothing | Stops::Follows => "",
            };
            let waits = match after {
                0 => String::new(),
                after => format!(" kproxide says so after {after} s."),
            };
            let texts = [means, remedy].into_iter().filter(|it| !it.is_empty());
            let texts = texts.copied().collect::<Vec<_>>().join(" ");
            table += &format!("| `{word}` | {} | {stops} | {texts}{waits} |\n", of.text);
        }
        let own = |(word, _): &&(&str, &str)| of(word).is_none();
        for (word, means) in READY_REASONS.iter().filter(own) {
            table += &format!("| `{word}` | Ready of NodeClaim | | {means} |\n");
        }
        for (word, means) in REMOVABLE_REASONS {
            table += &format!("| `{word}` | Removable of NodeClaim | | {means} |\n");
        }
        let path = root("../../charts/kproxide/CONDITIONS.md");
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
