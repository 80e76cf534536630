//! Which part of what is not in `cargo verify` runs today: a number says it, and as many numbers in a row as there are parts hold everything exactly once.

use sha2::{Digest as _, Sha256};

/// Where the number stands for a test that runs in a slice. Without it a test runs whole.
pub const VARIABLE: &str = "KPROXIDE_SLICE";

/// The number of the slice that this process is part of.
///
/// # Panics
///
/// If the variable holds something else than a number: whole tests in place of a slice would take hours.
pub fn number() -> Option<u64> {
    let text = std::env::var(VARIABLE).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{VARIABLE}={text} is no number")),
    )
}

/// Whether the slice of this number holds an item of a group of which it holds one in so many.
///
/// `salt` is the group's: with the right one the slices of a group are about as long as each other.
pub fn holds(salt: &str, item: &str, number: u64, one_in: u64) -> bool {
    let digest = Sha256::new()
        .chain_update(salt)
        .chain_update([0])
        .chain_update(item)
        .finalize();
    let hash = digest
        .iter()
        .take(8)
        .fold(0, |hash: u64, byte| hash << 8 | u64::from(*byte));
    (hash % one_in + number % one_in).is_multiple_of(one_in)
}
