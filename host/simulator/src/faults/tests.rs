use std::sync::atomic::{AtomicU32, Ordering};

use tower::{ServiceExt, service_fn};

use super::*;

/// A server that counts what took effect.
fn counting(
    effects: &Arc<AtomicU32>,
) -> impl Service<Request<Bytes>, Response = Response<Bytes>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let effects = effects.clone();
    service_fn(move |_| {
        let effects = effects.clone();
        async move {
            effects.fetch_add(1, Ordering::Relaxed);
            Ok(Response::new(Bytes::from_static(b"done")))
        }
    })
}

/// Sends one POST with a fault; returns the answer and how often the server acted.
async fn with(fault: Fault) -> (Result<Response<Bytes>, Broken>, u32) {
    let effects = Arc::default();
    let faults = Faults::new(1);
    faults.inject("clone".parse().unwrap(), fault, 1);
    let answer = faults
        .around(counting(&effects), Dialect::Proxmox)
        .oneshot(clone())
        .await;
    (answer, effects.load(Ordering::Relaxed))
}

fn clone() -> Request<Bytes> {
    Request::post("/api2/json/nodes/pve1/qemu/9000/clone")
        .body(Bytes::new())
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn faults_differ_in_effect_and_answer() {
    let (answer, effects) = with(Fault::Refuse).await;
    assert_eq!((answer.unwrap_err(), effects), (Broken::Refused, 0));
    let (answer, effects) = with(Fault::LoseAnswer).await;
    assert_eq!((answer.unwrap_err(), effects), (Broken::Lost, 1));
    let (answer, effects) = with(Fault::Fail).await;
    assert_eq!((answer.unwrap().status().as_u16(), effects), (500, 0));
    let (answer, effects) = with(Fault::Hang { applied: true }).await;
    assert_eq!((answer.unwrap().status().as_u16(), effects), (596, 1));
    let (answer, effects) = with(Fault::Delay(Duration::from_secs(1))).await;
    assert_eq!((answer.unwrap().status().as_u16(), effects), (200, 1));
}

/// Lets a client send requests until it dies; returns how many it got answers to and how many took effect.
async fn crash(request: u64, moment: Moment) -> (u32, u32) {
    let effects = Arc::default();
    let faults = Faults::new(1);
    faults.crash_at(CrashPoint { request, moment });
    let service = faults.around(counting(&effects), Dialect::Kubernetes);
    let answers = AtomicU32::new(0);
    let client = async {
        loop {
            if service.clone().oneshot(clone()).await.is_ok() {
                answers.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    tokio::select! {
        biased;
        () = client => {}
        () = faults.crashed() => {}
    }
    (
        answers.load(Ordering::Relaxed),
        effects.load(Ordering::Relaxed),
    )
}

#[tokio::test(start_paused = true)]
async fn client_dies_at_the_chosen_moment() {
    assert_eq!(crash(3, Moment::Before).await, (2, 2));
    assert_eq!(crash(3, Moment::Applied).await, (2, 3));
    assert_eq!(crash(3, Moment::Answered).await, (3, 3));
}

#[tokio::test(start_paused = true)]
async fn no_fault_keeps_the_client_from_dying() {
    let effects = Arc::default();
    let faults = Faults::new(1);
    faults.inject(Matcher::any(), Fault::Refuse, 1);
    faults.crash_at(CrashPoint {
        request: 1,
        moment: Moment::Applied,
    });
    let service = faults.around(counting(&effects), Dialect::Proxmox);
    tokio::select! {
        biased;
        answer = service.oneshot(clone()) => panic!("a dead client got {answer:?}"),
        () = faults.crashed() => {}
    }
    assert_eq!(effects.load(Ordering::Relaxed), 1);
    assert_eq!((faults.died().len(), faults.happened().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_arrives_when_its_client_is_dead() {
    let effects = Arc::default();
    let faults = Faults::new(1);
    faults.inject(Matcher::any(), Fault::Delay(Duration::from_secs(3)), 1);
    let service = faults.around(counting(&effects), Dialect::Proxmox);
    let asked = tokio::time::timeout(Duration::from_secs(1), service.oneshot(clone())).await;
    assert!(asked.is_err(), "it is under way");
    assert_eq!(effects.load(Ordering::Relaxed), 0);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(effects.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn chance_is_the_same_for_the_same_seed() {
    let run = async |seed| {
        let effects = Arc::default();
        let faults = Faults::new(seed);
        faults.set_rates(Rates {
            delay: 0.1,
            refuse: 0.1,
            fail: 0.1,
            lose_answer: 0.1,
            hang: 0.1,
        });
        let service = faults.around(counting(&effects), Dialect::Proxmox);
        for _ in 0..200 {
            let _ = service.clone().oneshot(clone()).await;
        }
        faults.happened()
    };
    let first = run(7).await;
    assert!(
        (60..140).contains(&first.len()),
        "{} faults in 200 requests",
        first.len()
    );
    assert_eq!(first, run(7).await);
    assert_ne!(first, run(8).await);
}
