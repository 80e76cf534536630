//! Which belongs to which.

use std::collections::BTreeSet;

/// A relation that gives most values one partner. A map of sets would take 400 bytes for each of them: a set has room
/// for eleven from the start.
#[derive(Clone, Debug)]
pub(super) struct Pairs<A, B>(BTreeSet<(A, B)>);

impl<A, B> Default for Pairs<A, B> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

/// `B`'s default must be its least value.
impl<A: Clone + Ord, B: Clone + Default + Ord> Pairs<A, B> {
    pub(super) fn insert(&mut self, one: A, partner: B) {
        self.0.insert((one, partner));
    }

    pub(super) fn remove(&mut self, one: &A, partner: &B) {
        self.0.remove(&(one.clone(), partner.clone()));
    }

    /// Ascending.
    pub(super) fn of<'p>(&'p self, one: &A) -> impl Iterator<Item = &'p B> + use<'p, A, B> {
        let one = one.clone();
        let from = self.0.range((one.clone(), B::default())..);
        from.take_while(move |(other, _)| *other == one)
            .map(|(_, partner)| partner)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(A, B)> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_its_own_partners_in_order() {
        let mut pairs = Pairs::default();
        for (one, partner) in [(2, 7), (1, 0), (2, 0), (3, 0), (2, 7)] {
            pairs.insert(one, partner);
        }
        assert_eq!(pairs.of(&2).collect::<Vec<_>>(), [&0, &7]);
        pairs.remove(&2, &0);
        assert_eq!(pairs.of(&2).collect::<Vec<_>>(), [&7]);
        pairs.remove(&2, &7);
        assert_eq!(pairs.of(&2).count() + pairs.of(&4).count(), 0);
        assert_eq!(pairs.iter().count(), 2);
    }
}
