//! A deliberate mistake that needs more than one line: clone before the claim exists. Only the build of `cargo broken`
//! has it.

use std::sync::Arc;

use kproxide_planner::claim::Outcome;
use kproxide_planner::facts::{ClaimFacts, ClaimStatus};
use kproxide_planner::ids::Uid;
use kproxide_planner::mutants::{Mutant, broken};
use kproxide_planner::plan::{Launch, Verdict};
use tokio_util::sync::CancellationToken;

use super::Context;
use super::drive::Drive;
use super::subject::Surroundings;
use crate::kube::claims::StoredClaim;

/// Asks for the clone of a claim that is yet to be created; gives back what the claim's own drive needs.
pub(super) async fn clone_first(
    context: &Arc<Context>,
    launch: &Launch,
    surroundings: Surroundings,
    stopping: &CancellationToken,
    term: &Arc<str>,
) -> Surroundings {
    if !broken(Mutant::ClaimAfterClone) {
        return surroundings;
    }
    let facts = ClaimFacts {
        uid: Uid::from("to-come"),
        created: context.clock.now(),
        deleting_since: None,
        has_finalizer: true,
        spec: launch.spec.clone(),
        status: ClaimStatus {
            nonce: Some((context.nonces)().into()),
            ..ClaimStatus::default()
        },
        replace: false,
        do_not_disrupt: false,
        paused: false,
    };
    let claim = StoredClaim {
        name: launch.claim.clone(),
        resource_version: "".into(),
        facts,
    };
    let (context, stopping) = (context.clone(), stopping.clone());
    let mut drive = Drive::new(
        context,
        claim,
        surroundings,
        Verdict::Keep,
        stopping,
        term.clone(),
    );
    let _: Outcome = drive.clone_machine().await;
    drive.surroundings
}
