//! UIDs and generated name suffixes, all from the seed.

use rand::{Rng, rngs::SmallRng};

use crate::rng::Seed;

/// The alphabet of generated names: no vowels and nothing that looks like another letter, as in apimachinery's `rand`.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// One stream per purpose, so that more names do not change the UIDs that follow.
#[derive(Debug)]
pub(crate) struct Ids {
    uids: SmallRng,
    names: SmallRng,
}

impl Ids {
    pub(crate) fn new(seed: Seed) -> Self {
        Self {
            uids: seed.stream("kube", "uids"),
            names: seed.stream("kube", "names"),
        }
    }

    /// A version 4 UUID.
    pub(crate) fn uid(&mut self) -> String {
        let (high, low): (u64, u64) = (self.uids.random(), self.uids.random());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | ((low >> 48) & 0x3fff),
            low & 0xffff_ffff_ffff
        )
    }

    /// `prefix` with the five characters that `generateName` appends; the prefix is cut so that 63 characters hold both.
    pub(crate) fn name(&mut self, prefix: &str) -> String {
        let mut name: String = prefix.chars().take(58).collect();
        name.extend(
            (0..5).map(|_| char::from(ALPHABET[self.names.random_range(0..ALPHABET.len())])),
        );
        name
    }
}
