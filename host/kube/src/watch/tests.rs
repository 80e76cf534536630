use std::sync::{Arc, Mutex};

use futures::stream;
use serde_json::json;

use super::*;
use crate::view::PodView;

fn pod(name: &str) -> PodView {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop", "uid": name}}))
        .unwrap()
}

/// What is received, one word per item: `+a` seen, `-a` gone, or the word of the report.
async fn received(events: Vec<watcher::Result<Event<PodView>>>) -> Vec<String> {
    let (sender, mut receiver) = mpsc::channel(1);
    let watch = async move {
        let mut follower = Follower::new(sender);
        let mut events = stream::iter(events).peekable();
        // What is left goes on as the watch that is begun anew.
        while std::pin::Pin::new(&mut events).peek().await.is_some() {
            let _ = follower.follow::<PodView>(&mut events).await;
        }
    };
    let collect = async {
        let mut words = Vec::new();
        while let Some(report) = receiver.recv().await {
            match report {
                Report::Changes(_, changes) => {
                    words.extend(changes.iter().map(|change| match change {
                        Change::Delta(Delta::Pod(key, Some(_))) => format!("+{}", key.name),
                        Change::Delta(Delta::Pod(key, None)) => format!("-{}", key.name),
                        other => format!("{other:?}"),
                    }))
                }
                Report::Synced(_) => words.push("synced".to_owned()),
                Report::Failed(_, problem) => words.push(format!("failed: {problem}")),
                Report::Recovered(_) => words.push("recovered".to_owned()),
            }
        }
        words
    };
    futures::join!(watch, collect).1
}

fn listed(names: &[&str]) -> Vec<watcher::Result<Event<PodView>>> {
    let applies = names.iter().map(|name| Ok(Event::InitApply(pod(name))));
    std::iter::once(Ok(Event::Init))
        .chain(applies)
        .chain([Ok(Event::InitDone)])
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_list_is_followed_by_synced_and_changes_by_changes() {
    let mut events = listed(&["a", "b"]);
    events.push(Ok(Event::Apply(pod("c"))));
    events.push(Ok(Event::Delete(pod("a"))));
    let words = received(events).await;
    // All were ready at once, so they came as one batch.
    assert_eq!(words, ["+a", "+b", "+c", "-a", "synced"]);
}

/// What the API server says of a version that it has forgotten.
fn too_old() -> Box<kube::core::Status> {
    Box::new(kube::core::Status::failure("too old resource version", "Expired").with_code(410))
}

#[tokio::test(start_paused = true)]
async fn f58_f62_what_went_away_while_nobody_watched_is_gone() {
    let mut events = listed(&["a", "b", "c"]);
    events.push(Err(watcher::Error::WatchError(too_old())));
    events.extend(listed(&["b", "d"]));
    let mut words = received(events).await;
    // An expiry in the very instant of its list is a failure too; this is about what changed.
    words.retain(|word| !word.starts_with("failed") && word != "recovered");
    let changed = ["+a", "+b", "+c", "synced", "+b", "+d", "-a", "-c"];
    assert_eq!(words, changed);
}

/// One watch: its list takes so long, then it lives for so long and ends so.
struct Watch {
    list: Duration,
    life: Duration,
    end: fn() -> watcher::Error,
}

/// Follows watches, one after the other, and returns for how long each was followed until the next could begin, and how often a failure was told.
async fn followed(watches: impl IntoIterator<Item = Watch>) -> (Vec<Duration>, usize) {
    let (sender, mut receiver) = mpsc::channel(64);
    let mut follower = Follower::new(sender);
    let mut times = Vec::new();
    for Watch { list, life, end } in watches {
        let started = Instant::now();
        let begin = stream::once(async { Ok(Event::Init) });
        let listed = stream::once(async move {
            tokio::time::sleep(list).await;
            Ok(Event::InitDone)
        });
        let end = stream::once(async move {
            tokio::time::sleep(life).await;
            Err(end())
        });
        // Whoever goes on with this watch waits for ever.
        let events = begin.chain(listed).chain(end).chain(stream::pending());
        let mut events = std::pin::pin!(events);
        let followed = follower.follow::<PodView>(&mut events);
        let ended = tokio::time::timeout(Duration::from_secs(3600), followed).await;
        assert!(matches!(ended, Ok(Ok(()))));
        times.push(started.elapsed());
    }
    drop(follower);
    let mut failures = 0;
    while let Some(report) = receiver.recv().await {
        failures += usize::from(matches!(report, Report::Failed(..)));
    }
    (times, failures)
}

fn refused_as_too_old() -> watcher::Error {
    watcher::Error::WatchStartFailed(kube::Error::Api(too_old()))
}

fn refused() -> watcher::Error {
    let status = kube::core::Status::failure("watch is forbidden", "Forbidden").with_code(403);
    watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(status)))
}

