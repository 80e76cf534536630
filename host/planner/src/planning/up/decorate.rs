//! Labels, annotations and taints of machines to come, from the label policies: asked once per pool and type with all its hypervisors, and
//! only while a machine may be wanted. An answer is kept for as long as the same question would be asked of the same module.

use std::collections::BTreeMap;

use super::pools::machine;
use crate::ids::{HypervisorId, InstanceTypeName, PoolName};
use crate::keys;
use crate::plan::DecorationMemo;
use crate::plan::question::{Answer, AnswerBody, DecorateQuestion, Decoration};
use crate::plan::report::{NoAnswer, Severity, Why};
use crate::planning::Planning;
use crate::world::World;

/// Decorations in the order of the pool's hypervisors, or why there are none.
type Decorated = Result<Vec<Decoration>, Why>;

#[derive(Default)]
pub(in crate::planning) struct Decorating {
    done: BTreeMap<(PoolName, InstanceTypeName), Decorated>,
    asked: Option<DecorateQuestion>,
    /// New answers, for the World to keep.
    pub(in crate::planning) memos: Vec<DecorationMemo>,
}

impl Decorating {
    pub(in crate::planning) fn of(
        &self,
        pool: &PoolName,
        instance_type: &InstanceTypeName,
    ) -> Option<&Decorated> {
        self.done.get(&(pool.clone(), instance_type.clone()))
    }
}

/// What the label policy last said of a machine of this kind on this hypervisor; nothing if it was never asked.
pub(in crate::planning) fn remembered(
    world: &World,
    pool: &PoolName,
    instance_type: &InstanceTypeName,
    hypervisor: &HypervisorId,
) -> Decoration {
    let memo = world
        .decorations()
        .get(&(pool.clone(), instance_type.clone()));
    memo.and_then(|memo| {
        let place = memo
            .hypervisors
            .iter()
            .position(|description| description.id == *hypervisor)?;
        memo.decorations.get(place).cloned()
    })
    .unwrap_or_default()
}

impl Planning<'_> {
    /// Step 2: the next pool and type whose decorations are not known.
    pub(in crate::planning) fn decorate_question(&mut self) -> Option<DecorateQuestion> {
        if let Some(question) = &self.decorating.asked {
            return Some(question.clone());
        }
        if !self.may_want_machines() {
            return None;
        }
        for pool in &self.pools {
            let Ok(class) = &pool.class else { continue };
            for instance_type in &class.instance_types {
                let key = (pool.name.clone(), instance_type.name.clone());
                if self.decorating.done.contains_key(&key) {
                    continue;
                }
                let hypervisors = pool
                    .hypervisors
                    .iter()
                    .map(|index| self.hypervisors.all[*index].description());
                let question = DecorateQuestion {
                    policy: pool.facts.policies.labels.clone(),
                    machine: machine(pool.name, instance_type),
                    hypervisors: hypervisors.collect(),
                };
                if let Some(memo) = answered_before(self.tick.world, &key, &question) {
                    self.decorating
                        .done
                        .insert(key, Ok(memo.decorations.clone()));
                    continue;
                }
                self.decorating.asked = Some(question.clone());
                return Some(question);
            }
        }
        None
    }

    fn may_want_machines(&self) -> bool {
        let staying = self.staying();
        self.tick.world.has_pending()
            || self.rows.iter().any(|row| row.outgoing.is_some())
            || self.pools.iter().any(|pool| {
                let count = staying.get(pool.name).copied().unwrap_or(0);
                count < self.least(pool.name) || !self.keeps_free(pool.name).is_zero()
            })
    }

    pub(in crate::planning) fn take_decorations(&mut self, answer: Answer) {
        let Some(question) = self.decorating.asked.take() else {
            return;
        };
        let policy = &question.policy.policy;
        let mut failed = |answer: NoAnswer| {
            self.policy_failed(&question.machine.pool, policy, answer.to_string());
            Err(answer)
        };
        let asked = question.hypervisors.len();
        let decorated = match answer.body {
            AnswerBody::Decorations(decorations) if decorations.len() == asked => Ok(decorations),
            AnswerBody::Decorations(decorations) => failed(NoAnswer::Answered {
                of: decorations.len(),
                asked,
            }),
            AnswerBody::NoCandidate(reason) => Err(NoAnswer::Refused(reason)),
            AnswerBody::Failed(reason) => failed(NoAnswer::Failed(reason)),
            AnswerBody::Deferred => Err(NoAnswer::Deferred),
            AnswerBody::Ranking(_) | AnswerBody::Removals(_) => {
                failed(NoAnswer::AnsweredAnotherQuestion)
            }
        };
        let decorated = decorated
            .map(|decorations| self.without_reserved(&question, decorations))
            .map_err(|answer| Why::Policy {
                policy: policy.clone(),
                answer,
            });
        if let Ok(decorations) = &decorated {
            let current = self.tick.world.policies().get(policy);
            if answer.fallback.is_none()
                && current.is_some_and(|facts| facts.digest == answer.digest)
            {
                self.decorating.memos.push(DecorationMemo {
                    digest: answer.digest,
                    policy: question.policy.clone(),
                    machine: question.machine.clone(),
                    hypervisors: question.hypervisors,
                    decorations: decorations.clone(),
                });
            }
        }
        let key = (question.machine.pool, question.machine.instance_type);
        self.decorating.done.insert(key, decorated);
    }

    fn without_reserved(
        &mut self,
        question: &DecorateQuestion,
        mut decorations: Vec<Decoration>,
    ) -> Vec<Decoration> {
        let mut dropped = Vec::new();
        for decoration in &mut decorations {
            let mut check = |key: &str| {
                let keep = keys::reserved(key).is_none();
                if !keep {
                    dropped.push(key.to_owned());
                }
                keep
            };
            decoration.labels.retain(|key, _| check(key));
            decoration.annotations.retain(|key, _| check(key));
            decoration.taints.retain(|taint| check(&taint.key));
        }
        dropped.sort();
        dropped.dedup();
        for key in dropped {
            self.tick.found(
                Severity::Warning,
                format!("NodePool/{}", question.machine.pool),
                format!(
                    "label policy {} set {key}, which a policy may not set. kproxide left it out",
                    question.policy.policy.name
                ),
            );
        }
        decorations
    }
}

fn answered_before<'w>(
    world: &'w World,
    key: &(PoolName, InstanceTypeName),
    question: &DecorateQuestion,
) -> Option<&'w DecorationMemo> {
    let memo = world.decorations().get(key)?;
    let current = world.policies().get(&question.policy.policy)?;
    let holds = memo.digest == current.digest
        && memo.policy == question.policy
        && memo.machine == question.machine
        && memo.hypervisors == question.hypervisors;
    holds.then_some(memo)
}
