//! Lists and watches.

use super::*;

#[tokio::test(start_paused = true)]
async fn lists_in_pages_and_by_selectors() {
    let (kube, client) = world();
    for index in 0..5 {
        run(&kube, &format!("p{index}"));
    }
    kube.create(
        "pods",
        json!({"metadata": {"name": "lone"}, "spec": {"containers": []}}),
    )
    .unwrap();
    let pods: Api<Pod> = Api::all(client);
    let first = pods.list(&ListParams::default().limit(4)).await.unwrap();
    assert_eq!(
        (first.items.len(), first.metadata.remaining_item_count),
        (4, Some(2))
    );
    let token = first.metadata.continue_.unwrap();
    let rest = pods
        .list(&ListParams::default().continue_token(&token))
        .await
        .unwrap();
    let names: Vec<String> = rest.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["p3", "p4"]);
    assert_eq!(
        rest.metadata.resource_version,
        first.metadata.resource_version
    );

    let count = async |params: ListParams| pods.list(&params).await.unwrap().items.len();
    assert_eq!(count(ListParams::default().labels("app=web")).await, 5);
    assert_eq!(
        count(ListParams::default().fields("spec.nodeName=")).await,
        1
    );
    assert_eq!(
        count(ListParams::default().fields("status.phase=Running,metadata.name!=p0")).await,
        4
    );
    let unknown = pods
        .list(&ListParams::default().fields("spec.x=y"))
        .await
        .unwrap_err();
    assert_eq!(
        code(unknown),
        (400, "field label not supported: spec.x".to_owned())
    );
    run(&kube, "later");
    kube.compact();
    let expired = pods
        .list(&ListParams::default().continue_token(&token))
        .await
        .unwrap_err();
    assert_eq!(code(expired).0, 410);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_follows_and_survives_410() {
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let (kube, client) = world();
        run(&kube, "a");
        let api: Api<Pod> = Api::all(client);
        let mut events = pin!(watcher(api, config).default_backoff());
        let mut next = async || match events.next().await.unwrap() {
            Ok(watcher::Event::Init) => "init".to_owned(),
            Ok(watcher::Event::InitApply(pod)) => format!("init {}", pod.name_any()),
            Ok(watcher::Event::InitDone) => "done".to_owned(),
            Ok(watcher::Event::Apply(pod)) => format!("apply {}", pod.name_any()),
            Ok(watcher::Event::Delete(pod)) => format!("delete {}", pod.name_any()),
            Err(error) => format!("error {error}")
                .split(" (")
                .next()
                .unwrap()
                .to_owned(),
        };
        while next().await != "done" {}
        run(&kube, "b");
        for _ in 0..3 {
            assert_eq!(next().await, "apply b");
        }
        let now = DeleteOptions {
            grace: Some(0),
            ..DeleteOptions::default()
        };
        kube.delete_with("pods", "default", "a", &now).unwrap();
        assert_eq!(next().await, "delete a");
        // What happened while nobody read is compacted away: the watcher is told so and lists anew.
        run(&kube, "c");
        kube.compact();
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| last != "done") {
            seen.push(next().await);
        }
        assert_eq!(seen[seen.len() - 3..], ["init b", "init c", "done"]);
        run(&kube, "d");
        assert_eq!(next().await, "apply d");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_gets_bookmarks_and_ends_in_time() {
    let (kube, _) = world();
    let start = tokio::time::Instant::now();
    let request = http::Request::get(
        "/api/v1/pods?watch=true&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=150",
    );
    let response = kube
        .handle(request.body(bytes::Bytes::new()).unwrap())
        .await;
    let text = http_body_util::BodyExt::collect(response.into_body())
        .await
        .unwrap()
        .to_bytes();
    let kinds: Vec<Value> = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice::<Value>(line).unwrap()["type"].clone())
        .collect();
    assert_eq!(kinds, ["BOOKMARK", "BOOKMARK"]);
    assert_eq!(start.elapsed(), Duration::from_secs(150));
}

#[tokio::test(start_paused = true)]
async fn a_label_that_stops_matching_is_a_deletion_for_the_watch() {
    let (kube, client) = world();
    run(&kube, "a");
    let api: Api<Pod> = Api::all(client);
    let mut events = pin!(watcher(api, watcher::Config::default().labels("app=web")));
    while !matches!(
        events.next().await.unwrap().unwrap(),
        watcher::Event::InitDone
    ) {}
    let patch = json!({"metadata": {"labels": {"app": "other"}}});
    kube.patch("pods", "", "default", "a", patch).unwrap();
    assert!(matches!(
        events.next().await.unwrap().unwrap(),
        watcher::Event::Delete(_)
    ));
}
