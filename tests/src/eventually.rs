use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

/// How often a condition is looked at. The API server answers a read in about a millisecond, so looking this often
/// costs nothing, and a test loses at most this much after its condition became true.
const INTERVAL: Duration = Duration::from_millis(25);

/// Waits until `probe` finds what it looks for, and returns that.
///
/// A probe answers `Some(value)` or `Ok(value)` when the condition holds. `Err(state)` means "not yet", with the state
/// that it saw, which is what a person reads when the wait was in vain. A deadline is an upper bound for slow machines,
/// not an expectation.
///
/// # Panics
///
/// After `deadline`, with `what` was waited for and the last state seen.
///
/// ```no_run
/// # async fn example(api: &kproxide_testkit::controlplane::Api) {
/// use kproxide_testkit::eventually;
/// use std::time::Duration;
/// eventually(Duration::from_secs(30), "two Nodes", async || {
///     let nodes = api.list("/api/v1/nodes").await.map_err(|error| error.to_string())?;
///     if nodes.len() == 2 { Ok(nodes) } else { Err(format!("{} Nodes", nodes.len())) }
/// })
/// .await;
/// # }
/// ```
pub async fn eventually<P: Probe>(
    deadline: Duration,
    what: &str,
    probe: impl AsyncFnMut() -> P,
) -> P::Value {
    match within(deadline, probe).await {
        Ok(value) => value,
        Err(state) => panic!("not within {deadline:?}: {what}; last seen: {state}"),
    }
}

/// Waits like [`eventually`].
///
/// # Errors
///
/// After `deadline`, with the last state seen.
pub(crate) async fn within<P: Probe>(
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> P,
) -> Result<P::Value, String> {
    let end = Instant::now() + deadline;
    let mut state = "nothing: the probe itself did not answer".to_owned();
    loop {
        // A probe that hangs must not outlive the deadline either. One that is cut off has seen nothing new.
        if let Ok(seen) = tokio::time::timeout_at(end, probe()).await {
            match seen.seen() {
                Ok(value) => return Ok(value),
                Err(seen) => state = seen,
            }
        }
        if Instant::now() >= end {
            return Err(state);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// What a probe of [`eventually`] may return.
pub trait Probe {
    /// What the condition yields once it holds.
    type Value;

    /// The value, or the state that was seen instead.
    ///
    /// # Errors
    ///
    /// While the condition does not hold.
    fn seen(self) -> Result<Self::Value, String>;
}

impl<T> Probe for Option<T> {
    type Value = T;

    fn seen(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, State: Display> Probe for Result<T, State> {
    type Value = T;

    fn seen(self) -> Result<T, String> {
        self.map_err(|state| state.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(60);

    #[tokio::test]
    async fn returns_the_value_of_the_first_look_that_finds_it() {
        let mut looks = 0;
        let found = eventually(Duration::from_secs(60), "the third look", async || {
            looks += 1;
            (looks == 3).then_some(looks)
        })
        .await;
        assert_eq!(found, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "not within 60ms: a full house; last seen: 1 of 30 guests")]
    async fn says_what_it_saw_when_the_deadline_passes() {
        eventually(SHORT, "a full house", async || {
            Err::<(), _>("1 of 30 guests")
        })
        .await;
    }

    #[tokio::test]
    #[should_panic(expected = "the probe itself did not answer")]
    async fn does_not_wait_for_a_probe_that_hangs() {
        eventually(SHORT, "an answer", async || -> Option<()> {
            std::future::pending().await
        })
        .await;
    }
}
