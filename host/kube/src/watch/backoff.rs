//! How long to wait before a failed watch is tried again.

use std::time::Duration;

/// Doubles from 1 s to 30 s, without jitter: simulated runs must repeat. There are ten watches per process, so no herd to scatter.
#[derive(Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(super) fn next_delay(&mut self) -> Duration {
        let seconds = 1u64 << self.failures.min(5);
        self.failures += 1;
        Duration::from_secs(seconds.min(30))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_limit() {
        let mut backoff = Backoff::default();
        let seconds: Vec<u64> = (0..7).map(|_| backoff.next_delay().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
    }
}
