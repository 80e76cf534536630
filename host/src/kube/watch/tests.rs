use futures::stream;
use serde_json::json;

use super::*;

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
    assert_eq!(
        received(events).await,
        ["+a", "+b", "+c", "synced", "+b", "+d", "-a", "-c"]
    );
}

/// Follows a watch that a list of so long begins, that lives for so long and then ends so. Returns for how long it was followed; nothing was told of it
/// but the list.
async fn followed(list: Duration, life: Duration, end: watcher::Error) -> Duration {
    let (sender, mut receiver) = mpsc::channel(8);
    let mut follower = Follower::new(sender);
    let started = Instant::now();
    let begin = stream::once(async { Ok(Event::Init) });
    let listed = stream::once(async move {
        tokio::time::sleep(list).await;
        Ok(Event::InitDone)
    });
    let end = stream::once(async move {
        tokio::time::sleep(life).await;
        Err(end)
    });
    // Whoever goes on with this watch waits for ever.
    let events = begin.chain(listed).chain(end).chain(stream::pending());
    let mut events = std::pin::pin!(events);
    let followed = follower.follow::<PodView>(&mut events);
    let ended = tokio::time::timeout(Duration::from_secs(3600), followed).await;
    assert!(matches!(ended, Ok(Ok(()))));
    assert!(matches!(receiver.try_recv(), Ok(Report::Synced(_))));
    assert!(receiver.try_recv().is_err(), "an expiry is no failure");
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_as_too_old_is_begun_anew_after_a_pause() {
    // However long its list took: the pause is the server's.
    for list in [Duration::ZERO, Duration::from_secs(5)] {
        let refused = watcher::Error::WatchStartFailed(kube::Error::Api(too_old()));
        let time = followed(list, Duration::ZERO, refused).await;
        assert_eq!(time, list + EXPIRED_INTERVAL);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_expires_after_a_while_is_begun_anew_at_once() {
    let life = Duration::from_secs(300);
    for expired in [
        watcher::Error::WatchError(too_old()),
        watcher::Error::WatchFailed(kube::Error::Api(too_old())),
    ] {
        assert_eq!(followed(Duration::ZERO, life, expired).await, life);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_becomes_too_old_is_told_and_removes_nothing() {
    let mut events = listed(&["a", "b"]);
    events.push(Ok(Event::Init));
    events.push(Ok(Event::InitApply(pod("a"))));
    let refused = watcher::Error::InitialListFailed(kube::Error::Api(too_old()));
    events.push(Err(refused));
    events.extend(listed(&["a", "b"]));
    let words = received(events).await;
    let (told, others): (Vec<_>, Vec<_>) = words
        .iter()
        .map(String::as_str)
        .partition(|word| word.starts_with("failed"));
    assert_eq!(told.len(), 1, "{words:?}");
    assert!(
        !others.iter().any(|word| word.starts_with('-')),
        "{words:?}"
    );
    assert!(others.contains(&"recovered"), "{words:?}");
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
    events.extend(listed(&["a", "b"]));
    let words = received(events).await;
    assert!(!words.iter().any(|word| word.starts_with('-')), "{words:?}");
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
