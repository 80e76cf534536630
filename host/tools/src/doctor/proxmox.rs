//! What Proxmox says: each cluster as the controller sees it, and each of its endpoints alone.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use futures::join;
use jiff::SignedDuration;
use kproxide_planner::facts::{Delta, InventoryFacts};
use kproxide_planner::ids::ClusterName;
use kproxide_planner::world::World;
use serde_json::json;
use tokio::time::timeout;

use super::{Sources, templates};
use kproxide_controller::judge::reasons::{CERTIFICATE_UNTRUSTED, UNREACHABLE};
use kproxide_controller::judge::{Finding, Group, Level};
use kproxide_controller::judge::{named, reasons};
use kproxide_controller::observe::{self, Clusters, Lacking, Wanted};
use kproxide_kube::convert::{ClusterConnection, TrustSettings};
use kproxide_pve::client::Client;
use kproxide_pve::endpoints;
use kproxide_pve::error::{Error, Meaning};
use kproxide_pve::limits::Concurrency;

/// For everything that one Proxmox cluster is asked.
const CLUSTER_DEADLINE: Duration = Duration::from_secs(10);
/// For the configurations of templates, after that.
const TEMPLATES_DEADLINE: Duration = Duration::from_secs(4);
/// For one endpoint. Longer than the three seconds by which Proxmox delays a refusal.
const ENDPOINT_DEADLINE: Duration = Duration::from_secs(6);

/// Less can be the way of the answer. Machines start with the clock of their server.
const CLOCKS_AGREE: SignedDuration = SignedDuration::from_secs(30);
/// The oldest release whose API kproxide knows.
const OLDEST: u32 = 8;
/// How hyper begins when a name has no address.
const DNS: &str = "dns error";

/// One Proxmox cluster.
pub(super) struct Look {
    pub(super) name: ClusterName,
    pub(super) facts: InventoryFacts,
    /// What the credentials lack, with the commands that grant it.
    pub(super) lacking: Option<Lacking>,
    /// What they may do without need.
    pub(super) excess: Option<String>,
    /// Some endpoint has a finding of its own.
    pub(super) endpoints_fail: bool,
    pub(super) findings: Vec<Finding>,
}

impl Look {
    pub(super) fn delta(&self) -> Delta {
        Delta::Inventory(self.name.clone(), Some(Box::new(self.facts.clone())))
    }
}

/// All clusters, side by side.
pub(super) async fn look(
    sources: &Sources,
    world: &World,
    connections: &BTreeMap<ClusterName, ClusterConnection>,
) -> Vec<Look> {
    let wanted = observe::wanted(world);
    let looks = connections.iter().map(|(name, connection)| {
        let wanted = wanted.get(name).cloned().unwrap_or_default();
        async move {
            let (seen, mut findings) = join!(
                inventory(sources, name, connection, wanted.clone()),
                endpoints(sources, name, connection)
            );
            let (facts, mut lacking, excess) = seen;
            let endpoints_fail = findings.iter().any(|it| it.level != Level::Ok);
            // Other releases have other privileges.
            let is_old = findings.iter().any(|it| *it.reason == reasons::VERSION_OLD);
            lacking = lacking.filter(|_| !is_old);
            if facts.reachable && !is_old {
                let client = (sources.connect)(connection, Concurrency::default());
                let asked =
                    client.map(|client| templates::check(client, world, name, &facts, &wanted));
                if let Ok(asked) = asked
                    && let Ok(told) = timeout(TEMPLATES_DEADLINE, asked).await
                {
                    findings.extend(told.findings);
                    // It knows the storages and networks.
                    lacking = told.lacking.or(lacking);
                }
            }
            Look {
                name: name.clone(),
                facts,
                lacking,
                excess,
                endpoints_fail,
                findings,
            }
        }
    });
    join_all(looks).await
}

/// As the controller looks at it.
async fn inventory(
    sources: &Sources,
    name: &ClusterName,
    connection: &ClusterConnection,
    wanted: Wanted,
) -> (InventoryFacts, Option<Lacking>, Option<String>) {
    // One for each, so that a cluster that hangs takes its own time only.
    let clusters = Clusters::new(sources.connect.clone());
    clusters.configure(name, Some(connection.clone()));
    let wanted = BTreeMap::from([(name.clone(), wanted)]);
    let asked = clusters.refresh(Duration::ZERO, wanted, &sources.clock);
    let facts = match timeout(CLUSTER_DEADLINE, asked).await {
        Ok(deltas) => deltas.into_iter().find_map(|delta| {
            let Delta::Inventory(_, facts) = delta else {
                return None;
            };
            facts.map(|facts| *facts)
        }),
        Err(_) => None,
    };
    let facts = facts.unwrap_or_else(|| InventoryFacts {
        problem: Some(format!("no answer within {} s", CLUSTER_DEADLINE.as_secs())),
        ..InventoryFacts::default()
    });
    let (lacking, excess) = (clusters.lacking(), clusters.excess());
    (facts, lacking.get(name).cloned(), excess.get(name).cloned())
}

