//! Who belongs to a Proxmox cluster, where its servers are, and by which certificates they are known.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use serde::Deserialize;
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::client::{CONNECT_TIMEOUT, Client};
use super::error::Error;
use super::request::Call;
use super::tls::{Fingerprint, Trust, TrustFailure};
use super::transport::{EndpointError, TransportError, https};
use super::types;

/// For a first answer. Longer than the three seconds by which Proxmox delays a refusal.
const GREETING: Duration = Duration::from_secs(8);

/// A Proxmox server as its cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// As in paths and certificates.
    pub name: String,
    /// Its IP address in the cluster.
    pub address: Option<String>,
    /// Of the certificate that its API shows.
    pub fingerprint: Option<Fingerprint>,
    /// It is the one that answered.
    pub is_local: bool,
    /// The cluster sees it.
    pub is_online: bool,
}

/// How an endpoint meets somebody who trusts as told.
#[derive(Debug)]
pub enum Greeting {
    /// With a certificate that is trusted.
    Trusted,
    /// With another one.
    Untrusted(TrustFailure),
    /// Not at all; says why.
    Silent(String),
}

/// Asks an endpoint for its start page, without credentials.
///
/// # Errors
/// The address or what is trusted cannot be used.
pub async fn greet(url: &str, trust: &Trust) -> Result<Greeting, EndpointError> {
    let endpoint = https(url, trust, CONNECT_TIMEOUT)?;
    let asked = Request::get("/").body(Bytes::new());
    let asked = asked.expect("a path alone is a valid request");
    let answer = timeout(GREETING, endpoint.transport.oneshot(asked)).await;
    Ok(match answer {
        // A refusal is an answer too, and so is one that is too large: the connection came about.
        Ok(Ok(_) | Err(TransportError::TooLarge)) => Greeting::Trusted,
        Ok(Err(TransportError::Untrusted(failure))) => Greeting::Untrusted(failure),
        Ok(Err(error)) => Greeting::Silent(chain(&error)),
        Err(_) => Greeting::Silent(format!("no answer within {} s", GREETING.as_secs())),
    })
}

/// The fingerprint of the certificate that an endpoint shows. The connection ends before anything is sent.
///
/// # Errors
/// There is no such endpoint; says why.
pub async fn fingerprint(url: &str) -> Result<Fingerprint, String> {
    let nobody = Trust::Fingerprints(vec![Fingerprint::of(b"")]);
    match greet(url, &nobody).await {
        Ok(Greeting::Untrusted(TrustFailure::Fingerprint { seen, .. })) => Ok(seen),
        Ok(Greeting::Untrusted(failure)) => Err(failure.to_string()),
        Ok(Greeting::Silent(problem)) => Err(problem),
        Ok(Greeting::Trusted) => Err("it shows the certificate that nobody has".to_owned()),
        Err(error) => Err(chain(&error)),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    kproxide_common::chain::chain(error)
}

impl Client {
    /// The servers of the cluster, by name, as one of them knows them.
    ///
    /// # Errors
    /// No endpoint answers, or the credentials lack `Sys.Audit` on `/`.
    pub async fn members(&self) -> Result<Vec<Member>, Error> {
        let client = self.at_one_endpoint();
        let known: Vec<Known> = client
            .fetch(Call::get(&["cluster", "status"]).protected())
            .await?;
        let listed: Vec<Listed> = client.fetch(Call::get(&["nodes"])).await?;
        let servers = known
            .into_iter()
            .filter(|it| it.kind.as_deref() == Some("node"));
        let mut members: Vec<Member> = servers
            .filter_map(|it| {
                let name = it.name?;
                let of_name = listed
                    .iter()
                    .find(|other| other.node.as_ref() == Some(&name));
                let fingerprint = of_name.and_then(|it| it.ssl_fingerprint.as_deref());
                Some(Member {
                    fingerprint: fingerprint.and_then(|text| text.parse().ok()),
                    address: it.ip.filter(|ip| !ip.is_empty()),
                    is_local: it.local,
                    is_online: it.online,
                    name,
                })
            })
            .collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(members)
    }
}

/// An element of `cluster/status`.
#[derive(Deserialize)]
struct Known {
    #[serde(rename = "type", default, deserialize_with = "types::text")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    name: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    ip: Option<String>,
    #[serde(default, deserialize_with = "types::flag")]
    local: bool,
    #[serde(default, deserialize_with = "types::flag")]
    online: bool,
}

/// An element of `nodes`. Proxmox: the fingerprint is of the certificate that pveproxy shows, be it Proxmox's own or one
/// that somebody has put in its place.
#[derive(Deserialize)]
struct Listed {
    #[serde(default, deserialize_with = "types::text")]
    node: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    ssl_fingerprint: Option<String>,
}
