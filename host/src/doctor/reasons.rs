//! Reasons that only doctor gives. The others are those of the conditions ([`crate::reporter::reasons`]), with which
//! `charts/kproxide/CONDITIONS.md` lists them.

use crate::reporter::reasons::{Reason, lasting};

const fn reason(word: &'static str, means: &'static str) -> Reason {
    lasting(word, "doctor", means)
}

// Kubernetes.
pub(crate) const NOT_LISTED: Reason = reason(
    "NotListed",
    "Kubernetes does not list objects that doctor has to see. Ask as somebody who may read them, or in the pod.",
);
pub(super) const DEFINITION_MISSING: Reason = reason(
    "DefinitionMissing",
    "A CustomResourceDefinition of kproxide is missing or is being deleted. Apply it: kproxide crds | kubectl apply -f -",
);
pub(super) const DEFINITION_OLD: Reason = reason(
    "DefinitionOld",
    "A CustomResourceDefinition lacks a field that this kproxide knows. Apply it: kproxide crds | kubectl apply -f -",
);
pub(super) const NOT_INSTALLED: Reason = reason(
    "NotInstalled",
    "There is no Deployment of the controller. Install the chart, or give --namespace and --name.",
);
pub(super) const RIGHT_MISSING: Reason = reason(
    "RightMissing",
    "The controller may not do what it needs in Kubernetes. Install the ClusterRole and Role of the chart again.",
);
pub(super) const SECRET_MISSING: Reason = reason(
    "SecretMissing",
    "A Secret or ConfigMap that the controller mounts is missing, or a key in it. Make it with that key.",
);
pub(super) const POD_UNSCHEDULABLE: Reason = reason(
    "PodUnschedulable",
    "No Node takes the controller's pod. Without allowManagedNodes the pod runs only on Nodes that kproxide did not make. Make room on one of these, or change nodeSelector, affinity or tolerations in the chart's values.",
);
pub(super) const CLOCK_OFF: Reason = reason(
    "ClockOff",
    "The clock here and that of the API server differ, so kproxide would remove nothing. Set the clock by NTP.",
);

pub(crate) const NO_LEADER: Reason = reason(
    "NoLeader",
    "No replica of kproxide leads, so nothing is done. `kubectl get pods --all-namespaces` shows whether its pod runs.",
);
pub(crate) const LEADER_SILENT: Reason = reason(
    "LeaderSilent",
    "The replica that leads does not answer `kproxide status` and `explain`. Look at its pod, or give --admin an address.",
);
pub(super) const NO_POOL: Reason = reason(
    "NoPool",
    "There is no NodePool, so kproxide makes no machine. Give nodePools in the values of the chart, or apply one.",
);

// Proxmox.
pub(super) const ENDPOINT_DOWN: Reason = reason(
    "EndpointDown",
    "One address of spec.endpoints does not answer as it must. Correct or mend it; kproxide uses the others meanwhile.",
);
pub(super) const NAME_UNKNOWN: Reason = reason(
    "NameUnknown",
    "DNS does not know the host of an endpoint. Correct spec.endpoints, or use an address, or set hostAliases.",
);
pub(super) const PROXMOX_CLOCK: Reason = reason(
    "ProxmoxClockOff",
    "The clock of a Proxmox server is more than 30 s off the clock here, and its machines start with it. Set both by NTP: `chronyc tracking` shows on the server whether it does.",
);
pub(super) const VERSION_OLD: Reason =
    reason("VersionOld", "Proxmox VE is older than 8. Upgrade it.");
pub(super) const NOT_EVERYWHERE: Reason = reason(
    "NotEverywhere",
    "The template cannot be cloned on a server that machines may be on. Mend it there, or exclude the server.",
);
pub(super) const NO_AGENT: Reason = reason(
    "NoAgent",
    "The template has no guest agent, by which the join script is run. Enable it, and install qemu-guest-agent in it.",
);
pub(super) const NO_CLOUD_INIT: Reason = reason(
    "NoCloudInit",
    "The template has no cloud-init drive, so its machines get no name and no address. Add the drive.",
);
pub(super) const DISK_LARGER: Reason = reason(
    "DiskLarger",
    "The template's disk is larger than an instance type asks, so machines get the larger one. Set diskGiB higher.",
);
pub(super) const BRIDGE_MISSING: Reason = reason(
    "BridgeMissing",
    "A server lacks the bridge of the template, so its machines do not start. Make the bridge, or exclude the server.",
);
pub(super) const NO_ROOM: Reason = reason(
    "NoRoom",
    "No server has room for one machine of a size. Make room, or offer a smaller size.",
);
pub(super) const STORAGE_FULL: Reason = reason(
    "StorageFull",
    "The storages have too little space for one machine of a size. Free some, or name another storage.",
);
pub(super) const VMIDS_TAKEN: Reason = reason(
    "VmidsTaken",
    "VMs that are not kproxide's have numbers of spec.vmidRange. Use a range of which nobody takes numbers.",
);