fn seconds(times: &[Duration]) -> Vec<u64> {
    times.iter().map(Duration::as_secs).collect()
}

/// However long its list took, and whatever the refusal says: the lists themselves work, and must not come every second for ever.
#[tokio::test(start_paused = true)]
async fn f58_a_watch_that_is_refused_after_each_list_is_told_and_rests_longer_each_time() {
    for end in [refused_as_too_old, refused] {
        let list = Duration::from_secs(5);
        let watch = |_| Watch {
            list,
            life: Duration::ZERO,
            end,
        };
        let (times, failures) = followed((0..7).map(watch)).await;
        assert_eq!(seconds(&times), [6, 7, 9, 13, 21, 35, 35]);
        assert_eq!(failures, 7);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lived_for_a_while_was_sound() {
    let lives = [0, 0, 0, 29, 30, 0].map(|seconds| Watch {
        list: Duration::ZERO,
        life: Duration::from_secs(seconds),
        end: refused,
    });
    let (times, _) = followed(lives).await;
    assert_eq!(seconds(&times), [1, 2, 4, 29 + 8, 30 + 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn f58_a_watch_that_expires_after_a_while_is_begun_anew_at_once() {
    let in_the_stream = || watcher::Error::WatchError(too_old());
    let by_its_status = || watcher::Error::WatchFailed(kube::Error::Api(too_old()));
    // The last: the server closed the watch, and refused to go on with it.
    for end in [in_the_stream, by_its_status, refused_as_too_old] {
        for life in [SHORTEST_LIFE, Duration::from_secs(300)] {
            let list = Duration::ZERO;
            let (times, failures) = followed([Watch { list, life, end }]).await;
            assert_eq!(
                (times, failures),
                (vec![life], 0),
                "an expiry is no failure"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn f58_a_list_that_becomes_too_old_is_told_and_removes_nothing() {
    let mut events = listed(&["a", "b"]);
    events.push(Ok(Event::Init));
    events.push(Ok(Event::InitApply(pod("a"))));
    let refused = watcher::Error::InitialListFailed(kube::Error::Api(too_old()));
    events.push(Err(refused));
    // "a" is gone since: the half list that held it must not keep it.
    events.extend(listed(&["b"]));
    let words = received(events).await;
    let told = |word: &&String| word.starts_with("failed");
    assert_eq!(words.iter().filter(told).count(), 1, "{words:?}");
    let failed = words.iter().position(|word| word.starts_with("failed"));
    let after = &words[failed.unwrap() + 1..];
    assert_eq!(after, ["+b", "-a", "recovered"]);
    let gone = |word: &&String| word.starts_with('-');
    assert_eq!(words.iter().filter(gone).count(), 1, "{words:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_once_per_try_and_waited_for_longer_each_time() {
    let started = Instant::now();
    let failure = || Err(watcher::Error::NoResourceVersion);
    let mut events = vec![failure(), failure(), failure()];
    events.extend(listed(&["a"]));
    let words = received(events).await;
    assert_eq!(
        words
            .iter()
            .filter(|word| word.starts_with("failed"))
            .count(),
        3
    );
    assert_eq!(words[3..], ["+a", "recovered", "synced"]);
    assert_eq!(started.elapsed().as_secs(), 1 + 2 + 4);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_removes_nothing() {
    let mut events = listed(&["a", "b"]);
    events.extend([
        Ok(Event::Init),
        Ok(Event::InitApply(pod("b"))),
        Err(watcher::Error::NoResourceVersion),
    ]);
    events.extend(listed(&["a"]));
    let words = received(events).await;
    let gone: Vec<&String> = words.iter().filter(|word| word.starts_with('-')).collect();
    // Only by the list that was whole, and although the one that broke off held it.
    assert_eq!(gone, ["-b"], "{words:?}");
    assert_eq!(words.last().map(String::as_str), Some("recovered"));
}

#[tokio::test(start_paused = true)]
async fn large_lists_come_in_bounded_batches() {
    let names: Vec<String> = (0..1000).map(|n| format!("p{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (sender, mut receiver) = mpsc::channel(8);
    let events = listed(&names);
    let watch = async move {
        let mut follower = Follower::new(sender);
        let mut events = stream::iter(events).peekable();
        // What is left goes on as the watch that is begun anew.
        while std::pin::Pin::new(&mut events).peek().await.is_some() {
            let _ = follower.follow::<PodView>(&mut events).await;
        }
    };
    let collect = async {
        let mut total = 0;
        while let Some(report) = receiver.recv().await {
            if let Report::Changes(_, changes) = report {
                assert!(changes.len() <= CHANGES_ENOUGH);
                total += changes.len();
            }
        }
        total
    };
    assert_eq!(futures::join!(watch, collect).1, 1000);
}

/// The lists that a server gives, each a version and names; after the last of them that one again.
type Lists = [(u64, &'static [&'static str]); 3];

/// What is received from a server with these lists until the watch works again. Each watch shows `event`, if there is one, and expires; the failure
/// says `told`.
async fn received_over(
    lists: Lists,
    event: Option<serde_json::Value>,
    told: &'static str,
) -> Vec<String> {
    let given = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (given, event) = (given.clone(), event.clone());
        async move {
            let is_watch = request
                .uri()
                .query()
                .unwrap_or_default()
                .contains("watch=true");
            let answer = if is_watch {
                tokio::time::sleep(Duration::from_secs(2)).await;
                let status = json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"});
                let shown = event.map(|event| format!("{event}\n")).unwrap_or_default();
                format!("{shown}{}", json!({"type": "ERROR", "object": status}))
            } else {
                let nth = given.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let (version, names) = lists[nth.min(lists.len() - 1)];
                let items: Vec<_> = names
                    .iter()
                    .map(|name| json!({"metadata": {"name": name, "namespace": "shop", "uid": name}}))
                    .collect();
                // In the order of the real one.
                format!(
                    r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":{}}}"#,
                    serde_json::Value::from(items)
                )
            };
            Ok::<_, tower::BoxError>(http::Response::new(kube::client::Body::from(
                answer.into_bytes(),
            )))
        }
    });
    let (sender, mut receiver) = mpsc::channel(64);
    let collect = async {
        let mut words = Vec::new();
        while words.last().is_none_or(|word| word != "recovered") {
            match receiver.recv().await.unwrap() {
                Report::Changes(_, changes) => {
                    words.extend(changes.iter().map(|change| match change {
                        Change::Delta(Delta::Pod(key, Some(_))) => format!("+{}", key.name),
                        Change::Delta(Delta::Pod(key, None)) => format!("-{}", key.name),
                        other => format!("{other:?}"),
                    }))
                }
                Report::Synced(_) => words.push("synced".to_owned()),
                Report::Failed(_, problem) => {
                    assert!(problem.contains(told), "{problem}");
                    words.push("failed".to_owned());
                }
                Report::Recovered(_) => words.push("recovered".to_owned()),
            }
        }
        words
    };
    tokio::select! {
        () = run::<PodView>(Client::from_service(service), sender) => panic!("it never ends"),
        words = collect => words,
    }
}

#[tokio::test(start_paused = true)]
async fn f60_a_server_that_lags_behind_removes_nothing() {
    let lists: Lists = [(9, &["a", "b"]), (5, &["a"]), (10, &["a"])];
    assert_eq!(
        received_over(lists, None, "resourceVersion 5, was 9").await,
        ["+a", "+b", "synced", "failed", "+a", "-b", "recovered"]
    );
}

#[tokio::test(start_paused = true)]
async fn f60_f112_what_a_watch_has_shown_is_not_removed_by_an_older_list() {
    let lists: Lists = [(5, &["a"]), (7, &["a"]), (10, &["a"])];
    let metadata = json!({"name": "b", "namespace": "shop", "uid": "b", "resourceVersion": "9"});
    let event = json!({"type": "ADDED", "object": {"metadata": metadata}});
    assert_eq!(
        received_over(lists, Some(event), "resourceVersion 7, was 9").await,
        ["+a", "synced", "+b", "failed", "+a", "-b", "recovered"]
    );
}

/// A server with so many pods of so many bytes each, which writes down how many are asked for at once. Its watches expire after two seconds.
fn large_pods(pods: Arc<Mutex<(usize, usize)>>, asked: Arc<Mutex<Vec<usize>>>) -> Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (pods, asked) = (pods.clone(), asked.clone());
        async move {
            let answer = if query.contains("watch=true") {
                tokio::time::sleep(Duration::from_secs(2)).await;
                json!({"type": "ERROR", "object": *too_old()})
            } else {
                let number = |key: &str| -> Option<usize> {
                    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                    pairs.find(|(name, _)| *name == key)?.1.parse().ok()
                };
                let (first, limit) = (number("continue").unwrap_or(0), number("limit").unwrap());
                asked.lock().unwrap().push(limit);
                let (count, bytes) = *pods.lock().unwrap();
                let end = count.min(first + limit);
                let items = (first..end).map(|pod| json!({
                    "metadata": {"name": format!("p{pod}"), "namespace": "shop", "uid": pod.to_string()},
                    "spec": {"containers": [{"name": "c", "env": [{"name": "LARGE", "value": "x".repeat(bytes)}]}]},
                }));
                let items: Vec<_> = items.collect();
                let next = if end < count {
                    end.to_string()
                } else {
                    String::new()
                };
                let metadata = json!({"resourceVersion": "9", "continue": next});
                json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items})
            };
            Ok::<_, tower::BoxError>(http::Response::new(kube::client::Body::from(
                answer.to_string().into_bytes(),
            )))
        }
    });
    Client::from_service(service)
}

/// 40 pods of a megabyte: more in one page than is read.
#[tokio::test(start_paused = true)]
async fn s12_fewer_pods_are_listed_at_once_where_they_are_large() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let client = large_pods(Arc::new(Mutex::new((40, 1 << 20))), asked.clone());
    let started = Instant::now();
    let (sender, mut receiver) = mpsc::channel(64);
    let synced = async {
        let mut pods = 0;
        loop {
            match receiver.recv().await.unwrap() {
                Report::Changes(_, changes) => pods += changes.len(),
                Report::Synced(_) => return pods,
                Report::Failed(_, problem) => assert!(problem.contains("larger"), "{problem}"),
                Report::Recovered(_) => {}
            }
        }
    };
    let pods = tokio::select! {
        () = run::<PodView>(client, sender) => panic!("it never ends"),
        pods = synced => pods,
    };
    assert_eq!((pods, started.elapsed().as_secs()), (40, 0));
    let asked = asked.lock().unwrap();
    assert_eq!(asked[..], [500, 62, 7, 7, 7, 7, 7, 7]);
}

/// Two of them are as large as etcd's default allows, written as JSON. Later they are small.
#[tokio::test(start_paused = true)]
async fn s12_the_largest_pods_are_listed_one_by_one_and_many_again_once_they_are_gone() {
    let (pods, asked) = (Arc::new(Mutex::new((2, 9 << 20))), Arc::default());
    let client = large_pods(pods.clone(), Arc::clone(&asked));
    let (sender, mut receiver) = mpsc::channel(64);
    let told = async { while receiver.recv().await.is_some() {} };
    let time = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        pods.lock().unwrap().1 = 1;
        tokio::time::sleep(Duration::from_secs(6)).await;
    };
    tokio::select! {
        () = run::<PodView>(client, sender) => panic!("it never ends"),
        () = told => panic!("it never ends"),
        () = time => {}
    }
    let asked = asked.lock().unwrap();
    assert_eq!(asked[..], [500, 62, 7, 1, 1, 8, 1, 1, 8, 64, 500]);
}
