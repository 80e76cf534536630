//! What a caller must be allowed to do before a method looks at its parameters.

use super::answer::Refusal;
use super::create::may_create;
use super::routes::Endpoint;
use super::serve::Call;
use super::state::State;
use super::topology::Version;

/// One of these lets somebody change a configuration at all; each key then needs its own.
const CONFIG_PRIVILEGES: [&str; 8] = [
    "VM.Config.Disk",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.HWType",
    "VM.Config.Options",
    "VM.Config.Cloudinit",
];

/// Refuses a call whose caller lacks the method's privilege. Methods that filter their answer instead are let through.
pub(crate) fn check(state: &State, call: &Call, endpoint: Endpoint) -> Result<(), Refusal> {
    let vm = format!("/vms/{}", call.var("vmid"));
    let require = |path: &str, privilege: &str| state.require(&call.who, path, privilege);
    let agent = |v9: &[&str]| match state.version {
        Version::V8 => require(&vm, "VM.Monitor"),
        Version::V9 => state.require_any(&call.who, &vm, v9),
    };
    match endpoint {
        Endpoint::Version
        | Endpoint::Permissions
        | Endpoint::Ticket
        | Endpoint::Resources
        | Endpoint::NextId
        | Endpoint::ClusterTasks
        | Endpoint::Nodes
        | Endpoint::NodeVersion
        | Endpoint::NodeNetwork
        | Endpoint::StorageList
        | Endpoint::VolumeDelete
        | Endpoint::QemuList
        | Endpoint::TaskList
        | Endpoint::TaskStatus
        | Endpoint::TaskLog
        | Endpoint::TaskStop
        | Endpoint::PoolList => Ok(()),
        Endpoint::ClusterStatus | Endpoint::HaResources | Endpoint::NodeConfig => {
            require("/", "Sys.Audit")
        }
        Endpoint::NodeStatus => require(&format!("/nodes/{}", call.node), "Sys.Audit"),
        Endpoint::StorageContent => {
            let path = format!("/storage/{}", call.var("storage"));
            state.require_any(
                &call.who,
                &path,
                &["Datastore.Audit", "Datastore.AllocateSpace"],
            )
        }
        Endpoint::Create => may_create(state, call),
        Endpoint::Clone => may_clone(state, call, &vm),
        Endpoint::ConfigGet | Endpoint::Pending | Endpoint::Current => require(&vm, "VM.Audit"),
        Endpoint::ConfigPut | Endpoint::ConfigPost => {
            state.require_any(&call.who, &vm, &CONFIG_PRIVILEGES)
        }
        Endpoint::CloudinitPut => require(&vm, "VM.Config.Cloudinit"),
        Endpoint::Resize => require(&vm, "VM.Config.Disk"),
        Endpoint::Template | Endpoint::Destroy => require(&vm, "VM.Allocate"),
        Endpoint::Start | Endpoint::Stop | Endpoint::Shutdown | Endpoint::Reset => {
            require(&vm, "VM.PowerMgmt")
        }
        Endpoint::AgentPing | Endpoint::AgentHostName | Endpoint::AgentInterfaces => {
            agent(&["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"])
        }
        Endpoint::AgentExec | Endpoint::AgentExecStatus => agent(&["VM.GuestAgent.Unrestricted"]),
        Endpoint::AgentFileWrite => {
            agent(&["VM.GuestAgent.FileWrite", "VM.GuestAgent.Unrestricted"])
        }
        Endpoint::PoolUpdate => {
            let path = format!("/pool/{}", call.params.get("poolid").unwrap_or_default());
            require(&path, "Pool.Allocate")
        }
    }
}

/// The right to clone the source, and the right to make a machine either with the new VMID or in the pool.
fn may_clone(state: &State, call: &Call, source: &str) -> Result<(), Refusal> {
    state.require(&call.who, source, "VM.Clone")?;
    let new = call.params.get("newid").unwrap_or_default();
    let by_id = state.may(&call.who, &format!("/vms/{new}"), "VM.Allocate");
    let pool = call.params.get("pool");
    let by_pool =
        pool.is_some_and(|pool| state.may(&call.who, &format!("/pool/{pool}"), "VM.Allocate"));
    if by_id || by_pool {
        Ok(())
    } else {
        Err(Refusal::Forbidden(String::new()))
    }
}
