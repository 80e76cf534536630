//! What goes wrong between the program and Proxmox.

use bytes::Bytes;
use http::{Method, Request, Response};
use kproxide_planner::mutants::Mutant;
use kproxide_simulator::faults::Broken;
use serde_json::{Value, json};
use tower::Service;

use super::Edge;
use crate::object::{CLAIMS, text};
use crate::scenario::RESOURCE_POOL;

const API: &str = "/api2/json";
const TOKEN: &str = "PVEAPIToken=kproxide@pve!ci=secret";
const TOMBSTONE: &str = "kproxide-tombstone";
/// So often a request is sent again whose answer did not come.
const RESENT: u32 = 2;

/// A request, as its method and path say.
struct Asked {
    method: Method,
    path: String,
    query: String,
    /// Of one VM.
    vmid: Option<String>,
    /// `status/stop`
    action: String,
}

impl Asked {
    fn of(request: &Request<Bytes>) -> Self {
        let path = request.uri().path().trim_start_matches(API).to_owned();
        let of_vm = path.split_once("/qemu/").map(|(_, rest)| rest);
        let (vmid, action) =
            of_vm.map_or(("", ""), |rest| rest.split_once('/').unwrap_or((rest, "")));
        Self {
            method: request.method().clone(),
            vmid: Some(vmid.to_owned()).filter(|vmid| !vmid.is_empty()),
            action: action.to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            path,
        }
    }

    fn is(&self, method: &Method, action: &str) -> bool {
        self.method == method && self.vmid.is_some() && self.action == action
    }

    fn ends(&self) -> bool {
        self.is(&Method::POST, "status/shutdown") || self.is(&Method::POST, "status/stop")
    }
}

pub(super) async fn exchange<S>(
    mut service: S,
    edge: Edge,
    mistake: Mutant,
    mut request: Request<Bytes>,
) -> Result<Response<Bytes>, Broken>
where
    S: Service<Request<Bytes>, Response = Response<Bytes>, Error = Broken> + Send + 'static,
    S::Future: Send + 'static,
{
    let asked = Asked::of(&request);
    let form = String::from_utf8_lossy(request.body()).into_owned();
    let vmid = asked.vmid.clone().unwrap_or_default();
    let condemns = asked.action == "config" && form.contains(TOMBSTONE);
    match mistake {
        Mutant::CloneUnmarked if asked.is(&Method::POST, "clone") => {
            let pairs = form.split('&');
            let others: Vec<&str> = pairs
                .filter(|pair| !pair.starts_with("description="))
                .collect();
            let (mut parts, _) = request.into_parts();
            parts.headers.remove(http::header::CONTENT_LENGTH);
            request = Request::from_parts(parts, others.join("&").into());
        }
        // Whether a hypervisor answers is asked for each by itself.
        Mutant::GcPartialList
            if asked.path.starts_with("/nodes/") && asked.path.ends_with("/version") =>
        {
            return Ok(Response::new(json!({"data": {}}).to_string().into()));
        }
        Mutant::NoTombstone if condemns => {
            let mut pairs = form.split('&');
            let description = pairs.find_map(|pair| pair.strip_prefix("description="));
            let description = decoded(description.unwrap_or_default());
            edge.memory().descriptions.insert(vmid, description);
            return Ok(Response::new(json!({"data": null}).to_string().into()));
        }
        Mutant::DestroyRunning if condemns => {
            edge.memory().vms.insert(vmid.clone());
        }
        Mutant::FinalizerEarly if asked.is(&Method::DELETE, "") => {
            edge.memory().vms.insert(vmid.clone());
        }
        Mutant::NodeBeforeMachine if asked.ends() => {
            let claims = edge.kube.list(CLAIMS);
            let its = claims
                .iter()
                .find(|claim| claim["spec"]["vmid"].as_u64() == vmid.parse().ok());
            let node = its.map_or("", |claim| text(&claim["status"]["nodeName"]));
            // It may be gone by now.
            let _: Result<(), _> = edge.kube.delete("nodes", "", node);
        }
        _ => {}
    }
    let mut answer = service.call(request.clone()).await;
    if mistake == Mutant::LostIsUndone && asked.method != Method::GET {
        for _ in 0..RESENT {
            if answer.as_ref().is_ok_and(|answer| answer.status() != 596) {
                break;
            }
            answer = service.call(request.clone()).await;
        }
    }
    let answer = answer?;
    if mistake == Mutant::IntentAfterEffect && asked.method != Method::GET && asked.vmid.is_some() {
        let intent = edge.memory().intent.take();
        if let Some((path, patch)) = intent {
            edge.memory().pretended.remove(&path);
            let (_, claim) = path.rsplit_once('/').unwrap_or_default();
            // It may be gone by now.
            let _: Result<_, _> = edge.kube.patch(CLAIMS, "status", "", claim, patch);
        }
    }
    Ok(retold(&edge, mistake, &asked, answer))
}

