//! How a user's object stands in the API server.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::Uid;

/// How one of the user's objects stands in the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existence {
    pub uid: Uid,
    /// How often its spec has changed: conditions name the one that they are about.
    #[serde(default)]
    pub generation: i64,
    /// It carries kproxide's finalizer [`crate::keys::IN_USE`], so that it stays while machines need it.
    pub in_use: bool,
    /// Somebody deletes it: since when.
    pub deleting_since: Option<Timestamp>,
}

impl Default for Existence {
    fn default() -> Self {
        Self {
            uid: Uid::from(""),
            generation: 0,
            in_use: false,
            deleting_since: None,
        }
    }
}
