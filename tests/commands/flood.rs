//! S2: any pod may reach the admin port, and hold there what it can. S12: any tenant may ask for more planning than there is time.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kproxide_simulator::kube::fixtures;
use kproxide_testkit::{eventually, free_port};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, Command};

use super::{Api, SOON, create_objects, served};

/// From one of 64 addresses of this machine.
async fn say(number: u8, port: u16, words: &[u8]) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    let from = format!("127.0.1.{}:0", number % 64 + 1);
    socket.bind(from.parse().unwrap()).unwrap();
    let to = format!("127.0.0.1:{port}").parse().unwrap();
    let mut stream = socket.connect(to).await?;
    // Others may have taken its place already.
    let _ = stream.write_all(words).await;
    Ok(stream)
}

/// As the kubelet probes.
async fn probe(port: u16) -> bool {
    asked(port, "/healthz").await
}

/// Whether the answer is 200, by one new connection, with 5 seconds for all of it.
async fn asked(port: u16, path: &str) -> bool {
    let probed = async {
        let words = format!("GET {path} HTTP/1.1\r\nhost: probe\r\n\r\n");
        let mut answer = String::new();
        let Ok(mut stream) = say(7, port, words.as_bytes()).await else {
            return false;
        };
        let read = stream.read_to_string(&mut answer).await;
        read.is_ok() && answer.starts_with("HTTP/1.1 200 ")
    };
    let probed = tokio::time::timeout(Duration::from_secs(5), probed).await;
    probed.unwrap_or(false)
}

/// A pod of somebody else comes and runs on a machine made for it, and all the while each probe is answered.
async fn gets_a_machine(api: &Api, port: u16) {
    // More than any Node of the simulated cluster offers.
    let pod = fixtures::pod("waits", "6", "12Gi");
    api.create("/api/v1/namespaces/default/pods", &pod).await;
    eventually(SOON, "the pod running on a machine", async || {
        assert!(probe(port).await);
        let pod = api.get("/api/v1/namespaces/default/pods/waits").await;
        let running = pod["status"]["phase"] == "Running";
        running.then_some(()).ok_or(pod["status"].to_string())
    })
    .await;
}

/// A replica beside that simulation, with as few descriptors as containerd 2 gives.
fn host(out: &str, port: u16) -> Child {
    let run = format!(
        "ulimit -n 1024; exec {} run --kubeconfig {out}/kubeconfig --credentials-dir {out}/credentials \
         --admin-address 127.0.0.1:{port} --poll-interval=1s --inventory-max-age=1s",
        env!("CARGO_BIN_EXE_kproxide"),
    );
    Command::new("/bin/sh")
        .args(["-c", &run])
        .env_clear()
        .stdin(Stdio::null())
        .stderr(File::create(log(out, port)).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

fn log(out: &str, port: u16) -> String {
    format!("{out}/log-{port}")
}

/// Who holds the Lease, and since when; empty before anybody does.
async fn lease(api: &Api) -> Value {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kproxide/leases";
    api.get(leases).await["items"][0]["spec"].clone()
}

/// This process holds the other ends of all those connections.
fn take_descriptors() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit {
            current: maximum,
            maximum,
        };
        setrlimit(Resource::Nofile, limit).unwrap();
    }
}

/// As S2 had it: a limit of 1,024 open files, half-sent requests and slow readers, and all the while probes, the Lease and work.
#[tokio::test]
async fn s2_2000_half_open_connections_stop_neither_probes_nor_work() {
    take_descriptors();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let _simulation = served(&out).await;
    let api = Api::of(Path::new(&format!("{out}/kubeconfig")));
    let connection = std::fs::read_to_string(format!("{out}/pve.json")).unwrap();
    create_objects(&api, &serde_json::from_str(&connection).unwrap()).await;
    let port = free_port().unwrap();
    let _host = host(&out, port);
    eventually(SOON, "a leader that answers", async || {
        let spec = lease(&api).await;
        let leads = spec["holderIdentity"].is_string();
        let listens = TcpStream::connect(("127.0.0.1", port)).await.is_ok();
        (leads && listens).then_some(()).ok_or(spec.to_string())
    })
    .await;
    let before = lease(&api).await;

    let mut held = Vec::new();
    for number in 0..2000 {
        let half: &[u8] = match number % 10 {
            // It asks for much, and never reads it.
            0 => b"GET /debug/plan HTTP/1.1\r\nhost: slow\r\n\r\n",
            _ => b"GET /healthz HTTP/1.1\r\nhost: h",
        };
        held.push(say(number as u8, port, half).await.unwrap());
        if number % 200 == 199 {
            assert!(probe(port).await, "{number}");
        }
    }
    gets_a_machine(&api, port).await;
    let after = lease(&api).await;
    assert_eq!(after["holderIdentity"], before["holderIdentity"]);
    assert_ne!(after["renewTime"], before["renewTime"]);
    assert_eq!(held.len(), 2000);
}

