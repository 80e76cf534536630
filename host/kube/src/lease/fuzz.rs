//! The leader's fence: whatever clocks are begun with, however long requests take and whichever answers are lost, two never lead at once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::select_all;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use kproxide_planner::fuzz::Draw;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fixtures::{Server, Way};
use super::{Fence, LeaseSettings, Seen, Step, elector, next};
use kproxide_common::clock::Clock;

/// What is left of the input: each request draws its way from it.
#[derive(Clone)]
struct Bytes(Arc<Mutex<VecDeque<u8>>>);

impl Bytes {
    /// `None`: used up.
    fn next(&self) -> Option<u8> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.pop_front()
    }

    fn tenths(&self) -> Duration {
        Duration::from_millis(u64::from(self.next().unwrap_or(0)) * 100)
    }

    /// One in four requests is slow on its way, one in four answers is, and some are lost.
    fn way(&self) -> Way {
        let fate = self.next().unwrap_or(0);
        let slow = |is_slow: bool| match is_slow {
            true => self.tenths(),
            false => Duration::ZERO,
        };
        Way {
            there: (fate != 1).then(|| slow(fate & 3 == 3)),
            back: (fate % 16 != 2).then(|| slow(fate & 12 == 12)),
        }
    }
}

/// A process: what it says of leadership, and its elector.
struct Replica {
    fence: Fence,
    /// Dropped with the process.
    _elector: JoinSet<()>,
}

impl Replica {
    fn begin(server: &Server, settings: &LeaseSettings, number: usize, bytes: &Bytes) -> Self {
        let settings = LeaseSettings {
            identity: format!("replica-{number}"),
            ..settings.clone()
        };
        let bytes = bytes.clone();
        let client = server.client(move |_| bytes.way());
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let random = number.to_string();
        let (fence, run) = elector(
            client,
            settings,
            clock,
            random,
            CancellationToken::new(),
            CancellationToken::new(),
        );
        let mut task = JoinSet::new();
        task.spawn(run);
        Self {
            fence,
            _elector: task,
        }
    }
}

/// Electors in any order, with any delays. Times are as a valid configuration has them: retry < renewal deadline < duration.
pub fn fence(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = runtime.expect("a runtime needs nothing");
    runtime.block_on(contest(data));
    runtime.block_on(async { arbitrary(data, Instant::now()) });
}

async fn contest(data: &[u8]) {
    let bytes = Bytes(Arc::new(Mutex::new(data.iter().copied().collect())));
    let drawn = || u64::from(bytes.next().unwrap_or(0));
    let duration = 3 + drawn() % 40;
    let renew = 2 + drawn() % (duration - 2);
    let retry = 1 + drawn() % (renew - 1);
    let settings = LeaseSettings {
        namespace: "kproxide".to_owned(),
        name: "kproxide".to_owned(),
        identity: String::new(),
        duration: Duration::from_secs(duration),
        renew_deadline: Duration::from_secs(renew),
        retry: Duration::from_secs(retry),
    };
    let server = Server::default();
    let mut begun = 0;
    let mut replica = || {
        begun += 1;
        Replica::begin(&server, &settings, begun, &bytes)
    };
    let mut replicas = [replica(), replica(), replica()];
    while let Some(fate) = bytes.next() {
        let pause = tokio::time::sleep(bytes.tenths());
        tokio::pin!(pause);
        loop {
            // Who begins to lead says so: nobody else needs to be asked at any other moment.
            let changes = replicas.each_mut().map(|one| one.fence.changed().boxed());
            let is_over = tokio::select! {
                biased;
                _ = select_all(changes) => false,
                () = &mut pause => true,
            };
            let leading = replicas.iter().filter(|one| one.fence.leads()).count();
            assert!(leading <= 1, "{leading} lead at once");
            if is_over {
                break;
            }
        }
        // A process dies, and another begins without memory.
        if fate < 32 {
            replicas[usize::from(fate) % 3] = replica();
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
