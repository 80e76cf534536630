//! Keys of labels, taints, annotations and finalizers: kproxide's own, and those of others that kproxide reads or writes.

/// The API group of kproxide's kinds, and the prefix of its keys.
pub const GROUP: &str = "kproxide.dev";

/// The finalizer of a NodeClaim: it stays until the absence of the machine is proven.
pub const FINALIZER: &str = "kproxide.dev/machine";

/// The finalizer of a NodePool, NodeClass or ProxmoxCluster: it stays while a machine needs the object.
pub const IN_USE: &str = "kproxide.dev/in-use";

// Labels of Nodes (and the first two of NodeClaims) that say what the machine was made for.
pub const POOL: &str = "kproxide.dev/pool";
pub const CLASS: &str = "kproxide.dev/class";
pub const TEMPLATE: &str = "kproxide.dev/template";
pub const CLAIM: &str = "kproxide.dev/claim";
/// Labels of Nodes by which a pod chooses a size: a name for sizes of one kind, the number of cores, and memory in MiB.
pub const INSTANCE_FAMILY: &str = "kproxide.dev/instance-family";
pub const INSTANCE_CPU: &str = "kproxide.dev/instance-cpu";
pub const INSTANCE_MEMORY: &str = "kproxide.dev/instance-memory";

/// The taint that a kubelet registers with and that is removed once its Node is labelled (effect `NoExecute`).
pub const UNREGISTERED_TAINT: &str = "kproxide.dev/unregistered";
/// The taint of a Node that is being emptied (effect `NoSchedule`).
pub const DRAINING_TAINT: &str = "kproxide.dev/draining";
/// The taint of a Node that is to go next, unless pods come (effect `PreferNoSchedule`).
pub const UNNEEDED_TAINT: &str = "kproxide.dev/unneeded";
/// Annotation of a Node that kproxide cordoned. When kproxide gives a drain up, it uncordons only these Nodes.
pub const CORDONED_BY_US: &str = "kproxide.dev/cordoned";
/// Annotation of Events and NodeClaims: the id of the decision ([`crate::plan::decision`]).
pub const DECISION: &str = "kproxide.dev/decision";
/// Kubernetes' label of a Node that load balancers outside of the cluster must send no connections to. Its value means
/// nothing to Kubernetes; kproxide writes [`EXCLUDED_BY_US`], and takes the label off only with that value.
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str =
    "node.kubernetes.io/exclude-from-external-load-balancers";
pub const EXCLUDED_BY_US: &str = "kproxide";

/// Annotation with the value `"true"` on a pod, a Node or a claim: kproxide does not remove the Node by a voluntary
/// removal.
pub const DO_NOT_DISRUPT: &str = "kproxide.dev/do-not-disrupt";
/// Annotation of a NodeClaim: its machine may be removed although a PersistentVolume can be reached only from its Node.
pub const DISCARD_LOCAL_VOLUMES: &str = "kproxide.dev/discard-local-volumes";
/// Annotation of a ProxmoxCluster: these hypervisors, separated by commas, are off, says a person. kproxide takes a name out
/// once that hypervisor answers.
pub const HYPERVISOR_OFF: &str = "kproxide.dev/hypervisor-off";
/// Kubernetes' taint of a Node that nothing runs on any more: its pods end and its volumes are detached without its kubelet.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";
/// Annotation of a NodeClaim: its machine is replaced as soon as budget allows.
pub const REPLACE: &str = "kproxide.dev/replace";
/// Annotation. On a NodeClaim: kproxide leaves it exactly as it is, even in the middle of a removal. On a NodePool: as
/// `spec.paused`.
pub const PAUSE: &str = "kproxide.dev/pause";
/// Annotation of a NodePool: with a new value kproxide makes machines again that no pod used before.
pub const RETRY: &str = "kproxide.dev/retry";
/// Annotation of a NodePool: if it is deleted, its machines stay.
pub const KEEP_MACHINES: &str = "kproxide.dev/keep-machines";
/// Annotation of a NodeClass: with a new value kproxide forgets what the class's Nodes have shown.
pub const FORGET_LEARNED: &str = "kproxide.dev/forget-learned";
/// Annotation of the Ledger by which a person says that a freeze is meant.
pub const ACKNOWLEDGE_REMOVAL: &str = "kproxide.dev/acknowledge-removal";
/// Annotation of the Ledger by which a person lets kproxide take over a VM with a marker of ours that the Ledger does not
/// know. Several markers, separated by commas.
pub const ACKNOWLEDGE_ORPHAN: &str = "kproxide.dev/acknowledge-orphan";
/// Annotation of the Ledger by which a person takes what an anchor shows for ours.
pub const ACKNOWLEDGE_ANCHOR: &str = "kproxide.dev/acknowledge-anchor";

