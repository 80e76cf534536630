//! What drives share: the clients, who we are, and whether we may act.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::SignedDuration;
use kproxide_planner::claim::Note;
use kproxide_planner::ids::{ClaimName, ClusterName, Digest, PoolName, Uid};
use tokio::sync::mpsc;

use crate::metrics::Metrics;
use crate::observe::Clusters;
use kproxide_common::clock::Clock;
use kproxide_kube::client::Client as KubeClient;
use kproxide_pve::client::Client as PveClient;
use kproxide_pve::ownership::Key;

/// Whether this process may act at this very moment: the name of its present term as leader, or nothing.
///
/// It is asked directly before each effect, so it must be cheap. Intents carry the name, and each term has a new one.
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn() -> Option<Arc<str>> + Send + Sync>);

impl Fence {
    pub fn new(epoch: impl Fn() -> Option<Arc<str>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(epoch))
    }

    pub(super) fn epoch(&self) -> Option<Arc<str>> {
        (self.0)()
    }

    /// This process leads, and has led without a break since that epoch began.
    pub(super) fn leads_in(&self, epoch: &str) -> bool {
        self.epoch().as_deref() == Some(epoch)
    }
}

/// Random text for ownership markers: at least 64 bits, letters and digits only.
pub type Nonces = Arc<dyn Fn() -> String + Send + Sync>;

/// Who we are, for ownership proofs.
#[derive(Clone, Debug)]
pub struct Identity {
    /// UID of the `kube-system` namespace.
    pub cluster_id: String,
    /// The first signs, all are accepted. Empty: nothing can be proven, so nothing is done.
    pub keys: Vec<Key>,
}

/// Times that no object sets.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// From the tombstone to a hard stop.
    pub shutdown_timeout: SignedDuration,
    /// How long a closed claim's VMID and address are not used again.
    pub quarantine: SignedDuration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            shutdown_timeout: SignedDuration::from_secs(60),
            quarantine: SignedDuration::from_hours(24),
        }
    }
}

/// An Event about a claim. The receiver limits their number.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimNote {
    pub claim: ClaimName,
    pub uid: Uid,
    pub pool: PoolName,
    /// Id of the decision that it follows from.
    pub decision: Option<Digest>,
    pub note: Note,
}

/// Everything that drives share.
#[derive(Clone)]
pub struct Context {
    pub kube: KubeClient,
    pub clusters: Clusters,
    pub clock: Clock,
    pub identity: Identity,
    pub fence: Fence,
    pub nonces: Nonces,
    pub rules: Rules,
    /// Notes that find it full are dropped: the claim's conditions say the same.
    pub notes: mpsc::Sender<ClaimNote>,
    /// Where scripts for [`Join::GuestExec`](kproxide_planner::facts::Join::GuestExec) are read from.
    pub join_dir: PathBuf,
    pub metrics: Metrics,
}

impl Context {
    /// A client of that cluster. When the turn of a write has come, it asks the fence once more, and is sent in the
    /// leadership `term` or not at all. `None`: the cluster's settings cannot be used.
    pub(super) fn client_in(&self, cluster: &ClusterName, term: Arc<str>) -> Option<PveClient> {
        let client = self.clusters.client(cluster)?;
        let fence = self.fence.clone();
        Some(client.writing_only_while(Arc::new(move || fence.leads_in(&term))))
    }
}
