use super::*;
use crate::facts::{PolicyKind, PolicyMember, PolicyRef, PolicyUse};
use crate::ledger::MOST_STATE_BYTES;
use crate::plan::question::*;

#[test]
fn policies_that_refuse_fail_or_wait_are_quoted() {
    let check = |body: AnswerBody, expected: &str| {
        let mut scene = Scene::default();
        scene.pending("web", 1, spec("cpu=1"));
        let plan = scene.plan_with(|question| match question {
            Question::Rank(_) => answered(question, body.clone()),
            Question::Order(_) | Question::Decorate(_) => reasonable(question),
        });
        assert_eq!(plan.launches, []);
        assert_eq!(plan.ledger, None, "nothing is reserved");
        let PendingOutcome::Unhelped(whys) = &plan.report.pending[0].outcome else {
            panic!()
        };
        assert_eq!(whys[0].1.to_string(), expected);
    };
    check(
        AnswerBody::NoCandidate("at night".to_owned()),
        "host-selection policy spread: at night",
    );
    check(
        AnswerBody::Failed("trap".to_owned()),
        "host-selection policy spread: it failed: trap",
    );
    check(
        AnswerBody::Ranking(Ranking::default()),
        "host-selection policy spread: it chose no hypervisor",
    );
    check(
        AnswerBody::Deferred,
        "the policies have used up the time of this tick. kproxide goes on in the next one",
    );
    check(
        AnswerBody::Removals(Removals::default()),
        "host-selection policy spread: its answer belongs to another question",
    );
}

/// pve1 took a machine, and the Event said "on pve1 …; not on pve1" of it, because the next one did not fit there.
#[test]
fn w9_a_machine_is_told_with_the_rejections_of_its_own_question() {
    let mut scene = Scene::default();
    scene.pending("web", 8, spec("cpu=1"));
    let plan = scene.plan_with(|question| match question {
        Question::Rank(rank) => {
            let (placed, other) = (rank.batch_index % 2, 1 - rank.batch_index % 2);
            let ranking = Ranking {
                placements: vec![Scored {
                    index: placed,
                    score: 0.5,
                    reason: String::new(),
                }],
                rejected: vec![Rejected {
                    index: other,
                    reason: format!("not for machine {}", rank.batch_index),
                }],
                state: None,
            };
            answered(question, AnswerBody::Ranking(ranking))
        }
        Question::Order(_) | Question::Decorate(_) => reasonable(question),
    });
    let told = plan.report.placements.iter().map(|it| {
        let rejected = it.rejected.iter();
        let rejected = rejected.map(|(other, why)| format!("{}: {why}", other.name));
        (&*it.hypervisor.name, rejected.collect::<Vec<_>>())
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            (
                "alpha",
                vec!["beta: policy spread: not for machine 0".to_owned()]
            ),
            (
                "beta",
                vec!["alpha: policy spread: not for machine 1".to_owned()]
            ),
        ]
    );
}

#[test]
fn state_sequence_and_previous_run_through_the_batch() {
    let mut scene = Scene::default();
    scene.pending("web", 12, spec("cpu=1"));
    let mut seen = Vec::new();
    let plan = scene.plan_with(|question| match question {
        Question::Rank(rank) => {
            let index = rank.batch_index;
            seen.push((
                rank.sequence,
                rank.previous.clone().map(|id| id.name.to_string()),
                rank.context.state.clone(),
                rank.candidates[0].machines,
            ));
            let ranking = Ranking {
                placements: vec![Scored {
                    index,
                    score: 0.5,
                    reason: String::new(),
                }],
                rejected: vec![],
                state: Some(vec![index as u8]),
            };
            Answer {
                fallback: (index == 2).then(|| "trap".to_owned()),
                ..answered(question, AnswerBody::Ranking(ranking))
            }
        }
        Question::Order(_) | Question::Decorate(_) => reasonable(question),
    });
    assert_eq!(
        seen,
        [
            (0, None, vec![], 0),
            (1, Some("alpha".to_owned()), vec![0], 1),
            (2, Some("beta".to_owned()), vec![1], 1),
        ]
    );
    let row = &plan.ledger.unwrap().policy_state[0];
    assert_eq!(
        (row.sequence, &row.state),
        (3, &vec![1]),
        "a fallback's state is not kept"
    );
    assert_eq!(plan.report.placements[2].fallback.as_deref(), Some("trap"));
}

fn policy(name: &str) -> PolicyRef {
    PolicyRef {
        kind: PolicyKind::HostSelection,
        name: name.into(),
    }
}

fn member(name: &str) -> PolicyMember {
    PolicyMember {
        policy: policy(name),
        settings: "{}".into(),
        weight: 1,
        state: Vec::new(),
    }
}

#[test]
fn policies_that_decide_together_keep_a_state_each() {
    let mut scene = Scene::default();
    scene.workers().policies.host_selection =
        PolicyUse::together(PolicyKind::HostSelection, ["a", "b"].map(member).into());
    scene.pending("web", 12, spec("cpu=1"));
    let mut seen = Vec::new();
    let plan = scene.plan_with(|question| match question {
        Question::Rank(rank) => {
            let states = rank.policy.members.iter().map(|it| it.state.clone());
            seen.push((rank.sequence, states.collect::<Vec<_>>()));
            // The second says nothing the second time, and the first is too long then.
            let states = match rank.batch_index {
                0 => vec![("a".into(), vec![1]), ("b".into(), vec![2])],
                1 => vec![("a".into(), vec![3; MOST_STATE_BYTES + 1])],
                _ => vec![("b".into(), vec![4])],
            };
            Answer {
                states: states.into_iter().collect(),
                ..reasonable(question)
            }
        }
        Question::Order(_) | Question::Decorate(_) => reasonable(question),
    });
    let (none, both) = (vec![vec![], vec![]], vec![vec![1], vec![2]]);
    assert_eq!(seen, [(0, none), (1, both.clone()), (2, both)]);
    let ledger = plan.ledger.unwrap();
    let rows = ledger.policy_state.iter();
    let rows: Vec<_> = rows
        .map(|it| (&*it.policy, it.sequence, it.state.clone()))
        .collect();
    assert_eq!(
        rows,
        [("a", 0, vec![1]), ("a+b", 3, vec![]), ("b", 0, vec![4])]
    );
    // One that no longer decides is forgotten, and the other keeps its own.
    scene.ledger = ledger;
    scene.workers().policies.host_selection =
        PolicyUse::together(PolicyKind::HostSelection, ["b", "c"].map(member).into());
    scene.pending("more", 12, spec("cpu=1"));
    let ledger = scene.plan().ledger.unwrap();
    let rows: Vec<_> = ledger.policy_state.iter().map(|it| &*it.policy).collect();
    assert_eq!(rows, ["b", "b+c"]);
}

#[test]
fn a_policy_that_decides_alone_is_shown_without_an_empty_list_of_members() {
    let alone = PolicyUse::alone(policy("a"), "{}".into());
    let together = PolicyUse::together(PolicyKind::HostSelection, ["a", "b"].map(member).into());
    for (used, shows_members) in [(alone, false), (together, true)] {
        let text = serde_json::to_string(&used).unwrap();
        assert_eq!(text.contains("members"), shows_members, "{text}");
        assert_eq!(serde_json::from_str::<PolicyUse>(&text).unwrap(), used);
    }
}
