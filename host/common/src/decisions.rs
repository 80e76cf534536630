//! What policies answered: `/debug/decisions` shows the last answers, and `kproxide explain` says from them why a
//! machine came to one hypervisor and not to another.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use kproxide_planner::plan::question::{Answer, AnswerBody, Question};
use kproxide_planner::plan::report::NodeOutcome;
use kproxide_planner::plan::{Plan, decision};
use kproxide_planner::planning::Planning;
use serde::{Deserialize, Serialize};

/// Of so many decisions, together not larger than this as JSON, the oldest are forgotten.
const MOST: usize = 200;
const MOST_BYTES: usize = 8 << 20;
/// Facts about so many hypervisors and Nodes are kept of one plan: about 6 MB while it is made.
const MOST_FACTS: usize = 20_000;

/// One question to a policy, its answer, and what kproxide made of it. Fields may be added, and none changes its
/// meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// The moment of the plan.
    pub at: Timestamp,
    /// `host-selection`: which hypervisor? `scale-down`: which Node first? `labels`: which labels?
    pub kind: String,
    pub pool: String,
    /// Size of the machine; not with `scale-down`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// The machine that was placed, with `host-selection`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// Id of the launch that came of it, as in the log, on its Events and on the NodeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_id: Option<String>,
    /// The policy that was asked.
    pub policy: String,
    /// SHA-256 of the module that answered. Empty if none did.
    pub digest: String,
    /// Why the policy did not answer, and the built-in `spread` did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Why there is no answer: the policy wants nothing done, or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_answer: Option<String>,
    pub candidates: Vec<Candidate>,
    /// The hypervisor that gets the machine, or the Nodes that go.
    pub chosen: Vec<String>,
    /// What the policy was asked: with this `kproxide policy replay` asks another one. Not given where one plan asked
    /// about more than 20,000 hypervisors and Nodes in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Box<Question>>,
}

impl Decision {
    /// As it is before the planner has made anything of it.
    pub fn new(at: Timestamp, question: &Question, answer: &Answer) -> Self {
        let policy = &question.policy().policy;
        let machine = match question {
            Question::Rank(rank) => Some(&rank.machine),
            Question::Decorate(decorate) => Some(&decorate.machine),
            Question::Order(_) => None,
        };
        Self {
            at,
            kind: policy.kind.as_str().to_owned(),
            pool: question.pool().to_string(),
            instance_type: machine.map(|machine| machine.instance_type.to_string()),
            claim: None,
            decision_id: None,
            policy: policy.name.to_string(),
            digest: answer.digest.to_string(),
            fallback: answer.fallback.clone(),
            no_answer: match &answer.body {
                AnswerBody::NoCandidate(reason) | AnswerBody::Failed(reason) => {
                    Some(reason.clone())
                }
                AnswerBody::Ranking(_)
                | AnswerBody::Removals(_)
                | AnswerBody::Decorations(_)
                | AnswerBody::Deferred => None,
            },
            candidates: candidates(question, &answer.body),
            chosen: Vec::new(),
            facts: None,
        }
    }
}

/// A hypervisor (`CLUSTER/NAME`), or with `scale-down` a Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    pub name: String,
    /// From 0 to 1. Not given: it was refused, or the policy did not name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// `kproxide`: no machine may be placed there, so the policy could not choose it. `policy`: the policy refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_by: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What the machine gets there, with `labels`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The answers for one plan.
pub struct Deciding {
    at: Timestamp,
    made: Vec<Decision>,
    /// Facts that may still be kept.
    facts_left: usize,
}

impl Deciding {
    pub fn at(now: Timestamp) -> Self {
        Self {
            at: now,
            made: Vec::new(),
            facts_left: MOST_FACTS,
        }
    }

    /// Gives the answer to the planner, and notes what it makes of it. To ask later is no decision.
    pub fn answer(&mut self, planning: &mut Planning<'_>, question: &Question, answer: Answer) {
        let is_deferred = matches!(answer.body, AnswerBody::Deferred);
        let decision = (!is_deferred).then(|| Decision::new(self.at, question, &answer));
        let before = planning.placements().len();
        planning.answer(answer);
        let Some(mut decision) = decision else {
            return;
        };
        if let Some(left) = self.facts_left.checked_sub(decision.candidates.len()) {
            self.facts_left = left;
            decision.facts = Some(Box::new(question.clone()));
        }
        if let Some(placed) = planning.placements().get(before) {
            decision.claim = Some(placed.claim.to_string());
            decision.chosen = vec![placed.hypervisor.to_string()];
        }
        self.made.push(decision);
    }

    /// Which Nodes go stands in the plan alone.
    pub fn settled(mut self, plan: &Plan) -> Vec<Decision> {
        let goes = |name: &&Candidate| {
            let mut nodes = plan.report.nodes.iter();
            nodes.any(|node| {
                node.node.as_str() == name.name && matches!(node.outcome, NodeOutcome::Removing(_))
            })
        };
        for decision in &mut self.made {
            let mut launches = plan.launches.iter();
            let its = launches.find(|it| decision.claim.as_deref() == Some(it.claim.as_str()));
            let its = its.map(|it| decision::launch(&it.claim, &it.spec));
            decision.decision_id = its.map(|id| id.to_string());
            if decision.kind == "scale-down" {
                let chosen = decision.candidates.iter().filter(goes);
                decision.chosen = chosen.map(|candidate| candidate.name.clone()).collect();
            }
        }
        self.made
    }
}