/// Pods of one tenant, each with so many terms that keep it from others on its server.
async fn terms(api: &Api, pods: u32, terms: u32) {
    for number in 0..pods {
        let term = |index: u32| {
            let labels = json!({ "matchLabels": { "app": format!("a-{number}-{index}") } });
            json!({ "labelSelector": labels, "topologyKey": "kubernetes.io/hostname" })
        };
        let all: Vec<Value> = (0..terms).map(term).collect();
        let mut pod = fixtures::pod(&format!("a-{number}"), "100m", "64Mi");
        pod["metadata"]["namespace"] = json!("evil");
        pod["metadata"]["labels"] = json!({ "app": format!("a-{number}-0") });
        // No Node has it, so the scheduler is done with them soon.
        pod["spec"]["nodeSelector"] = json!({ "nobody": "has-this" });
        pod["spec"]["affinity"] =
            json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": all } });
        api.create("/api/v1/namespaces/evil/pods", &pod).await;
    }
}

/// As S12 had it: what one namespace asks of planning took minutes a tick.
#[tokio::test]
#[ignore = "tier: e2e"]
async fn s12_thousands_of_terms_of_one_tenant_stop_neither_probes_nor_others() {
    for (pods, count) in [(100, 1500), (1500, 20), (300, 200), (60, 500)] {
        others_are_served_beside(pods, count).await;
    }
}

async fn others_are_served_beside(pods: u32, count: u32) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let _simulation = served(&out).await;
    let api = Api::of(Path::new(&format!("{out}/kubeconfig")));
    let connection = std::fs::read_to_string(format!("{out}/pve.json")).unwrap();
    create_objects(&api, &serde_json::from_str(&connection).unwrap()).await;
    let evil = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "evil" } });
    api.create("/api/v1/namespaces", &evil).await;
    terms(&api, pods, count).await;
    let port = free_port().unwrap();
    let host = host(&out, port);
    eventually(SOON, "a process that is ready", async || {
        let is_ready = asked(port, "/readyz").await;
        is_ready.then_some(()).ok_or("not ready".to_owned())
    })
    .await;
    gets_a_machine(&api, port).await;
    let status = format!("/proc/{}/status", host.id().unwrap());
    let status = std::fs::read_to_string(status).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let most: u64 = most
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    eprintln!("{pods} pods of {count} terms: {most} KiB");
    assert!(
        most * 1024 < 250_000_000,
        "{pods} pods of {count} terms: {most} KiB of memory"
    );
}

/// Somebody else takes the descriptors away, such as a node whose table of files is full: nothing can be opened any more, and what is open goes on.
#[cfg(target_os = "linux")]
#[tokio::test]
#[ignore = "tier: e2e"]
async fn s2_a_replica_without_descriptors_makes_room_for_another() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let _simulation = served(&out).await;
    let api = Api::of(Path::new(&format!("{out}/kubeconfig")));
    let port = free_port().unwrap();
    let mut first = host(&out, port);
    let leads = async || {
        let holder = &lease(&api).await["holderIdentity"];
        holder.as_str().map(str::to_owned).ok_or(holder.to_string())
    };
    let holder = eventually(SOON, "a leader", leads).await;
    let standby_port = free_port().unwrap();
    let _standby = host(&out, standby_port);
    // Each has opened what it needs: its watches have their first lists.
    eventually(SOON, "two replicas that are ready", async || {
        let ready = (
            asked(port, "/readyz").await,
            asked(standby_port, "/readyz").await,
        );
        (ready == (true, true))
            .then_some(())
            .ok_or(format!("{ready:?}"))
    })
    .await;
    let pid = Pid::from_raw(i32::try_from(first.id().unwrap()).unwrap());
    let none = Rlimit {
        current: Some(4),
        maximum: Some(4),
    };
    prlimit(pid, Resource::Nofile, none).unwrap();
    eventually(Duration::from_secs(90), "another leader", async || {
        let now = lease(&api).await["holderIdentity"].clone();
        let other = now
            .as_str()
            .is_some_and(|it| !it.is_empty() && *it != holder);
        other.then_some(()).ok_or(now.to_string())
    })
    .await;
    let ended = tokio::time::timeout(SOON, first.wait()).await;
    let code = ended.unwrap().unwrap().code();
    let said = std::fs::read_to_string(log(&out, port)).unwrap();
    let reason = "kproxide: for 60 s no connection and no file could be opened";
    assert!(code == Some(1) && said.contains(reason), "{said}");
}
