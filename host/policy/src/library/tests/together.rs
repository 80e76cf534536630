//! Several policies that decide together.

use kproxide_planner::facts::PolicyMember;
use kproxide_planner::ids::PoolName;
use kproxide_planner::plan::question::{Rejected, Scored};

use super::*;
use crate::Execution;

const ECHO: &str = r#"{"do": "echo"}"#;
const REJECT_FIRST: &str = r#"{"do": "reject-first"}"#;

/// Name, settings and weight of each.
fn together(kind: PolicyKind, members: &[(&str, &str, u32)]) -> PolicyUse {
    let member = |(name, settings, weight): &(&str, &str, u32)| PolicyMember {
        policy: PolicyRef {
            kind,
            name: (*name).into(),
        },
        settings: (*settings).into(),
        weight: *weight,
        state: name.as_bytes().to_vec(),
    };
    PolicyUse::together(kind, members.iter().map(member).collect())
}

fn rank(members: &[(&str, &str, u32)]) -> Question {
    let mut question = fixtures::rank("spread", "");
    question.policy = together(PolicyKind::HostSelection, members);
    Question::Rank(question)
}

fn order(members: &[(&str, &str, u32)]) -> Question {
    let mut question = fixtures::order("least-loaded", "");
    question.policy = together(PolicyKind::ScaleDown, members);
    Question::Order(question)
}

fn ranking(body: AnswerBody) -> Ranking {
    match body {
        AnswerBody::Ranking(ranking) => ranking,
        other => panic!("{other:?}"),
    }
}

fn alone(name: &str) -> Vec<Scored> {
    ranking(fixtures::ask(&question(name, "")).result.unwrap()).placements
}

#[tokio::test]
async fn what_a_file_refuses_is_out_and_the_scores_of_built_ins_count_by_their_weights() {
    let library = with_files(&[("mine", "hostile")]).await;
    let question = rank(&[
        ("mine", REJECT_FIRST, 0),
        ("pack", "", 1),
        ("max-cpu", "", 3),
    ]);
    let answer = ask(&library, &question).await;
    assert_eq!(answer.fallback, None);
    let ranking = ranking(answer.body);
    let of = |name| alone(name).into_iter().find(|it| it.index == 1).unwrap();
    let (pack, max_cpu) = (of("pack"), of("max-cpu"));
    let (packs, cpus) = (&pack.reason, &max_cpu.reason);
    assert_eq!(
        ranking.placements,
        [Scored {
            index: 1,
            score: (pack.score + 3.0 * max_cpu.score) / 4.0,
            reason: format!(
                "pack {:.2}: {packs}; max-cpu {:.2} × 3: {cpus}",
                pack.score, max_cpu.score
            ),
        }]
    );
    assert_ne!(pack.score, max_cpu.score);
    // The third is offline, which kproxide has said itself.
    let reason = "mine: not wanted".to_owned();
    assert_eq!(ranking.rejected, [Rejected { index: 0, reason }]);
}

#[tokio::test]
async fn each_refusal_keeps_its_reason() {
    let nothing = r#"{"do": "nothing-placed"}"#;
    let library = with_files(&[("mine", "hostile"), ("yours", "hostile")]).await;
    let question = rank(&[
        ("mine", REJECT_FIRST, 0),
        ("spread", "", 1),
        ("yours", nothing, 1),
    ]);
    let answer = ranking(ask(&library, &question).await.body);
    assert_eq!(answer.placements, []);
    let reasons: Vec<&str> = answer.rejected.iter().map(|it| &*it.reason).collect();
    let first = "mine: not wanted; yours: it does not name it";
    assert_eq!(reasons, [first, "yours: it does not name it"]);
}

