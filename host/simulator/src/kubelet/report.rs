//! What a kubelet says of its node and its pods.

use serde_json::{Value, json};

use super::node::NodeTask;
use crate::kube::object::time;

impl NodeTask {
    pub(super) fn status(&self) -> Value {
        let spec = &self.spec;
        let mut capacity = json!({
            "cpu": format!("{}m", spec.cpu_milli),
            "memory": format!("{}Mi", spec.memory_mib),
            "pods": spec.max_pods.to_string(),
            "ephemeral-storage": "20Gi",
        });
        let devices = spec.extended_resources.iter();
        for (name, amount) in devices.filter(|_| self.shows_devices) {
            capacity[name] = json!(amount);
        }
        let mut allocatable = capacity.clone();
        allocatable["cpu"] = json!(format!(
            "{}m",
            spec.cpu_milli.saturating_sub(spec.reserved_cpu_milli)
        ));
        allocatable["memory"] = json!(format!(
            "{}Mi",
            spec.memory_mib.saturating_sub(spec.reserved_memory_mib)
        ));
        json!({
            "capacity": capacity,
            "allocatable": allocatable,
            "addresses": [
                {"type": "InternalIP", "address": self.address()},
                {"type": "Hostname", "address": spec.name},
            ],
            "nodeInfo": {
                "systemUUID": spec.system_uuid.to_lowercase(),
                "machineID": spec.system_uuid.replace('-', "").to_lowercase(),
                "bootID": "",
                "kernelVersion": "6.12.0",
                "osImage": "Debian GNU/Linux 13 (trixie)",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "conditions": self.conditions(),
        })
    }

    fn address(&self) -> String {
        let made = || {
            let bytes = self.spec.name.bytes().fold(0_u32, |sum, byte| {
                sum.wrapping_mul(31).wrapping_add(u32::from(byte))
            });
            format!("10.0.{}.{}", (bytes >> 8) & 0xff, bytes & 0xff)
        };
        self.spec.address.clone().unwrap_or_else(made)
    }

    pub(super) fn conditions(&self) -> Value {
        let now = time(self.clock.now());
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": self.ready_since,
            })
        };
        let (status, reason, message) = match self.ready {
            true => ("True", "KubeletReady", "kubelet is posting ready status"),
            false => (
                "False",
                "KubeletNotReady",
                "container runtime network not ready: cni plugin not initialized",
            ),
        };
        json!([
            condition(
                "MemoryPressure",
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available"
            ),
            condition(
                "DiskPressure",
                "False",
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure"
            ),
            condition(
                "PIDPressure",
                "False",
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available"
            ),
            condition("Ready", status, reason, message),
        ])
    }

    pub(super) fn running(&self, uid: &str, containers: &[String]) -> Value {
        let now = time(self.clock.now());
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let statuses: Vec<Value> = containers
            .iter()
            .map(|name| {
                json!({
                    "name": name, "ready": true, "started": true, "restartCount": 0, "image": "", "imageID": "",
                    "state": {"running": {"startedAt": now}},
                })
            })
            .collect();
        let conditions = [
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
        ]
        .map(condition);
        json!({
            "phase": "Running",
            "hostIP": self.address(),
            "podIP": pod_address(uid),
            "podIPs": [{"ip": pod_address(uid)}],
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": statuses,
        })
    }

    pub(super) fn finished(&self, containers: &[String]) -> Value {
        let now = time(self.clock.now());
        let condition = |kind: &str| json!({"type": kind, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now});
        let statuses: Vec<Value> = containers
            .iter()
            .map(|name| {
                json!({
                    "name": name, "ready": false, "started": false, "restartCount": 0, "image": "", "imageID": "",
                    "state": {"running": null, "terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}},
                })
            })
            .collect();
        let conditions = ["Ready", "ContainersReady"].map(condition);
        json!({
            "phase": "Succeeded",
            "conditions": conditions,
            "containerStatuses": statuses,
        })
    }
}

/// An address in k3s's pod network, made from the UID.
fn pod_address(uid: &str) -> String {
    let digits: String = uid
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(4)
        .collect();
    let number = u16::from_str_radix(&digits, 16).unwrap_or(0);
    format!("10.42.{}.{}", number >> 8, number & 0xff)
}
