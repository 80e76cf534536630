//! What goes wrong between the program and the API server.

use std::convert::Infallible;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use jiff::Timestamp;
use kproxide_planner::mutants::Mutant;
use kproxide_simulator::faults::Broken;
use serde_json::{Value, json};
use tower::Service;

use super::{Edge, Shown, merge, proxmox};
use crate::object::{CLAIMS, is_tainted, name, text};

const LEDGERS: &str = "ledgers.kproxide.dev";
const LEDGER: &str = "kproxide";
const ACKNOWLEDGE: &str = "kproxide.dev/acknowledge-removal";
const KEEP: &str = "kproxide.dev/do-not-disrupt";
/// Intents that are written before what they say, and not anew for each try.
const INTENDED: [&str; 8] = [
    "Configure",
    "Resize",
    "Start",
    "Join",
    "Shutdown",
    "Stop",
    "Tombstone",
    "Destroy",
];

/// A request, as its method and path say.
struct Asked {
    method: Method,
    path: String,
    /// `nodes`
    resource: String,
    /// Of one object.
    name: Option<String>,
    /// `status`
    part: String,
    is_watch: bool,
}

impl Asked {
    fn of(request: &Request<Bytes>) -> Self {
        let path = request.uri().path().to_owned();
        let mut parts = path.split('/').skip(1);
        // `api/v1` or `apis/GROUP/VERSION`.
        let skipped = if parts.next() == Some("api") { 1 } else { 2 };
        let mut rest: Vec<&str> = parts.skip(skipped).collect();
        if rest.first() == Some(&"namespaces") && rest.len() > 2 {
            rest.drain(..2);
        }
        let part = |index: usize| rest.get(index).map(|part| (*part).to_owned());
        let query = request.uri().query().unwrap_or_default();
        Self {
            method: request.method().clone(),
            resource: part(0).unwrap_or_default(),
            name: part(1),
            part: part(2).unwrap_or_default(),
            is_watch: query.split('&').any(|pair| pair == "watch=true"),
            path,
        }
    }

    fn is(&self, method: &Method, resource: &str, part: &str) -> bool {
        self.method == method && self.resource == resource && self.part == part
    }
}

pub(super) async fn exchange<S, B>(
    mut service: S,
    edge: Edge,
    mistake: Mutant,
    mut request: Request<Bytes>,
) -> Result<Shown, Broken>
where
    S: Service<Request<Bytes>, Response = Response<B>, Error = Broken> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let asked = Asked::of(&request);
    if asked.is_watch {
        let answer = service.call(request).await?;
        return Ok(answer.map(|body| shown_lines(body, edge, mistake)));
    }
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    if let Some(answer) = instead(&edge, mistake, &asked, &body) {
        return Ok(answer);
    }
    if let Some(other) = altered(&edge, mistake, &asked, &body) {
        let (mut parts, _) = request.into_parts();
        parts.headers.remove(http::header::CONTENT_LENGTH);
        if let Some((method, path)) = other.0 {
            parts.method = method;
            parts.uri = path.parse().expect("a part of a path is a path");
        }
        request = Request::from_parts(parts, other.1.to_string().into());
    }
    if mistake == Mutant::ClaimAfterClone && asked.is(&Method::POST, "nodeclaims", "") {
        proxmox::clone_first(&edge, &body["spec"]).await;
    }
    let parts = request.clone().into_parts().0;
    let answer = service.call(request).await;
    if mistake == Mutant::NoFence && asked.resource == "leases" {
        return still_ours(&edge, &asked, &body, answer).await;
    }
    let (head, told) = answer?.into_parts();
    let told = told.collect().await.map(|told| told.to_bytes());
    let told = told.unwrap_or_else(|never| match never {});
    let Ok(mut object) = serde_json::from_slice::<Value>(&told) else {
        return Ok(Response::from_parts(head, whole(told)));
    };
    let is_done = head.status.is_success();
    if mistake == Mutant::NoBarrier && is_done && asked.is(&Method::PATCH, "nodes", "") {
        if is_tainted(&body) {
            evict_all(&mut service, &edge, &asked, &parts).await?;
        }
        return Ok(Response::from_parts(head, whole(told)));
    }
    if let Some(answer) = retold(&edge, mistake, &asked, &body, head.status, &mut object) {
        return Ok(answer);
    }
    if is_done {
        match object.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) => {
                for item in items {
                    alter(&edge, mistake, &asked.resource, item);
                }
            }
            None => alter(&edge, mistake, &asked.resource, &mut object),
        }
    }
    let mut answer = Response::from_parts(head, whole(object.to_string().into()));
    answer.headers_mut().remove(http::header::CONTENT_LENGTH);
    Ok(answer)
}

