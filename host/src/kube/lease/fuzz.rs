//! The leader's fence: whatever clocks are begun with, however long requests take and whichever answers are lost, two never lead at once.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use kproxide_planner::fuzz::Draw;
use tokio::time::Instant;

use super::{Seen, Step, next};

struct Contender {
    name: String,
    seen: Option<Seen>,
    until: Option<Instant>,
    /// It began a turn at this moment, has read this version, and will write, if it does, when it is next scheduled.
    trying: Option<(Instant, u32)>,
}

/// Contenders in any order, with any delays. Times are as a valid configuration has them: retry < renewal deadline < duration.
pub fn fence(data: &[u8]) {
    let mut draw = Draw::new(data);
    let duration = 3 + u64::from(draw.byte());
    let renew = 2 + u64::from(draw.byte()) % (duration - 2);
    let (duration, renew) = (Duration::from_secs(duration), Duration::from_secs(renew));
    let mut now = Instant::now();
    let mut stored: (u32, Option<LeaseSpec>) = (0, None);
    let mut contenders: Vec<Contender> = (0..3)
        .map(|index| Contender {
            name: format!("replica-{index}"),
            seen: None,
            until: None,
            trying: None,
        })
        .collect();
    while !draw.is_empty() {
        now += Duration::from_millis(u64::from(draw.byte()) * 100);
        let index = draw.below(contenders.len());
        let fate = draw.byte() % 16;
        turn(
            &mut contenders[index],
            &mut stored,
            fate,
            now,
            (duration, renew),
        );
        let leading: Vec<&str> = contenders
            .iter()
            .filter(|one| one.until.is_some_and(|until| now < until))
            .map(|one| &*one.name)
            .collect();
        assert!(leading.len() <= 1, "{leading:?} lead at once");
    }
    arbitrary(data, now);
}

/// Half a turn: reading begins one, the next time the contender is scheduled it decides and writes.
fn turn(
    one: &mut Contender,
    stored: &mut (u32, Option<LeaseSpec>),
    fate: u8,
    now: Instant,
    (duration, renew): (Duration, Duration),
) {
    // Its process died, and another of the same name begins without memory.
    if fate == 0 {
        (one.seen, one.until, one.trying) = (None, None, None);
        return;
    }
    let Some((began, version)) = one.trying.take() else {
        one.trying = Some((now, stored.0));
        let news = stored.1.as_ref().filter(|spec| {
            let seen = one.seen.as_ref();
            seen.is_none_or(|seen| seen.spec != **spec)
        });
        if let Some(spec) = news {
            let spec = spec.clone();
            one.seen = Some(Seen { spec, at: now });
        }
        return;
    };
    match next(one.seen.as_ref(), &one.name, one.until, now) {
        Step::Wait(until) => assert!(now < until),
        Step::StepDown => one.until = None,
        Step::Acquire | Step::Renew if version != stored.0 => {}
        Step::Acquire | Step::Renew => {
            let spec = LeaseSpec {
                holder_identity: Some(one.name.clone()),
                lease_duration_seconds: i32::try_from(duration.as_secs()).ok(),
                // Any content that no other write has.
                lease_transitions: i32::try_from(stored.0).ok(),
                ..LeaseSpec::default()
            };
            *stored = (stored.0 + 1, Some(spec.clone()));
            // The answer may be lost; it took effect all the same.
            if fate != 1 {
                one.seen = Some(Seen { spec, at: now });
                one.until = Some(began + renew);
            }
        }
    }
}

/// A Lease as somebody else may have written it.
fn arbitrary(data: &[u8], now: Instant) {
    let mut draw = Draw::new(data);
    let spec = LeaseSpec {
        holder_identity: draw
            .flag()
            .then(|| draw.word(&["me", "you", ""]).to_owned()),
        lease_duration_seconds: draw.flag().then(|| draw.number() as i32),
        lease_transitions: draw.flag().then(|| draw.number() as i32),
        ..LeaseSpec::default()
    };
    let later = |draw: &mut Draw<'_>| now + Duration::from_secs(draw.byte().into());
    let at = later(&mut draw);
    let until = draw.flag().then(|| later(&mut draw));
    let now = later(&mut draw);
    let holder = spec.holder_identity.clone().unwrap_or_default();
    match next(Some(&Seen { spec, at }), "me", until, now) {
        Step::Renew => assert!(holder == "me" && until.is_some_and(|until| now < until)),
        Step::StepDown => assert!(until.is_some()),
        Step::Wait(free_at) => assert!(until.is_none() && holder == "you" && now < free_at),
        Step::Acquire => assert!(until.is_none()),
    }
}
