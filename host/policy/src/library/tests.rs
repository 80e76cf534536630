//! Who answers when, and what stands in when a policy fails.

mod reload;
mod time;
mod together;
mod watched;

use kproxide_planner::plan::question::{RankQuestion, Ranking};

use super::*;
use crate::fixtures::{self, embedded, engine, question};
use crate::{FilesError, PolicyFile, PolicyFiles};

/// On the engine of all tests, so that what it compiles is soon compiled.
fn library() -> Library {
    Library::new(engine().clone())
}

/// With these files taken.
async fn with_files(names: &[(&str, &str)]) -> Library {
    let library = library();
    let reloads = library.sync(files(names)).await;
    assert!(
        reloads
            .iter()
            .all(|reload| matches!(reload.outcome, ReloadOutcome::Taken { .. })),
        "{reloads:?}"
    );
    library
}

/// Policy name to the embedded policy whose bytes its file has.
fn files(names: &[(&str, &str)]) -> PolicyFiles {
    names
        .iter()
        .map(|(name, of)| (Arc::from(*name), PolicyFile::alone(embedded(of).wasm)))
        .collect()
}

/// A question to the policy of that name, of the kind that the embedded one answers.
fn named(name: &str, like: &str, settings: &str) -> Question {
    let mut question = question(like, settings);
    match &mut question {
        Question::Rank(rank) => rank.policy.policy.name = name.into(),
        Question::Order(order) => order.policy.policy.name = name.into(),
        Question::Decorate(decorate) => decorate.policy.policy.name = name.into(),
    }
    question
}

async fn ask(library: &Library, question: &Question) -> Answer {
    library.ask(question, &mut Budget::default()).await
}

fn spread_ranking() -> Ranking {
    match fixtures::ask(&question("spread", "")).result.unwrap() {
        AnswerBody::Ranking(ranking) => ranking,
        other => panic!("{other:?}"),
    }
}

const PANIC: &str = r#"{"do": "panic"}"#;
const INTERNAL: &str = r#"{"do": "internal"}"#;
const DEFECT: &str = "it reports a defect of its own: the table of racks is empty";

fn compiled(library: &Library) -> Vec<&'static str> {
    library.lock().builtins.keys().copied().collect()
}

#[tokio::test]
async fn built_ins_are_compiled_when_first_asked() {
    let library = library();
    assert_eq!(library.facts().len(), BUILTINS.len());
    assert!(compiled(&library).is_empty());
    let answer = ask(&library, &question("spread", "")).await;
    assert_eq!(answer.digest.as_str(), embedded("spread").sha256);
    assert_eq!(
        (answer.fallback, answer.body),
        (None, AnswerBody::Ranking(spread_ranking()))
    );
    assert_eq!(compiled(&library), ["spread"]);
}

