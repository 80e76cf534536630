//! The client against answers of Proxmox's own daemons: `tests/data/pve/recordings.json`, which the simulator is held to as well, and `recordings-2.json`
//! with one of each further kind.
//!
//! `classification.txt` beside it shows what the classifier makes of every recording; a changed line is a changed
//! behaviour. After an intended change, run the tests with `KPROXIDE_BLESS=1` and read the difference.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use kproxide_planner::facts::CloneSpec;
use kproxide_planner::ids::Vmid;
use serde::Deserialize;
use serde_json::{Value, json};

use super::parameters::every_request;
use crate::client::Client;
use crate::error::{Error, Meaning};
use crate::fixtures;
use crate::fixtures::{Asked, data, decoded, one};
use crate::machine::CloneRequest;
use crate::request::{Call, Params};
use crate::task::{Outcome, Upid};

#[derive(Debug, Clone, Deserialize)]
struct Recording {
    name: String,
    request: String,
    status: u16,
    reason: String,
    body: Value,
}

impl Recording {
    fn method(&self) -> Method {
        self.request.split(' ').next().unwrap().parse().unwrap()
    }

    /// Without the API's prefix and the query.
    fn path(&self) -> &str {
        path_of(self.request.split(' ').nth(1).unwrap())
    }

    fn endpoint(&self) -> String {
        endpoint(&self.method(), self.path())
    }

    /// A client of a server that gives this answer to everything but the calls in `others`.
    fn served(&self, others: fn(&str) -> Option<Value>) -> (Client, Asked) {
        let recording = self.clone();
        let asked_path = self.path().to_owned();
        one(move |request| {
            let path = request.uri().path().trim_start_matches("/api2/json");
            match others(path).filter(|_| path != asked_path) {
                Some(other) => data(other),
                None => {
                    let empty = recording.body.as_str().is_some_and(str::is_empty);
                    let body = if empty {
                        Value::Null
                    } else {
                        recording.body.clone()
                    };
                    fixtures::answer(recording.status, &recording.reason, body)
                }
            }
        })
    }
}

/// Without the API's prefix and the query.
fn path_of(uri: &str) -> &str {
    let path = uri.strip_prefix("/api2/json").unwrap();
    path.split('?').next().unwrap()
}

/// Method and path with its parameters' names: `GET /nodes/{node}/qemu/{vmid}/config`.
fn endpoint(method: &Method, path: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    for position in 1..parts.len() {
        match parts[position - 1] {
            "nodes" => parts[position] = "{node}",
            "qemu" => parts[position] = "{vmid}",
            "storage" => parts[position] = "{storage}",
            "tasks" => parts[position] = "{upid}",
            _ => {}
        }
    }
    format!("{method} {}", parts.join("/"))
}

fn data_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/pve")
}

