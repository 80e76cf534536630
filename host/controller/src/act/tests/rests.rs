//! What ends the rest of a claim: a verdict that wants something else, news, and time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kproxide_planner::plan::{RemovalReason, Verdict};
use kproxide_planner::reasons::on_hold::Hold;
use tokio::time::{Instant, timeout};

use super::lab::{CLAIM, Lab};
use crate::act::Rest;
use crate::act::pause::{Driven, Pause};

#[test]
fn what_ends_a_rest_and_what_ends_a_back_off() {
    let until = Timestamp::UNIX_EPOCH;
    let rest = |wake_at: Option<Timestamp>| Rest {
        earliest: until,
        wake_at,
        verdict: Verdict::Keep,
        removing: false,
    };
    let (back_off, idle) = (rest(Some(until)), rest(None));
    let removal = Verdict::Remove(RemovalReason::Empty);
    for (verdict, noting, after_back_off, otherwise) in [
        (Verdict::Keep, false, true, true),
        (Verdict::Keep, true, true, false),
        (removal.clone(), false, false, false),
        (removal, true, false, false),
        (Verdict::Hold(Hold::ClaimPaused), false, true, false),
    ] {
        let goes_on = (
            back_off.goes_on(&verdict, noting),
            idle.goes_on(&verdict, noting),
        );
        assert_eq!(
            goes_on,
            (after_back_off, otherwise),
            "{verdict:?}, {noting}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_for_a_moment_wakes_the_loop_then() {
    let lab = Lab::new().await;
    let mut host = lab.host(1).await;
    let now = host.actor.context.clock.now();
    for (claim, seconds) in [(CLAIM, 40), ("workers-b", 30)] {
        let pause = Pause::Wait {
            until: Some(now + SignedDuration::from_secs(seconds)),
            why: "a test".to_owned(),
        };
        let rest = Driven::idle(pause);
        host.actor.rest(claim.into(), rest, Verdict::Keep, now);
    }
    for waited in [30, 10] {
        let began = Instant::now();
        let wakes = timeout(Duration::from_secs(60), host.actor.finished()).await;
        wakes.expect("it wakes");
        assert_eq!(began.elapsed().as_secs(), waited);
    }
}
