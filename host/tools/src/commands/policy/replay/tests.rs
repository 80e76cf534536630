use super::*;
use kproxide_planner::plan::question::Answer;
use kproxide_policy::self_test;

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
        let again = replayed(name, None, &[made(&one, "a"), made(&one, "b")]).await;
        assert_eq!((again.changed, again.decisions.len()), (0, 2), "{again}");
    }
}

#[tokio::test]
async fn another_policy_and_other_settings_change_what_they_decide() {
    let made = [
        made(
            &decided("spread", PolicyKind::HostSelection, "{}", 1).await,
            "a",
        ),
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
}

#[tokio::test]
async fn a_policy_that_fails_is_told_in_each_row_and_spread_stands_in() {
    let of_spread = decided("spread", PolicyKind::HostSelection, "{}", 1).await;
    let of_nobody = Decision {
        chosen: Vec::new(),
        ..of_spread.clone()
    };
    let wrong = Some(r#"{"a": 1}"#);
    let decisions = [made(&of_spread, "a"), of_nobody];
    let failed = replayed("max-cpu", wrong, &decisions).await;
    assert_eq!((failed.failed, failed.changed), (2, 1), "{failed}");
    let text = failed.to_string();
    assert!(
        text.starts_with("1 of 2 decisions would change. The policy fails in 2 of them."),
        "{text}"
    );
    let why = "it fails, and spread answers instead: policy max-cpu: its settings are wrong";
    assert_eq!(text.matches(why).count(), 2, "{text}");
    assert!(text.contains("self-test/pve1  the same"), "{text}");
    for one in &failed.decisions {
        assert_eq!(one.after.chosen, ["self-test/pve1"], "{text}");
    }

    // Nothing stands in for the other kinds: nothing is removed.
    let went = [
        decided("least-loaded", PolicyKind::ScaleDown, "{}", 1).await,
        decided("least-loaded", PolicyKind::ScaleDown, "{}", 0).await,
    ];
    let failed = replayed("least-loaded", wrong, &went).await;
    assert_eq!((failed.failed, failed.changed), (2, 1), "{failed}");
    let text = failed.to_string();
    let why = "nothing  it fails: policy least-loaded: its settings are wrong";
    assert_eq!(text.matches(why).count(), 2, "{text}");
}

#[tokio::test]
async fn only_decisions_that_led_to_a_machine_count_on_hypervisors() {
    let one = decided("spread", PolicyKind::HostSelection, "{}", 1).await;
    let put_off = Decision {
        decision_id: None,
        ..made(&one, "c")
    };
    let no_room = Decision {
        chosen: Vec::new(),
        ..one.clone()
    };
    // The machine b is placed twice, c is not launched, and for the last there was no room.
    let decisions = [
        made(&one, "a"),
        made(&one, "b"),
        made(&one, "b"),
        put_off,
        no_room,
    ];
    let again = replayed("spread", None, &decisions).await;
    let expected = [Carried {
        hypervisor: "self-test/pve1".to_owned(),
        before: 2,
        after: 2,
    }];
    assert_eq!(again.hypervisors, expected, "{again}");
    let counted: Vec<bool> = again.decisions.iter().map(|it| it.counted).collect();
    assert_eq!(counted, [true, false, true, false, false]);
    let text = again.to_string();
    let (_, apart) = text.split_once("Decisions that led to no machine").unwrap();
    assert_eq!(apart.matches("host-selection").count(), 3, "{text}");
}

/// As a decision that led to this machine.
fn made(decision: &Decision, claim: &str) -> Decision {
    Decision {
        claim: Some(claim.to_owned()),
        decision_id: Some(format!("launch-{claim}")),
        ..decision.clone()
    }
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
