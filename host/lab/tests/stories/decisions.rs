//! What policies answered, as the admin endpoints show it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use http::Request;
use kproxide_simulator::kube::fixtures;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::ServiceExt as _;

use super::degraded::{HOUR, lively};
use kproxide_common::captured::log_of;
use kproxide_common::decisions::{Candidate, Decision, Shown};
use kproxide_controller::admin;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished};

/// The decisions at the end of a run in which two pods come and, much later, go.
async fn decided(lab: &Lab) -> Vec<Decision> {
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let router = admin::router(app.vitals(), app.metrics());
    let look = async {
        for name in ["web-0", "web-1"] {
            lab.apply([("pods", fixtures::pod(name, "3", "1Gi"))]);
        }
        sleep(MACHINE).await;
        for name in ["web-0", "web-1"] {
            lab.kube.delete("pods", "default", name).unwrap();
        }
        sleep(HOUR).await;
        let request = Request::get("/debug/decisions").body(Body::empty());
        let answer = router.oneshot(request.unwrap()).await.unwrap();
        let json = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        host.stop.cancel();
        serde_json::from_slice::<Shown>(&json).unwrap().decisions
    };
    let (decisions, ended) = tokio::join!(look, app.run());
    ended.unwrap();
    decisions
}

#[tokio::test(start_paused = true)]
async fn each_answer_is_shown_with_every_candidate_and_the_choice() {
    let lab = furnished(
        Setting::new(1, 2),
        json!({}),
        // Labels are asked about too.
        json!({
            "limits": lively()["limits"], "scaleDown": lively()["scaleDown"],
            "labelTemplates": { "example.com/rack": "of-{{ .TargetHost }}" },
        }),
    );
    let decisions = decided(&lab).await;
    let of = |kind: &str| -> Vec<&Decision> {
        let all = decisions.iter();
        all.filter(|decision| decision.kind == kind).collect()
    };
    let names = |decision: &Decision| -> Vec<String> {
        let all = decision.candidates.iter();
        all.map(|candidate| candidate.name.clone()).collect()
    };

    let [first, second] = of("host-selection")[..] else {
        panic!("{decisions:?}");
    };
    for decision in [first, second] {
        assert_eq!(names(decision), ["home/pve1", "home/pve2"]);
        assert_eq!((&*decision.pool, &*decision.policy), ("workers", "spread"));
        assert_eq!(decision.digest.len(), 64, "{decision:?}");
        assert_eq!(decision.instance_type.as_deref(), Some("medium"));
        let [chosen] = &decision.chosen[..] else {
            panic!("{decision:?}");
        };
        let is_chosen = |candidate: &&Candidate| candidate.name == *chosen;
        let best = decision.candidates.iter().find(is_chosen).unwrap();
        assert!(best.score > Some(0.0) && !best.reason.is_empty());
        let mut scores = decision.candidates.iter().map(|candidate| candidate.score);
        assert!(scores.all(|score| score.is_some() && score <= best.score));
    }
    // The second machine is spread away from the first.
    assert_ne!(first.chosen, second.chosen);
    assert_ne!(first.claim, second.claim);
    assert!(first.decision_id.is_some() && first.decision_id != second.decision_id);

    let labels = of("labels");
    assert_eq!(names(labels[0]), ["home/pve1", "home/pve2"]);
    assert_eq!(
        labels[0].candidates[1].labels["example.com/rack"],
        "of-pve2"
    );

    let removals = of("scale-down");
    let gone: Vec<&String> = removals.iter().flat_map(|one| &one.chosen).collect();
    let placed: Vec<&String> = [first, second]
        .iter()
        .filter_map(|one| one.claim.as_ref())
        .collect();
    assert_eq!(gone.len(), 2, "{removals:?}");
    assert!(placed.iter().all(|claim| gone.contains(claim)));
    assert!(removals[0].candidates.iter().all(|one| one.score.is_some()));
}

/// What says so, of one decision.
#[derive(Debug, Default)]
struct Traces {
    log: Vec<String>,
    events: Vec<String>,
}

/// Log lines and reasons of Events with this id.
fn traces(id: &str, log: &[String], events: &[Value]) -> Traces {
    let said = log.iter().filter(|line| line.contains(id));
    let annotated = events.iter().filter(|event| {
        let found = event["metadata"]["annotations"]["kproxide.dev/decision"].as_str();
        found.is_some_and(|found| found.split(',').any(|one| one == id))
    });
    Traces {
        log: said.cloned().collect(),
        events: annotated
            .map(|event| event["reason"].as_str().unwrap().to_owned())
            .collect(),
    }
}

/// The ids that each NodeClaim shows while it lasts: of its launch, and of its removal.
async fn shown(lab: &Lab) -> BTreeMap<String, (String, String)> {
    let (app, host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let look = async {
        for name in ["web-0", "web-1"] {
            lab.apply([("pods", fixtures::pod(name, "3", "1Gi"))]);
        }
        sleep(MACHINE).await;
        for name in ["web-0", "web-1"] {
            lab.kube.delete("pods", "default", name).unwrap();
        }
        let mut shown = BTreeMap::new();
        for _ in 0..HOUR.as_secs() {
            for claim in lab.kube.list("nodeclaims.kproxide.dev") {
                let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
                let meta = &claim["metadata"];
                let ids = (
                    text(&meta["annotations"]["kproxide.dev/decision"]),
                    text(&claim["status"]["removalDecision"]),
                );
                shown.insert(text(&meta["name"]), ids);
            }
            sleep(Duration::from_secs(1)).await;
        }
        host.stop.cancel();
        shown
    };
    let (shown, ended) = tokio::join!(look, app.run());
    ended.unwrap();
    shown
}

/// Two launches and two removals, each through the log, its Events and its NodeClaim.
#[test]
fn a_decision_has_one_id_in_the_log_on_its_events_and_on_its_claim() {
    let life = async {
        let pool = json!({ "limits": lively()["limits"], "scaleDown": lively()["scaleDown"] });
        let lab = furnished(Setting::new(1, 2), json!({}), pool);
        let shown = shown(&lab).await;
        (shown, lab.kube.list("events.events.k8s.io"))
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let ((shown, events), log) = log_of(|| runtime.block_on(life));
    assert_eq!(shown.len(), 2, "{shown:?}");
    let mut ids = BTreeSet::new();
    for (claim, (launch, removal)) in &shown {
        let found = traces(launch, &log, &events);
        for word in ["launching", "placed"] {
            let is_it = |line: &&String| line.contains(word) && line.contains(claim.as_str());
            assert!(
                found.log.iter().any(|line| is_it(&line)),
                "{word}: {found:?}"
            );
        }
        for reason in ["TriggeredScaleUp", "ScaledUpGroup"] {
            assert!(
                found.events.iter().any(|it| it == reason),
                "{reason}: {found:?}"
            );
        }
        let found = traces(removal, &log, &events);
        let is_it = |line: &&String| line.contains("removing") && line.contains(claim.as_str());
        assert!(found.log.iter().any(|line| is_it(&line)), "{found:?}");
        // On the Node and on the NodeClaim.
        let told = found.events.iter().filter(|it| *it == "ScaleDownEmpty");
        assert_eq!(told.count(), 2, "{found:?}");
        ids.extend([launch, removal]);
    }
    assert_eq!(ids.len(), 4, "{ids:?}");
}
