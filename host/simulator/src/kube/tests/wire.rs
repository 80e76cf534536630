//! The API behind a listener and behind faults.

use super::*;

#[tokio::test]
async fn the_same_api_on_the_wire() {
    let (kube, _) = world();
    run(&kube, "a");
    let wire = crate::wire::Wire::serve(kube.whole_requests(), crate::wire::Options::default())
        .await
        .unwrap();
    let mut config = ::kube::Config::new(wire.url().parse().unwrap());
    let pem: String = wire
        .ca_pem()
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let der = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, pem).unwrap();
    config.root_cert = Some(vec![der]);
    let client = Client::try_from(config).unwrap();
    let mut events = pin!(watcher(Api::<Pod>::all(client), watcher::Config::default()));
    while !matches!(
        events.next().await.unwrap().unwrap(),
        watcher::Event::InitDone
    ) {}
    run(&kube, "b");
    assert!(
        matches!(events.next().await.unwrap().unwrap(), watcher::Event::Apply(pod) if pod.name_any() == "b")
    );
}

#[tokio::test(start_paused = true)]
async fn faults_fit_in_between() {
    use crate::faults::{Dialect, Fault, Faults};
    let (kube, _) = world();
    let faults = Faults::new(1);
    let client = Client::new(
        Collecting(faults.around(kube.whole_requests(), Dialect::Kubernetes)),
        "default",
    );
    faults.inject(crate::matcher::Matcher::any(), Fault::LoseAnswer, 1);
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.create(&PostParams::default(), &pod("a"))
        .await
        .unwrap_err();
    assert_eq!(
        pods.get("a").await.unwrap().name_any(),
        "a",
        "the request took effect"
    );
}
