//! What happened in between: a watch sees every change, where looking from time to time sees some states.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kproxide_testkit::controlplane::{Api, condition};
use kproxide_testkit::eventually;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::stage::{PODS, SOON};

const NODES: &str = "/api/v1/nodes?labelSelector=kproxide.dev%2Fclaim";

/// Watches the pods of one app and the Nodes of kproxide until it is dropped.
pub(crate) struct Witness {
    pods: Following,
    nodes: Following,
    /// Nodes that are being drained, and that load balancers still use.
    balanced: Following,
    _tasks: JoinSet<()>,
}

impl Witness {
    pub(crate) async fn start(api: &Api, app: &str) -> Self {
        let mut tasks = JoinSet::new();
        let pods = format!("{PODS}?labelSelector=app%3D{app}");
        Self {
            pods: Following::start(api, pods, is_ready, usize::min, &mut tasks).await,
            nodes: Following::start(api, NODES.to_owned(), is_leaving, usize::max, &mut tasks)
                .await,
            balanced: Following::start(
                api,
                NODES.to_owned(),
                |node| is_leaving(node) && !is_excluded(node),
                usize::max,
                &mut tasks,
            )
            .await,
            _tasks: tasks,
        }
    }

    /// The fewest pods that were Ready, and not about to end, at any moment until now.
    pub(crate) async fn fewest_ready(&self) -> usize {
        self.pods.worst().await
    }

    /// The most Nodes that were being taken away at one moment until now.
    pub(crate) async fn most_leaving(&self) -> usize {
        self.nodes.worst().await
    }

    /// The most Nodes that were being drained at one moment until now, and to which load balancers sent connections.
    pub(crate) async fn most_leaving_in_load_balancers(&self) -> usize {
        self.balanced.worst().await
    }
}

fn is_ready(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null() && condition(pod, "Ready") == Some("True")
}

fn is_leaving(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array();
    let draining = taints.is_some_and(|taints| {
        taints
            .iter()
            .any(|taint| taint["key"] == "kproxide.dev/draining")
    });
    draining || node["spec"]["unschedulable"] == true
}

fn is_excluded(node: &Value) -> bool {
    !node["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"].is_null()
}

/// One list, and the worst number of its objects that `counts` was true of.
struct Following {
    api: Api,
    path: String,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    objects: BTreeMap<String, Value>,
    worst: usize,
    broken: Option<String>,
}

impl Following {
    async fn start(
        api: &Api,
        path: String,
        counts: fn(&Value) -> bool,
        worse: fn(usize, usize) -> usize,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let list = api.get(&path).await.unwrap();
        let items = list["items"].as_array().unwrap();
        let objects: BTreeMap<String, Value> = items
            .iter()
            .map(|object| (uid(object), object.clone()))
            .collect();
        let worst = objects.values().filter(|object| counts(object)).count();
        let seen = Arc::new(Mutex::new(Seen {
            objects,
            worst,
            broken: None,
        }));
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let mut changes = api.changes(&path, version).await.unwrap();
        let noted = seen.clone();
        tasks.spawn(async move {
            let end = loop {
                match changes.next().await {
                    Ok(Some(mut change)) if change["type"] != "ERROR" => {
                        let mut seen = lock(&noted);
                        let object = change["object"].take();
                        if change["type"] == "DELETED" {
                            seen.objects.remove(&uid(&object));
                        } else {
                            seen.objects.insert(uid(&object), object);
                        }
                        let now = seen
                            .objects
                            .values()
                            .filter(|object| counts(object))
                            .count();
                        seen.worst = worse(seen.worst, now);
                    }
                    Ok(Some(error)) => break error.to_string(),
                    Ok(None) => break "the server ended the watch".to_owned(),
                    Err(error) => break error.to_string(),
                }
            };
            lock(&noted).broken = Some(end);
        });
        Self {
            api: api.clone(),
            path,
            seen,
        }
    }

    /// Once everything that is in the list now has been seen.
    async fn worst(&self) -> usize {
        eventually(
            SOON,
            &format!("the watch of {} to be at its end", self.path),
            async || {
                let versions: BTreeMap<_, _> = self
                    .api
                    .list(&self.path)
                    .await
                    .unwrap()
                    .iter()
                    .map(|object| (uid(object), version(object)))
                    .collect();
                let seen = lock(&self.seen);
                assert_eq!(seen.broken, None, "the watch of {} ended", self.path);
                let known: BTreeMap<_, _> = seen
                    .objects
                    .iter()
                    .map(|(uid, object)| (uid.clone(), version(object)))
                    .collect();
                if known == versions {
                    Ok(seen.worst)
                } else {
                    Err(format!("{known:?} of {versions:?}"))
                }
            },
        )
        .await
    }
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn version(object: &Value) -> Value {
    object["metadata"]["resourceVersion"].clone()
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