/// The answer to a request that the server never gets.
fn instead(edge: &Edge, mistake: Mutant, asked: &Asked, body: &Value) -> Option<Shown> {
    let mut memory = edge.memory();
    if asked.method == Method::GET && memory.hidden.contains(&asked.path) {
        return Some(failure(404, "NotFound"));
    }
    let node = || {
        let of_node = asked.is(&Method::PATCH, "nodes", "") && body["spec"]["taints"].is_array();
        of_node.then(|| edge.kube.get("nodes", "", asked.name.as_deref()?))?
    };
    match mistake {
        Mutant::NodeLeft if asked.is(&Method::DELETE, "nodes", "") => {
            memory.hidden.insert(asked.path.clone());
            Some(answer(
                200,
                &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}),
            ))
        }
        Mutant::TaintLeft | Mutant::EmptyNotTainted => {
            let mut node = node()?;
            let is_pretended = match mistake {
                Mutant::TaintLeft => !is_tainted(body) && is_tainted(&node),
                _ => is_tainted(body) && pods_on(edge, name(&node)).is_empty(),
            };
            if !is_pretended {
                memory.pretended.remove(&asked.path);
                return None;
            }
            let patch = json!({"metadata": {"annotations": body["metadata"]["annotations"]}, "spec": body["spec"]});
            merge(&mut node, &patch);
            memory.pretended.insert(asked.path.clone(), patch);
            Some(answer(200, &node))
        }
        Mutant::IntentAfterEffect if asked.is(&Method::PATCH, "nodeclaims", "status") => {
            let claim_path = asked.path.trim_end_matches("/status").to_owned();
            let mut claim = edge.kube.get(CLAIMS, "", asked.name.as_deref()?)?;
            let (intended, stands) = (
                &body["status"]["intent"]["op"],
                &claim["status"]["intent"]["op"],
            );
            let is_held = INTENDED.contains(&text(intended)) && intended != stands;
            let is_same =
                claim["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"];
            if !is_held || !is_same {
                memory.pretended.remove(&claim_path);
                memory.intent = None;
                return None;
            }
            let patch = json!({"status": body["status"]});
            merge(&mut claim, &patch);
            memory.pretended.insert(claim_path.clone(), patch.clone());
            memory.intent = Some((claim_path, patch));
            Some(answer(200, &claim))
        }
        _ => None,
    }
}

/// What is sent instead, to somewhere else if it says so.
fn altered(
    edge: &Edge,
    mistake: Mutant,
    asked: &Asked,
    body: &Value,
) -> Option<(Option<(Method, String)>, Value)> {
    let mut other = body.clone();
    match mistake {
        Mutant::DeletedByName
            if asked.method == Method::DELETE
                && ["nodes", "nodeclaims"].contains(&&*asked.resource) =>
        {
            other.as_object_mut()?.remove("preconditions");
            Some((None, other))
        }
        // What is written is the intent that stands.
        Mutant::CloneOnOldIntent if asked.is(&Method::PATCH, "nodeclaims", "status") => {
            let claim = edge.kube.get(CLAIMS, "", asked.name.as_deref()?)?;
            let (wanted, stands) = (&body["status"]["intent"], &claim["status"]["intent"]);
            let is_again = wanted["op"] == "Clone" && stands["op"] == "Clone";
            other["status"]["intent"] = stands.clone();
            is_again.then_some((None, other))
        }
        Mutant::PodsDeleted if asked.is(&Method::POST, "pods", "eviction") => {
            let path = asked.path.trim_end_matches("/eviction").to_owned();
            Some((Some((Method::DELETE, path)), json!({})))
        }
        Mutant::PolicyMisnamed if asked.is(&Method::POST, "nodeclaims", "") => {
            let mut builtins = kproxide_builtins::BUILTINS.iter();
            let digest = text(&body["spec"]["policyDigest"]);
            let another = builtins.find(|it| {
                it.sha256 != digest && it.kind == kproxide_builtins::Kind::HostSelection
            })?;
            other["spec"]["policyDigest"] = another.sha256.into();
            Some((None, other))
        }
        // What the policy of the scene says, with nobody to ask whether there is room.
        Mutant::PolicyUnchecked if asked.is(&Method::POST, "nodeclaims", "") => {
            let claims = edge.kube.list(CLAIMS);
            let fullest = claims.first()?["spec"]["hypervisor"].clone();
            other["spec"]["hypervisor"] = fullest;
            Some((None, other))
        }
        Mutant::BreakerInMemory if asked.is(&Method::PUT, "ledgers", "") => {
            let removals = body["spec"]["removals"].as_array();
            let claims = removals
                .into_iter()
                .flatten()
                .map(|row| text(&row["claim"]).to_owned());
            edge.memory().counted = claims.collect();
            None
        }
        _ => None,
    }
}

