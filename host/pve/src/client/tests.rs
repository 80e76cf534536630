use std::time::Duration;

use serde_json::json;
use tokio::time::{advance, sleep};

use super::*;
use crate::auth::{Credentials, CredentialsError};
use crate::error::Reaction;
use crate::fixtures::{self, Answer, bare, data, endpoint, one, refusal};

mod endpoints;
mod guests;
mod proofs;

fn refused() -> Answer {
    let cause = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    Err(TransportError::Connect(cause.into()))
}

fn broken() -> Answer {
    let cause = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    Err(TransportError::Broken(cause.into()))
}

fn is_probe(request: &http::Request<Bytes>) -> bool {
    request.uri().path() == "/api2/json/cluster/status"
}

#[tokio::test(start_paused = true)]
async fn a_token_is_in_every_request() {
    let (client, asked) = one(|_| data(json!({"version": "9.2.11"})));
    assert_eq!(client.version().await.unwrap().major(), 9);
    let requests = asked.requests();
    assert_eq!(
        requests[0].headers()["authorization"],
        "PVEAPIToken=aut@pve!full=secret"
    );
    assert!(requests[0].headers()["authorization"].is_sensitive());
}

#[tokio::test(start_paused = true)]
async fn the_text_comes_from_the_body_or_the_reason_phrase() {
    let (client, _) = one(|_| refusal(500, "VM is locked (clone)"));
    assert_eq!(
        client.version().await.unwrap_err().text(),
        "VM is locked (clone)"
    );

    let (client, _) =
        one(|_| fixtures::answer(500, "VM is locked (backup)", json!({"data": null})));
    let error = client.version().await.unwrap_err();
    assert_eq!(
        error.chain(),
        "GET /version at pve1: the VM is locked by Proxmox (backup): VM is locked (backup)"
    );
}

#[tokio::test(start_paused = true)]
async fn f34_complaints_about_parameters_are_shown() {
    let (client, _) = one(|_| {
        let body = json!({"data": null, "message": "Parameter verification failed.\n", "errors": {"tags": "invalid characters\n"}});
        fixtures::answer(400, "Parameter verification failed.", body)
    });
    let error = client.version().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "GET /version at pve1: Proxmox refused tags: invalid characters"
    );
    assert_eq!(
        (error.reaction(), error.executed),
        (Reaction::GiveUp, Executed::No)
    );
}

