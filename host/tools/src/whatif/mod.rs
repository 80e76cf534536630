//! What kproxide would do: the controller's own planner and policies, on objects from files or from a cluster that is
//! only read. Nothing here writes anything.
//!
//! [`build`] makes a world of objects, [`plan`] asks the planner and the policies, [`Answer`] says it in stable words.

mod answer;
mod change;
mod explain;
mod inventory;
mod leader;
mod text;
mod world;

use jiff::Timestamp;
use kproxide_planner::plan::Plan;
use kproxide_planner::plan::question::{self, Question};
use kproxide_planner::planning::{Limits, Planning};
use kproxide_planner::world::World;

pub use answer::{Answer, NodeLine, Outcome, Pending, Verdict};
pub use change::{AddType, Changes};
pub use explain::{Explanation, Subject, explain};
pub use leader::{Controller, NoAnswer, Told};
pub(crate) use leader::{holder, renewed};
pub use text::Text;
pub(crate) use text::{counted, gib, named, table, wrapped};
pub use world::{Input, SavedWorld, Scene, build};

use crate::manifest::BadInput;
pub use crate::manifest::Replicas;
use kproxide_common::decisions::{Deciding, Decision};
use kproxide_policy::{Budget, Library};

/// So many machines are planned at once. The controller begins fewer in one tick, and the rest in the next ones.
const MOST_LAUNCHES: u32 = 5_000;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Input(#[from] BadInput),
    /// A flag names what the input does not have.
    #[error("{0}")]
    Flag(String),
}

/// One plan of this world at this moment, and what the policies answered.
pub async fn plan(world: &World, now: Timestamp, policies: &Library) -> (Plan, Vec<Decision>) {
    let mut budget = Budget::unlimited();
    plan_with(world, now, async |question| {
        policies.ask(question, &mut budget).await
    })
    .await
}

/// One plan of this world at this moment, with these answers.
pub async fn plan_with(
    world: &World,
    now: Timestamp,
    mut answer: impl AsyncFnMut(&Question) -> question::Answer,
) -> (Plan, Vec<Decision>) {
    let limits = Limits {
        max_launches_per_tick: MOST_LAUNCHES,
        ..Limits::default()
    };
    let mut deciding = Deciding::at(now);
    let mut planning = Planning::new(world, now, limits);
    while let Some(question) = planning.question() {
        let answer = answer(&question).await;
        deciding.answer(&mut planning, &question, answer);
    }
    let plan = planning.finish();
    let decisions = deciding.settled(&plan);
    (plan, decisions)
}
