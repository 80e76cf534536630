//! The methods that the simulated API has, and how a path finds its method.

use std::collections::BTreeMap;

use http::Method;

use super::answer::percent_decode;

/// One API method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Version,
    Permissions,
    Ticket,
    Resources,
    ClusterStatus,
    NextId,
    ClusterTasks,
    HaResources,
    Nodes,
    NodeStatus,
    NodeVersion,
    NodeConfig,
    NodeNetwork,
    StorageList,
    StorageContent,
    VolumeDelete,
    QemuList,
    Create,
    Clone,
    ConfigGet,
    ConfigPut,
    ConfigPost,
    Pending,
    CloudinitPut,
    Resize,
    Template,
    Current,
    Start,
    Stop,
    Shutdown,
    Reset,
    Destroy,
    AgentPing,
    AgentExec,
    AgentExecStatus,
    AgentFileWrite,
    AgentHostName,
    AgentInterfaces,
    TaskList,
    TaskStatus,
    TaskLog,
    TaskStop,
    PoolList,
    PoolUpdate,
}

/// A method with where it is and who runs it.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) endpoint: Endpoint,
    /// Runs in the privileged daemon, of which a server has three workers.
    pub(crate) protected: bool,
}

const fn route(method: Method, path: &'static str, endpoint: Endpoint, protected: bool) -> Route {
    Route {
        method,
        path,
        endpoint,
        protected,
    }
}

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/version", Endpoint::Version, false),
    route(
        Method::GET,
        "/access/permissions",
        Endpoint::Permissions,
        false,
    ),
    route(Method::POST, "/access/ticket", Endpoint::Ticket, true),
    route(
        Method::GET,
        "/cluster/resources",
        Endpoint::Resources,
        false,
    ),
    route(
        Method::GET,
        "/cluster/status",
        Endpoint::ClusterStatus,
        true,
    ),
    route(Method::GET, "/cluster/nextid", Endpoint::NextId, false),
    route(Method::GET, "/cluster/tasks", Endpoint::ClusterTasks, false),
    route(
        Method::GET,
        "/cluster/ha/resources",
        Endpoint::HaResources,
        false,
    ),
    route(Method::GET, "/nodes", Endpoint::Nodes, false),
    route(
        Method::GET,
        "/nodes/{node}/status",
        Endpoint::NodeStatus,
        false,
    ),
    route(
        Method::GET,
        "/nodes/{node}/version",
        Endpoint::NodeVersion,
        false,
    ),
    route(
        Method::GET,
        "/nodes/{node}/config",
        Endpoint::NodeConfig,
        false,
    ),
    route(
        Method::GET,
        "/nodes/{node}/network",
        Endpoint::NodeNetwork,
        false,
    ),
    route(
        Method::GET,
        "/nodes/{node}/storage",
        Endpoint::StorageList,
        true,
    ),
    route(
        Method::GET,
        "/nodes/{node}/storage/{storage}/content",
        Endpoint::StorageContent,
        true,
    ),
    route(
        Method::DELETE,
        "/nodes/{node}/storage/{storage}/content/{volume}",
        Endpoint::VolumeDelete,
        true,
    ),
    route(Method::GET, "/nodes/{node}/qemu", Endpoint::QemuList, true),
    route(Method::POST, "/nodes/{node}/qemu", Endpoint::Create, true),
    route(
        Method::POST,
        "/nodes/{node}/qemu/{vmid}/clone",
        Endpoint::Clone,
        true,
    ),
    route(
        Method::GET,
        "/nodes/{node}/qemu/{vmid}/config",
        Endpoint::ConfigGet,
        false,
    ),
    route(
        Method::PUT,
        "/nodes/{node}/qemu/{vmid}/config",
        Endpoint::ConfigPut,
        true,
    ),
    route(
        Method::POST,
        "/nodes/{node}/qemu/{vmid}/config",
        Endpoint::ConfigPost,
        true,
    ),
    route(
        Method::GET,
        "/nodes/{node}/qemu/{vmid}/pending",
        Endpoint::Pending,
        false,
    ),
    route(
        Method::PUT,
        "/nodes/{node}/qemu/{vmid}/cloudinit",
        Endpoint::CloudinitPut,
        true,
    ),
    route(
        Method::PUT,
        "/nodes/{node}/qemu/{vmid}/resize",
        Endpoint::Resize,
        true,
    ),
    route(
        Method::POST,
        "/nodes/{node}/qemu/{vmid}/template",
        Endpoint::Template,
        true,
    ),
    route(
        Method::GET,
        "/nodes/{node}/qemu/{vmid}/status/current",
        Endpoint::Current,
        true,
    ),
    route(
        Method::POST,
        "/nodes/{node}/qemu/{vmid}/status/start",
        Endpoint::Start,
        true,
    ),
    route(
        Method::POST,
        "/nodes/{node}/qemu/{vmid}/status/stop",
        Endpoint::Stop,
        true,
    ),
    route(
        Method::POST,
        "/nodes/{node}/qemu/{vmid}/status/shutdown",
        Endpoint::Shutdown,
        true,
    ),
    route(
        Method::POST,
        "/nodes/{node}/qemu/{vmid}/status/reset",
        Endpoint::Reset,
        true,
    ),
    route(
        Method::DELETE,
        "/nodes/{node}/qemu/{vmid}",
        Endpoint::Destroy,
        true,
    ),
    route(
        Method::POST,
        "/nodes/{node}/qemu/{vmid}/agent/ping",
        Endpoint::AgentPing,
        true,
    ),
    route(
        Method::POST,
        "/nodes/{node}/qemu/{vmid}/agent/exec",
        Endpoint::AgentExec,
        true,
    ),
    route(
        Method::GET,
        "/nodes/{node}/qemu/{vmid}/agent/exec-status",
        Endpoint::AgentExecStatus,
        true,
    ),
    route(
        Method::POST,
        "/nodes/{node}/qemu/{vmid}/agent/file-write",
        Endpoint::AgentFileWrite,
        true,
    ),
    route(
        Method::GET,
        "/nodes/{node}/qemu/{vmid}/agent/get-host-name",
        Endpoint::AgentHostName,
        true,
    ),
    route(
        Method::GET,
        "/nodes/{node}/qemu/{vmid}/agent/network-get-interfaces",
        Endpoint::AgentInterfaces,
        true,
    ),
    route(
        Method::GET,
        "/nodes/{node}/tasks",
        Endpoint::TaskList,
        false,
    ),
    route(
        Method::GET,
        "/nodes/{node}/tasks/{upid}/status",
        Endpoint::TaskStatus,
        true,
    ),
    route(
        Method::GET,
        "/nodes/{node}/tasks/{upid}/log",
        Endpoint::TaskLog,
        true,
    ),
    route(
        Method::DELETE,
        "/nodes/{node}/tasks/{upid}",
        Endpoint::TaskStop,
        true,
    ),
    route(Method::GET, "/pools", Endpoint::PoolList, false),
    route(Method::PUT, "/pools", Endpoint::PoolUpdate, true),
];

