//! Wall time, from one place; and what time it is elsewhere.
//!
//! Everything that waits uses `tokio::time`; everything that writes or compares a wall-clock moment asks the one [`Clock`] that `main`
//! handed down. In simulation it runs with tokio's paused time, so that a day passes in a moment and every run is the same.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, header};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A time that was told longer ago says nothing any more.
const TIME_LASTS: Duration = Duration::from_secs(5 * 60);

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

/// What time it is at a server, by its answers.
#[derive(Default)]
pub struct ServerTime(Mutex<Option<(Timestamp, Instant)>>);

impl ServerTime {
    /// `None`: it has not said so lately.
    pub fn now(&self) -> Option<Timestamp> {
        let Self(told) = self;
        let told = *told.lock().unwrap_or_else(PoisonError::into_inner);
        let (time, at) = told.filter(|(_, at)| at.elapsed() < TIME_LASTS)?;
        let elapsed = SignedDuration::try_from(at.elapsed()).ok()?;
        time.saturating_add(elapsed).ok()
    }

    /// Takes note of an answer.
    pub fn note(&self, headers: &HeaderMap) {
        let Self(told) = self;
        let date = headers
            .get(header::DATE)
            .and_then(|date| date.to_str().ok());
        if let Some(time) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) {
            let now = Some((time.timestamp(), Instant::now()));
            *told.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_servers_time_goes_on_and_grows_old() {
        let server = ServerTime::default();
        assert_eq!(server.now(), None);
        let mut headers = HeaderMap::new();
        headers.insert(
            header::DATE,
            "Mon, 05 Jan 2026 08:00:00 GMT".parse().unwrap(),
        );
        server.note(&headers);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(server.now().unwrap().to_string(), "2026-01-05T08:01:00Z");
        tokio::time::advance(TIME_LASTS).await;
        assert_eq!(server.now(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_virtual_clock_advances_with_tokio() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        tokio::time::advance(std::time::Duration::from_secs(86_400)).await;
        assert_eq!(clock.now().to_string(), "2026-01-02T00:00:00Z");
    }
}