#[tokio::test]
async fn one_digest_stands_for_all_of_them() {
    let library = with_files(&[("mine", "pack")]).await;
    let digest = async |library: &Library, members: &[(&str, &str, u32)]| {
        let answer = ask(library, &rank(members)).await;
        answer.digest.as_str().to_owned()
    };
    let first = digest(&library, &[("mine", "", 1), ("spread", "", 1)]).await;
    assert_eq!(first.len(), 64);
    for other in [
        [("mine", "", 0), ("spread", "", 1)],
        [("mine", "", 1), ("spread", "", 2)],
        [("mine", "", 1), ("balanced", "", 1)],
    ] {
        assert_ne!(digest(&library, &other).await, first, "{other:?}");
    }
    let again = with_files(&[("mine", "pack")]).await;
    assert_eq!(
        digest(&again, &[("mine", "", 1), ("spread", "", 1)]).await,
        first
    );
    let newer = with_files(&[("mine", "max-cpu")]).await;
    assert_ne!(
        digest(&newer, &[("mine", "", 1), ("spread", "", 1)]).await,
        first
    );
}

#[tokio::test]
async fn each_sees_its_own_state_and_keeps_its_own() {
    let library = with_files(&[("a", "hostile"), ("b", "hostile")]).await;
    let answer = ask(
        &library,
        &rank(&[("a", ECHO, 0), ("b", ECHO, 1), ("spread", "", 1)]),
    )
    .await;
    assert_eq!(ranking(answer.body).state, None);
    let said = |name: &str| String::from_utf8(answer.states[name].clone()).unwrap();
    assert!(said("a").contains("state: [97]"), "{}", said("a"));
    assert!(said("b").contains("state: [98]"), "{}", said("b"));
    assert_eq!(answer.states.len(), 2);
}

#[tokio::test]
async fn if_one_fails_spread_decides_and_the_one_is_named() {
    let library = with_files(&[("mine", "hostile")]).await;
    let answer = ask(&library, &rank(&[("pack", "", 1), ("mine", INTERNAL, 1)])).await;
    assert_eq!(answer.fallback, Some(format!("policy mine: {DEFECT}")));
    assert_eq!(answer.digest.as_str(), embedded("spread").sha256);
    assert_eq!(answer.body, AnswerBody::Ranking(spread_ranking()));
    assert_eq!(answer.states.len(), 0);
    let answer = ask(&library, &rank(&[("pack", "", 1), ("nosuch", "", 1)])).await;
    let said = answer.fallback.unwrap();
    assert!(
        said.starts_with("policy nosuch: there is no host-selection policy"),
        "{said}"
    );
}

#[tokio::test]
async fn if_one_that_orders_nodes_fails_none_is_removed_and_the_one_is_named() {
    let library = with_files(&[("down", "hostile-scale-down")]).await;
    let answer = ask(
        &library,
        &order(&[("least-loaded", "", 1), ("down", INTERNAL, 0)]),
    )
    .await;
    assert_eq!(answer.body, AnswerBody::Failed(format!("down: {DEFECT}")));
    let answer = ask(
        &library,
        &order(&[("least-loaded", "", 2), ("down", "", 1)]),
    )
    .await;
    let AnswerBody::Removals(removals) = answer.body else {
        panic!("{answer:?}");
    };
    let first = &removals.removals[0].reason;
    assert_eq!(removals.removals.len(), 2);
    assert!(
        first.starts_with("least-loaded ") && first.contains(" × 2: "),
        "{first}"
    );
    assert!(first.contains("; down "), "{first}");
}

#[tokio::test]
async fn if_one_wants_nothing_made_nothing_is_made() {
    let library = with_files(&[("mine", "hostile")]).await;
    let waits = r#"{"do": "no-candidate"}"#;
    let answer = ask(
        &library,
        &rank(&[("mine", waits, 1), ("mine", INTERNAL, 1)]),
    )
    .await;
    let expected = AnswerBody::NoCandidate("mine: not before noon".to_owned());
    assert_eq!((answer.fallback, answer.body), (None, expected));
}