/// What the variable parts of a path were, decoded.
pub(crate) type Vars = BTreeMap<&'static str, String>;

/// The method for a path below `/api2/json`.
pub(crate) fn find(method: &Method, path: &str) -> Option<(&'static Route, Vars)> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let of_method = ROUTES.iter().filter(|route| route.method == *method);
    of_method
        .into_iter()
        .find_map(|route| Some((route, match_path(route.path, &parts)?)))
}

fn match_path(pattern: &'static str, parts: &[&str]) -> Option<Vars> {
    let pieces = || pattern.split('/').skip(1);
    let mut vars = Vars::new();
    for (at, piece) in pieces().enumerate() {
        let part = parts.get(at)?;
        match piece
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
        {
            // A volume name has slashes of its own and takes the rest of the path.
            Some("volume") => {
                vars.insert("volume", percent_decode(&parts[at..].join("/"), false));
                return Some(vars);
            }
            Some(name) => {
                vars.insert(name, percent_decode(part, false));
            }
            None if piece == *part => {}
            None => return None,
        }
    }
    (pieces().count() == parts.len()).then_some(vars)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_their_method_and_variables() {
        let (route, vars) = find(&Method::POST, "/nodes/pve1/qemu/9000/clone").unwrap();
        assert_eq!(route.endpoint, Endpoint::Clone);
        assert_eq!(
            (vars["node"].as_str(), vars["vmid"].as_str()),
            ("pve1", "9000")
        );
        let upid =
            "/nodes/pve1/tasks/UPID%3Apve1%3A0%3A0%3A0%3Aqmstart%3A1%3Aa%40pve%21t%3A/status";
        assert_eq!(
            find(&Method::GET, upid).unwrap().1["upid"],
            "UPID:pve1:0:0:0:qmstart:1:a@pve!t:"
        );
        let volume = "/nodes/pve1/storage/local/content/local:iso/seed.iso";
        assert_eq!(
            find(&Method::DELETE, volume).unwrap().1["volume"],
            "local:iso/seed.iso"
        );
        assert!(find(&Method::GET, "/nosuch").is_none());
        assert!(find(&Method::GET, "/nodes/pve1/qemu/1/config/more").is_none());
    }
}