#[tokio::test]
async fn f80_spread_stands_in_for_a_host_selection_policy_that_fails() {
    let library = with_files(&[("mine", "hostile")]).await;
    for (what, reason) in [
        ("internal", DEFECT),
        (
            "nan-score",
            "its answer is invalid: the score NaN of placement 0 is not between 0 and 1",
        ),
        ("recurse", "it crashed: call stack exhausted"),
        (
            "nonsense",
            "its settings are wrong: settings field \"do\": unknown variant `nonsense`",
        ),
    ] {
        let answer = ask(
            &library,
            &named("mine", "hostile", &format!(r#"{{"do": "{what}"}}"#)),
        )
        .await;
        let said = answer.fallback.unwrap();
        assert!(
            said.starts_with(&format!("policy mine: {reason}")),
            "{said}"
        );
        assert_eq!(answer.digest.as_str(), embedded("spread").sha256);
        assert_eq!(answer.body, AnswerBody::Ranking(spread_ranking()), "{what}");
    }
}

/// Whatever file has taken the name of the built-in.
#[tokio::test]
async fn the_built_in_itself_stands_in() {
    let library = with_files(&[("spread", "hostile")]).await;
    let answer = ask(&library, &named("spread", "hostile", INTERNAL)).await;
    assert_eq!(answer.fallback, Some(format!("policy spread: {DEFECT}")));
    assert_eq!(answer.body, AnswerBody::Ranking(spread_ranking()));
}

#[tokio::test]
async fn f80_nothing_stands_in_for_the_other_kinds() {
    let library = with_files(&[("down", "hostile-scale-down"), ("marks", "hostile-labels")]).await;
    for (name, like) in [("down", "hostile-scale-down"), ("marks", "hostile-labels")] {
        let answer = ask(&library, &named(name, like, INTERNAL)).await;
        assert_eq!(answer.digest.as_str(), embedded(like).sha256);
        assert_eq!(
            (answer.fallback, answer.body),
            (None, AnswerBody::Failed(DEFECT.to_owned()))
        );
    }
}

#[tokio::test]
async fn what_a_policy_decides_not_to_do_is_not_done() {
    let library = with_files(&[("mine", "hostile")]).await;
    let answer = ask(
        &library,
        &named("mine", "hostile", r#"{"do": "no-candidate"}"#),
    )
    .await;
    assert_eq!(
        (answer.fallback, answer.body),
        (None, AnswerBody::NoCandidate("not before noon".to_owned()))
    );
    let answer = ask(
        &library,
        &named("mine", "hostile", r#"{"do": "nothing-placed"}"#),
    )
    .await;
    assert!(matches!(answer.body, AnswerBody::Ranking(ranking) if ranking.placements.is_empty()));
}

/// A stand-in neither sees nor changes the state of the policy it stands in for. (`echo` would give it back.)
#[tokio::test]
async fn state_is_the_policys_own() {
    let library = with_files(&[("mine", "hostile")]).await;
    let state_of = |answer: Answer| match answer.body {
        AnswerBody::Ranking(ranking) => ranking.state,
        other => panic!("{other:?}"),
    };
    let echoed =
        state_of(ask(&library, &named("mine", "hostile", r#"{"do": "echo"}"#)).await).unwrap();
    assert!(
        String::from_utf8(echoed)
            .unwrap()
            .contains("state: [1, 2, 3]")
    );
    assert_eq!(
        state_of(ask(&library, &named("mine", "hostile", INTERNAL)).await),
        None
    );
}

#[tokio::test]
async fn an_unknown_policy_is_named_with_those_that_there_are() {
    let library = with_files(&[("racks", "hostile-labels")]).await;
    let answer = ask(&library, &named("spraed", "spread", "")).await;
    assert_eq!(
        answer.fallback.unwrap(),
        "policy spraed: there is no host-selection policy of that name; known are balanced, max-cpu, max-memory, pack, round-robin, spread"
    );
    let answer = ask(&library, &named("rakcs", "go-template", "")).await;
    assert_eq!(
        answer.body,
        AnswerBody::Failed(
            "there is no labels policy of that name; known are go-template, racks".to_owned()
        )
    );
}

#[tokio::test]
async fn settings_that_a_built_in_refuses_are_named() {
    let library = library();
    let answer = ask(&library, &question("spread", r#"{"prefix": "rack"}"#)).await;
    assert_eq!(
        answer.fallback.unwrap(),
        "policy spread: its settings are wrong: settings: unknown field `prefix`, there are none"
    );
    let answer = ask(
        &library,
        &question("go-template", r#"{"labels": {"rack": "{{ .TargetHost"}}"#),
    )
    .await;
    assert_eq!(
        answer.body,
        AnswerBody::Failed("its settings are wrong: label \"rack\": line 1, column 15: unclosed action, in the template \"{{ .TargetHost\"".to_owned())
    );
}

/// Five failures in a row, then it is left alone.
#[tokio::test]
async fn a_policy_that_keeps_failing_is_not_called_any_more() {
    let library = with_files(&[("mine", "hostile")]).await;
    let failing = named("mine", "hostile", INTERNAL);
    let ask_failing = async || {
        let mut budget = Budget::default();
        let before = budget.fuel_left;
        let said = library.ask(&failing, &mut budget).await.fallback.unwrap();
        (said, before - budget.fuel_left)
    };
    let (_, with_call) = ask_failing().await;
    for _ in 1..FAILURES_MAX {
        assert_eq!(
            ask_failing().await,
            (format!("policy mine: {DEFECT}"), with_call)
        );
    }
    let (said, without_call) = ask_failing().await;
    assert_eq!(
        said,
        format!(
            "policy mine: after 5 failures in a row kproxide does not call it until its file or its settings change. The last failure: {DEFECT}"
        )
    );
    assert!(without_call < with_call);

    // Other settings are another chance; the old ones are not.
    assert_eq!(
        ask(&library, &named("mine", "hostile", "")).await.fallback,
        None
    );
    assert_eq!(ask_failing().await, (said, without_call));
}

#[tokio::test]
async fn a_success_makes_up_for_failures() {
    let library = with_files(&[("mine", "hostile")]).await;
    let Question::Rank(mut fine) = named("mine", "hostile", r#"{"do": "fail-first"}"#) else {
        unreachable!()
    };
    let failing = Question::Rank(RankQuestion {
        batch_index: 0,
        ..fine.clone()
    });
    fine.batch_index = 1;
    let fine = Question::Rank(fine);
    for _ in 0..3 {
        for _ in 1..FAILURES_MAX {
            assert_eq!(
                ask(&library, &failing).await.fallback,
                Some(format!("policy mine: {DEFECT}"))
            );
        }
        assert_eq!(ask(&library, &fine).await.fallback, None);
    }
}

#[tokio::test]
async fn past_the_budget_of_a_tick_the_rest_waits() {
    let library = library();
    let mut budget = Budget {
        fuel_left: 1,
        ..Budget::default()
    };
    assert!(matches!(
        library.ask(&question("spread", ""), &mut budget).await.body,
        AnswerBody::Ranking(_)
    ));
    assert_eq!(budget.fuel_left, 0);
    let answer = library.ask(&question("spread", ""), &mut budget).await;
    assert_eq!((answer.fallback, answer.body), (None, AnswerBody::Deferred));
}

/// One call that uses all it may leaves room for four more.
#[tokio::test]
async fn f81_a_policy_that_spins_costs_the_tick_its_fuel() {
    let library = with_files(&[("mine", "hostile")]).await;
    let mut budget = Budget::default();
    let answer = library
        .ask(&named("mine", "hostile", r#"{"do": "spin"}"#), &mut budget)
        .await;
    assert_eq!(
        answer.fallback.unwrap(),
        "policy mine: it used up its 400000000 instructions"
    );
    assert!(
        (3 * CALL_FUEL..4 * CALL_FUEL).contains(&budget.fuel_left),
        "{budget:?}"
    );
}
