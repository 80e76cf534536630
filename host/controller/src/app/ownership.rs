//! Who we are, found out before anything else: the cluster's identity, and the key that proves which machines are ours.
//!
//! A new key makes every machine of the old one foreign. So one is made only where nothing depends on an older one; where something does, kproxide
//! reads and reports, and changes nothing until a person has decided.

use kproxide_planner::facts::LedgerFacts;

use super::{RETRY, Random};
use crate::config::Config;
use kproxide_common::chain::chain;
use kproxide_kube::client::Client;
use kproxide_kube::error::Error;
use kproxide_kube::identity::{self, Dependents, OwnershipKey};
use kproxide_kube::ledger;
use kproxide_pve::ownership::Key;

/// What is known at the start and does not change while the process runs.
pub(super) struct Identified {
    pub(super) cluster_id: String,
    pub(super) ownership: Ownership,
}

/// What is known of the key for ownership proofs.
pub(super) enum Ownership {
    Known(Key),
    /// A dry run before the first real one: which machines are ours is unknown, and none is touched.
    Unknown,
    /// Nothing may be launched or destroyed; why, and the way out.
    ReadOnly(String),
}

/// The identity, tried until it can be read: without it nothing may be done. `turned` is called between two tries.
pub(super) async fn identify(
    kube: &Client,
    config: &Config,
    random: &Random,
    turned: impl Fn(),
) -> Identified {
    loop {
        match identify_once(kube, config, random).await {
            Ok(identified) => return identified,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "Kubernetes cannot be read; trying again");
            }
        }
        turned();
        tokio::time::sleep(RETRY).await;
    }
}

async fn identify_once(
    kube: &Client,
    config: &Config,
    random: &Random,
) -> Result<Identified, Error> {
    let cluster_id = identity::cluster_id(kube).await?;
    let ownership = if config.dry_run {
        match identity::ownership_key(kube, &config.namespace, &secret(config)).await? {
            Some(key) => Ownership::Known(proving(&key)),
            None => Ownership::Unknown,
        }
    } else {
        ownership(kube, config, random).await?
    };
    Ok(Identified {
        cluster_id,
        ownership,
    })
}

