//! Every request that the client can make, against the parameters that Proxmox takes in versions 8 and 9.
//!
//! The simulated Proxmox knows them in our own words, by a table that its own test holds against Proxmox's schemas. The schemas are not part of this
//! repository, for they are AGPL. Where they are (`$KPROXIDE_PVE_SCHEMAS`, else `../shared/pve/schema` beside the workspace), the requests are held
//! against them too.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, COOKIE, HeaderValue};
use http::{Method, Request, StatusCode};
use kproxide_planner::facts::{
    CardModel, CloudInit, Interface, MachineSpec, Network, Queues, VmOptions,
};
use kproxide_simulator::clock::Clock;
use kproxide_simulator::pve::topology::Version;
use kproxide_simulator::pve::{Pve, Topology};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::conformance::clone_request;
use crate::client::Client;
use crate::cloudinit::MachineConfig;
use crate::fixtures::{data, decoded, endpoint};
use crate::limits::Concurrency;
use crate::machine::CloneRequest;
use crate::preflight::Scope;
use crate::request::Params;
use crate::vm_config::VmConfig;

/// Makes every call once, in every variation of its parameters, and returns the requests.
pub(super) async fn every_request() -> Vec<Request<Bytes>> {
    let upid = "UPID:pve1:00001798:0004118B:6B00E484:qmclone:9000:aut@pve!full:";
    let (endpoint, asked) = endpoint("pve1", move |request| {
        let path = request.uri().path();
        if path.ends_with("/access/ticket") {
            data(json!({"ticket": "T", "CSRFPreventionToken": "C"}))
        } else if path.ends_with("/version") {
            data(json!({"version": "9.2.11"}))
        } else if path.ends_with("/tasks") {
            data(json!([{ "upid": upid }]))
        } else if path.ends_with("/log") {
            crate::fixtures::answer(200, "OK", json!({"data": [], "total": 900}))
        } else if path.ends_with("/permissions") {
            data(json!({}))
        } else if path.ends_with("/nextid") {
            data(json!("101"))
        } else if path.ends_with("/cluster/status") {
            data(json!([{"type": "node", "name": "pve1", "online": 1}]))
        } else if path.ends_with("/resources") {
            data(json!([{"type": "node", "node": "pve1", "status": "online"}]))
        } else if path.ends_with("/json/nodes")
            || path.ends_with("/content")
            || path.ends_with("/network")
        {
            data(json!([]))
        } else if path.ends_with("/agent/exec") {
            data(json!({"pid": 4242}))
        } else if path.ends_with("/network-get-interfaces") {
            data(json!({"result": []}))
        } else if request.method() == Method::GET {
            data(json!({"status": "running"}))
        } else {
            data(json!(upid))
        }
    });
    let source: crate::auth::CredentialSource =
        std::sync::Arc::new(|| crate::auth::Credentials::password("aut@pve", "x"));
    let client = Client::new(vec![endpoint], source, Concurrency::default());

    let mut inventory = client.inventory().await.unwrap();
    client.probe(&mut inventory, &BTreeSet::new()).await;
    client.pool_exists("k8s").await.unwrap();
    client.members().await.unwrap();
    client.missing_privileges(&Scope::default()).await.unwrap();
    client.permissions(None).await.unwrap();
    client.bridges("pve1").await.unwrap();
    client.details("pve1").await.unwrap();
    client.vmid_is_free(101).await.unwrap();
    let full = clone_request(9000);
    let mut linked: CloneRequest = full.clone();
    linked.clone.full = false;
    linked.hypervisor = linked.clone.hypervisor.to_string();
    linked.pool = None;
    client.clone_vm(&full).await.unwrap();
    client.clone_vm(&linked).await.unwrap();
    client
        .create_vm("pve1", 999, "kproxide-anchor-999", "k8s", "kproxide: v1")
        .await
        .unwrap();
    client.read_config("pve1", 101).await.unwrap();
    for params in configurations() {
        client
            .configure(
                "pve1",
                101,
                params,
                Some("413fb7e26a4c69b08ddb1057fa6ed30eedb08c76"),
            )
            .await
            .unwrap();
    }
    client
        .set_description("pve1", 101, "kproxide: v1\nmine", None)
        .await
        .unwrap();
    client.resize_disk("pve1", 101, "scsi0", 20).await.unwrap();
    client.start("pve1", 101).await.unwrap();
    client
        .shutdown("pve1", 101, Duration::from_secs(90))
        .await
        .unwrap();
    client.stop("pve1", 101).await.unwrap();
    client.destroy("pve1", 101).await.unwrap();
    client.status_current("pve1", 101).await.unwrap();
    client.agent_ping("pve1", 101).await.unwrap();
    client
        .agent_exec("pve1", 101, &["sh", "-s"], Some("join"))
        .await
        .unwrap();
    client.agent_exec_status("pve1", 101, 4242).await.unwrap();
    client.agent_addresses("pve1", 101).await.unwrap();
    let upid = upid.parse().unwrap();
    client.task_outcome(&upid).await.unwrap();
    client.task_log(&upid, 20).await.unwrap();
    client
        .find_clone("pve1", 9000, 101, Some(1_795_220_612))
        .await
        .unwrap();
    client.running_task("pve1", 101).await.unwrap();
    client.volumes("pve1", "shared").await.unwrap();
    asked.requests()
}

