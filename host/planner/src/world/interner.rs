//! Equal values stored once. Ids are handles for lookup; nothing is ever ordered by them, since they depend on the order of events.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A handle of an [`Interner`], valid as long as it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(u32);

impl Id {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Values with a count of their holders; the last one to let go frees the value.
#[derive(Clone, Debug)]
pub(crate) struct Interner<T> {
    /// By hash: values such as pods' specs are long, and alike at their beginnings.
    ids: BTreeSet<(u64, Id)>,
    slots: Vec<Option<Slot<T>>>,
    free: Vec<Id>,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    value: T,
    holders: u32,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            ids: BTreeSet::new(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// The id of this value, held once more.
    pub(crate) fn hold(&mut self, value: T) -> Id {
        let hash = hash(&value);
        let mut alike = self.ids.range((hash, Id(0))..=(hash, Id(u32::MAX)));
        if let Some((_, id)) = alike.find(|(_, id)| *self.get(*id) == value) {
            let id = *id;
            self.hold_again(id);
            return id;
        }
        let slot = Slot { value, holders: 1 };
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.slots.push(None);
                Id(u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 values"))
            }
        };
        self.ids.insert((hash, id));
        self.slots[id.index()] = Some(slot);
        id
    }

    pub(crate) fn hold_again(&mut self, id: Id) {
        self.slot_mut(id).holders += 1;
    }

    /// The value, if nobody holds it any more.
    pub(crate) fn release(&mut self, id: Id) -> Option<T> {
        let slot = self.slot_mut(id);
        slot.holders -= 1;
        if slot.holders > 0 {
            return None;
        }
        let freed = self.slots[id.index()].take()?;
        self.ids.remove(&(hash(&freed.value), id));
        self.free.push(id);
        Some(freed.value)
    }

    pub(crate) fn get(&self, id: Id) -> &T {
        let slot = self.slots[id.index()].as_ref();
        &slot.expect("a held id has a value").value
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        let slots = (0u32..).map(Id).zip(&self.slots);
        slots.filter_map(|(id, slot)| Some((id, &slot.as_ref()?.value)))
    }

    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn slot_mut(&mut self, id: Id) -> &mut Slot<T> {
        let slot = self.slots[id.index()].as_mut();
        slot.expect("a held id has a value")
    }
}

/// The same in every run, unlike a HashMap's.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of them have one hash.
    #[derive(Debug, PartialEq, Eq)]
    struct Colliding(u32);

    impl Hash for Colliding {
        fn hash<H: Hasher>(&self, _: &mut H) {}
    }

    #[test]
    fn values_of_one_hash_are_told_apart() {
        let mut interner = Interner::default();
        let ids = [1, 2, 3].map(|number| interner.hold(Colliding(number)));
        interner.release(ids[1]);
        assert_eq!(interner.hold(Colliding(3)), ids[2]);
        assert_eq!(interner.get(ids[0]).0, 1);
        assert_eq!(interner.len(), 2);
    }

    #[test]
    fn equal_values_share_an_id_until_the_last_holder_lets_go() {
        let mut interner = Interner::default();
        let a = interner.hold("a");
        let b = interner.hold("b");
        assert_eq!(interner.hold("a"), a);
        assert_ne!(a, b);
        interner.release(a);
        assert_eq!(*interner.get(a), "a");
        interner.release(a);
        assert_eq!(interner.len(), 1);
        assert_eq!(interner.hold("c"), a, "the freed slot is used again");
        assert_eq!(*interner.get(b), "b");
    }
}
