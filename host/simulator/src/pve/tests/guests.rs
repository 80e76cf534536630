//! What runs in guests: the agent's answers, and commands that somebody else carries out.

use super::*;

const AGENT: &str = "/nodes/pve1/qemu/9001/agent";

/// One machine, VM 9001, whose guest agent answers.
fn with_an_agent() -> World {
    let mut topology = Topology::of(1);
    topology.vms[0].template = false;
    topology.vms[0].running = true;
    let world = World::new(topology);
    world.pve.set_agent_ready(9001, true).unwrap();
    world
}

#[tokio::test(start_paused = true)]
async fn commands_in_the_guest_are_the_physics_to_answer() {
    let world = with_an_agent();
    let mut events = world.pve.machine_events();
    world
        .pve
        .set_guest(9001, "node-a", &["10.0.0.7".into()])
        .unwrap();
    let (_, body) = world
        .call(
            Method::POST,
            &format!("{AGENT}/exec"),
            "command=sh&command=-s&input-data=join",
        )
        .await;
    let pid = body["data"]["pid"].as_u64().unwrap();
    let event = events.recv().await.unwrap();
    assert!(
        matches!(&event, MachineEvent::AgentExec { command, input, .. } if command == &["sh", "-s"] && input == b"join")
    );
    let path = format!("{AGENT}/exec-status?pid={pid}");
    assert_eq!(world.get(&path).await, json!({"exited": 0}));
    let failed = CommandResult {
        exitcode: 3,
        out: "log ✓\n".into(),
        ..CommandResult::default()
    };
    world.pve.complete_exec(9001, pid as u32, failed).unwrap();
    assert_eq!(
        world.get(&path).await,
        json!({"exited": 1, "exitcode": 3, "out-data": "log \u{e2}\u{9c}\u{93}\n", "out-truncated": 0})
    );
    assert_eq!(
        world.get(&format!("{AGENT}/get-host-name")).await["result"]["host-name"],
        "node-a"
    );
    let interfaces = world.get(&format!("{AGENT}/network-get-interfaces")).await;
    assert_eq!(
        interfaces["result"][1]["ip-addresses"][0]["ip-address"],
        "10.0.0.7"
    );
}

/// As recorded: `r2-agent-input-latin1`, `r2-agent-input-wide`, `r2-agent-exec-missing`, `p8-agent-exec-status-twice`.
#[tokio::test(start_paused = true)]
async fn n1_n5_guests_get_bytes_and_say_how_a_command_ended_once() {
    let world = with_an_agent();
    let mut events = world.pve.machine_events();
    let exec = async |input: &str| {
        let form = format!("command=sh&input-data={input}");
        let path = format!("{AGENT}/exec");
        world.send(Method::POST, &path, &form).await
    };
    let answer = exec("gr%C3%BCn").await;
    let pid = serde_json::from_slice::<Value>(answer.body()).unwrap()["data"]["pid"].clone();
    let event = events.recv().await.unwrap();
    assert!(
        matches!(&event, MachineEvent::AgentExec { input, .. } if input == b"gr\xfcn"),
        "{event:?}"
    );
    let said = |answer: &Response<Bytes>| {
        let reason = answer.extensions().get::<hyper::ext::ReasonPhrase>();
        let reason = reason.map(|reason| String::from_utf8_lossy(reason.as_bytes()).into_owned());
        (answer.status().as_u16(), reason.unwrap_or_default())
    };
    let wide =
        "Wide character in subroutine entry at /usr/share/perl5/PVE/QemuServer/Agent.pm line 135.";
    let answer = exec("%E2%9C%93").await;
    assert_eq!(said(&answer), (500, wide.to_owned()));

    let done = CommandResult::default();
    let number = pid.as_u64().unwrap() as u32;
    world.pve.complete_exec(9001, number, done).unwrap();
    let path = format!("{AGENT}/exec-status?pid={pid}");
    assert_eq!(world.get(&path).await, json!({"exited": 1, "exitcode": 0}));
    let again = world.send(Method::GET, &path, "").await;
    let gone = "Agent error: PID ld does not exist".to_owned();
    assert_eq!(said(&again), (500, gone));

    // As recorded: `r2-agent-exec-signal-status`.
    exec("").await;
    let killed = CommandResult {
        signal: Some(9),
        ..CommandResult::default()
    };
    let number = number + 1;
    world.pve.complete_exec(9001, number, killed).unwrap();
    let path = format!("{AGENT}/exec-status?pid={number}");
    assert_eq!(world.get(&path).await, json!({"exited": 1, "signal": 9}));

    world.pve.take_shell(9001).unwrap();
    let asked = Instant::now();
    let answer = exec("join").await;
    assert_eq!(said(&answer), (596, "Broken pipe".to_owned()));
    assert!(answer.body().is_empty() && asked.elapsed() >= Duration::from_secs(5));
    let (status, _) = world.call(Method::POST, &format!("{AGENT}/ping"), "").await;
    assert_eq!(status, 200);
}