fn configurations() -> Vec<Params> {
    let clone = json!({"net0": "virtio=BC:24:11:65:78:28,bridge=vmbr0,tag=7", "scsi0": "local:vm-101-disk-0,size=8G",
        "virtio1": "local:vm-101-disk-1,size=8G", "boot": "order=scsi0"});
    let clone = VmConfig::from_data(&serde_json::from_value(clone).unwrap());
    let network = |ip: &str, gateway: &str| {
        let gateway = Some(gateway.parse().unwrap());
        let network = Network {
            prefix_length: 24,
            gateway,
        };
        (Some(network), Some(ip.parse().unwrap()))
    };
    [
        (None, None),
        network("10.0.0.5", "10.0.0.1"),
        network("fd00::5", "fd00::1"),
    ]
    .into_iter()
    .map(|(network, address)| {
        let machine = MachineSpec {
            cloud_init: Some(CloudInit {
                ssh_keys: vec!["ssh-ed25519 AAAA a@b".to_owned()],
                dhcp: network.is_none(),
                network,
                nameservers: vec!["10.0.0.53".parse().unwrap()],
                search_domain: Some("lab.example".to_owned()),
                user: Some("ops".to_owned()),
            }),
            vm_options: VmOptions {
                cpu_type: Some("x86-64-v2-AES".to_owned()),
            },
            network: vec![
                Interface {
                    name: "net0".into(),
                    vlan: Some(5),
                    queues: Some(Queues::Auto),
                    ..Interface::default()
                },
                Interface {
                    name: "net1".into(),
                    bridge: Some("vmbr0".into()),
                    model: Some(CardModel::Vmxnet3),
                    rate: Some(100),
                    firewall: Some(true),
                    trunks: vec![10, 20],
                    ..Interface::default()
                },
            ],
        };
        let config = MachineConfig {
            cores: 4,
            memory_mib: 8192,
            address,
            tags: &["kproxide".to_owned()],
            machine: &machine,
        };
        config.params(&clone, "cluster", 101).unwrap()
    })
    .collect()
}

/// Proxmox does not know the path or takes no such parameter. A task that is not there gets the same status, but its request was right.
fn is_refused(status: StatusCode, body: &str) -> bool {
    let is_missing = body.contains("no such task");
    status == StatusCode::NOT_IMPLEMENTED || (status == StatusCode::BAD_REQUEST && !is_missing)
}