pub(super) const ADDRESSES_FEW: Reason = reason(
    "AddressesFew",
    "The ipPool of a NodeClass has fewer free addresses than the number of machines that its NodePools may still make. Add a range, or set limits.maxNodes lower. Addresses of removed machines are free again after `--quarantine`.",
);

pub(super) const POOL_SHARED: Reason = reason(
    "PoolShared",
    "The Proxmox pool has VMs that are not in this cluster's books. Give each Kubernetes cluster a pool of its own.",
);

// Joining.
pub(super) const JOIN_PLACEHOLDER: Reason = reason(
    "JoinPlaceholder",
    "The join script still has a placeholder. Edit the script, and make the Secret again.",
);
pub(super) const JOIN_TAINT: Reason = reason(
    "JoinTaintMissing",
    "The join script does not register the Node with the taint that keeps pods away until kproxide knows it. Add --node-taint kproxide.dev/unregistered=:NoExecute (k3s, RKE2; of a kubelet --register-with-taints).",
);
pub(super) const JOIN_SYNTAX: Reason = reason(
    "JoinSyntax",
    "The shell cannot read the join script. Correct it, and make the Secret again.",
);
pub(super) const JOIN_SERVER: Reason = reason(
    "JoinServerSilent",
    "The server that the join script names does not answer. Correct its address, or open the port.",
);
pub(super) const JOIN_VERSION: Reason = reason(
    "JoinVersionNewer",
    "The join script installs a Kubernetes that is newer than the API server. Install that of the server.",
);
pub(super) const JOIN_AUTHORITY: Reason = reason(
    "JoinTokenForeign",
    "The token of the join script belongs to another cluster than its server. Copy the token from that server.",
);
pub(super) const JOIN_TOKEN: Reason = reason(
    "JoinTokenExpired",
    "The bootstrap token of the join script is unknown or has expired. Make one that does not expire, and write it into the script: with `kproxide init --force`, or in its Secret.",
);
pub(super) const JOIN_TOKEN_EXPIRES: Reason = reason(
    "JoinTokenExpires",
    "The bootstrap token of the join script works now, and will expire. Make one that does not expire, and write it into the script: with `kproxide init --force`, or in its Secret.",
);

// Nodes.
pub(super) const MACHINE_ID_TWICE: Reason = reason(
    "MachineIdTwice",
    "Two Nodes have one machine ID: their template was not cleaned. Empty /etc/machine-id in the template.",
);
pub(super) const NODE_WITHOUT_CLAIM: Reason = reason(
    "NodeWithoutClaim",
    "A Node looks like a machine of kproxide, and no NodeClaim has it. Delete the Node if its machine is gone.",
);
pub(super) const CSI_DRIVER_MISSING: Reason = reason(
    "CsiDriverMissing",
    "spec.csi of a NodeClass names a driver that the cluster does not have. Correct the name, or install the driver.",
);

pub(super) const CSI_NODE_MISSING: Reason = reason(
    "CsiNodeMissing",
    "On no Node of a NodeClass runs the CSI driver that its spec.csi names. Look at the driver's DaemonSet.",
);
pub(super) const LEFT_OVER: Reason = reason(
    "LeftOver",
    "Helm made the object, and its values no longer have it. Delete it if you want its machines gone.",
);

/// In the order of the list for people.
#[cfg(test)]
pub(crate) const LISTED: [&Reason; 38] = [
    &NOT_LISTED,
    &DEFINITION_MISSING,
    &DEFINITION_OLD,
    &NOT_INSTALLED,
    &RIGHT_MISSING,
    &SECRET_MISSING,
    &POD_UNSCHEDULABLE,
    &CLOCK_OFF,
    &NO_LEADER,
    &LEADER_SILENT,
    &NO_POOL,
    &ENDPOINT_DOWN,
    &NAME_UNKNOWN,
    &PROXMOX_CLOCK,
    &VERSION_OLD,
    &NOT_EVERYWHERE,
    &NO_AGENT,
    &NO_CLOUD_INIT,
    &DISK_LARGER,
    &BRIDGE_MISSING,
    &NO_ROOM,
    &STORAGE_FULL,
    &VMIDS_TAKEN,
    &ADDRESSES_FEW,
    &POOL_SHARED,
    &JOIN_PLACEHOLDER,
    &JOIN_TAINT,
    &JOIN_SYNTAX,
    &JOIN_SERVER,
    &JOIN_VERSION,
    &JOIN_AUTHORITY,
    &JOIN_TOKEN,
    &JOIN_TOKEN_EXPIRES,
    &MACHINE_ID_TWICE,
    &NODE_WITHOUT_CLAIM,
    &CSI_DRIVER_MISSING,
    &CSI_NODE_MISSING,
    &LEFT_OVER,
];
