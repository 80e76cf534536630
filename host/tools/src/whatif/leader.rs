//! The controller itself, asked for its world and its decisions: the pod that leads, through the API server and with
//! the rights of the person who asks, or an address.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::SavedWorld;
use crate::manifest::{BadInput, Object};
use kproxide_common::chain::chain;
use kproxide_common::decisions::{Decision, Shown};
use kproxide_common::foreign;
use kproxide_common::labels::is_path_part;
use kproxide_kube::client::Client;
use kproxide_kube::error::Error;

/// The controller shows its plan once a second, to one reader at a time: so often it is asked, with this pause.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(1100);

/// Where the controller is asked.
pub enum Controller {
    /// A pod, through the API server's proxy. Without a port: the first one that the pod declares.
    Pod {
        client: Client,
        namespace: String,
        pod: String,
        port: Option<u16>,
    },
    /// The address of its admin endpoints.
    Url { http: reqwest::Client, url: String },
}

/// Why the controller says nothing.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    #[error("no replica of kproxide leads: nobody holds the Lease {0}")]
    Nobody(String, Option<Timestamp>),
    #[error("{message}\n\n{}", needed(.namespace))]
    Forbidden { message: String, namespace: String },
    #[error("{asked} answers {status}: {message}")]
    Refused {
        asked: String,
        status: u16,
        message: String,
    },
    #[error("{0} does not answer")]
    Silent(String, #[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{0}: its answer is no JSON as expected")]
    Unreadable(String, #[source] serde_json::Error),
    #[error(transparent)]
    OtherVersion(BadInput),
}

impl NoAnswer {
    /// Without the Role that would help.
    pub fn brief(&self) -> String {
        match self {
            Self::Forbidden { message, .. } => message.clone(),
            Self::Nobody(..)
            | Self::Refused { .. }
            | Self::Silent(..)
            | Self::Unreadable(..)
            | Self::OtherVersion(_) => chain(self),
        }
    }
}

/// What the controller said.
pub struct Told {
    /// Who it was, such as `pod kproxide/kproxide-0`.
    pub by: String,
    pub world: SavedWorld,
    pub decisions: Vec<Decision>,
}

fn needed(namespace: &str) -> String {
    format!(
        "To ask the controller, your user needs this Role in its namespace (and a RoleBinding to it):

apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: kproxide-explain
  namespace: {namespace}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [get]
  - apiGroups: [\"\"]
    resources: [pods/proxy]
    verbs: [get]

Without it: --compute computes the answer here, and --admin URL asks an address."
    )
}

impl Controller {
    /// The replica that holds the Lease.
    ///
    /// # Errors
    /// Nobody holds it, or the person may not read it.
    pub async fn leading(
        client: Client,
        namespace: &str,
        lease: &str,
        port: Option<u16>,
    ) -> Result<Self, NoAnswer> {
        let uri = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease}");
        let about = format!("the API server, asked for the Lease {namespace}/{lease},");
        let held = match understood(client.ask(&uri).await, &about, namespace) {
            Err(NoAnswer::Refused { status: 404, .. }) => Value::Null,
            other => other?,
        };
        let Some(pod) = holder(&held) else {
            let lease_name = format!("{namespace}/{lease}");
            return Err(NoAnswer::Nobody(lease_name, renewed(&held)));
        };
        Ok(Self::Pod {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            port,
            client,
        })
    }

    /// # Errors
    /// It does not answer, or not with what it should.
    pub async fn tell(&self) -> Result<Told, NoAnswer> {
        let world = Object::from_elsewhere(self.get("/debug/plan").await?, self.to_string());
        let world = SavedWorld::read(&world).map_err(NoAnswer::OtherVersion)?;
        let decisions = match self.get("/debug/decisions").await {
            // An older controller has none.
            Err(NoAnswer::Refused { status: 404, .. }) => Vec::new(),
            other => {
                let shown = serde_json::from_value::<Shown>(other?);
                let unreadable = |error| NoAnswer::Unreadable("/debug/decisions".to_owned(), error);
                shown.map_err(unreadable)?.decisions
            }
        };
        Ok(Told {
            by: self.to_string(),
            world,
            decisions,
        })
    }

    async fn get(&self, path: &str) -> Result<Value, NoAnswer> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.get_once(path).await {
                Err(NoAnswer::Refused { status: 429, .. }) if tries < TRIES => {
                    tokio::time::sleep(PAUSE).await;
                }
                other => return other,
            }
        }
    }

    async fn get_once(&self, path: &str) -> Result<Value, NoAnswer> {
        let about = self.to_string();
        match self {
            Self::Pod {
                client,
                namespace,
                pod,
                port,
            } => {
                let port = port.map(|port| format!(":{port}")).unwrap_or_default();
                let pods = format!("/api/v1/namespaces/{namespace}/pods");
                let answered = client.ask(&format!("{pods}/{pod}{port}/proxy{path}")).await;
                understood(answered, &about, namespace)
            }
            Self::Url { http, url } => {
                let silent = |error: reqwest::Error| NoAnswer::Silent(about.clone(), error.into());
                let request = http.get(format!("{}{path}", url.trim_end_matches('/')));
                let answer = request.send().await.map_err(silent)?;
                let status = answer.status();
                let body = answer.bytes().await.map_err(silent)?;
                if !status.is_success() {
                    return Err(NoAnswer::Refused {
                        asked: about,
                        status: status.as_u16(),
                        message: foreign::said(&String::from_utf8_lossy(&body)),
                    });
                }
                serde_json::from_slice(&body).map_err(|error| NoAnswer::Unreadable(about, error))
            }
        }
    }
}

/// The pod that holds this Lease. `None`: nobody does.
pub(crate) fn holder(lease: &Value) -> Option<&str> {
    let holder = lease["spec"]["holderIdentity"].as_str()?;
    // A replica adds something random to the name of its pod, so that its Lease does not outlive a restart.
    let pod = holder.rsplit_once('_').map_or(holder, |(pod, _)| pod);
    // Part of a path, and written by whoever may write the Lease.
    is_path_part(pod).then_some(pod)
}

/// When its last holder held it last.
pub(crate) fn renewed(lease: &Value) -> Option<Timestamp> {
    lease["spec"]["renewTime"].as_str()?.parse().ok()
}

/// What the API server said, or the pod behind it.
fn understood(
    answered: Result<(u16, Value), Error>,
    about: &str,
    namespace: &str,
) -> Result<Value, NoAnswer> {
    let (status, body) =
        answered.map_err(|error| NoAnswer::Silent(about.to_owned(), error.into()))?;
    let message = || foreign::said(body.as_str().unwrap_or_default());
    match status {
        200 => Ok(body),
        403 => Err(NoAnswer::Forbidden {
            message: message(),
            namespace: namespace.to_owned(),
        }),
        status => Err(NoAnswer::Refused {
            asked: about.to_owned(),
            status,
            message: message(),
        }),
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod { namespace, pod, .. } => write!(f, "pod {namespace}/{pod}"),
            Self::Url { url, .. } => f.write_str(url),
        }
    }
}
