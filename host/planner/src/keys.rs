//! Keys of labels and annotations that more than one place must know alike.

/// Roles that make a Node a control plane: kubeadm's and k3s's, and RKE's, which splits it.
pub const CONTROL_PLANE_ROLES: [&str; 4] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/controlplane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/etcd",
];

/// With the value `"true"` on a pod, a Node or a claim: nothing that nobody needs is done to its Node.
pub const DO_NOT_DISRUPT: &str = "kproxide.dev/do-not-disrupt";
