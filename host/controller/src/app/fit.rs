//! Whether this process can do its work at all.
//!
//! The Lease is renewed by a few lines over a connection that stands. So it would go on being renewed by a process that can open nothing any more, or
//! whose loop hangs, and no other replica would ever take over. Only what another process would do better counts here: a Proxmox that is slow for this
//! one is slow for the next one too.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::AppError;
use crate::admin::TURN_MAX;

/// How often to look. Time is counted in looks: a process that was stopped and goes on has not hung meanwhile.
const LOOK: Duration = Duration::from_secs(5);

/// Of so many looks, which take a minute, this many found nothing to open: what comes and goes is too little to work with.
const STARVED_LOOKS: u32 = 12;
const STARVED_MAX: u32 = 10;

/// How long running steps have to come to a safe point. After that the Lease lapses.
pub(super) const SAFE_POINT: Duration = Duration::from_secs(15);

/// For the last request, which releases the Lease.
const RELEASE: Duration = Duration::from_secs(5);

/// Opens something, and closes it again: the operating system's answer in production, a test's in simulation.
pub type Opens = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

/// What can end the run of an app that is not fit for its work.
pub struct Fitness {
    pub(super) turned: watch::Receiver<Instant>,
    pub(super) resign: CancellationToken,
    pub(super) stop: CancellationToken,
    pub(super) opens: Opens,
}

impl Fitness {
    /// Waits for the end of the run, which `running` holds alone. If the process becomes unfit, it gives the Lease away, lets running steps come to a
    /// safe point, and returns whether they do or not.
    ///
    /// # Errors
    /// Those of the run, or why the process is unfit.
    pub async fn watch(self, mut running: JoinSet<Result<(), AppError>>) -> Result<(), AppError> {
        let problem = tokio::select! {
            biased;
            Some(ended) = running.join_next() => return ended.map_err(AppError::TaskFailed)?,
            problem = unfit(self.turned, self.opens) => problem,
        };
        tracing::error!(problem, "giving the lease away, to be started anew");
        self.resign.cancel();
        self.stop.cancel();
        let _ = timeout(SAFE_POINT + RELEASE, running.join_next()).await;
        Err(AppError::Unfit(problem))
    }
}

/// Returns once the process can do nothing more; says why.
async fn unfit(mut turned: watch::Receiver<Instant>, opens: Opens) -> String {
    // The last looks, one bit each: set where nothing could be opened.
    let mut starved: u32 = 0;
    let mut hung = Duration::ZERO;
    loop {
        sleep(LOOK).await;
        let want = opens().err().filter(is_of_want);
        starved = ((starved << 1) | u32::from(want.is_some())) & ((1 << STARVED_LOOKS) - 1);
        let turns = turned.has_changed().is_ok_and(|changed| changed);
        turned.mark_unchanged();
        hung = if turns { Duration::ZERO } else { hung + LOOK };
        let began_then = starved >> (STARVED_LOOKS - 1) == 1;
        let is_starved = began_then && starved.count_ones() >= STARVED_MAX;
        if let Some(error) = want.filter(|_| is_starved) {
            let seconds = (LOOK * STARVED_LOOKS).as_secs();
            let nothing = match starved.count_zeros() == u32::BITS - STARVED_LOOKS {
                true => "no connection and no file",
                false => "hardly a connection or file",
            };
            return format!("for {seconds} s {nothing} could be opened: {error}");
        }
        if hung >= TURN_MAX {
            return format!("the loop has not turned for {} s", hung.as_secs());
        }
    }
}

/// Of descriptors, here or on the whole machine, or of memory.
fn is_of_want(error: &io::Error) -> bool {
    let want = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
    error
        .raw_os_error()
        .is_some_and(|code| want.contains(&code))
}