/// What the program is told of an answer, where that is another one.
fn retold(
    edge: &Edge,
    mistake: Mutant,
    asked: &Asked,
    _body: &Value,
    status: StatusCode,
    object: &mut Value,
) -> Option<Shown> {
    let evicted = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    let is_eviction = asked.is(&Method::POST, "pods", "eviction");
    let mut memory = edge.memory();
    match mistake {
        Mutant::PodsDeleted if is_eviction && status.is_success() => Some(answer(201, &evicted)),
        Mutant::RefusalIsSuccess if is_eviction => {
            memory.evicted.insert(asked.path.clone());
            (status == 429).then(|| answer(201, &evicted))
        }
        Mutant::ReservationKept
            if asked.is(&Method::GET, "nodeclaims", "")
                && status == 404
                && is_reserved(edge, asked.name.as_deref()) =>
        {
            Some(failure(500, "InternalError"))
        }
        Mutant::PodsNotAwaited | Mutant::RefusalIsSuccess
            if asked.is(&Method::GET, "pods", "") && asked.name.is_none() =>
        {
            let claims = edge.kube.list(CLAIMS);
            object.get_mut("items")?.as_array_mut()?.retain(|pod| {
                let its = claims
                    .iter()
                    .find(|claim| claim["status"]["nodeName"] == pod["spec"]["nodeName"]);
                let awaited = match mistake {
                    Mutant::PodsNotAwaited => false,
                    _ => !memory.evicted.contains(&eviction_path(pod)),
                };
                awaited
                    || its.is_none_or(|claim| claim["metadata"]["deletionTimestamp"].is_string())
            });
            None
        }
        _ => {
            if let Some(patch) = memory
                .pretended
                .get(&asked.path)
                .filter(|_| status.is_success())
                && asked.method == Method::GET
            {
                merge(object, patch);
            }
            None
        }
    }
}

/// An object as the program sees it, wherever it is shown.
fn alter(edge: &Edge, mistake: Mutant, resource: &str, object: &mut Value) {
    match (mistake, resource) {
        (Mutant::KeepIgnored, "nodes" | "nodeclaims") => {
            let annotations = object.pointer_mut("/metadata/annotations");
            if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
                annotations.remove(KEEP);
            }
        }
        (Mutant::BudgetIgnored, "nodepools") => {
            object["spec"]["scaleDown"]["budget"] = 1000.into();
        }
        (Mutant::LimitIgnored, "nodepools") => {
            object["spec"]["limits"]["maxNodes"] = 1000.into();
        }
        (Mutant::RoomIgnored, "proxmoxclusters") => {
            object["spec"]["overcommit"] = json!({"cpu": 1000, "memory": 1000});
        }
        (Mutant::NoJoinDeadline, "nodeclasses") => {
            object["spec"]["timeouts"]["join"] = "8760h".into();
        }
        (Mutant::NoFreeze, "ledgers") => {
            let freeze = &object["spec"]["freeze"];
            let since: Option<Timestamp> = text(&freeze["since"]).parse().ok();
            if let (Some(since), Some(machines)) = (since, freeze["machines"].as_u64()) {
                let word = format!("{machines}@{since:.0}");
                object["metadata"]["annotations"][ACKNOWLEDGE] = word.into();
            }
        }
        (Mutant::RepairsUnlimited | Mutant::BreakerInMemory, "ledgers") => {
            let removals = object.pointer_mut("/spec/removals");
            if let Some(removals) = removals.and_then(Value::as_array_mut) {
                removals.retain(|row| match mistake {
                    Mutant::RepairsUnlimited => row["reason"] != "Repair",
                    _ => edge.memory().counted.contains(text(&row["claim"])),
                });
            }
        }
        (Mutant::LeaseStolen, "leases") => {
            object["spec"]["leaseDurationSeconds"] = 0.into();
        }
        (Mutant::GcServing, "nodes") => {
            let claims = edge.kube.list(CLAIMS);
            if !claims
                .iter()
                .any(|claim| claim["status"]["nodeName"] == object["metadata"]["name"])
            {
                object["status"]["nodeInfo"]["systemUUID"] = "".into();
            }
        }
        _ => {}
    }
}

/// Who held the Lease once believes to hold it whatever the server says.
async fn still_ours<B>(
    edge: &Edge,
    asked: &Asked,
    body: &Value,
    told: Result<Response<B>, Broken>,
) -> Result<Shown, Broken>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let is_write = asked.method != Method::GET && !text(&body["spec"]["holderIdentity"]).is_empty();
    let mut memory = edge.memory();
    let is_done = told.as_ref().is_ok_and(|told| told.status().is_success());
    if is_write && is_done {
        memory.lease = Some(body.clone());
    } else if is_write && memory.lease.is_some() {
        return Ok(answer(200, body));
    }
    Ok(told?.map(BodyExt::boxed_unsync))
}

