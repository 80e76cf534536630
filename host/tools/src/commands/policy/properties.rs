//! Questions that are made up, and what must hold for the answers of every policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use kproxide_planner::facts::PolicyKind;
use kproxide_planner::ids::HypervisorId;
use kproxide_planner::plan::question::{Candidate, Question, RemovableNode, Size};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde::Serialize;

use super::answered::{Answered, Row};
use super::given::Tools;
use crate::whatif::counted;
use kproxide_policy::{Module, self_test};

const GIB: u64 = 1 << 30;
/// A policy may sum in another order.
const SCORES_APART_MAX: f64 = 1e-9;
/// How many hypervisors, or with `scale-down` Nodes.
const COUNTS: [u32; 4] = [0, 1, 30, 1000];
const SEEDS: u64 = 3;

/// One thing that must hold.
#[derive(Debug, Serialize)]
pub(super) struct Property {
    pub(super) kind: &'static str,
    pub(super) property: String,
    /// Why it does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

/// Tries all of them on a policy.
pub(super) async fn properties(
    tools: &Tools,
    module: &Module,
    name: &Arc<str>,
    settings: &Arc<str>,
) -> Vec<Property> {
    let mut found = Vec::new();
    for kind in module.kinds() {
        let (mut twice, mut order) = (None, None);
        for count in COUNTS {
            let mut answers = None;
            for seed in 1..=SEEDS {
                let question = generated(kind, count, seed, name, settings);
                let first = tools.ask(module, &question).await.called;
                let again = tools.ask(module, &question).await.called;
                let named = |problem: String| format!("{count} of seed {seed}: {problem}");
                if let Err(error) = &first.result {
                    answers = answers.or(Some(named(error.to_string())));
                    continue;
                }
                let first_said = Answered::of(&question, &first.result);
                if first != again {
                    let said = Answered::of(&question, &again.result);
                    twice = twice.or_else(|| {
                        let problem = difference(&first_said, &said, false);
                        let problem =
                            problem.unwrap_or_else(|| "state or instructions differ".to_owned());
                        Some(named(problem))
                    });
                }
                let other = shuffled(&question, seed);
                let said = tools.ask(module, &other).await.called;
                let said = Answered::of(&other, &said.result);
                order = order.or_else(|| difference(&first_said, &said, true).map(named));
            }
            found.push(Property {
                kind: kind.as_str(),
                property: format!("it answers for {}", counted(count as usize, subject(kind))),
                problem: answers,
            });
        }
        found.push(Property {
            kind: kind.as_str(),
            property: "it gives one answer to one question".to_owned(),
            problem: twice,
        });
        found.push(Property {
            kind: kind.as_str(),
            property: format!("the order of the {}s means nothing", subject(kind)),
            problem: order,
        });
    }
    found
}

fn subject(kind: PolicyKind) -> &'static str {
    match kind {
        PolicyKind::ScaleDown => "Node",
        PolicyKind::HostSelection | PolicyKind::Labels => "hypervisor",
    }
}

/// What one answer has and the other has not. Reasons may name a place in the list.
fn difference(one: &Answered, other: &Answered, is_rough: bool) -> Option<String> {
    if let Some(failure) = &other.failure {
        return Some(failure.clone());
    }
    if one.no_answer.is_some() != other.no_answer.is_some() {
        return Some("once it wants nothing done, and once it does".to_owned());
    }
    let rows: BTreeMap<&str, &Row> = (other.candidates.iter())
        .map(|row| (row.name.as_str(), row))
        .collect();
    one.candidates.iter().find_map(|row| {
        let its = rows.get(row.name.as_str())?;
        let apart = match (row.score, its.score) {
            (Some(a), Some(b)) => (a - b).abs(),
            (None, None) => 0.0,
            (Some(_), None) | (None, Some(_)) => f64::INFINITY,
        };
        let is_same = match is_rough {
            true => {
                apart <= SCORES_APART_MAX
                    && row.refused_by == its.refused_by
                    && (&row.labels, &row.annotations, &row.taints)
                        == (&its.labels, &its.annotations, &its.taints)
            }
            false => row == *its,
        };
        let shown = |row: &Row| match row.score {
            Some(score) => format!("score {score} ({})", row.reason),
            None => serde_json::to_string(row).unwrap_or_default(),
        };
        (!is_same).then(|| format!("{}: {}, then {}", row.name, shown(row), shown(its)))
    })
}

/// The same question about so many hypervisors, or with `scale-down` Nodes.
pub(super) fn generated(
    kind: PolicyKind,
    count: u32,
    seed: u64,
    name: &Arc<str>,
    settings: &Arc<str>,
) -> Question {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut question = self_test::question(kind, name.clone(), settings.clone());
    match &mut question {
        Question::Rank(rank) => {
            rank.candidates = candidates(&mut rng, count).into();
            rank.sequence = u64::from(count);
            rank.previous = rank.candidates.first().map(|it| it.hypervisor.id.clone());
        }
        Question::Order(order) => {
            order.hypervisors = candidates(&mut rng, count.min(30));
            let hypervisors = order.hypervisors.len();
            order.nodes = (0..count)
                .map(|number| node(&mut rng, number, hypervisors, &order.nodes))
                .collect();
            order.max_removals = count.min(5);
        }
        Question::Decorate(decorate) => {
            let all = candidates(&mut rng, count).into_iter();
            decorate.hypervisors = all.map(|candidate| candidate.hypervisor).collect();
        }
    }
    question
}

