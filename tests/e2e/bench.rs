//! What the cases share: control planes, one binary, one runtime.

use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::Duration;

use kproxide_testkit::controlplane::{ApiError, CONTROL_PLANE_NODE, Programs};
use kproxide_testkit::{ControlPlane, Options, eventually, require_controlplane};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::binary;
use crate::stage::{CLAIMS, NAMESPACE, RELEASE, SOON};

/// Of claims.
pub(crate) const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeclaims.kproxide.dev";

pub(crate) const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

/// Control planes, of which as many run as there are cases at one time. Cases mostly wait.
const CLUSTERS: usize = 4;
/// Alive as long as a case runs or waits for its turn.
static SHARED: Mutex<Weak<Benches>> = Mutex::new(Weak::new());

/// What one case has for itself.
pub(crate) struct Bench {
    pub(crate) cluster: ControlPlane,
    pub(crate) binary: PathBuf,
}

struct Benches {
    /// One case at a time on each. Empty until a case needs it.
    benches: [Mutex<Option<Bench>>; CLUSTERS],
    binary: PathBuf,
    /// Last: the control planes' processes belong to it.
    runtime: Runtime,
}

/// Runs one case on a cluster that holds nothing of another. Without Go, and not in CI, it is skipped.
pub(crate) fn on_a_cluster(case: impl AsyncFnOnce(&Bench)) {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let shared = Benches::shared();
    let mut turn = shared.turn();
    let began = Instant::now();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        shared.runtime.block_on(async {
            let bench = match &mut *turn {
                Some(bench) => bench,
                unused => unused.insert(Bench::start(&programs, &shared.binary).await),
            };
            bench.scrub().await;
            case(bench).await;
        });
    }));
    // The runner names a thread after its test. `tests/verify/seconds.txt` has these figures of the cases that are not in `cargo verify`.
    let seconds = began.elapsed().as_secs();
    let name = thread::current().name().unwrap_or_default().to_owned();
    // Straight to standard error: the runner shows what is printed otherwise only when the test fails.
    let _ = writeln!(io::stderr().lock(), "{name} took {seconds} s");
    if let Err(panic) = ended {
        if let Some(bench) = &mut *turn {
            bench.cluster.keep_for_inspection();
        }
        resume_unwind(panic);
    }
}