fn recordings() -> Vec<Recording> {
    let of = |file: &str| -> Vec<Recording> {
        let text = std::fs::read_to_string(data_folder().join(file)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    [of("recordings.json"), of("recordings-2.json")].concat()
}

/// Nothing that kproxide asks for is answered so.
const STAYS_UNEXPECTED: [&str; 5] = [
    "p8-net-nobridge",
    "r2-balloon-big",
    "r2-disk-toobig-full-task",
    "r2-import-missing-task",
    "r2-resize-ide2-task",
];

/// What the client's machinery makes of any answer, in one line.
async fn classified(recording: &Recording) -> String {
    // Whoever cannot reach another hypervisor is healthy itself.
    let (client, _) = recording.served(|path| (path == "/cluster/status").then(|| json!([])));
    let mut call = Call::get(&["version"]);
    call.method = recording.method();
    call.path = recording.path().to_owned();
    call.repeatable = call.method == Method::GET;
    let result: Result<Value, Error> = client.fetch(call).await;
    match result {
        Ok(answer) => match answer["exitstatus"].as_str().map(Outcome::of_exit_status) {
            Some(Outcome::Failed { meaning, .. }) => {
                format!("task failed: {meaning} [{:?}]", meaning.reaction())
            }
            Some(Outcome::Unknown(text)) => format!("task unknown: {text}"),
            Some(Outcome::Warnings(count)) => format!("task done with {count} warnings"),
            Some(Outcome::Ok) => "task done".to_owned(),
            Some(Outcome::Running) => "task running".to_owned(),
            None => "answered".to_owned(),
        },
        Err(error) => format!(
            "{} [{:?}, executed: {:?}]",
            error.meaning,
            error.reaction(),
            error.executed
        ),
    }
}

#[tokio::test(start_paused = true)]
async fn every_recording_is_classified() {
    let mut table = String::new();
    let mut unexpected = Vec::new();
    for recording in recordings() {
        let line = classified(&recording).await;
        if line.contains(&Meaning::Unexpected.to_string())
            || line.contains(&Meaning::Undecodable.to_string())
        {
            unexpected.push(recording.name.clone());
        }
        writeln!(table, "{}: {} {}", recording.name, recording.status, line).unwrap();
    }
    unexpected.sort();
    assert_eq!(unexpected, STAYS_UNEXPECTED, "recordings without a meaning");

    let golden = data_folder().join("classification.txt");
    if std::env::var_os("KPROXIDE_BLESS").is_some() {
        std::fs::write(&golden, &table).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    let changed: Vec<String> = table
        .lines()
        .filter(|line| !expected.lines().any(|other| other == *line))
        .map(str::to_owned)
        .collect();
    assert_eq!(changed, Vec::<String>::new(), "not in classification.txt");
    assert_eq!(
        table, expected,
        "classification.txt has lines that nothing gives any more"
    );
}

/// Calls the client's method for the recording's endpoint, which is one of those in `parameters`; none if the client does not use that endpoint.
async fn replay(recording: &Recording) -> Option<Result<String, Error>> {
    fn others(path: &str) -> Option<Value> {
        match path {
            "/cluster/status" | "/cluster/resources" => Some(json!([])),
            _ => None,
        }
    }
    let (client, _) = recording.served(others);
    let parts: Vec<&str> = recording.path().split('/').collect();
    let hypervisor = parts.get(2).copied().unwrap_or("pve1");
    let vmid = || parts[4].parse::<u32>().unwrap();
    let show = |shown: String| -> Result<String, Error> { Ok(shown) };
    let upid = |text: &str| decoded(text).parse::<Upid>();
    macro_rules! shown {
        ($call:expr) => {
            match $call.await {
                Ok(value) => show(format!("{value:?}")),
                Err(error) => Err(error),
            }
        };
    }
    Some(match recording.endpoint().as_str() {
        "GET /version" => shown!(client.version()),
        "GET /access/permissions" => shown!(client.permissions(None)),
        "GET /cluster/status" | "GET /cluster/resources" => match client.inventory().await {
            Ok(inventory) => {
                assert!(
                    inventory.complete || inventory.hypervisors.is_empty(),
                    "{}",
                    recording.name
                );
                show(format!("{inventory:?}"))
            }
            Err(error) => Err(error),
        },
        "GET /pools" => shown!(client.pool_exists("k8s")),
        "GET /nodes/{node}/config" => shown!(client.server_config(hypervisor)),
        "GET /nodes/{node}/network" => shown!(client.bridges(hypervisor)),
        "GET /nodes/{node}/status" => shown!(client.server_status(hypervisor)),
        "GET /nodes" => shown!(client.members()),
        // With the number that was asked for, which the answer repeats.
        "GET /cluster/nextid" => {
            let number = recording.body["data"].as_str().unwrap_or("101");
            shown!(client.vmid_is_free(number.parse().unwrap()))
        }
        "GET /nodes/{node}/qemu/{vmid}/config" => shown!(client.read_config(hypervisor, vmid())),
        "PUT /nodes/{node}/qemu/{vmid}/config" => {
            shown!(client.configure(
                hypervisor,
                vmid(),
                Params::new().with("cores", 2),
                Some("d")
            ))
        }
        "PUT /nodes/{node}/qemu/{vmid}/resize" => {
            shown!(client.resize_disk(hypervisor, vmid(), "scsi0", 2))
        }
        "POST /nodes/{node}/qemu" => {
            shown!(client.create_vm(hypervisor, 101, "anchor", "k8s", "kproxide: v1"))
        }
        "GET /nodes/{node}/storage/{storage}/content" => {
            shown!(client.volumes(hypervisor, parts[4]))
        }
        "POST /nodes/{node}/qemu/{vmid}/clone" => shown!(client.clone_vm(&clone_request(vmid()))),
        "POST /nodes/{node}/qemu/{vmid}/status/start" => shown!(client.start(hypervisor, vmid())),
        "POST /nodes/{node}/qemu/{vmid}/status/stop" => shown!(client.stop(hypervisor, vmid())),
        "POST /nodes/{node}/qemu/{vmid}/status/shutdown" => {
            shown!(client.shutdown(hypervisor, vmid(), Duration::from_secs(10)))
        }
        "GET /nodes/{node}/qemu/{vmid}/status/current" => {
            shown!(client.status_current(hypervisor, vmid()))
        }
        "DELETE /nodes/{node}/qemu/{vmid}" => shown!(client.destroy(hypervisor, vmid())),
        "POST /nodes/{node}/qemu/{vmid}/agent/ping" => {
            shown!(client.agent_ping(hypervisor, vmid()))
        }
        "POST /nodes/{node}/qemu/{vmid}/agent/exec" => {
            shown!(client.agent_exec(hypervisor, vmid(), &["sh"], Some("true")))
        }
        "GET /nodes/{node}/qemu/{vmid}/agent/exec-status" => {
            shown!(client.agent_exec_status(hypervisor, vmid(), 4242))
        }
        "GET /nodes/{node}/qemu/{vmid}/agent/network-get-interfaces" => {
            shown!(client.agent_addresses(hypervisor, vmid()))
        }
        "GET /nodes/{node}/tasks" => {
            // A list of tasks, and then the log of each: the logs are not this recording's.
            let (client, _) = recording.served(|path| path.ends_with("/log").then(|| json!([])));
            shown!(client.find_clone(hypervisor, 9000, 101, None))
        }
        "GET /nodes/{node}/tasks/{upid}/status" => match upid(parts[4]) {
            Ok(upid) => shown!(client.task_outcome(&upid)),
            // Our client refuses to ask for what is no UPID; the answer is classified above.
            Err(_) => return Some(Ok("refused before sending".to_owned())),
        },
        "GET /nodes/{node}/tasks/{upid}/log" => match upid(parts[4]) {
            Ok(upid) => shown!(client.task_log(&upid, 50)),
            Err(_) => return Some(Ok("refused before sending".to_owned())),
        },
        _ => return None,
    })
}

pub(super) fn clone_request(template: u32) -> CloneRequest {
    CloneRequest {
        clone: CloneSpec {
            hypervisor: "pve1".into(),
            vmid: Vmid(template),
            full: true,
            storage: Some("shared".into()),
        },
        hypervisor: "pve2".to_owned(),
        newid: 101,
        name: "node-a".to_owned(),
        pool: Some("k8s".to_owned()),
        description: "kproxide: v1".to_owned(),
    }
}

/// Endpoints that the client uses and no recording is of.
const UNRECORDED: [&str; 2] = ["GET /nodes/{node}/version", "POST /access/ticket"];

/// At least 95 % of the recordings of the client's own endpoints come out as Proxmox meant them: a success decodes, an
/// error has a known meaning and Proxmox's words.
#[tokio::test(start_paused = true)]
async fn recordings_replay_through_the_client() {
    let (mut replayed, mut own, mut foreign) = (0, 0, 0);
    let mut failures = Vec::new();
    let mut endpoints = BTreeSet::from(UNRECORDED.map(str::to_owned));
    let all = recordings();
    for recording in &all {
        let Some(result) = replay(recording).await else {
            foreign += 1;
            continue;
        };
        own += 1;
        endpoints.insert(recording.endpoint());
        let verdict = match &result {
            Ok(_) if recording.status == 200 => Ok(()),
            // Some refusals are the very answer to the question asked.
            Ok(answer) if ["false", "refused before sending"].contains(&answer.as_str()) => Ok(()),
            Ok(answer) => Err(format!(
                "status {} was taken for success: {answer}",
                recording.status
            )),
            Err(error) if recording.status == 200 => Err(error.chain()),
            Err(error) if error.meaning == Meaning::Unexpected => Err(error.chain()),
            Err(error) => {
                let words = recording.body["message"]
                    .as_str()
                    .unwrap_or(&recording.reason)
                    .trim();
                if error.text().contains(words) {
                    Ok(())
                } else {
                    Err(format!("{:?} lost its words: {words}", error.text()))
                }
            }
        };
        match verdict {
            Ok(()) => replayed += 1,
            Err(reason) => failures.push(format!("{}: {reason}", recording.name)),
        }
    }
    // Straight to standard error: the test runner shows what is printed otherwise only when the test fails.
    let mut report = std::io::stderr().lock();
    writeln!(
        report,
        "recordings: {} in all, {foreign} of endpoints that the client does not use; replayed through client and classifier: {replayed} of {own}",
        all.len()
    )
    .expect("standard error takes text");
    for failure in &failures {
        writeln!(report, "  not replayed: {failure}").expect("standard error takes text");
    }
    let asked: BTreeSet<String> = every_request()
        .await
        .iter()
        .map(|request| endpoint(request.method(), path_of(&request.uri().to_string())))
        .collect();
    assert_eq!(endpoints, asked, "the endpoints that the client uses");
    assert!(own >= 190, "the client's endpoints have {own} recordings");
    assert!(replayed * 100 >= own * 95, "{failures:#?}");
}

/// What the recordings say, read through the client, value by value.
#[tokio::test(start_paused = true)]
async fn recorded_answers_are_read_right() {
    let all = recordings();
    let client_of = |name: &str, others: fn(&str) -> Option<Value>| {
        let recording = all.iter().find(|recording| recording.name == name).unwrap();
        recording.served(others).0
    };
    let lone = |path: &str| {
        (path == "/cluster/status").then(|| json!([{"type": "node", "name": "pve1", "online": 1}]))
    };

    let inventory = client_of("st-resources", lone).inventory().await.unwrap();
    assert!(inventory.complete && inventory.quorate);
    let hypervisor = inventory.hypervisor("pve1").unwrap();
    assert!(hypervisor.online);
    assert_eq!(
        (hypervisor.threads, hypervisor.memory_total),
        (2, 25_276_514_304)
    );
    assert!(hypervisor.storage("shared").unwrap().shared);
    let guest = inventory.guest(301).unwrap();
    assert_eq!(
        (guest.pool.as_deref(), guest.name.as_deref(), guest.max_mem),
        (Some("k8s"), Some("p1"), 2_147_483_648)
    );
    assert!(inventory.guest(9000).unwrap().template && !guest.template);

    let resources = |path: &str| (path == "/cluster/resources").then(|| json!([]));
    assert!(
        client_of("c2-status", resources)
            .inventory()
            .await
            .unwrap()
            .quorate
    );
    assert!(
        !client_of("c3-nq-status", resources)
            .inventory()
            .await
            .unwrap()
            .quorate
    );
    assert!(
        client_of("status", resources)
            .inventory()
            .await
            .unwrap()
            .quorate
    );

    let status = |path: &str| {
        let local = |name: &str, local: u8| json!({"type": "node", "name": name, "local": local, "online": 1, "ip": format!("10.0.0.{local}")});
        (path == "/cluster/status")
            .then(|| json!([{"type": "cluster"}, local("pve2", 0), local("pve1", 1)]))
    };
    let members = client_of("c2-nodes", status).members().await.unwrap();
    let known: Vec<String> = members
        .iter()
        .map(|it| {
            let fingerprint = it.fingerprint.unwrap().to_string();
            format!(
                "{} {:?} {} {}",
                it.name,
                it.address,
                it.is_local,
                &fingerprint[..8]
            )
        })
        .collect();
    assert_eq!(
        known,
        [
            "pve1 Some(\"10.0.0.1\") true D3:1E:A4",
            "pve2 Some(\"10.0.0.0\") false FF:6C:38"
        ]
    );
    let listed = |path: &str| (path == "/nodes").then(|| json!([]));
    let members = client_of("c3-nq-status", listed).members().await.unwrap();
    let seen: Vec<_> = members
        .iter()
        .map(|it| (it.address.as_deref(), it.is_online, it.fingerprint))
        .collect();
    assert_eq!(
        seen,
        [
            (Some("10.99.0.1"), true, None),
            (Some("10.99.0.2"), false, None)
        ]
    );

    let config = client_of("config-after", |_| None)
        .read_config("pve1", 101)
        .await
        .unwrap();
    assert_eq!((config.memory_mib, config.cores), (Some(4096), Some(2)));
    assert_eq!(config.tags, ["k8s_pool", "owned-by.x"]);
    assert_eq!(config.description, "line1\nline2");

    let current = client_of("current", |_| None)
        .status_current("pve1", 101)
        .await
        .unwrap();
    assert!(current.running == Some(true) && !current.ha_managed);

    assert!(
        client_of("delete-ok-res", |_| None)
            .vmid_is_free(301)
            .await
            .unwrap()
    );
}
