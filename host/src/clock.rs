//! Wall time, from one place.
//!
//! Everything that waits uses `tokio::time`; everything that writes or compares a wall-clock moment asks the one [`Clock`] that `main`
//! handed down. In simulation it runs with tokio's paused time, so that a day passes in a moment and every run is the same.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The machine's own.
    System,
    /// Starts at `epoch` and advances with tokio's time.
    Virtual { epoch: Timestamp, started: Instant },
}

impl Clock {
    /// A clock that reads `epoch` now and advances with tokio's time.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self::Virtual {
            epoch,
            started: Instant::now(),
        }
    }

    pub fn now(&self) -> Timestamp {
        match self {
            #[expect(clippy::disallowed_methods, reason = "this is the one injected Clock")]
            Self::System => Timestamp::now(),
            Self::Virtual { epoch, started } => {
                let elapsed =
                    SignedDuration::try_from(started.elapsed()).unwrap_or(SignedDuration::MAX);
                epoch.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_virtual_clock_advances_with_tokio() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        tokio::time::advance(std::time::Duration::from_secs(86_400)).await;
        assert_eq!(clock.now().to_string(), "2026-01-02T00:00:00Z");
    }
}
