//! Wall time for simulated worlds: an epoch plus what tokio's clock has counted since.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The only source of wall time in a simulation. Under paused tokio time it moves exactly as far as the timers do, so
/// two runs with one seed stamp the same times.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Timestamp,
    start: Instant,
}

impl Clock {
    /// A clock that shows `epoch` now.
    pub fn starting_at(epoch: Timestamp) -> Clock {
        Clock {
            epoch,
            start: Instant::now(),
        }
    }

    /// The wall time of this moment.
    pub fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    /// The wall time at which tokio's clock showed (or will show) `instant`.
    pub fn at(&self, instant: Instant) -> Timestamp {
        let elapsed = instant.saturating_duration_since(self.start);
        let elapsed = SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX);
        self.epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// Whole seconds since 1970, the form in which Proxmox writes every time.
    pub fn unix_seconds(&self) -> i64 {
        self.now().as_second()
    }

    /// The tokio instant at which this clock was made.
    pub fn start(&self) -> Instant {
        self.start
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn moves_with_paused_time_only() {
        let clock = Clock::starting_at(Timestamp::from_second(1_000).unwrap());
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        assert_eq!(clock.now(), Timestamp::from_millisecond(1_002_500).unwrap());
        assert_eq!(clock.unix_seconds(), 1_002);
    }
}