fn candidates(question: &Question, body: &AnswerBody) -> Vec<Candidate> {
    let (scored, rejected) = body.verdicts();
    let mut candidates: Vec<Candidate> = match question {
        Question::Rank(rank) => {
            let all = rank.candidates.iter();
            all.map(|one| Candidate {
                name: one.hypervisor.id.to_string(),
                refused_by: one.ineligible.as_ref().map(|_| "kproxide".to_owned()),
                reason: one.ineligible.clone().unwrap_or_default(),
                ..Candidate::default()
            })
            .collect()
        }
        Question::Order(order) => named(order.nodes.iter().map(|node| node.name.to_string())),
        Question::Decorate(decorate) => {
            named(decorate.hypervisors.iter().map(|one| one.id.to_string()))
        }
    };
    for one in scored {
        if let Some(candidate) = candidates.get_mut(one.index as usize) {
            candidate.score = Some(one.score);
            candidate.reason.clone_from(&one.reason);
        }
    }
    for one in rejected {
        let candidate = candidates.get_mut(one.index as usize);
        // A policy may repeat what kproxide said.
        if let Some(candidate) = candidate.filter(|candidate| candidate.refused_by.is_none()) {
            candidate.refused_by = Some("policy".to_owned());
            candidate.reason.clone_from(&one.reason);
        }
    }
    if let AnswerBody::Decorations(decorations) = body {
        for (candidate, decoration) in candidates.iter_mut().zip(decorations) {
            let labels = decoration.labels.iter();
            candidate.labels = labels
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect();
        }
    }
    candidates
}

fn named(names: impl Iterator<Item = String>) -> Vec<Candidate> {
    names
        .map(|name| Candidate {
            name,
            ..Candidate::default()
        })
        .collect()
}

/// The last decisions. Cheap to clone; all clones share them.
#[derive(Clone, Debug, Default)]
pub struct Decisions(Arc<Mutex<Kept>>);

/// Each as JSON, the oldest first.
#[derive(Debug, Default)]
struct Kept {
    rows: VecDeque<Box<str>>,
    bytes: usize,
}

/// What `/debug/decisions` answers.
#[derive(Debug, Deserialize)]
pub struct Shown {
    pub decisions: Vec<Decision>,
}

impl Decisions {
    pub fn keep(&self, made: &[Decision]) {
        let mut kept = self.lock();
        let rows = made
            .iter()
            .filter_map(|one| serde_json::to_string(one).ok());
        for row in rows {
            kept.bytes += row.len();
            kept.rows.push_back(row.into());
            while kept.rows.len() > MOST || kept.bytes > MOST_BYTES {
                let oldest = kept.rows.pop_front();
                kept.bytes -= oldest.map_or(0, |oldest| oldest.len());
            }
        }
    }

    /// `{"decisions": […]}`, the oldest first.
    pub fn json(&self) -> Vec<u8> {
        let kept = self.lock();
        let mut json = Vec::with_capacity(kept.bytes + kept.rows.len() + 32);
        json.extend(b"{\"decisions\":[");
        for (index, row) in kept.rows.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            json.extend(row.as_bytes());
        }
        json.extend(b"]}");
        json
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(pool: &str, reason: &str) -> Decision {
        Decision {
            at: Timestamp::UNIX_EPOCH,
            kind: "host-selection".to_owned(),
            pool: pool.to_owned(),
            instance_type: None,
            claim: None,
            decision_id: None,
            policy: "spread".to_owned(),
            digest: "d".to_owned(),
            fallback: None,
            no_answer: Some(reason.to_owned()),
            candidates: Vec::new(),
            chosen: Vec::new(),
            facts: None,
        }
    }

    fn pools(decisions: &Decisions) -> Vec<String> {
        let shown: Shown = serde_json::from_slice(&decisions.json()).unwrap();
        shown.decisions.into_iter().map(|one| one.pool).collect()
    }

    #[test]
    fn the_last_200_are_kept() {
        let decisions = Decisions::default();
        assert_eq!(pools(&decisions), [""; 0]);
        let all: Vec<Decision> = (0..250)
            .map(|number| one(&number.to_string(), ""))
            .collect();
        let (first, second) = all.split_at(120);
        decisions.keep(first);
        assert_eq!(pools(&decisions).len(), 120);
        decisions.keep(second);
        let kept = pools(&decisions);
        assert_eq!((kept.len(), &*kept[0], &*kept[199]), (200, "50", "249"));
    }

    #[test]
    fn they_take_at_most_8_mib() {
        let decisions = Decisions::default();
        let long = "x".repeat(3 << 20);
        decisions.keep(&[one("a", &long), one("b", &long)]);
        assert_eq!(pools(&decisions), ["a", "b"]);
        decisions.keep(&[one("c", &long)]);
        assert_eq!(pools(&decisions), ["b", "c"]);
        decisions.keep(&[one("too long", &"x".repeat(MOST_BYTES)), one("d", &long)]);
        assert_eq!(pools(&decisions), ["d"]);
        assert!(decisions.json().len() <= MOST_BYTES);
    }
}