fn candidates(rng: &mut SmallRng, count: u32) -> Vec<Candidate> {
    let question = self_test::question(PolicyKind::HostSelection, "".into(), "".into());
    let Question::Rank(rank) = question else {
        return Vec::new();
    };
    let model = rank.candidates[0].clone();
    (0..count)
        .map(|number| {
            let mut one = model.clone();
            let threads = [4, 8, 16, 32, 64][rng.random_range(0..5)];
            let memory = threads * [2, 4, 8][rng.random_range(0..3)] * GIB;
            let taken = rng.random_range(0..=100_u64);
            let part = |whole: u64, percent: u64| whole / 100 * percent;
            let hypervisor = &mut one.hypervisor;
            hypervisor.id = HypervisorId::new(
                ["east", "west"][rng.random_range(0..2)],
                &format!("pve{number}"),
            );
            hypervisor.zone = ["a", "b", "c"][rng.random_range(0..3)].into();
            hypervisor.capacity = Size {
                milli_cores: threads * 1000,
                memory_bytes: memory,
            };
            let of = |percent| Size {
                milli_cores: part(threads * 1000, percent),
                memory_bytes: part(memory, percent),
            };
            one.used = of(taken / 2);
            one.committed = of(taken);
            one.available = of(100 - taken);
            one.cpu_usage = rng.random_range(0.0..1.0);
            one.machines = rng.random_range(0..10);
            one.machines_of_pool = one.machines / 2;
            one.storage_free = rng.random_range(0..1000) * GIB;
            let is_refused = rng.random_range(0..10) == 0;
            one.ineligible = is_refused.then(|| "offline".to_owned());
            one
        })
        .collect()
}

fn node(
    rng: &mut SmallRng,
    number: u32,
    hypervisors: usize,
    models: &[RemovableNode],
) -> RemovableNode {
    let mut one = models[0].clone();
    one.name = format!("node-{number}").as_str().into();
    one.on = u32::try_from(rng.random_range(0..hypervisors.max(1)))
        .ok()
        .filter(|_| hypervisors > 0);
    one.created -= rng.random_range(0..1_000_000);
    one.unneeded_seconds = rng.random_range(0..100_000);
    one.requested = Size {
        milli_cores: rng.random_range(0..=one.allocatable.milli_cores),
        memory_bytes: rng.random_range(0..=one.allocatable.memory_bytes),
    };
    one.movable_pods = rng.random_range(0..30);
    one
}

/// The same question, with what it lists in another order.
fn shuffled(question: &Question, seed: u64) -> Question {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0x5eed);
    let mut question = question.clone();
    match &mut question {
        Question::Rank(rank) => Arc::make_mut(&mut rank.candidates).shuffle(&mut rng),
        Question::Order(order) => {
            let mut places: Vec<u32> = (0..).take(order.hypervisors.len()).collect();
            places.shuffle(&mut rng);
            let moved = places
                .iter()
                .map(|old| order.hypervisors[*old as usize].clone());
            let moved = moved.collect();
            for node in &mut order.nodes {
                let new = places.iter().position(|old| Some(*old) == node.on);
                node.on = new.and_then(|new| u32::try_from(new).ok());
            }
            order.hypervisors = moved;
            order.nodes.shuffle(&mut rng);
        }
        Question::Decorate(decorate) => decorate.hypervisors.shuffle(&mut rng),
    }
    question
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::policy::given::Given;

    async fn problems(policy: &str, settings: &str) -> Vec<String> {
        let tools = Tools::new().unwrap();
        let given = Given::read(policy).unwrap();
        let module = given.loaded(&tools).await.unwrap();
        let all = properties(&tools, &module, &given.name, &settings.into()).await;
        assert_eq!(all.len(), COUNTS.len() + 2);
        all.into_iter().filter_map(|it| it.problem).collect()
    }

    #[tokio::test]
    async fn they_hold_for_every_built_in_policy() {
        for builtin in kproxide_builtins::BUILTINS {
            let found = problems(builtin.name, "{}").await;
            assert_eq!(found, [""; 0], "{}", builtin.name);
        }
    }

    #[test]
    fn a_shuffled_question_leaves_each_node_on_its_hypervisor() {
        let question = generated(PolicyKind::ScaleDown, 40, 7, &"a".into(), &"".into());
        let other = shuffled(&question, 7);
        let places = |question: &Question| -> BTreeMap<String, Option<HypervisorId>> {
            let Question::Order(order) = question else {
                panic!("{question:?}");
            };
            let on = |node: &RemovableNode| {
                let index = node.on? as usize;
                Some(order.hypervisors[index].hypervisor.id.clone())
            };
            let nodes = order.nodes.iter();
            nodes
                .map(|node| (node.name.to_string(), on(node)))
                .collect()
        };
        assert_ne!(question, other);
        assert_eq!(places(&question), places(&other));
    }

    #[test]
    fn what_depends_on_the_order_is_found() {
        let question = generated(PolicyKind::HostSelection, 3, 1, &"a".into(), &"".into());
        let by_index = |question: &Question, rough: f64| {
            use kproxide_planner::plan::question::{AnswerBody, Ranking, Scored};
            let placements = (0..3).map(|index| Scored {
                index,
                score: f64::from(index) / 4.0 * rough,
                reason: String::new(),
            });
            let ranking = Ranking {
                placements: placements.collect(),
                ..Ranking::default()
            };
            Answered::of(question, &Ok(AnswerBody::Ranking(ranking)))
        };
        let other = match question.clone() {
            Question::Rank(mut rank) => {
                Arc::make_mut(&mut rank.candidates).reverse();
                Question::Rank(rank)
            }
            other => other,
        };
        let first = by_index(&question, 1.0);
        assert_eq!(difference(&first, &by_index(&question, 1.0), true), None);
        let problem = difference(&first, &by_index(&other, 1.0), true).unwrap();
        assert!(
            problem.contains("score 0.5") && problem.contains("then score 0"),
            "{problem}"
        );
        assert!(difference(&first, &by_index(&other, 0.0), true).is_some());
    }
}