/// Why machines could not be marked, as far as can be seen without writing anything. `name`: the controller's.
///
/// # Errors
/// Kubernetes does not answer, or the caller may not read.
pub async fn problem_of(
    kube: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, Error> {
    let secret = format!("{name}-ownership-key");
    let ledger = ledger::get(kube).await?.unwrap_or_default();
    Ok(look(kube, namespace, &secret, &ledger).await?.1)
}

/// The key, and why it cannot be used.
async fn look(
    kube: &Client,
    namespace: &str,
    secret: &str,
    ledger: &LedgerFacts,
) -> Result<(Option<Key>, Option<String>), Error> {
    // Before the key, as the Ledger: what another replica has made by now was made with a key that is found below.
    let dependents = identity::dependents(kube, ledger).await?;
    let found = identity::ownership_key(kube, namespace, secret).await?;
    let found = found.as_ref().map(proving);
    let place = format!("{namespace}/{secret}");
    let problem = problem(&place, found.as_ref(), &dependents);
    Ok((found, problem))
}

async fn ownership(kube: &Client, config: &Config, random: &Random) -> Result<Ownership, Error> {
    let (namespace, secret) = (&config.namespace, secret(config));
    let ledger = ledger::get_or_create(kube).await?;
    let (found, problem) = look(kube, namespace, &secret, &ledger).await?;
    if let Some(problem) = problem {
        return Ok(Ownership::ReadOnly(problem));
    }
    if let Some(key) = found {
        return Ok(Ownership::Known(key));
    }
    let mut fresh = [0; 32];
    random(&mut fresh);
    let key = identity::ownership_key_or_create(kube, namespace, &secret, fresh).await?;
    Ok(Ownership::Known(proving(&key)))
}

fn proving(key: &OwnershipKey) -> Key {
    Key::new(key.bytes().to_vec()).expect("32 bytes are enough")
}

fn secret(config: &Config) -> String {
    format!("{}-ownership-key", config.name)
}

/// Why the key cannot be trusted to be the one that machines were marked with, and what to do.
fn problem(place: &str, found: Option<&Key>, dependents: &Dependents) -> Option<String> {
    let fingerprint = found.map(Key::fingerprint);
    let other = dependents
        .fingerprints
        .iter()
        .find(|(_, status)| fingerprint.as_ref() != Some(status));
    let (happened, forget) = match (&fingerprint, other) {
        (Some(fingerprint), Some((cluster, status))) => (
            format!(
                "Secret {place} holds a key with the fingerprint {fingerprint}, but the status of ProxmoxCluster {cluster} says {status}: the Secret was \
                 replaced, or another installation of kproxide serves that cluster"
            ),
            Some(cluster),
        ),
        (Some(_), None) => return None,
        (None, other) => {
            let dependent = if dependents.claims {
                "there are NodeClaims whose machines are marked with its key"
            } else if dependents.ledger_entries {
                "the Ledger has entries of machines that are marked with its key"
            } else {
                other?;
                "a ProxmoxCluster's status names its key"
            };
            (
                format!("Secret {place} is gone, but {dependent}"),
                other.map(|(cluster, _)| cluster),
            )
        }
    };
    let forget = forget.map_or_else(String::new, |cluster| {
        format!(
            " and `kubectl patch proxmoxclusters {cluster} --subresource=status --type=merge -p '{{\"status\":{{\"keyFingerprint\":null}}}}'`"
        )
    });
    Some(format!(
        "{happened}. So kproxide launches and destroys nothing, a running one from its next start on. Is there another release of kproxide in this Kubernetes cluster? Look with `helm list \
         --all-namespaces`. If so, uninstall this one and delete nothing else: NodeClaims and Ledger are the other's. If not: Restore the Secret from a \
         backup and restart kproxide. If its key is lost for good: remove the machines and their NodeClaims by hand, then the object of kind \
         Ledger{forget}, and restart kproxide"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::new(vec![byte; 32]).unwrap()
    }

    fn statuses(key: &Key) -> Dependents {
        Dependents {
            fingerprints: [("home".to_owned(), key.fingerprint())].into(),
            ..Dependents::default()
        }
    }

    /// What the problem's text holds; `None`: there is none.
    fn check(found: Option<&Key>, dependents: Dependents, expected: Option<&str>) {
        let problem = problem("kproxide/key", found, &dependents);
        match expected {
            None => assert_eq!(problem, None),
            Some(expected) => {
                let problem = problem.expect("it is accepted");
                assert!(problem.contains(expected), "{problem}");
                assert!(problem.contains("Restore the Secret"), "{problem}");
                // Of two releases the second must not talk people into deleting the first one's books.
                let words = ["helm list", "delete nothing else"];
                assert!(words.iter().all(|it| problem.contains(it)), "{problem}");
                assert!(!problem.contains("kubectl delete"), "{problem}");
            }
        }
    }

    #[test]
    fn a_key_is_made_only_where_nothing_depends_on_an_older_one() {
        check(None, Dependents::default(), None);
        let claims = Dependents {
            claims: true,
            ..Dependents::default()
        };
        check(
            None,
            claims,
            Some("kproxide/key is gone, but there are NodeClaims"),
        );
        let entries = Dependents {
            ledger_entries: true,
            ..Dependents::default()
        };
        check(None, entries, Some("the Ledger has entries"));
        check(None, statuses(&key(1)), Some("patch proxmoxclusters home"));
    }

    #[test]
    fn another_fingerprint_than_the_statuses_is_no_key() {
        check(Some(&key(1)), statuses(&key(1)), None);
        check(
            Some(&key(2)),
            statuses(&key(1)),
            Some("the status of ProxmoxCluster home says"),
        );
    }
}
