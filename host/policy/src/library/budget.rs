//! What the policies of one tick may use together.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::engine::CALL_FUEL;

/// What the policies of one tick may use together. The call that uses the last instructions is not cut short; the one that uses the last of the time is. Where
/// time stands still while they compute, as in simulation, instructions alone count.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub fuel_left: u64,
    pub time_left: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            fuel_left: 5 * CALL_FUEL,
            time_left: Duration::from_secs(1),
        }
    }
}

impl Budget {
    /// For a person who waits for the answer: the next pod does not.
    pub fn unlimited() -> Self {
        Self {
            fuel_left: u64::MAX,
            time_left: Duration::MAX,
        }
    }

    pub(super) fn spend(&mut self, fuel: u64) {
        self.fuel_left = self.fuel_left.saturating_sub(fuel);
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.fuel_left == 0 || self.time_left.is_zero()
    }

    /// What the call returns; `None`: it was still under way when the time was up. It then ends at its own limits, and nobody hears its answer.
    pub(super) async fn time<T>(&mut self, call: impl Future<Output = T>) -> Option<T> {
        let began = Instant::now();
        let returned = timeout(self.time_left, call).await;
        self.time_left = self.time_left.saturating_sub(began.elapsed());
        returned.ok()
    }
}
