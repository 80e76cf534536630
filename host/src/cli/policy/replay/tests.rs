use super::*;
use crate::policy::self_test;
use kproxide_planner::question::Answer;

/// What the built-in policy of this name decides of the questions of the self-test, as it would be recorded.
async fn decided(name: &str, kind: PolicyKind, settings: &str, went: usize) -> Decision {
    let tools = Tools::new().unwrap();
    let module = Given::read(name).unwrap().loaded(&tools).await.unwrap();
    let question = self_test::question(kind, name.into(), settings.into());
    let body = tools.ask(&module, &question).await.called.result.unwrap();
    let answered = Answered::of(&question, &Ok(body.clone()));
    let answer = Answer::of("".into(), body);
    let mut decision = Decision::new(Timestamp::UNIX_EPOCH, &question, &answer);
    let rows = answered.candidates.iter().take(went);
    decision.chosen = rows.map(|row| row.name.clone()).collect();
    decision.facts = Some(Box::new(question));
    decision
}

async fn replayed(policy: &str, settings: Option<&str>, decisions: &[Decision]) -> Replayed {
    let tools = Tools::new().unwrap();
    let given = Given::read(policy).unwrap();
    let module = given.loaded(&tools).await.unwrap();
    let settings = settings.map(Arc::from);
    let asked = Asked {
        given: &given,
        module: &module,
        tools: &tools,
        settings: settings.as_ref(),
        kinds: &module.kinds(),
        pool: None,
    };
    asked.each(decisions).await
}

#[tokio::test]
async fn the_policy_that_decided_changes_nothing() {
    let cases = [
        ("spread", PolicyKind::HostSelection, 1),
        ("least-loaded", PolicyKind::ScaleDown, 1),
        ("least-loaded", PolicyKind::ScaleDown, 0),
        ("go-template", PolicyKind::Labels, 0),
    ];
    for (name, kind, went) in cases {
        let one = decided(name, kind, "{}", went).await;
        let again = replayed(name, None, &[one.clone(), one]).await;
        assert_eq!((again.changed, again.decisions.len()), (0, 2), "{again}");
    }
}

#[tokio::test]
async fn another_policy_and_other_settings_change_what_they_decide() {
    let made = [
        decided("spread", PolicyKind::HostSelection, "{}", 1).await,
        decided("go-template", PolicyKind::Labels, "{}", 0).await,
    ];
    let packed = replayed("pack", None, &made).await;
    assert_eq!((packed.changed, packed.decisions.len()), (1, 1), "{packed}");
    let carried = |name: &str, before, after| Carried {
        hypervisor: format!("self-test/{name}"),
        before,
        after,
    };
    let expected = [carried("pve1", 1, 0), carried("pve2", 0, 1)];
    assert_eq!(packed.hypervisors, expected);
    let settings = r#"{"labels": {"example.com/a": "{{ .TargetHost }}"}}"#;
    let labelled = replayed("go-template", Some(settings), &made).await;
    assert_eq!(labelled.changed, 1, "{labelled}");
    let after = &labelled.decisions[0].after.chosen;
    assert_eq!(after[1], "self-test/pve2 example.com/a=pve2");
    // A policy that fails would place nothing.
    let failed = replayed("max-cpu", Some(r#"{"a": 1}"#), &made).await;
    assert!(
        failed.decisions[0].after.why.starts_with("it fails: "),
        "{failed}"
    );
}

#[tokio::test]
async fn decisions_without_facts_are_counted() {
    let mut one = decided("spread", PolicyKind::HostSelection, "{}", 1).await;
    one.facts = None;
    let none = replayed("spread", None, &[one]).await;
    assert_eq!((none.without_facts, none.decisions.len()), (1, 0));
    assert!(
        none.to_string()
            .contains("Of 1 decision no facts were kept")
    );
}