#[tokio::test(start_paused = true)]
async fn f32_a_wrong_token_says_what_to_check_and_rests() {
    let (client, asked) = one(|_| bare(401, "Authentication failed!"));
    let error = client.version().await.unwrap_err();
    assert_eq!(
        (error.reaction(), error.executed),
        (Reaction::Freeze, Executed::No)
    );
    assert!(
        error
            .chain()
            .contains("check token-id (user@realm!name) and token-secret"),
        "{}",
        error.chain()
    );
    assert!(error.chain().ends_with("Authentication failed!"));

    let again = client.version().await.unwrap_err();
    assert!(
        again.chain().contains("tried again before long"),
        "{}",
        again.chain()
    );
    assert_eq!(asked.lines().len(), 1);
    advance(Duration::from_secs(31)).await;
    client.version().await.unwrap_err();
    assert_eq!(asked.lines().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn f32_a_replaced_token_is_used_at_once() {
    let (endpoint, _) = endpoint("pve1", |request| {
        match request.headers()["authorization"].to_str().unwrap() {
            "PVEAPIToken=aut@pve!full=new" => data(json!({"version": "9"})),
            _ => bare(401, "Authentication failed!"),
        }
    });
    let secret = Arc::new(Mutex::new("old"));
    let read = secret.clone();
    let source: CredentialSource =
        Arc::new(move || Credentials::token("aut@pve!full", *read.lock().unwrap()));
    let client = Client::new(vec![endpoint], source, Concurrency::default());
    client.version().await.unwrap_err();
    *secret.lock().unwrap() = "new";
    client.version().await.unwrap();
}

/// A Secret that somebody edits, at a server that knows some tokens.
#[tokio::test(start_paused = true)]
async fn f99_new_credentials_that_are_refused_or_gone_leave_the_old_ones_in_use() {
    let valid = Arc::new(Mutex::new(vec!["one"]));
    let known = valid.clone();
    let (endpoint, asked) = endpoint("pve1", move |request| {
        let token = request.headers()["authorization"].to_str().unwrap();
        let mut known = known.lock().unwrap().clone().into_iter();
        match known.any(|secret| token == format!("PVEAPIToken=aut@pve!full={secret}")) {
            true => data(json!({"version": "9"})),
            false => bare(401, "Authentication failed!"),
        }
    });
    let secret = Arc::new(Mutex::new(Some("one")));
    let read = secret.clone();
    let source: CredentialSource = Arc::new(move || match *read.lock().unwrap() {
        Some(secret) => Credentials::token("aut@pve!full", secret),
        None => Err(CredentialsError::Characters("token-secret")),
    });
    let client = Client::new(vec![endpoint], source, Concurrency::default());
    client.version().await.unwrap();
    let unused = async || client.unused_credentials().await.unwrap_or_default();
    assert_eq!(unused().await, "");

    // Deleted, or half written.
    *secret.lock().unwrap() = None;
    tokio::time::advance(Duration::from_secs(60)).await;
    client.version().await.unwrap();
    assert!(
        unused()
            .await
            .starts_with("credentials: token-secret holds")
    );
    *secret.lock().unwrap() = Some("one");
    tokio::time::advance(Duration::from_secs(60)).await;
    client.version().await.unwrap();
    assert_eq!(unused().await, "");

    // Refused: it is told, and it is not shown to Proxmox in each request.
    *secret.lock().unwrap() = Some("two");
    tokio::time::advance(Duration::from_secs(60)).await;
    let before = asked.lines().len();
    for _ in 0..20 {
        client.version().await.unwrap();
        assert!(unused().await.contains("new credentials (aut@pve!full)"));
        tokio::time::advance(Duration::from_secs(11)).await;
    }
    assert_eq!(asked.lines().len() - before, 21);

    // Proxmox learns of it later, and then forgets the old one.
    *valid.lock().unwrap() = vec!["one", "two"];
    tokio::time::advance(Duration::from_secs(5 * 60)).await;
    client.version().await.unwrap();
    assert_eq!(unused().await, "");
    *valid.lock().unwrap() = vec!["two"];
    client.version().await.unwrap();

    // The one in use is revoked while a wrong one lies in the Secret: the next right one is taken all the same.
    *secret.lock().unwrap() = Some("three");
    tokio::time::advance(Duration::from_secs(60)).await;
    client.version().await.unwrap();
    assert_ne!(unused().await, "");
    *valid.lock().unwrap() = vec!["four"];
    client.version().await.unwrap_err();
    assert_eq!(unused().await, "");
    *secret.lock().unwrap() = Some("four");
    client.version().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn unusable_credentials_freeze_with_their_reason() {
    let (endpoint, asked) = endpoint("pve1", |_| data(json!(null)));
    let source: CredentialSource = Arc::new(|| Err(CredentialsError::TokenId("aut".to_owned())));
    let client = Client::new(vec![endpoint], source, Concurrency::default());
    let error = client.version().await.unwrap_err();
    assert_eq!(error.reaction(), Reaction::Freeze);
    assert!(
        error.chain().contains("token-id \"aut\""),
        "{}",
        error.chain()
    );
    assert!(asked.lines().is_empty());
}

/// A server with Proxmox's two-hour tickets.
fn ticketed() -> (Client, fixtures::Asked) {
    let started = Instant::now();
    let (endpoint, asked) = endpoint("pve1", move |request| {
        let now = started.elapsed().as_secs();
        if request.uri().path() == "/api2/json/access/ticket" {
            assert_eq!(
                request.body().as_ref(),
                b"username=aut%40pve&password=a%26b%3D"
            );
            return data(
                json!({"ticket": format!("T{now}"), "CSRFPreventionToken": format!("C{now}"), "username": "aut@pve"}),
            );
        }
        let header = |name: &str| {
            request
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap())
        };
        let issued = header("cookie").and_then(|cookie| cookie.strip_prefix("PVEAuthCookie=T"));
        let Some(issued) = issued.and_then(|issued| issued.parse::<u64>().ok()) else {
            return bare(401, "No ticket");
        };
        if now - issued > 2 * 60 * 60 {
            return bare(401, "permission denied - invalid PVE ticket");
        }
        if request.method() != http::Method::GET
            && header("csrfpreventiontoken") != Some(&format!("C{issued}"))
        {
            return bare(401, "Permission denied - invalid csrf token");
        }
        data(json!({"version": "9"}))
    });
    let source: CredentialSource = Arc::new(|| Credentials::password("aut@pve", "a&b=\n"));
    (
        Client::new(vec![endpoint], source, Concurrency::default()),
        asked,
    )
}

/// kproximate's B12: password login died after two hours.
#[tokio::test(start_paused = true)]
async fn b12_a_login_outlives_its_ticket() {
    let (client, asked) = ticketed();
    for _ in 0..10 {
        client.version().await.unwrap();
        client
            .configure("pve1", 101, Params::new().with("cores", 2), None)
            .await
            .unwrap();
        advance(Duration::from_secs(30 * 60)).await;
    }
    let refused = asked.lines().len() - 2 * 10;
    assert_eq!(
        refused, 5,
        "a new ticket every hour, and no request with an old one"
    );
}

#[tokio::test(start_paused = true)]
async fn many_calls_share_one_login() {
    let (client, asked) = ticketed();
    let calls = (0..5).map(|_| client.version());
    assert!(
        futures::future::join_all(calls)
            .await
            .iter()
            .all(Result::is_ok)
    );
    let logins = asked
        .lines()
        .iter()
        .filter(|line| line.starts_with("POST"))
        .count();
    assert_eq!(logins, 1);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_the_server_forgot_is_replaced_once() {
    let (endpoint, asked) = endpoint("pve1", |request| match request.uri().path() {
        "/api2/json/access/ticket" => data(json!({"ticket": "T", "CSRFPreventionToken": "C"})),
        _ => bare(401, "permission denied - invalid PVE ticket"),
    });
    let source: CredentialSource = Arc::new(|| Credentials::password("aut@pve", "x"));
    let client = Client::new(vec![endpoint], source, Concurrency::default());
    let error = client.version().await.unwrap_err();
    assert_eq!(error.meaning, Meaning::Unauthorized);
    assert!(asked.lines().len() <= 4, "{:?}", asked.lines());
}

#[tokio::test(start_paused = true)]
async fn a_second_factor_is_explained() {
    let (endpoint, _) = endpoint("pve1", |_| {
        data(json!({"ticket": "T", "CSRFPreventionToken": "C", "NeedTFA": 1}))
    });
    let source: CredentialSource = Arc::new(|| Credentials::password("aut@pve", "x"));
    let client = Client::new(vec![endpoint], source, Concurrency::default());
    assert!(
        client
            .version()
            .await
            .unwrap_err()
            .chain()
            .contains("use an API token")
    );
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_without_connection_is_passed_over_and_rests() {
    let (first, first_asked) = endpoint("pve1", |_| refused());
    let (second, _) = endpoint("pve2", |_| {
        data(json!("UPID:pve2:1:1:1:qmstart:101:a@pve:"))
    });
    let client = fixtures::client(vec![first, second]);
    // Nothing was sent, so a write may go elsewhere.
    client.start("pve2", 101).await.unwrap();
    client.start("pve2", 101).await.unwrap();
    assert_eq!(first_asked.lines().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn all_endpoints_down_is_one_error() {
    let (first, _) = endpoint("pve1", |_| refused());
    let (second, _) = endpoint("pve2", |_| refused());
    let error = fixtures::client(vec![first, second])
        .version()
        .await
        .unwrap_err();
    assert_eq!(
        (error.meaning.clone(), error.executed),
        (Meaning::Unreachable, Executed::No)
    );
    assert_eq!(error.reaction(), Reaction::Retry);
    assert_eq!(error.endpoint(), "pve2");
}

#[tokio::test(start_paused = true)]
async fn f40_a_restarting_daemon_is_told_from_an_offline_hypervisor() {
    // The endpoint's own daemon is down: its probe fails too, and the next endpoint does the work.
    let (first, _) = endpoint("pve1", |_| bare(595, "Connection refused"));
    let (second, _) = endpoint("pve2", |_| {
        data(json!("UPID:pve1:1:1:1:qmstart:101:a@pve:"))
    });
    fixtures::client(vec![first, second])
        .start("pve1", 101)
        .await
        .unwrap();

    // The hypervisor is down: the endpoint is healthy, and asking another one would only cost time.
    let (first, _) = endpoint("pve1", |request| {
        if is_probe(request) {
            data(json!([]))
        } else {
            bare(595, "No route to host")
        }
    });
    let (second, second_asked) = endpoint("pve2", |_| data(json!(null)));
    let error = fixtures::client(vec![first, second])
        .start("pve3", 101)
        .await
        .unwrap_err();
    assert_eq!(
        (error.meaning.clone(), error.executed),
        (Meaning::HypervisorOffline, Executed::No)
    );
    assert_eq!(error.reaction(), Reaction::OtherHypervisor);
    assert!(second_asked.lines().is_empty());

    let (only, _) = endpoint("pve1", |_| bare(595, "Connection refused"));
    let error = fixtures::client(vec![only])
        .start("pve1", 101)
        .await
        .unwrap_err();
    assert_eq!(error.meaning, Meaning::EndpointDown);
}

#[tokio::test(start_paused = true)]
async fn f31_a_write_with_a_lost_answer_is_never_repeated() {
    for lost in [broken as fn() -> Answer, || {
        bare(596, "Connection timed out")
    }] {
        let (first, _) = endpoint("pve1", move |_| lost());
        let (second, second_asked) = endpoint("pve2", |_| data(json!(null)));
        let error = fixtures::client(vec![first, second])
            .start("pve1", 101)
            .await
            .unwrap_err();
        assert_eq!(
            (error.meaning.clone(), error.executed),
            (Meaning::AnswerLost, Executed::Unknown)
        );
        assert_eq!(error.reaction(), Reaction::LookFirst);
        assert!(second_asked.lines().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_with_a_lost_answer_is_asked_elsewhere() {
    let (first, _) = endpoint("pve1", |_| broken());
    let (second, _) = endpoint("pve2", |_| data(json!({"version": "9"})));
    fixtures::client(vec![first, second])
        .version()
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn f53_silence_ends_at_the_deadline() {
    let silent = tower::service_fn(|_: http::Request<Bytes>| async {
        sleep(Duration::from_secs(3600)).await;
        Err::<Response<Bytes>, _>(TransportError::TooLarge)
    });
    let client = fixtures::client(vec![Endpoint::new("pve1", silent)]);
    let before = Instant::now();
    let error = client.start("pve1", 101).await.unwrap_err();
    assert_eq!(before.elapsed(), REQUEST_DEADLINE);
    assert_eq!(error.executed, Executed::Unknown);
    assert_eq!(
        error.chain(),
        "POST /nodes/pve1/qemu/101/status/start at pve1: the answer was lost: no answer: no answer within 35 s"
    );
}

#[tokio::test(start_paused = true)]
async fn f53_an_endpoint_that_hangs_does_not_hold_up_the_inventory() {
    let silent = tower::service_fn(|_: http::Request<Bytes>| async {
        sleep(Duration::from_secs(3600)).await;
        Err::<Response<Bytes>, _>(TransportError::TooLarge)
    });
    let (second, _) = endpoint("pve2", |_| data(json!([])));
    let client = fixtures::client(vec![Endpoint::new("pve1", silent), second]);
    let before = Instant::now();
    client.inventory().await.unwrap();
    client.inventory().await.unwrap();
    assert_eq!(before.elapsed(), LOCAL_READ_DEADLINE);
}

#[tokio::test(start_paused = true)]
async fn f55_an_unreadable_answer_to_a_write_means_done() {
    let (client, _) = one(|_| data(json!({"not": "a upid"})));
    let error = client.start("pve1", 101).await.unwrap_err();
    assert_eq!(
        (error.meaning.clone(), error.executed),
        (Meaning::Undecodable, Executed::Yes)
    );
    assert_eq!(error.reaction(), Reaction::LookFirst);
}

#[tokio::test(start_paused = true)]
async fn f33_a_missing_privilege_is_named_with_the_way_to_it() {
    let (client, _) = one(|_| refusal(403, "Permission check failed (/vms/301, VM.Audit)"));
    let error = client.read_config("pve1", 301).await.unwrap_err();
    assert_eq!(error.reaction(), Reaction::GiveUp);
    assert!(error.to_string().ends_with(
        "missing privilege VM.Audit on /vms/301: grant it to the user and to its token"
    ));
}

#[tokio::test(start_paused = true)]
async fn f53_no_more_than_two_workers_of_a_hypervisor_are_used() {
    let busy = Arc::new(Mutex::new((0, 0)));
    let seen = busy.clone();
    let slow = tower::service_fn(move |_: http::Request<Bytes>| {
        let busy = busy.clone();
        async move {
            {
                let mut busy = busy.lock().unwrap();
                busy.0 += 1;
                busy.1 = busy.1.max(busy.0);
            }
            sleep(Duration::from_secs(3)).await;
            busy.lock().unwrap().0 -= 1;
            data(json!(null))
        }
    });
    let client = fixtures::client(vec![Endpoint::new("pve1", slow)]);
    let pings = (101..107).map(|vmid| client.agent_ping("pve1", vmid));
    futures::future::join_all(pings).await;
    assert_eq!(seen.lock().unwrap().1, 2);
}

#[tokio::test(start_paused = true)]
async fn follow_waits_for_the_end() {
    let started = Instant::now();
    let (client, asked) = one(move |_| {
        let done = started.elapsed() >= Duration::from_secs(8);
        if done {
            data(json!({"status": "stopped", "exitstatus": "WARNINGS: 1"}))
        } else {
            data(json!({"status": "running"}))
        }
    });
    let upid = "UPID:pve1:1:1:1:qmdestroy:101:a@pve:".parse().unwrap();
    let patience = Duration::from_secs(60);
    assert_eq!(
        client.follow(&upid, patience).await.unwrap(),
        crate::task::Outcome::Warnings(1)
    );
    assert!(asked.lines().len() <= 9, "at most one look per second");

    let (client, _) = one(|_| data(json!({"status": "running"})));
    let before = Instant::now();
    assert_eq!(
        client.follow(&upid, patience).await.unwrap(),
        crate::task::Outcome::Running
    );
    assert_eq!(before.elapsed(), patience);
}

#[tokio::test(start_paused = true)]
async fn p7_a_lost_clone_that_waited_for_locks_is_found_by_its_log() {
    let (client, _) = one(|request| {
        let uri = request.uri().to_string();
        let upid =
            |pid: u32| format!("UPID:pve1:{pid:08X}:00000001:{pid:08X}:qmclone:9000:aut@pve!full:");
        if uri.contains("/tasks?") {
            return data(json!([{"upid": upid(1)}, {"upid": upid(2)}]));
        }
        let vmid = 100 + u32::from(uri.contains("%3A00000002%3A00000001"));
        let named = format!("creating a clone of VM 9000 with ID {vmid}");
        let lines = [
            "trying to acquire lock...",
            " OK",
            "trying to acquire lock...",
            " OK",
            &named,
        ];
        let lines = lines.iter().enumerate();
        data(
            lines
                .map(|(at, text)| json!({"n": at + 1, "t": text}))
                .collect(),
        )
    });
    for (vmid, pid) in [(100, 1), (101, 2)] {
        let found = client.find_clone("pve1", 9000, vmid, None).await.unwrap();
        assert_eq!(found.unwrap().started_at, pid, "{vmid}");
    }
    assert_eq!(
        client.find_clone("pve1", 9000, 77, None).await.unwrap(),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_clone_is_found_by_its_log() {
    let (client, _) = one(|request| {
        let uri = request.uri().to_string();
        let upid =
            |pid: u32| format!("UPID:pve1:{pid:08X}:00000001:{pid:08X}:qmclone:9000:aut@pve!full:");
        if uri.contains("/tasks?") {
            assert!(
                uri.contains("typefilter=qmclone&vmid=9000&source=all"),
                "{uri}"
            );
            data(json!([{"upid": upid(1)}, {"upid": upid(3)}, {"upid": upid(2)}]))
        } else {
            let vmid = if uri.contains("%3A00000003%3A00000001") {
                1101
            } else {
                101
            };
            data(json!([{"n": 1, "t": format!("creating a clone of VM 9000 with ID {vmid}")}]))
        }
    });
    let found = client
        .find_clone("pve1", 9000, 101, None)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        found.started_at, 2,
        "the newest of this VM, not the newest of all"
    );
    assert_eq!(
        client.find_clone("pve1", 9000, 77, None).await.unwrap(),
        None
    );
}
