//! Holding requests: a test parks the next request of a kind just before or just after it takes effect, does something
//! to the client (kills it, say), and lets the request go on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Method;
use serde::{Deserialize, Serialize};

use crate::matcher::Matcher;
use crate::signal::Signal;

/// Where a request is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It arrived and has not taken effect.
    Before,
    /// It took effect and is not answered.
    After,
}

/// A request that a hold caught.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldRequest {
    /// The hold that caught it.
    pub hold: u64,
    pub method: String,
    pub path: String,
    pub phase: Phase,
}

/// What a request that passed a gate does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    Go,
    /// It is forgotten: no effect if there was none yet, and no answer.
    Discarded,
}

/// All holds of one server. Clones are the same.
#[derive(Clone, Default)]
pub struct Holds {
    gates: Arc<Mutex<Gates>>,
}

#[derive(Default)]
struct Gates {
    count: u64,
    waiting: VecDeque<Gate>,
    caught: Vec<(HeldRequest, Signal<State>)>,
}

struct Gate {
    id: u64,
    matcher: Matcher,
    phase: Phase,
    state: Signal<State>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Caught(HeldRequest),
    Released,
    Discarded,
}

/// One hold. It catches one request; dropping it lets that request go on.
pub struct Hold {
    id: u64,
    state: Signal<State>,
}

impl Hold {
    /// The number by which the control endpoint knows this hold.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Waits until a request is caught.
    pub async fn caught(&self) -> HeldRequest {
        loop {
            let caught = |state: &State| matches!(state, State::Caught(_));
            if let State::Caught(request) = self.state.wait_for(caught).await {
                return request;
            }
        }
    }

    /// Lets the request go on; without a caught request the hold is lifted.
    pub fn release(self) {}

    /// Forgets the request: before its effect it has none, and in no case is it answered.
    pub fn discard(self) {
        self.state.set(State::Discarded);
    }

    /// Leaves the hold to the control endpoint.
    fn forget(mut self) -> u64 {
        // A fresh signal takes the drop's release.
        self.state = Signal::new(State::Waiting);
        self.id
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.state.change(|state| {
            if *state != State::Discarded {
                *state = State::Released;
            }
        });
    }
}

impl Holds {
    /// Catches the next request that `matcher` covers, in `phase`.
    pub fn hold(&self, matcher: Matcher, phase: Phase) -> Hold {
        let mut gates = self.gates();
        gates.count += 1;
        let id = gates.count;
        let state = Signal::new(State::Waiting);
        gates.waiting.push_back(Gate {
            id,
            matcher,
            phase,
            state: state.clone(),
        });
        Hold { id, state }
    }

    /// Like [`Holds::hold`], to be released by number.
    pub fn hold_by_id(&self, matcher: Matcher, phase: Phase) -> u64 {
        self.hold(matcher, phase).forget()
    }

    /// Releases (or discards) a hold by number, or all of them. Returns how many.
    pub fn end(&self, id: Option<u64>, discard: bool) -> usize {
        let end = if discard {
            State::Discarded
        } else {
            State::Released
        };
        let mut gates = self.gates();
        let mut ended = 0;
        let wanted = |hold: u64| id.is_none_or(|id| id == hold);
        for (_, state) in gates
            .caught
            .iter()
            .filter(|(request, _)| wanted(request.hold))
        {
            state.set(end.clone());
            ended += 1;
        }
        gates.waiting.retain(|gate| {
            let ends = wanted(gate.id);
            ended += usize::from(ends);
            !ends
        });
        ended
    }

    /// The requests that are held now.
    pub fn held(&self) -> Vec<HeldRequest> {
        self.gates()
            .caught
            .iter()
            .map(|(request, _)| request.clone())
            .collect()
    }

    /// The server calls this with every request in both phases, and waits here while it is held.
    pub async fn pass(&self, phase: Phase, method: &Method, path: &str) -> Passed {
        let Some((id, state)) = self.catch(phase, method, path) else {
            return Passed::Go;
        };
        let ended = state
            .wait_for(|state| matches!(state, State::Released | State::Discarded))
            .await;
        let passed = match ended {
            State::Discarded => Passed::Discarded,
            State::Released | State::Waiting | State::Caught(_) => Passed::Go,
        };
        self.gates()
            .caught
            .retain(|(request, _)| request.hold != id);
        passed
    }

    fn catch(&self, phase: Phase, method: &Method, path: &str) -> Option<(u64, Signal<State>)> {
        let mut gates = self.gates();
        // A hold that was lifted before it caught anything is over.
        gates
            .waiting
            .retain(|gate| gate.state.get() == State::Waiting);
        let covers = |gate: &Gate| gate.phase == phase && gate.matcher.covers(method, path);
        let gate = gates
            .waiting
            .iter()
            .position(covers)
            .and_then(|at| gates.waiting.remove(at))?;
        let request = HeldRequest {
            hold: gate.id,
            method: method.to_string(),
            path: path.to_owned(),
            phase,
        };
        gate.state.set(State::Caught(request.clone()));
        gates.caught.push((request, gate.state.clone()));
        Some((gate.id, gate.state))
    }

    fn gates(&self) -> MutexGuard<'_, Gates> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLONE: &str = "/nodes/pve1/qemu/9000/clone";

    #[tokio::test(start_paused = true)]
    async fn request_waits_until_released() {
        let holds = Holds::default();
        let hold = holds.hold("clone".parse().unwrap(), Phase::Before);
        assert_eq!(
            holds.pass(Phase::After, &Method::POST, CLONE).await,
            Passed::Go
        );
        let request = holds.pass(Phase::Before, &Method::POST, CLONE);
        let test = async {
            assert_eq!(hold.caught().await.path, CLONE);
            assert_eq!(holds.held().len(), 1);
            hold.release();
        };
        let (passed, ()) = tokio::join!(request, test);
        assert_eq!(passed, Passed::Go);
        assert!(holds.held().is_empty());
        // One hold catches one request.
        assert_eq!(
            holds.pass(Phase::Before, &Method::POST, CLONE).await,
            Passed::Go
        );
    }

    #[tokio::test(start_paused = true)]
    async fn request_can_be_discarded_by_number() {
        let holds = Holds::default();
        let id = holds.hold_by_id("clone".parse().unwrap(), Phase::After);
        let request = holds.pass(Phase::After, &Method::POST, CLONE);
        let test = async {
            while holds.held().is_empty() {
                tokio::task::yield_now().await;
            }
            assert_eq!(holds.end(Some(id), true), 1);
        };
        let (passed, ()) = tokio::join!(request, test);
        assert_eq!(passed, Passed::Discarded);
    }

    #[tokio::test(start_paused = true)]
    async fn lifted_hold_catches_nothing() {
        let holds = Holds::default();
        drop(holds.hold("clone".parse().unwrap(), Phase::Before));
        assert_eq!(
            holds.pass(Phase::Before, &Method::POST, CLONE).await,
            Passed::Go
        );
    }
}