/// The clone of a claim that is yet to be created.
pub(super) async fn clone_first(edge: &Edge, spec: &Value) {
    let clone = &spec["clone"];
    let mut form = vec![
        format!("newid={}", spec["vmid"]),
        format!("name={}", text(&spec["vmName"])),
        format!("pool={RESOURCE_POOL}"),
        format!("full={}", u8::from(clone["full"] == true)),
    ];
    if clone["hypervisor"] != spec["hypervisor"] {
        form.push(format!("target={}", text(&spec["hypervisor"])));
    }
    let (hypervisor, template) = (text(&clone["hypervisor"]), &clone["vmid"]);
    let request = Request::post(format!("{API}/nodes/{hypervisor}/qemu/{template}/clone"))
        .header(http::header::AUTHORIZATION, TOKEN)
        .header(
            http::header::CONTENT_TYPE,
            "application/x-www-form-urlencoded",
        )
        .body(Bytes::from(form.join("&")));
    edge.pve
        .handle(request.expect("names and numbers make a path"))
        .await;
}

fn retold(edge: &Edge, mistake: Mutant, asked: &Asked, answer: Response<Bytes>) -> Response<Bytes> {
    let (mut head, told) = answer.into_parts();
    let memory = edge.memory();
    let vmid = asked.vmid.as_deref().unwrap_or_default();
    if let Some(free) = asked
        .query
        .strip_prefix("vmid=")
        .filter(|_| asked.path == "/cluster/nextid")
        && memory.vms.contains(free)
        && matches!(mistake, Mutant::FinalizerEarly | Mutant::UnreachableIsGone)
    {
        head.status = http::StatusCode::OK;
        return Response::from_parts(head, json!({"data": free}).to_string().into());
    }
    drop(memory);
    let read: Option<Value> = serde_json::from_slice(&told).ok();
    let is_read = asked.method == Method::GET && head.status.is_success();
    let Some(mut read) = read.filter(|_| is_read) else {
        return Response::from_parts(head, told);
    };
    let data = &mut read["data"];
    match asked.path.as_str() {
        "/cluster/status" => alter_status(mistake, data),
        "/cluster/resources" => alter_resources(edge, mistake, data),
        path if path.contains("/tasks/") && path.ends_with("/status") => {
            let is_destroy = text(&data["type"]) == "qmdestroy";
            alter_task(mistake, is_destroy, data);
        }
        // A clone is not known by the log of its task either.
        path if path.contains("/tasks/")
            && path.ends_with("/log")
            && matches!(mistake, Mutant::OwnCloneDisowned | Mutant::CloneOnOldIntent) =>
        {
            *data = json!([]);
        }
        _ if asked.is(&Method::GET, "config") => alter_config(edge, mistake, vmid, data),
        _ if asked.is(&Method::GET, "status/current")
            && mistake == Mutant::DestroyRunning
            && edge.memory().vms.contains(vmid) =>
        {
            data["status"] = "stopped".into();
        }
        _ => return Response::from_parts(head, told),
    }
    head.headers.remove(http::header::CONTENT_LENGTH);
    Response::from_parts(head, read.to_string().into())
}

