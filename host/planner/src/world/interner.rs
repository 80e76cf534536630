//! Equal values stored once. Ids are handles for lookup; nothing is ever ordered by them, since they depend on the order of events.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A handle of an [`Interner`], valid while somebody holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(u32);

impl Id {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Values with a count of their holders; the last one to let go frees the value.
#[derive(Clone, Debug)]
pub(crate) struct Interner<T> {
    ids: BTreeMap<Arc<T>, Id>,
    slots: Vec<Option<Slot<T>>>,
    free: Vec<Id>,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    value: Arc<T>,
    holders: u32,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            ids: BTreeMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Ord> Interner<T> {
    /// The id of this value, held once more.
    pub(crate) fn hold(&mut self, value: T) -> Id {
        if let Some(id) = self.ids.get(&value).copied() {
            self.hold_again(id);
            return id;
        }
        let slot = Slot {
            value: Arc::new(value),
            holders: 1,
        };
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.slots.push(None);
                Id(u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 values"))
            }
        };
        self.ids.insert(slot.value.clone(), id);
        self.slots[id.index()] = Some(slot);
        id
    }

    pub(crate) fn hold_again(&mut self, id: Id) {
        self.slot_mut(id).holders += 1;
    }

    pub(crate) fn release(&mut self, id: Id) {
        let slot = self.slot_mut(id);
        slot.holders -= 1;
        if slot.holders == 0
            && let Some(slot) = self.slots[id.index()].take()
        {
            self.ids.remove(&slot.value);
            self.free.push(id);
        }
    }

    pub(crate) fn get(&self, id: Id) -> &Arc<T> {
        let slot = self.slots[id.index()].as_ref();
        &slot.expect("a held id has a value").value
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    fn slot_mut(&mut self, id: Id) -> &mut Slot<T> {
        let slot = self.slots[id.index()].as_mut();
        slot.expect("a held id has a value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_an_id_until_the_last_holder_lets_go() {
        let mut interner = Interner::default();
        let a = interner.hold("a");
        let b = interner.hold("b");
        assert_eq!(interner.hold("a"), a);
        assert_ne!(a, b);
        interner.release(a);
        assert_eq!(**interner.get(a), "a");
        interner.release(a);
        assert_eq!(interner.len(), 1);
        assert_eq!(interner.hold("c"), a, "the freed slot is used again");
        assert_eq!(**interner.get(b), "b");
    }
}
