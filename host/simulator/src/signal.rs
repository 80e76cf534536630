//! A value that tasks wait on. Those who wait are woken in the order in which they began to, which `tokio::sync::watch` does not promise: it spreads its
//! receivers at random, and two runs of one seed would differ by who comes first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Clones are the same value.
#[derive(Debug)]
pub(crate) struct Signal<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Clone for Signal<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Clone> Signal<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            value: Mutex::new(value),
            changed: Notify::new(),
        }))
    }

    /// What it is now.
    pub(crate) fn get(&self) -> T {
        self.value().clone()
    }

    /// Sets it and wakes everybody who waits.
    pub(crate) fn set(&self, value: T) {
        self.change(|old| *old = value);
    }

    /// Changes it and wakes everybody who waits.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.value());
        self.0.changed.notify_waiters();
    }

    /// Returns the first value that `wanted` holds for: the present one, or one that a waiter gets to see later. A value that is replaced before the waiter
    /// runs is not seen.
    pub(crate) async fn wait_for(&self, wanted: impl Fn(&T) -> bool) -> T {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            // From here on no change is missed, and this is the place in the row.
            changed.as_mut().enable();
            let value = self.get();
            if wanted(&value) {
                return value;
            }
            changed.await;
        }
    }

    fn value(&self) -> MutexGuard<'_, T> {
        self.0.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn waiters_are_woken_in_the_order_in_which_they_came() {
        let (signal, order) = (Signal::new(0_u32), Arc::new(Mutex::new(Vec::new())));
        let mut waiters = JoinSet::new();
        // As many as leave no doubt: chance would have to put forty of them in a row.
        for waiter in 0..40 {
            let (signal, order) = (signal.clone(), order.clone());
            waiters.spawn(async move {
                let seen = signal.wait_for(|value| *value > 0).await;
                order.lock().unwrap().push((waiter, seen));
            });
        }
        tokio::task::yield_now().await;
        signal.set(7);
        while waiters.join_next().await.is_some() {}
        let expected: Vec<_> = (0..40).map(|waiter| (waiter, 7)).collect();
        assert_eq!(*order.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn what_holds_already_is_not_waited_for() {
        let signal = Signal::new(3);
        assert_eq!(signal.wait_for(|value| *value == 3).await, 3);
    }
}