impl Benches {
    fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(benches) = shared.upgrade() {
            return benches;
        }
        // For the clients of the cases; another case may have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let benches = Arc::new(Self {
            benches: Default::default(),
            binary: binary::kproxide(),
            runtime: Runtime::new().unwrap(),
        });
        *shared = Arc::downgrade(&benches);
        benches
    }

    /// A bench that no other case uses, or will use before this one is done with it.
    fn turn(&self) -> MutexGuard<'_, Option<Bench>> {
        for bench in &self.benches {
            match bench.try_lock() {
                Ok(free) => return free,
                // Its last case failed; what it left is removed.
                Err(TryLockError::Poisoned(free)) => return free.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.benches[0]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bench {
    async fn start(programs: &Programs, binary: &Path) -> Self {
        let options = Options {
            // The machines renew their Leases every few seconds, on a computer that may be busy.
            node_grace: Duration::from_secs(40),
            ..Options::default()
        };
        Self {
            cluster: ControlPlane::start(programs, options).await.unwrap(),
            binary: binary.to_path_buf(),
        }
    }

    /// Removes what the previous case left, by force: it may have failed half-way.
    async fn scrub(&self) {
        let Self { cluster, .. } = self;
        let helm = [
            "uninstall",
            RELEASE,
            "--namespace",
            NAMESPACE,
            "--ignore-not-found",
        ];
        cluster.helm(&helm).await.unwrap();
        let api = cluster.api();
        if let Some(definition) = api.find(DEFINITION).await.unwrap() {
            self.free_all(CLAIMS).await;
            if definition["metadata"]["deletionTimestamp"].is_null() {
                self.delete_all(CLAIMS, "").await;
            } else {
                eventually(SOON, "the deleted definition gone", async || {
                    let left = api.find(DEFINITION).await.unwrap();
                    left.is_none().then_some(()).ok_or("it is there")
                })
                .await;
            }
        }
        // The chart leaves what machines need.
        for kind in ["ledgers", "nodepools", "nodeclasses", "proxmoxclusters"] {
            let path = format!("/apis/kproxide.dev/v1alpha1/{kind}");
            let found = eventually(SOON, &format!("{kind} served"), async || {
                api.find(&path).await.map_err(not_yet)
            })
            .await;
            if found.is_some() {
                self.free_all(&path).await;
                self.delete_all(&path, "").await;
            }
        }
        for namespace in ["default", "kube-system"] {
            for owners in [
                "apps/v1/namespaces/{}/deployments",
                "apps/v1/namespaces/{}/daemonsets",
                "apps/v1/namespaces/{}/statefulsets",
                "policy/v1/namespaces/{}/poddisruptionbudgets",
            ] {
                let path = format!("/apis/{}", owners.replace("{}", namespace));
                self.delete_all(&path, "").await;
            }
        }
        self.delete_all("/api/v1/nodes", CONTROL_PLANE_NODE).await;
        // Pods last: what owns them is deleted in the background and may make another one before it is gone.
        for namespace in ["default", "kube-system", NAMESPACE] {
            let pods = format!("/api/v1/namespaces/{namespace}/pods");
            let owners = format!("/apis/apps/v1/namespaces/{namespace}/replicasets");
            eventually(SOON, &format!("{namespace} without pods"), async || {
                let present = api.list(&pods).await.unwrap();
                let owners = api.list(&owners).await.unwrap().len();
                for pod in &present {
                    let path = format!("{pods}/{}", pod["metadata"]["name"].as_str().unwrap());
                    // Somebody else may have been faster.
                    let _ = api.delete_now(&path).await;
                }
                let left = present.len() + owners;
                if left == 0 {
                    Ok(())
                } else {
                    Err(format!("{left} pods and owners"))
                }
            })
            .await;
            // A writer of the last case may still send one or two, so that they never stay gone for good. No case counts on their absence.
            let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
            api.delete(&events).await.unwrap();
        }
        // Their attacher went with the last case.
        self.free_all(ATTACHMENTS).await;
        self.delete_all(ATTACHMENTS, "").await;
        // Claims are protected while a pod uses them, and volumes while a claim does.
        for storage in [
            "/api/v1/namespaces/default/persistentvolumeclaims",
            "/api/v1/persistentvolumes",
            "/apis/storage.k8s.io/v1/storageclasses",
            "/apis/storage.k8s.io/v1/csidrivers",
        ] {
            self.delete_all(storage, "").await;
        }
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
        self.delete_all(&leases, "").await;
        // Every namespace has that one, and the next pod mounts it at once.
        let config_maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
        self.delete_all(&config_maps, "kube-root-ca.crt").await;
    }

    /// Takes the finalizers off the objects of a collection.
    async fn free_all(&self, collection: &str) {
        let api = self.cluster.api();
        let objects = eventually(SOON, &format!("{collection} served"), async || {
            api.list(collection).await.map_err(not_yet)
        })
        .await;
        for object in objects {
            let path = format!(
                "{collection}/{}",
                object["metadata"]["name"].as_str().unwrap()
            );
            let free = json!({ "metadata": { "finalizers": null } });
            api.merge(&path, &free).await.unwrap();
        }
    }

    /// Deletes the objects of a collection, those that they own in the background, and waits until they are gone.
    async fn delete_all(&self, collection: &str, except: &str) {
        let api = self.cluster.api();
        let others = format!("fieldSelector=metadata.name!%3D{except}");
        let path = format!("{collection}?{others}&propagationPolicy=Background");
        eventually(SOON, &format!("{collection} served"), async || {
            api.delete(&path).await.map_err(not_yet)
        })
        .await;
        let list = format!("{collection}?{others}");
        eventually(SOON, &format!("{collection} empty"), async || {
            let left = api.list(&list).await.map_err(not_yet)?.len();
            if left == 0 {
                Ok(())
            } else {
                Err(left.to_string())
            }
        })
        .await;
    }
}

/// For a moment after a definition has changed, the API server serves none of its objects.
fn not_yet(error: ApiError) -> String {
    assert!(
        error.to_string().contains("storage is (re)initializing"),
        "{error}"
    );
    error.to_string()
}
