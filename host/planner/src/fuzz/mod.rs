//! What no input whatsoever may break: each target takes any bytes and panics if something is wrong.
//!
//! The same targets run as property tests beside all others, and under libFuzzer in `tests/fuzz`. Nothing of this is in what is shipped.

mod amounts;
mod draw;
mod ledger;
mod world;

pub use amounts::{quantity, resources};
pub use draw::Draw;
use jiff::Timestamp;
pub use ledger::upkeep_of_any as ledger;
pub use world::deltas;

pub use crate::claim::tests::arbitrary::next;

/// Around the small worlds' present, or anywhere in time.
fn moment(draw: &mut Draw<'_>) -> Timestamp {
    let present = crate::fixtures::at(crate::fixtures::NOW).as_second();
    let second = match draw.byte() % 4 {
        0 => present + i64::from(draw.byte()),
        1 => present - i64::from(draw.byte()) * 60,
        2 => present + i64::from(draw.byte()) * 600,
        _ => draw.number(),
    };
    let range = Timestamp::MIN.as_second()..=Timestamp::MAX.as_second();
    let second = second.clamp(*range.start(), *range.end());
    Timestamp::from_second(second).expect("a moment in range")
}

#[cfg(test)]
mod tests;
