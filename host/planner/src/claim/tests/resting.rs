//! Drains that were given up: for how long their Node rests.

use super::drains::{draining, to_be_removed};
use super::fixture::*;
use crate::claim::*;
use crate::facts::ClaimStatus;
use crate::ids::Digest;
use crate::plan::{RemovalReason, Verdict};
use crate::reasons::kept::{CameBack, GiveUp, Keeps, Stuck};

#[test]
fn f69_a_drain_that_was_given_up_rests_ever_longer() {
    let given_up = |seconds, by: [&str; 2]| {
        draining().with(|case| {
            case.now = at(seconds);
            case.observed.node = node(|_| {});
            case.observed.pods = Some(by.map(pod).to_vec());
            let digest = |name: &str| (pod(name).key, Digest::from(name));
            case.hint.keepers = by.map(digest).into();
        })
    };
    let rest = |status: &ClaimStatus| {
        let blocked = status.blocked_drains.as_ref().unwrap();
        blocked.rests_until().duration_since(blocked.at).as_mins()
    };
    let mut status = given_up(901, ["a", "b"]).recorded();
    assert_eq!((rest(&status), status.pauses_until()), (10, Some(at(961))));
    let mut begins = 901 + 600;
    // As long as one of them is among those that keep it. Both times it could be tried, it was.
    let again = |status: ClaimStatus, by, begins: i64| {
        let mut again = to_be_removed(RemovalReason::Underutilized);
        again.now = at(begins);
        again.claim.status = status;
        let begun = again.recorded();
        assert_eq!(begun.pauses_until(), None);
        assert_eq!(begun.since(Condition::Unneeded), Some(again.now));
        let case = given_up(begins + 900, by).with(|case| case.claim.status = begun);
        case.recorded()
    };
    for minutes in [20, 40, 80, 160, 320, 640, 1280, 1440, 1440] {
        status = again(status, ["b", "c"], begins);
        assert_eq!(rest(&status), minutes);
        begins = begins + 900 + minutes * 60;
    }
    // Something else, and the same once more before its rest was over: then it had changed.
    status = again(status, ["d", "e"], begins);
    assert_eq!(rest(&status), 10);
    begins = begins + 900 + 600;
    status = again(status, ["d", "e"], begins);
    assert_eq!(rest(&status), 20);
    status = again(status, ["d", "e"], begins + 900 + 60);
    assert_eq!(rest(&status), 10);

    // By pods that the plan has not seen, however often: only time ends that.
    for _ in 0..3 {
        begins += 900 + 1200;
        let mut again = to_be_removed(RemovalReason::Underutilized);
        again.now = at(begins);
        again.claim.status = status;
        let begun = again.recorded();
        let case = given_up(begins + 900, ["d", "e"]).with(|case| {
            case.claim.status = begun;
            case.hint.keepers.clear();
        });
        status = case.recorded();
        assert_eq!(rest(&status), 10);
    }

    // One that was given up as soon as it had begun, because the pool is gone, rests for a minute.
    let case = draining().with(|case| {
        case.now = at(5);
        case.verdict = Verdict::GiveUp(GiveUp::PoolGone);
        case.observed.node = node(|_| {});
    });
    let status = case.recorded();
    assert_eq!(status.pauses_until(), Some(at(65)));
    assert_eq!(status.blocked_drains, None);
}

/// What pods did, those that came back with the load too, rests ever longer; what a person has set does not.
#[test]
fn pods_make_a_node_rest_ever_longer_and_what_people_set_does_not() {
    let blocked = |change: &dyn Fn(&mut Case)| {
        let mut case = draining();
        case.observed.node = node(|_| {});
        case.observed.pods = Some(vec![pod("a")]);
        case.hint.keepers = [(pod("a").key, "digest".into())].into();
        change(&mut case);
        case.recorded().blocked_drains.map(|blocked| blocked.pods)
    };
    let by_a = Some(vec![Digest::from("digest")]);
    let precious = |case: &mut Case| case.observed.pods.as_mut().unwrap()[0].do_not_disrupt = true;
    assert_eq!(blocked(&precious), by_a);
    assert_eq!(blocked(&|case| case.now = at(901)), by_a);
    let came_back = || {
        GiveUp::CameBack(Box::new(CameBack {
            pod: pod("a").key,
            toleration: "op: Exists".to_owned(),
            keeps: Keeps::Volume("data".into()),
        }))
    };
    let verdict = |case: &mut Case| case.verdict = Verdict::GiveUp(came_back());
    assert_eq!(blocked(&verdict), by_a);
    // Load that came back: a pod that has no other place any more, one that needs this Node, one that has come to it.
    let stuck = Stuck {
        pod: pod("a").key,
        volume: None,
    };
    let verdict = |case: &mut Case| case.verdict = Verdict::GiveUp(GiveUp::Stuck(stuck.clone()));
    assert_eq!(blocked(&verdict), by_a);
    let pending = GiveUp::Pending(pod("b").key, "pending".into());
    let verdict = |case: &mut Case| case.verdict = Verdict::GiveUp(pending.clone());
    assert_eq!(blocked(&verdict), Some(vec![Digest::from("pending")]));
    let came = |case: &mut Case| {
        let mut removed = to_be_removed(RemovalReason::Empty);
        removed.claim.status = draining().claim.status;
        (case.verdict, case.claim) = (removed.verdict, removed.claim);
        let conditions = &mut case.claim.status.conditions;
        let mut drained = conditions.iter_mut();
        let drained = drained.find(|c| c.kind == Condition::Drained);
        drained.expect("draining").reason = RemovalReason::Empty.as_str().to_owned();
    };
    assert_eq!(blocked(&came), by_a);
    for verdict in [Verdict::Keep, Verdict::GiveUp(GiveUp::ScaleDownOff)] {
        assert_eq!(blocked(&|case| case.verdict = verdict.clone()), None);
    }
}
