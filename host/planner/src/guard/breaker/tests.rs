use proptest::prelude::*;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn name(index: usize) -> ClaimName {
    ClaimName::from(format!("m{index}").as_str())
}

/// As the planner does: forgets, then counts.
fn begin(
    rows: &mut Vec<Removal>,
    machines: u32,
    claim: usize,
    reason: RemovalReason,
    now: i64,
) -> Result<(), Wait> {
    forget(rows, at(now));
    count(rows, machines, &name(claim), reason, at(now))
}

#[test]
fn repairs_are_a_tenth_and_everything_is_half() {
    for (machines, repairs, all) in [
        (0, 1, 20),
        (10, 1, 20),
        (39, 3, 20),
        (41, 4, 20),
        (100, 10, 50),
    ] {
        for (reason, most) in [
            (RemovalReason::Repair, repairs),
            (RemovalReason::Empty, all),
            (RemovalReason::Lost, all),
        ] {
            let mut rows = Vec::new();
            let begun =
                (0..200).filter(|claim| begin(&mut rows, machines, *claim, reason, 7).is_ok());
            assert_eq!(begun.count(), most, "{machines} machines, {reason}");
        }
    }
}

#[test]
fn who_waits_is_told_for_how_long() {
    let mut rows = Vec::new();
    for (index, second) in [100, 160].into_iter().enumerate() {
        begin(&mut rows, 25, index, RemovalReason::Repair, second).unwrap();
    }
    let wait = begin(&mut rows, 25, 2, RemovalReason::Repair, 200).unwrap_err();
    assert_eq!(
        wait.to_string(),
        "waiting: kproxide repaired 2 machines in the last 10 minutes, and the limit is 2. The next may go at 1970-01-01T00:11:40Z. To have a machine removed at once, delete its NodeClaim"
    );
    assert_eq!(wait.until, at(700));
    // Fewer machines, a smaller share: both rows have to go.
    let wait = begin(&mut rows, 10, 2, RemovalReason::Repair, 200).unwrap_err();
    assert_eq!(wait.until, at(760));
    assert!(
        begin(&mut rows, 25, 2, RemovalReason::Empty, 200).is_ok(),
        "what was asked for does not wait for repairs"
    );
    assert!(begin(&mut rows, 25, 3, RemovalReason::Repair, 699).is_err());
    assert!(begin(&mut rows, 25, 3, RemovalReason::Repair, 700).is_ok());
}

#[test]
fn f16_a_removal_that_begins_again_is_charged_once() {
    let mut rows = Vec::new();
    begin(&mut rows, 10, 0, RemovalReason::Repair, 100).unwrap();
    let before = rows.clone();
    begin(&mut rows, 10, 0, RemovalReason::Repair, 130).unwrap();
    assert_eq!(rows, before, "nothing to write");
    begin(&mut rows, 10, 0, RemovalReason::Repair, 400).unwrap();
    assert_eq!((rows.len(), rows[0].at), (1, at(400)));
    assert!(
        begin(&mut rows, 10, 1, RemovalReason::Repair, 700).is_err(),
        "it began within the window"
    );
}

#[test]
fn a_scale_down_that_turns_into_a_repair_is_one() {
    let mut rows = Vec::new();
    begin(&mut rows, 10, 0, RemovalReason::Empty, 0).unwrap();
    begin(&mut rows, 10, 1, RemovalReason::Repair, 0).unwrap();
    assert!(begin(&mut rows, 10, 0, RemovalReason::Repair, 0).is_err());
    begin(&mut rows, 10, 1, RemovalReason::Empty, 0).unwrap();
    assert_eq!(
        rows[1].reason,
        RemovalReason::Repair,
        "and a repair stays one"
    );
}

#[test]
fn f76_a_clock_set_back_keeps_nothing_waiting_for_longer_than_the_window() {
    let mut rows = Vec::new();
    begin(&mut rows, 10, 0, RemovalReason::Repair, 100_000).unwrap();
    let wait = begin(&mut rows, 10, 1, RemovalReason::Repair, 1_000).unwrap_err();
    assert_eq!(wait.until, at(1_600));
    assert!(begin(&mut rows, 10, 1, RemovalReason::Repair, 1_600).is_ok());
}

proptest! {
    /// However the clock jumps back, within any ten minutes that it went forward no more begin than are allowed; and nobody waits for ever.
    #[test]
    fn f76_no_window_has_more_than_its_allowance(
        machines in 0_u32..80,
        steps in prop::collection::vec((-2_000_i64..900, 0_usize..60, any::<bool>()), 1..300),
    ) {
        let (mut clock, mut passed) = (1_000_000_i64, 0_i64);
        let mut rows = Vec::new();
        let mut begun: Vec<(i64, usize, bool)> = Vec::new();
        for (step, claim, repair) in steps {
            clock += step;
            passed += step.max(0);
            let reason = if repair { RemovalReason::Repair } else { RemovalReason::Empty };
            if begin(&mut rows, machines, claim, reason, clock).is_ok() {
                begun.push((passed, claim, repair));
            }
            // A removal may begin up to a minute after its row was written.
            let since = passed - WINDOW.as_secs() + SAME.as_secs();
            let within = |repairs: bool| -> BTreeSet<usize> {
                let of_window = begun.iter().filter(|(at, _, repair)| *at > since && (*repair || !repairs));
                of_window.map(|(_, claim, _)| *claim).collect()
            };
            prop_assert!(within(true).len() <= allowed(Allowance::Repairs, machines) as usize);
            prop_assert!(within(false).len() <= allowed(Allowance::All, machines) as usize);
        }
        if let Err(wait) = begin(&mut rows, machines, 99, RemovalReason::Repair, clock) {
            prop_assert!(wait.until <= later(at(clock), WINDOW));
            prop_assert!(begin(&mut rows, machines, 99, RemovalReason::Repair, wait.until.as_second()).is_ok());
        }
    }
}