#[tokio::test(start_paused = true)]
async fn requests_are_taken_by_versions_8_and_9() {
    let mut requests = every_request().await;
    for request in &mut requests {
        let headers = request.headers_mut();
        headers.remove(COOKIE);
        let token = HeaderValue::from_static("PVEAPIToken=kproxide@pve!ci=secret");
        headers.insert(AUTHORIZATION, token);
    }
    for version in [Version::V8, Version::V9] {
        let topology = Topology {
            version,
            ..Topology::of(1)
        };
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let pve = Pve::new(topology, clock, 7);
        let asked = async |request: Request<Bytes>| {
            let answer = pve.service().oneshot(request).await.unwrap();
            let (status, body) = (answer.status(), answer.into_body());
            (status, String::from_utf8_lossy(&body).into_owned())
        };
        for request in &requests {
            let (status, body) = asked(request.clone()).await;
            let uri = request.uri();
            assert!(!is_refused(status, &body), "{version:?}: {uri}: {body}");
        }
        // One parameter that there is none of.
        let mut odd = requests[0].clone();
        *odd.uri_mut() = format!("{}?odd=1", odd.uri().path()).parse().unwrap();
        let (status, body) = asked(odd).await;
        assert!(is_refused(status, &body), "{version:?}: {body}");
    }
}

/// The schemas are a selection, which this method is not in. It takes no parameter but the server's name.
const UNPUBLISHED: &str = "GET /nodes/pve1/config: not in the schema";

/// Where the schemas are. See the module.
#[tokio::test(start_paused = true)]
async fn requests_are_valid_by_the_published_schemas() {
    let folder = std::env::var_os("KPROXIDE_PVE_SCHEMAS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/pve/schema"),
        PathBuf::from,
    );
    let requests = every_request().await;
    for version in ["pve8", "pve9"] {
        let file = folder.join(format!("{version}.json"));
        let Ok(text) = std::fs::read_to_string(&file) else {
            // Straight to standard error: the test runner keeps what is printed otherwise for tests that fail.
            writeln!(
                std::io::stderr().lock(),
                "skipped: there is no {version}.json under $KPROXIDE_PVE_SCHEMAS or ../shared/pve/schema"
            )
            .expect("standard error takes text");
            continue;
        };
        let schema: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
        let problems: Vec<String> = requests
            .iter()
            .flat_map(|request| problems(&schema, request))
            .filter(|problem| problem != UNPUBLISHED)
            .collect();
        println!(
            "{version}: {} requests checked, {} problems",
            requests.len(),
            problems.len()
        );
        assert_eq!(problems, Vec::<String>::new(), "{version}");
    }
}

/// Without the schemas: what every request must be.
#[tokio::test(start_paused = true)]
async fn requests_have_the_form_that_proxmox_takes() {
    let requests = every_request().await;
    assert!(requests.len() >= 25);
    for request in requests {
        let uri = request.uri();
        assert!(uri.path().starts_with("/api2/json/"), "{uri}");
        let bodiless = matches!(*request.method(), Method::GET | Method::DELETE);
        if bodiless {
            assert!(request.body().is_empty(), "{uri}");
        } else {
            assert_eq!(uri.query(), None, "{uri}");
            assert_eq!(
                request.headers()["content-type"],
                "application/x-www-form-urlencoded"
            );
        }
        let login = uri.path().ends_with("/access/ticket");
        assert_eq!(request.headers().contains_key("cookie"), !login);
        let write = *request.method() != Method::GET && !login;
        assert_eq!(request.headers().contains_key("csrfpreventiontoken"), write);
    }
}

fn problems(schema: &BTreeMap<String, Value>, request: &Request<Bytes>) -> Vec<String> {
    let path = request.uri().path().trim_start_matches("/api2/json");
    let Some((method, mut given)) = schema.keys().find_map(|key| {
        let (method, template) = key.split_once(' ').unwrap();
        let parameters = matched(template, path)?;
        (method == request.method().as_str()).then_some((key, parameters))
    }) else {
        return vec![format!("{} {path}: not in the schema", request.method())];
    };
    let form = match request.uri().query() {
        Some(query) => query.to_owned(),
        None => String::from_utf8(request.body().to_vec()).unwrap(),
    };
    for pair in form.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap();
        given.push((decoded(name), decoded(value)));
    }
    let none = serde_json::Map::new();
    let properties = schema[method]["parameters"]["properties"]
        .as_object()
        .unwrap_or(&none);
    let mut problems = Vec::new();
    for (name, value) in &given {
        match property(properties, name) {
            Some(property) => {
                if let Some(problem) = type_problem(property, value) {
                    problems.push(format!("{method}: {name}={value}: {problem}"));
                }
            }
            None => problems.push(format!("{method}: unknown parameter {name}")),
        }
    }
    for (name, property) in properties {
        let optional = property["optional"].as_u64() == Some(1) || name.ends_with("[n]");
        if !optional && !given.iter().any(|(given, _)| given == name) {
            problems.push(format!("{method}: {name} is required"));
        }
    }
    problems
}

