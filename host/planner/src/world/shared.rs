//! Equal values kept once, as long as anybody has them and a while longer.

use std::collections::BTreeSet;
use std::sync::Arc;

/// So many are kept without asking whether they are still in use.
const FEW: usize = 1024;

/// The values that are shared. Nobody has to let go of one, unlike those of an [`Interner`](super::interner::Interner):
/// each time it has become twice as large, it forgets what nobody else has.
#[derive(Debug)]
pub(super) struct Shared<T: ?Sized> {
    values: BTreeSet<Arc<T>>,
    forgets_at: usize,
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self {
            values: BTreeSet::new(),
            forgets_at: FEW,
        }
    }
}

// Not derived, because a `str` cannot be cloned.
impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self {
            values: self.values.clone(),
            forgets_at: self.forgets_at,
        }
    }
}

impl<T: ?Sized + Ord> Shared<T> {
    /// An equal value that others may have too.
    pub(super) fn share(&mut self, value: Arc<T>) -> Arc<T> {
        if let Some(known) = self.values.get(&value) {
            return known.clone();
        }
        if self.values.len() >= self.forgets_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.forgets_at = FEW.max(2 * self.values.len());
        }
        self.values.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_those_that_nobody_has_are_forgotten() {
        let mut shared = Shared::<str>::default();
        let kept = shared.share("kept".into());
        assert!(Arc::ptr_eq(&kept, &shared.share("kept".into())));
        for number in 0..10 * FEW {
            shared.share(number.to_string().into());
            assert!(shared.values.len() <= FEW);
        }
        assert!(Arc::ptr_eq(&kept, &shared.share("kept".into())));
    }

    #[test]
    fn it_has_room_for_all_that_are_in_use() {
        let mut shared = Shared::<str>::default();
        let all = (0..10 * FEW).map(|number| shared.share(number.to_string().into()));
        let all: Vec<_> = all.collect();
        assert_eq!(shared.values.len(), all.len());
    }
}
