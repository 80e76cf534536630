use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::fixtures::{Server, Way};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn seen(holder: &str, at: Instant) -> Seen {
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        ..LeaseSpec::default()
    };
    Seen { spec, at }
}

#[tokio::test(start_paused = true)]
async fn the_rule() {
    let start = Instant::now();
    let later = |seconds: u32| start + seconds * SECOND;
    let check = |holder: Option<&str>, leading_until: Option<u32>, now: u32, expected: Step| {
        let seen = holder.map(|holder| seen(holder, start));
        let step = next(seen.as_ref(), "me", leading_until.map(later), later(now));
        assert_eq!(step, expected, "{holder:?} {leading_until:?} {now}");
    };
    check(None, None, 0, Step::Acquire);
    check(Some(""), None, 0, Step::Acquire);
    check(Some("me"), None, 0, Step::Acquire);
    check(Some("other"), None, 0, Step::Wait(later(15)));
    check(Some("other"), None, 14, Step::Wait(later(15)));
    check(Some("other"), None, 15, Step::Acquire);
    check(Some("me"), Some(10), 9, Step::Renew);
    check(Some("me"), Some(10), 10, Step::StepDown);
    check(Some("other"), Some(10), 1, Step::StepDown);
    check(None, Some(10), 1, Step::StepDown);
}

/// A client whose requests reach the server at once, and not at all while it is silent.
fn prompt(server: &Server, silent: &Arc<AtomicBool>) -> Client {
    let silent = silent.clone();
    server.client(move |_| match silent.load(Ordering::SeqCst) {
        true => Way::default(),
        false => Way::PROMPT,
    })
}

fn spec(server: &Server, field: &str) -> Value {
    let state = server.state();
    let lease = state.lease.as_ref();
    lease
        .map(|lease| lease["spec"][field].clone())
        .unwrap_or_default()
}

struct Replica {
    fence: Fence,
    resign: CancellationToken,
    stop: CancellationToken,
    task: JoinSet<()>,
}

fn replica(server: &Server, identity: &str) -> Replica {
    replica_on(server.client(|_| Way::PROMPT), identity)
}