/// Each address by itself: kproxide uses the next one if one fails, so that nobody notices.
async fn endpoints(
    sources: &Sources,
    name: &ClusterName,
    connection: &ClusterConnection,
) -> Vec<Finding> {
    let asked = connection.endpoints.iter().map(async |url| {
        let alone = ClusterConnection {
            endpoints: vec![url.clone()],
            ..connection.clone()
        };
        let client = match (sources.connect)(&alone, Concurrency::default()) {
            Ok(client) => client,
            Err(problem) => return (Some(Err(problem)), None),
        };
        let answer = match timeout(ENDPOINT_DEADLINE, client.version()).await {
            Ok(Ok(version)) => Some(Ok(Ok((version.version, clock_off(sources, &client))))),
            // It was not asked. That is said of the whole cluster.
            Ok(Err(error)) if error.meaning == Meaning::EndpointNotAllowed => None,
            Ok(Err(error)) if is_of_endpoint(&error) => Some(Ok(Err(error))),
            // The endpoint is sound; what it says is said of the whole cluster.
            Ok(Err(_)) => Some(Ok(Ok((String::new(), clock_off(sources, &client))))),
            Err(_) => Some(Err(format!(
                "no answer within {} s",
                ENDPOINT_DEADLINE.as_secs()
            ))),
        };
        (answer, client.sends_credentials_anywhere().await)
    });
    let (answers, anywhere): (Vec<_>, Vec<_>) = join_all(asked).await.into_iter().unzip();
    let is_anywhere = anywhere.contains(&Some(true));
    let all_fail = !answers.iter().any(|it| matches!(it, Some(Ok(Ok(_)))));
    let told = connection.endpoints.iter().zip(answers);
    let told = told.filter_map(|(url, answer)| Some((url, answer?)));
    let told = told.map(|(url, answer)| {
        let object = named("ProxmoxCluster", name);
        let (reason, text) = match answer {
            Ok(Ok((version, _))) if major(&version).is_some_and(|major| major < OLDEST) => {
                let text = format!("endpoint {url} runs Proxmox VE {version}");
                return Finding::error(Group::Proxmox, object, &reasons::VERSION_OLD, text);
            }
            Ok(Ok((_, Some(off)))) => {
                let text = format!("endpoint {url} answers, and {off}");
                let reason = &reasons::PROXMOX_CLOCK;
                return Finding::warning(Group::Proxmox, object, reason, text)
                    .seen_from(&sources.place);
            }
            Ok(Ok((version, None))) => {
                let version = match version.is_empty() {
                    true => "answers".to_owned(),
                    false => format!("answers, Proxmox VE {version}"),
                };
                return Finding::ok(Group::Proxmox, object, format!("endpoint {url} {version}"))
                    .seen_from(&sources.place);
            }
            Ok(Err(error)) if error.meaning == Meaning::Untrusted => {
                (&CERTIFICATE_UNTRUSTED, error.chain())
            }
            Ok(Err(error)) if error.chain().contains(DNS) => {
                (&reasons::NAME_UNKNOWN, error.chain())
            }
            Ok(Err(error)) => (&UNREACHABLE, error.chain()),
            Err(problem) => (&UNREACHABLE, problem),
        };
        let text = format!("endpoint {url}: {text}");
        let finding = match all_fail {
            true => Finding::error(Group::Proxmox, object, reason, text),
            false if *reason == UNREACHABLE => {
                Finding::warning(Group::Proxmox, object, &reasons::ENDPOINT_DOWN, text)
            }
            false => Finding::warning(Group::Proxmox, object, reason, text),
        };
        finding.seen_from(&sources.place)
    });
    let open = is_anywhere.then(|| any_endpoint(sources, name, connection));
    told.chain(open).collect()
}

/// Whoever may change a ProxmoxCluster can have the credentials.
fn any_endpoint(sources: &Sources, name: &ClusterName, connection: &ClusterConnection) -> Finding {
    let pins = match &connection.trust {
        TrustSettings::Fingerprints(pins) => pins.as_slice(),
        TrustSettings::System | TrustSettings::CaFile(_) | TrustSettings::InsecureSkipVerify => &[],
    };
    let file = endpoints::file(&connection.endpoints, pins);
    let patch = json!({ "stringData": { endpoints::FILE: file } });
    let text = "its credentials go to each server that spec.endpoints names, so whoever may create or change ProxmoxClusters can have them sent to a server of his own. A key endpoints in their Secret (write its name for SECRET) says where they may go";
    let finding = Finding {
        reason: &reasons::ANY_ENDPOINT,
        ..Finding::ok(Group::Proxmox, named("ProxmoxCluster", name), text)
    };
    finding.typing([format!(
        "kubectl patch secret SECRET --namespace {} --patch '{patch}'",
        sources.namespace
    )])
}

/// By how much the clock there is off the one here, in words. `None`: they agree.
fn clock_off(sources: &Sources, client: &Client) -> Option<String> {
    let there = client.server_time()?;
    let ahead = there.duration_since(sources.clock.now());
    let side = match ahead.is_negative() {
        true => "behind",
        false => "ahead of",
    };
    let off = ahead.abs();
    (off > CLOCKS_AGREE).then(|| format!("its clock is {} s {side} the one here", off.as_secs()))
}

/// Of `8.4.1`.
fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

fn is_of_endpoint(error: &Error) -> bool {
    matches!(
        error.meaning,
        Meaning::Untrusted
            | Meaning::Unreachable
            | Meaning::AnswerLost
            | Meaning::EndpointDown
            | Meaning::Undecodable
    )
}
