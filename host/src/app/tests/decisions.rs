//! What policies answered, as the admin endpoints show it.

use axum::body::{Body, to_bytes};
use http::Request;
use kproxide_simulator::kube::fixtures;
use serde_json::json;
use tokio::time::sleep;
use tower::ServiceExt as _;

use super::degraded::{HOUR, lively};
use super::{MACHINE, furnished};
use crate::admin;
use crate::decisions::{Candidate, Decision, Shown};
use crate::lab::{Lab, Setting, config};

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