#[tokio::test]
async fn they_share_the_instructions_of_one_question() {
    let spin = r#"{"do": "spin"}"#;
    let library = with_files(&[("mine", "hostile")]).await;
    let spent = async |question: &Question| {
        let mut budget = Budget::default();
        let before = budget.fuel_left;
        let answer = library.ask(question, &mut budget).await;
        (before - budget.fuel_left, answer.fallback.unwrap())
    };
    let (all, _) = spent(&named("mine", "hostile", spin)).await;
    let (together, said) = spent(&rank(&[
        ("pack", "", 1),
        ("balanced", "", 1),
        ("mine", spin, 1),
    ]))
    .await;
    assert_eq!(together, all, "with what spread takes, which stands in");
    assert_eq!(said, "policy mine: it used up its 400000000 instructions");
}

/// What others have used up is no fault of a policy: another pool that uses it alone goes on.
#[tokio::test]
async fn a_policy_that_others_leave_too_little_is_called_for_other_pools() {
    let cost = |name: &str| fixtures::ask(&named(name, name, "{}")).fuel;
    let enough_for_one = cost("pack").max(cost("max-cpu")) + cost("pack") / 2;
    let engine = Engine::new(Execution::Inline).unwrap();
    let library = Library::new(engine.with_fuel(enough_for_one));
    let both = rank(&[("pack", "{}", 1), ("max-cpu", "{}", 1)]);
    for _ in 0..FAILURES_MAX {
        let said = ask(&library, &both).await.fallback.unwrap();
        assert_eq!(
            said,
            "policy max-cpu: it used up its 400000000 instructions"
        );
    }
    let said = ask(&library, &both).await.fallback.unwrap();
    let expected = "policy pack+max-cpu: after 5 failures in a row kproxide does not call it";
    assert!(said.starts_with(expected), "{said}");
    // Two pools use them together, and a third uses one of them alone.
    let (pack, one) = (named("pack", "pack", "{}"), both.policy());
    let pools = [("a", one), ("b", one), ("c", pack.policy())];
    let pools = pools.map(|(pool, used)| (PoolName::from(pool), used.clone()));
    let mut budget = Budget::default();
    let unfit = library.judge(pools.into_iter(), &mut budget).await;
    let given_up = unfit.given_up.iter();
    let given_up: Vec<_> = given_up
        .map(|((pool, policy), why)| {
            assert!(why.starts_with("as one of several, after 5"), "{why}");
            format!("{pool} {}", policy.name)
        })
        .collect();
    assert_eq!(given_up, ["a max-cpu", "a pack", "b max-cpu", "b pack"]);
    for name in ["pack", "max-cpu"] {
        let answer = ask(&library, &named(name, name, "{}")).await;
        assert_eq!(answer.fallback, None, "{name}");
    }
}

#[tokio::test]
async fn a_new_file_must_work_for_the_pools_that_use_it_with_others() {
    let library = with_files(&[("mine", "pack")]).await;
    ask(&library, &rank(&[("mine", "", 1), ("spread", "", 1)])).await;
    let reloads = library.sync(files(&[("mine", "least-loaded")])).await;
    let [
        Reload {
            outcome: ReloadOutcome::Refused(reason),
            ..
        },
    ] = &reloads[..]
    else {
        panic!("{reloads:?}");
    };
    assert!(reason.contains("for which pool blue uses it"), "{reason}");
}

#[tokio::test]
async fn wrong_settings_are_told_of_the_one_that_has_them() {
    let library = library();
    let used = together(
        PolicyKind::HostSelection,
        &[("pack", "{}", 1), ("max-cpu", r#"{"measure": "mhz"}"#, 1)],
    );
    let pools = [("blue".into(), used)].into_iter();
    let unfit = library.judge(pools, &mut Budget::default()).await;
    let wrong: Vec<_> = unfit.settings.keys().map(|(_, it)| &*it.name).collect();
    assert_eq!(wrong, ["max-cpu"]);
}