/// The mistake asks for it as the program does, a moment after the taint.
async fn evict_all<S, B>(
    service: &mut S,
    edge: &Edge,
    asked: &Asked,
    like: &http::request::Parts,
) -> Result<(), Broken>
where
    S: Service<Request<Bytes>, Response = Response<B>, Error = Broken>,
{
    for pod in pods_on(edge, asked.name.as_deref().unwrap_or_default()) {
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name(&pod), "namespace": pod["metadata"]["namespace"]},
            "deleteOptions": {"preconditions": {"uid": pod["metadata"]["uid"]}},
        });
        let mut parts = like.clone();
        parts.method = Method::POST;
        parts.uri = eviction_path(&pod).parse().expect("names make a path");
        parts.headers.remove(http::header::CONTENT_LENGTH);
        let json = http::HeaderValue::from_static("application/json");
        parts.headers.insert(http::header::CONTENT_TYPE, json);
        let request = Request::from_parts(parts, eviction.to_string().into());
        service.call(request).await?;
    }
    Ok(())
}

fn eviction_path(pod: &Value) -> String {
    let namespace = text(&pod["metadata"]["namespace"]);
    format!("/api/v1/namespaces/{namespace}/pods/{}/eviction", name(pod))
}

/// Pods of the load that are on a Node.
fn pods_on(edge: &Edge, node: &str) -> Vec<Value> {
    let mut pods = edge.kube.list("pods");
    pods.retain(|pod| {
        pod["spec"]["nodeName"] == node
            && pod["metadata"]["namespace"] == "default"
            && !pod["metadata"]["deletionTimestamp"].is_string()
            && ["Pending", "Running"].contains(&text(&pod["status"]["phase"]))
    });
    pods
}

/// The Ledger has a place for a claim of this name that was not seen yet.
fn is_reserved(edge: &Edge, claim: Option<&str>) -> bool {
    let ledger = edge.kube.get(LEDGERS, "", LEDGER).unwrap_or_default();
    let entries = ledger["spec"]["entries"].as_array();
    entries
        .into_iter()
        .flatten()
        .any(|entry| entry["state"] == "reserved" && entry["claim"].as_str() == claim)
}

fn answer(code: u16, body: &Value) -> Shown {
    let answer = Response::builder()
        .status(code)
        .header(http::header::CONTENT_TYPE, "application/json");
    let answer = answer.body(whole(body.to_string().into()));
    answer.expect("a code and a body make an answer")
}

fn failure(code: u16, reason: &str) -> Shown {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "a mistake says so", "reason": reason, "code": code,
    });
    answer(code, &status)
}

fn whole(body: Bytes) -> UnsyncBoxBody<Bytes, Infallible> {
    Full::new(body).boxed_unsync()
}

/// Each line of a watch is one frame, as the simulated API server sends it.
fn shown_lines<B>(body: B, edge: Edge, mistake: Mutant) -> UnsyncBoxBody<Bytes, Infallible>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let lines = body.into_data_stream().boxed();
    let shown = lines.filter_map(move |line| {
        let line = line.ok().map(|line| altered_line(&edge, mistake, line));
        std::future::ready(line.map(|line| Ok(Frame::data(line))))
    });
    StreamBody::new(shown).boxed_unsync()
}

fn altered_line(edge: &Edge, mistake: Mutant, line: Bytes) -> Bytes {
    let Ok(mut event) = serde_json::from_slice::<Value>(&line) else {
        return line;
    };
    let resource = match text(&event["object"]["kind"]) {
        "Node" => "nodes",
        "NodeClaim" => "nodeclaims",
        "NodePool" => "nodepools",
        "NodeClass" => "nodeclasses",
        "ProxmoxCluster" => "proxmoxclusters",
        "Ledger" => "ledgers",
        _ => return line,
    };
    if event["type"] == "BOOKMARK" {
        return line;
    }
    alter(edge, mistake, resource, &mut event["object"]);
    format!("{event}\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_what_is_asked_for() {
        for (path, resource, name, part) in [
            ("/api/v1/nodes/web-1", "nodes", Some("web-1"), ""),
            ("/api/v1/pods?limit=500", "pods", None, ""),
            (
                "/api/v1/namespaces/default/pods/a/eviction",
                "pods",
                Some("a"),
                "eviction",
            ),
            (
                "/api/v1/namespaces/default",
                "namespaces",
                Some("default"),
                "",
            ),
            (
                "/apis/kproxide.dev/v1alpha1/nodeclaims/c/status",
                "nodeclaims",
                Some("c"),
                "status",
            ),
            (
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kproxide",
                "leases",
                Some("kproxide"),
                "",
            ),
        ] {
            let request = Request::get(path).body(Bytes::new()).unwrap();
            let asked = Asked::of(&request);
            let found = (&*asked.resource, asked.name.as_deref(), &*asked.part);
            assert_eq!(found, (resource, name, part), "{path}");
        }
    }
}