/// The path parameters, if `path` fits `template`.
fn matched(template: &str, path: &str) -> Option<Vec<(String, String)>> {
    let template: Vec<&str> = template.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    if template.len() != path.len() {
        return None;
    }
    let mut parameters = Vec::new();
    for (expected, part) in template.iter().zip(path) {
        match expected
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'))
        {
            Some(name) => parameters.push((name.to_owned(), decoded(part))),
            None if *expected == part => {}
            None => return None,
        }
    }
    Some(parameters)
}

fn property<'a>(properties: &'a serde_json::Map<String, Value>, name: &str) -> Option<&'a Value> {
    properties.get(name).or_else(|| {
        let indexed = name.trim_end_matches(|character: char| character.is_ascii_digit());
        (indexed != name).then(|| properties.get(&format!("{indexed}[n]")))?
    })
}

fn type_problem(property: &Value, value: &str) -> Option<String> {
    let limit = |name: &str| crate::types::as_integer(&property[name]);
    match property["type"].as_str().unwrap_or("string") {
        "integer" => match value.parse::<i64>() {
            Err(_) => Some("not an integer".to_owned()),
            Ok(number) if limit("minimum").is_some_and(|minimum| number < minimum) => {
                Some("below the minimum".to_owned())
            }
            Ok(number) if limit("maximum").is_some_and(|maximum| number > maximum) => {
                Some("above the maximum".to_owned())
            }
            Ok(_) => None,
        },
        "boolean" => (!["0", "1"].contains(&value)).then(|| "not 0 or 1".to_owned()),
        _ => {
            let allowed = property["enum"].as_array();
            if allowed.is_some_and(|allowed| !allowed.iter().any(|one| one == value)) {
                Some("not one of the allowed values".to_owned())
            } else if limit("maxLength").is_some_and(|maximum| value.len() as i64 > maximum) {
                Some("too long".to_owned())
            } else {
                None
            }
        }
    }
}

#[test]
fn a_bad_request_is_seen() {
    let schema = json!({"PUT /nodes/{node}/qemu/{vmid}/config": {"parameters": {"properties": {
        "node": {"type": "string"}, "vmid": {"type": "integer", "minimum": 100},
        "scsi[n]": {"type": "string", "optional": 1}, "onboot": {"type": "boolean", "optional": 1},
        "must": {"type": "string", "enum": ["a"]},
    }}}});
    let schema: BTreeMap<String, Value> = serde_json::from_value(schema).unwrap();
    let request = |vmid: &str, params: Params| {
        let call = crate::request::Call::put(&["nodes", "pve1", "qemu", vmid, "config"]);
        problems(&schema, &call.params(params).request())
    };
    let good = || {
        Params::new()
            .with("must", "a")
            .with("scsi12", "local:1")
            .with("onboot", 1)
    };
    assert_eq!(request("101", good()), Vec::<String>::new());
    for (vmid, params, problem) in [
        ("101", Params::new(), "must is required"),
        ("101", good().with("scsi", "x"), "unknown parameter scsi"),
        ("101", good().with("onboot", "true"), "not 0 or 1"),
        ("99", good(), "below the minimum"),
        (
            "101",
            Params::new().with("must", "b"),
            "not one of the allowed values",
        ),
    ] {
        let found = request(vmid, params);
        assert!(found.len() == 1 && found[0].ends_with(problem), "{found:?}");
    }
}
