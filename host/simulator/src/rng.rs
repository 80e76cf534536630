//! Randomness from one seed, with a separate stream per entity, so that one more VM does not reshuffle the others.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The seed of a whole simulated world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The random stream of one entity, for example `("clone", "101#7")`. The same names give the same stream in every
    /// process.
    pub fn stream(self, kind: &str, id: &str) -> SmallRng {
        let mut hash = Sha256::new();
        hash.update(self.0.to_le_bytes());
        for part in [kind, id] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let digest: [u8; 32] = hash.finalize().into();
        SmallRng::from_seed(digest)
    }
}

/// A log-normal length of time, given by what people quote of one: its median and its 95th percentile, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    pub median_s: f64,
    pub p95_s: f64,
}

impl Spread {
    /// Takes no time at all.
    pub const ZERO: Spread = Spread::exactly(0.0);

    /// From the median and the 95th percentile, in seconds.
    pub const fn new(median_s: f64, p95_s: f64) -> Spread {
        Spread { median_s, p95_s }
    }

    /// Always the same length.
    pub const fn exactly(seconds: f64) -> Spread {
        Spread::new(seconds, seconds)
    }

    /// One length drawn from the distribution; whole microseconds, so that sums are exact.
    pub fn sample(self, rng: &mut SmallRng) -> Duration {
        if self.median_s <= 0.0 {
            return Duration::ZERO;
        }
        // z(0.95) = 1.6449: the p95 of a log-normal is median * exp(1.6449 * sigma).
        let sigma = (self.p95_s / self.median_s).max(1.0).ln() / 1.6449;
        let seconds = self.median_s * (sigma * standard_normal(rng)).exp();
        // Nothing in the model is meant to take longer than twenty times its p95: the far tail would only stall runs.
        let micros = seconds.min(self.p95_s.max(self.median_s) * 20.0) * 1e6;
        Duration::from_micros(micros.round() as u64)
    }
}

/// Box-Muller: one draw of the standard normal distribution.
fn standard_normal(rng: &mut SmallRng) -> f64 {
    // The first draw must not be 0, whose logarithm is infinite.
    let u: f64 = 1.0 - rng.random::<f64>();
    let v: f64 = rng.random();
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_stable_and_independent() {
        let draw = |kind, id| Seed(7).stream(kind, id).random::<u64>();
        assert_eq!(draw("clone", "101"), draw("clone", "101"));
        assert_ne!(draw("clone", "101"), draw("clone", "102"));
        // The length prefix keeps ("a", "bc") apart from ("ab", "c").
        assert_ne!(draw("a", "bc"), draw("ab", "c"));
    }

    #[test]
    fn spread_has_the_quoted_median_and_95th_percentile() {
        let spread = Spread::new(2.0, 5.0);
        let mut rng = Seed(1).stream("test", "spread");
        let mut drawn: Vec<f64> = (0..4_000)
            .map(|_| spread.sample(&mut rng).as_secs_f64())
            .collect();
        drawn.sort_by(f64::total_cmp);
        let median = drawn[drawn.len() / 2];
        let p95 = drawn[drawn.len() * 95 / 100];
        assert!((median - 2.0).abs() < 0.15, "median {median}");
        assert!((p95 - 5.0).abs() < 0.5, "p95 {p95}");
    }

    #[test]
    fn zero_spread_takes_no_time() {
        let mut rng = Seed(1).stream("test", "zero");
        assert_eq!(Spread::ZERO.sample(&mut rng), Duration::ZERO);
    }
}
