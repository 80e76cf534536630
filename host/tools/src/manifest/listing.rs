//! All objects of a running cluster that a plan may depend on. It only lists.

use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use tokio::time::timeout;

use super::Object;
use kproxide_common::chain::chain;
use kproxide_common::foreign;
use kproxide_kube::client::{Client, PAGE, smaller_page};
use kproxide_kube::watch::Kind;

/// What a plan needs beyond the kinds that are watched: what makes pods, and what the API server fills them in from.
const OTHERS: [&str; 9] = [
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/replicasets",
    "/api/v1/replicationcontrollers",
    "/apis/batch/v1/jobs",
    "/apis/batch/v1/cronjobs",
    "/api/v1/limitranges",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/node.k8s.io/v1/runtimeclasses",
];

/// Why the cluster cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("GET {path}")]
pub struct ListError {
    path: String,
    #[source]
    source: kube::Error,
}

/// One list after the other, each in pages. Lists that the caller may not see, and kinds that the cluster does not
/// serve, are told by their paths.
///
/// # Errors
/// The API server cannot be reached, or fails.
pub async fn everything(client: &Client) -> Result<(Vec<Object>, Vec<String>), ListError> {
    let (mut objects, mut unseen) = (Vec::new(), Vec::new());
    let watched = Kind::ALL.into_iter().map(Kind::path);
    for path in watched.chain(OTHERS.map(str::to_owned)) {
        match all(client, &path).await {
            Ok(found) => objects.extend(found),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                unseen.push(format!("{path}: {}", foreign::said(&status.message)));
            }
            Err(source) => return Err(ListError { path, source }),
        }
    }
    Ok((objects, unseen))
}

/// Why one kind was not listed.
#[derive(Debug)]
pub enum NotListed {
    /// The caller may not; says who may not do what.
    Forbidden(String),
    /// The cluster does not serve that kind.
    Undefined,
    /// No answer in time, or a failure.
    Failed(String),
}

/// All objects of these resources, such as `nodepools`, each list within this time. They are listed side by side, so that
/// one that hangs takes nothing from the others.
pub async fn each(
    client: &Client,
    resources: &[&'static str],
    within: Duration,
) -> Vec<(&'static str, Result<Vec<Object>, NotListed>)> {
    let lists = resources.iter().map(async |resource| {
        let kind = Kind::ALL.into_iter().find(|it| it.resource() == *resource);
        let Some(kind) = kind else {
            return (*resource, Err(NotListed::Undefined));
        };
        let listed = match timeout(within, all(client, &kind.path())).await {
            Ok(Ok(objects)) => Ok(objects),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                Err(NotListed::Forbidden(foreign::said(&status.message)))
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(NotListed::Undefined),
            Ok(Err(error)) => Err(NotListed::Failed(chain(&error))),
            Err(_) => Err(NotListed::Failed(format!(
                "no answer within {} s",
                within.as_secs()
            ))),
        };
        (*resource, listed)
    });
    join_all(lists).await
}

async fn all(client: &Client, path: &str) -> Result<Vec<Object>, kube::Error> {
    let mut objects = Vec::new();
    let mut next = String::new();
    let mut size = PAGE;
    loop {
        let uri = format!("{path}?limit={size}&continue={next}");
        let mut page: Value = match client.get(&uri).await {
            Ok(page) => page,
            Err(error) => {
                size = smaller_page(size, &error).ok_or(error)?;
                continue;
            }
        };
        let kind = page["kind"].as_str().unwrap_or_default();
        let kind = kind.strip_suffix("List").unwrap_or(kind).to_owned();
        let version = page["apiVersion"].clone();
        let items = page["items"].as_array_mut().map(std::mem::take);
        for mut item in items.unwrap_or_default() {
            item["kind"] = kind.as_str().into();
            item["apiVersion"] = version.clone();
            objects.push(Object::from_elsewhere(item, "the cluster"));
        }
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => token.clone_into(&mut next),
            Some(_) | None => return Ok(objects),
        }
    }
}