fn replica_on(client: Client, identity: &str) -> Replica {
    let settings = LeaseSettings {
        namespace: "kproxide".to_owned(),
        name: "kproxide".to_owned(),
        identity: identity.to_owned(),
        duration: 15 * SECOND,
        renew_deadline: 10 * SECOND,
        retry: 2 * SECOND,
    };
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let (resign, stop) = (CancellationToken::new(), CancellationToken::new());
    let (fence, run) = elector(
        client,
        settings,
        clock,
        format!("r{identity}"),
        resign.clone(),
        stop.clone(),
    );
    let mut task = JoinSet::new();
    task.spawn(run);
    Replica {
        fence,
        resign,
        stop,
        task,
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_keeps_leading() {
    let server = Server::default();
    let a = replica(&server, "a");
    seconds(1).await;
    let b = replica(&server, "b");
    for _ in 0..60 {
        seconds(1).await;
        assert!(a.fence.leads() && !b.fence.leads());
    }
    assert_eq!(&*a.fence.epoch(), "0-ra");
    assert_eq!(spec(&server, "leaseTransitions"), json!(0));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_hands_over_at_once() {
    let server = Server::default();
    let mut a = replica(&server, "a");
    seconds(1).await;
    let b = replica(&server, "b");
    seconds(5).await;
    a.stop.cancel();
    while a.task.join_next().await.is_some() {}
    assert!(!a.fence.leads());
    assert_eq!(spec(&server, "holderIdentity"), json!(""));
    seconds(2).await;
    assert!(b.fence.leads());
    assert_eq!(&*b.fence.epoch(), "1-rb");
}

/// The fence closes before anybody else may acquire.
#[tokio::test(start_paused = true)]
async fn f74_a_leader_that_cannot_renew_stops_before_another_begins() {
    let (server, silent) = <(Server, Arc<AtomicBool>)>::default();
    let a = replica_on(prompt(&server, &silent), "a");
    seconds(3).await;
    let until = a.fence.is_leader_until().unwrap();
    silent.store(true, Ordering::SeqCst);
    tokio::time::sleep_until(until).await;
    assert!(!a.fence.leads());
    // From the server's side the Lease is still held.
    silent.store(false, Ordering::SeqCst);
    let b = replica(&server, "b");
    seconds(1).await;
    assert!(!(a.fence.leads() && b.fence.leads()));
    seconds(30).await;
    assert!(a.fence.leads() ^ b.fence.leads());
}

/// A leader that is killed does not release; the next one waits for the whole duration from when it last saw a change.
#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_waited_for() {
    let server = Server::default();
    let mut a = replica(&server, "a");
    seconds(1).await;
    let b = replica(&server, "b");
    seconds(20).await;
    a.task.abort_all();
    while a.task.join_next().await.is_some() {}
    seconds(12).await;
    assert!(!b.fence.leads());
    seconds(6).await;
    assert!(b.fence.leads());
}

/// It leads no more at once. Others get in when its steps have ended, or after as long as if it had been killed.
#[tokio::test(start_paused = true)]
async fn s2_a_leader_that_resigns_releases_the_lease_once_its_steps_have_ended() {
    for (steps, waits) in [(5, 5..=8), (60, 12..=18)] {
        let server = Server::default();
        let mut a = replica(&server, "a");
        seconds(1).await;
        let b = replica(&server, "b");
        seconds(20).await;
        a.resign.cancel();
        let resigned = Instant::now();
        tokio::task::yield_now().await;
        assert!(!a.fence.leads());
        let stop = async {
            seconds(steps).await;
            a.stop.cancel();
        };
        let taken = async {
            while !b.fence.leads() {
                tokio::time::sleep(SECOND / 10).await;
            }
            resigned.elapsed().as_secs()
        };
        let ((), taken) = tokio::join!(stop, taken);
        assert!(waits.contains(&taken), "{steps}: {taken}");
        while a.task.join_next().await.is_some() {}
        seconds(20).await;
        assert!(b.fence.leads(), "{steps}");
    }
}

#[tokio::test(start_paused = true)]
async fn f73_a_leader_whose_lease_was_taken_steps_down() {
    let server = Server::default();
    let a = replica(&server, "a");
    seconds(3).await;
    {
        let mut state = server.state();
        state.version += 1;
        let version = state.version.to_string();
        let lease = state.lease.as_mut().unwrap();
        lease["metadata"]["resourceVersion"] = json!(version);
        lease["spec"]["holderIdentity"] = json!("thief");
    }
    seconds(5).await;
    assert!(!a.fence.leads());
}

/// Each renewal takes effect at once and is answered 7.5 s later; then nothing is heard of the leader any more. Others count from the effect: its own
/// term must too.
#[tokio::test(start_paused = true)]
async fn f74_a_term_counts_from_when_its_renewal_was_sent() {
    let server = Server::default();
    let sent: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (renewals, late) = (sent.clone(), Duration::from_millis(7500));
    let a = replica_on(
        server.client(move |method| {
            let mut sent = renewals.lock().unwrap();
            if *method != Method::PUT {
                return Way::PROMPT;
            }
            sent.push(Instant::now());
            Way {
                there: (sent.len() <= 3).then_some(Duration::ZERO),
                back: Some(late),
            }
        }),
        "a",
    );
    seconds(1).await;
    let b = replica(&server, "b");
    let mut led = false;
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!(a.fence.leads() && b.fence.leads()), "both lead");
        led |= b.fence.leads();
        let sent = sent.lock().unwrap();
        let answered = sent.iter().take(3).rfind(|sent| sent.elapsed() > late);
        if let (Some(until), Some(answered)) = (a.fence.is_leader_until(), answered) {
            assert_eq!(until, *answered + 10 * SECOND);
        }
    }
    assert!(led && sent.lock().unwrap().len() > 3);
}