/// Cluster Autoscaler's annotation of a pod. `"false"`: it keeps its Node. `"true"`: none of a pool's `blockedBy` holds
/// for it.
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// Cluster Autoscaler's annotation of a pod: these volumes of its Node, separated by commas, do not keep it there.
pub const SAFE_TO_EVICT_LOCAL_VOLUMES: &str =
    "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
/// Cluster Autoscaler's annotation of a Node: kproxide does not remove it because it is not needed.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// Karpenter's annotation of a pod or a Node, which kproxide reads as its own of that name. With a duration it ends that
/// long after the start of the pod or the Node.
pub const KARPENTER_DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// The kubelet sets this annotation on the API's copy of a static pod.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// Stands in the Ledger in the place of a workload, for machines that minNodes or headroom asked for.
pub const OF_POOL: &str = "NodePool";

/// The scheduler of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

// Kubernetes' labels of Nodes.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const ARCH: &str = "kubernetes.io/arch";
pub const OS: &str = "kubernetes.io/os";
/// Old names under which kubelets still write architecture and operating system.
pub const BETA_ARCH: &str = "beta.kubernetes.io/arch";
pub const BETA_OS: &str = "beta.kubernetes.io/os";
pub const REGION: &str = "topology.kubernetes.io/region";
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Proxmox's CSI driver, and the Node's label that says how many of its volumes the Node holds.
pub const PROXMOX_CSI: &str = "csi.proxmox.sinextra.dev";
pub const PROXMOX_CSI_LIMIT: &str = "csi.proxmox.sinextra.dev/max-volume-attachments";
/// Of PersistentVolumeClaims: the claim is bound, the scheduler's choice, and the class as very old objects have it.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Of PersistentVolumes: the provisioner that has made it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Label of each Namespace: its name.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Their names until Kubernetes 1.17. Old PersistentVolumes still have them.
pub const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
pub const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
/// Label of the pods of a DaemonSet: the revision of its template.
pub const REVISION: &str = "controller-revision-hash";
/// Label of the pods of a ReplicaSet that a Deployment made.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// Labels of which a NodePool can require values: kproxide knows them before a machine is made.
pub const REQUIRABLE: [&str; 8] = [
    ARCH,
    OS,
    REGION,
    ZONE,
    INSTANCE_TYPE,
    INSTANCE_FAMILY,
    INSTANCE_CPU,
    INSTANCE_MEMORY,
];
/// Roles that make a Node a control plane: kubeadm's and k3s's, and RKE's, which splits it.
pub const CONTROL_PLANE_ROLES: [&str; 4] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/controlplane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/etcd",
];

// Kubernetes' taints of Nodes.
/// A cloud controller manager will initialize the Node, provider ID included.
pub const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The Node is cordoned.
pub const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";
pub const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
pub const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";
pub const NETWORK_UNAVAILABLE_TAINT: &str = "node.kubernetes.io/network-unavailable";
pub const DISK_PRESSURE_TAINT: &str = "node.kubernetes.io/disk-pressure";
pub const MEMORY_PRESSURE_TAINT: &str = "node.kubernetes.io/memory-pressure";
pub const PID_PRESSURE_TAINT: &str = "node.kubernetes.io/pid-pressure";

/// Why neither an operator nor a policy may set this label or taint.
pub fn reserved(key: &str) -> Option<&'static str> {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let is_ours = prefix == GROUP || prefix.ends_with(".kproxide.dev");
    match key {
        _ if is_ours => Some("kproxide.dev is kproxide's own"),
        HOSTNAME => Some("it is the Node's identity"),
        _ if CONTROL_PLANE_ROLES.contains(&key) => Some("kproxide makes no control planes"),
        _ => None,
    }
}
