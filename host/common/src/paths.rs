//! Where files stand in the pod, as the chart mounts them.

/// A folder for each ProxmoxCluster, with the credentials of Proxmox.
pub const CREDENTIALS: &str = "/etc/kproxide/credentials";
/// The scripts with which machines join.
pub const JOIN: &str = "/etc/kproxide/join";
/// Policies, from ConfigMaps.
pub const POLICIES: &str = "/etc/kproxide/policies";
/// Certificates of the authorities that Proxmox's own are signed by.
pub const AUTHORITIES: &str = "/etc/kproxide/ca";