fn alter_status(mistake: Mutant, members: &mut Value) {
    for member in members.as_array_mut().into_iter().flatten() {
        match (mistake, text(&member["type"])) {
            (Mutant::QuorumIgnored, "cluster") => member["quorate"] = 1.into(),
            (Mutant::GcPartialList, "node") => member["online"] = 1.into(),
            (_, _) => {}
        }
    }
}

fn alter_resources(edge: &Edge, mistake: Mutant, resources: &mut Value) {
    let Some(resources) = resources.as_array_mut() else {
        return;
    };
    match mistake {
        Mutant::GcPartialList => {
            for node in resources.iter_mut().filter(|it| it["type"] == "node") {
                node["status"] = "online".into();
            }
        }
        Mutant::FinalizerEarly => {
            let memory = edge.memory();
            resources.retain(|it| !memory.vms.contains(&it["vmid"].to_string()));
        }
        Mutant::UnreachableIsGone => {
            let is_off = |it: &&Value| it["type"] == "node" && it["status"] != "online";
            let off: Vec<Value> = resources
                .iter()
                .filter(is_off)
                .map(|it| it["node"].clone())
                .collect();
            let is_hidden = |it: &Value| it["vmid"].is_number() && off.contains(&it["node"]);
            let hidden = resources.iter().filter(|it| is_hidden(it));
            edge.memory().vms = hidden.map(|it| it["vmid"].to_string()).collect();
            resources.retain(|it| !is_hidden(it));
        }
        _ => {}
    }
}

fn alter_task(mistake: Mutant, is_destroy: bool, task: &mut Value) {
    let is_warned = text(&task["exitstatus"]).starts_with("WARNINGS");
    match mistake {
        Mutant::WarningsAreOk if is_warned => task["exitstatus"] = "OK".into(),
        Mutant::WarningsAreErrors if is_warned => task["exitstatus"] = "it went wrong".into(),
        Mutant::FinalizerEarly if is_destroy => {
            task["status"] = "stopped".into();
            task["exitstatus"] = "OK".into();
        }
        _ => {}
    }
}

fn alter_config(edge: &Edge, mistake: Mutant, vmid: &str, config: &mut Value) {
    let claims = edge.kube.list(CLAIMS);
    let its = claims
        .iter()
        .find(|claim| claim["spec"]["vmid"].as_u64() == vmid.parse().ok());
    let is_unmarked = match mistake {
        Mutant::OrphansIgnored => its.is_none(),
        Mutant::OwnCloneDisowned => its.is_some_and(|claim| {
            let status = &claim["status"];
            status["intent"]["op"] == "Clone" && status["upid"].is_null()
        }),
        Mutant::NoTombstone => {
            if let Some(description) = edge.memory().descriptions.get(vmid) {
                config["description"] = description.as_str().into();
            }
            false
        }
        _ => false,
    };
    if is_unmarked {
        config["description"] = Value::Null;
    }
}

/// The text of a form's field.
fn decoded(field: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = field.bytes();
    while let Some(byte) = rest.next() {
        let digits = (byte == b'%').then(|| (rest.next(), rest.next()));
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let value =
            digits.and_then(|(high, low)| u8::try_from(digit(high)? * 16 + digit(low)?).ok());
        bytes.push(value.unwrap_or(byte));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_vm_and_what_is_asked_of_it() {
        for (path, vmid, action) in [
            (
                "/nodes/pve1/qemu/501/status/stop",
                Some("501"),
                "status/stop",
            ),
            ("/nodes/pve1/qemu/501?purge=1", Some("501"), ""),
            ("/cluster/nextid?vmid=501", None, ""),
        ] {
            let request = Request::get(format!("{API}{path}")).body(Bytes::new());
            let asked = Asked::of(&request.unwrap());
            assert_eq!(
                (asked.vmid.as_deref(), &*asked.action),
                (vmid, action),
                "{path}"
            );
        }
    }

    #[test]
    fn a_field_is_decoded() {
        assert_eq!(decoded("a%3A%20b%0ac"), "a: b\nc");
        assert_eq!(decoded("100%"), "100%");
    }
}
