//! Commands in guests, whose agents die and come back.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Proxmox: an agent that could not start the program closes its connection. So does one that is started anew.
#[tokio::test(start_paused = true)]
async fn n5_a_broken_pipe_is_asked_twice_and_only_if_the_agent_lives() {
    let lives = || data(json!({"result": {}}));
    let pipe = || bare(596, "Broken pipe");
    let started = || data(json!({"pid": 7}));
    let dead = || refusal(500, "QEMU guest agent is not running");
    let denied = || {
        refusal(
            403,
            "Permission check failed (/vms/101, VM.GuestAgent.Audit)",
        )
    };
    let locked = || refusal(500, "VM is locked (backup)");
    type Said = fn() -> Answer;
    type Ended = Result<i64, (Meaning, Executed)>;
    let denial = Meaning::PermissionDenied {
        path: Some("/vms/101".to_owned()),
        privilege: Some("VM.GuestAgent.Audit".to_owned()),
    };
    let lock = Meaning::Locked {
        lock: "backup".to_owned(),
    };
    let cases: [(Said, Said, Ended, usize); 5] = [
        (lives, pipe, Err((Meaning::NoShell, Executed::No)), 2),
        (lives, started, Ok(7), 2),
        (
            dead,
            started,
            Err((Meaning::AgentDown, Executed::Unknown)),
            1,
        ),
        // What the first has done is as unknown as before.
        (denied, started, Err((denial, Executed::Unknown)), 1),
        (lives, locked, Err((lock, Executed::Unknown)), 2),
    ];
    for (ping, second, expected, times) in cases {
        let asked = AtomicUsize::new(0);
        let (client, log) = one(move |request| match request.uri().path() {
            path if path.ends_with("/agent/ping") => ping(),
            path if path.ends_with("/agent/exec") => match asked.fetch_add(1, Ordering::Relaxed) {
                0 => pipe(),
                _ => second(),
            },
            _ => data(json!([])),
        });
        let ended = client.agent_exec("pve1", 101, &["sh"], None).await;
        let ended = ended.map_err(|error| (error.meaning.clone(), error.executed));
        assert_eq!(ended, expected);
        let requests = log.requests();
        let paths = requests.iter().map(|it| it.uri().path());
        assert_eq!(paths.filter(|it| it.ends_with("/exec")).count(), times);
    }
}
