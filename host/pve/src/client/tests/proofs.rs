//! When a write may leave, and whose answers are one picture.

use super::*;

const BEGUN: &str = "UPID:pve1:1:1:1:qmstop:101:a@pve:";

/// Both workers that we allow ourselves on a hypervisor are busy with guests whose agents do not answer.
#[tokio::test(start_paused = true)]
async fn a_write_asks_whether_it_may_leave_when_its_turn_has_come() {
    let (client, asked) = one(|_| data(json!(BEGUN)));
    let may = Arc::new(Mutex::new(true));
    let asks = may.clone();
    let writer = client
        .clone()
        .writing_only_while(Arc::new(move || *asks.lock().unwrap()));
    let busy = [
        client.limits().to_read("pve1").await,
        client.limits().to_read("pve1").await,
    ];
    let turn_comes = async {
        sleep(Duration::from_secs(1)).await;
        *may.lock().unwrap() = false;
        drop(busy);
    };
    let (stopped, ()) = tokio::join!(writer.stop("pve1", 101), turn_comes);
    let error = stopped.unwrap_err();
    assert_eq!(
        (error.meaning.clone(), error.executed, error.reaction()),
        (Meaning::Withheld, Executed::No, Reaction::Retry)
    );
    assert!(asked.lines().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_write_waits_for_its_turn_for_seconds_only_and_goes_before_reads() {
    let (client, asked) = one(|_| data(json!(BEGUN)));
    let first = client.limits().to_read("pve1").await;
    let second = client.limits().to_read("pve1").await;
    let began = Instant::now();
    let error = client.stop("pve1", 101).await.unwrap_err();
    assert_eq!(error.meaning, Meaning::Withheld);
    assert!(began.elapsed() < Duration::from_secs(6) && asked.lines().is_empty());

    // It would keep the worker for longer than a write waits.
    let reads = async {
        let _worker = client.limits().to_read("pve1").await;
        sleep(Duration::from_secs(60)).await;
    };
    let stops = async {
        sleep(Duration::from_secs(1)).await;
        client.stop("pve1", 101).await
    };
    let one_is_free = async {
        sleep(Duration::from_secs(2)).await;
        drop(first);
    };
    let ((), stopped, ()) = tokio::join!(reads, stops, one_is_free);
    stopped.unwrap();
    drop(second);
}

/// A partition: the endpoint with quorum goes silent, and the other one does not know the VM.
#[tokio::test(start_paused = true)]
async fn quorum_of_one_endpoint_and_absence_of_another_are_no_proof() {
    let status =
        json!([{"type": "cluster", "quorate": 1}, {"type": "node", "name": "pve1", "online": 1}]);
    let (first, _) = endpoint("pve1", move |request| match is_probe(request) {
        true => data(status.clone()),
        false => broken(),
    });
    let (second, _) = endpoint("pve2", |request| match request.uri().path() {
        "/api2/json/cluster/status" => data(
            json!([{"type": "cluster", "quorate": 0}, {"type": "node", "name": "pve2", "online": 1}]),
        ),
        "/api2/json/cluster/nextid" => data(json!("101")),
        _ => data(json!([{"type": "node", "node": "pve2", "status": "online"}])),
    });
    let client = fixtures::client(vec![first, second]);
    let look = client.at_one_endpoint();
    assert!(look.inventory().await.is_err());
    assert!(look.vmid_is_free(101).await.is_err());
    // The next look is another endpoint's from its beginning to its end.
    let look = client.at_one_endpoint();
    assert!(!look.inventory().await.unwrap().quorate);
    assert!(look.vmid_is_free(101).await.unwrap());
}

/// Proxmox: so does a member answer that does not know its fellows.
#[tokio::test(start_paused = true)]
async fn a_lone_answer_is_believed_of_its_own_machines_only_and_of_no_cluster() {
    let alone = Arc::new(Mutex::new(true));
    let is_alone = alone.clone();
    let (client, _) = one(move |request| match is_probe(request) {
        true if *is_alone.lock().unwrap() => {
            data(json!([{"type": "node", "name": "pve1", "online": 1}]))
        }
        true => data(
            json!([{"type": "cluster", "quorate": 1}, {"type": "node", "name": "pve1", "online": 1}]),
        ),
        false => data(json!([{"type": "node", "node": "pve1", "status": "online"}])),
    });
    let read = client.inventory().await.unwrap();
    assert!(read.quorate_for("pve1") && !read.quorate_for("pve2"));
    *alone.lock().unwrap() = false;
    assert!(client.inventory().await.unwrap().quorate_for("pve2"));
    *alone.lock().unwrap() = true;
    assert!(!client.inventory().await.unwrap().quorate_for("pve1"));
}
