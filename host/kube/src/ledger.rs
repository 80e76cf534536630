//! Reading and writing the Ledger: as a whole, by compare-and-set only.

use kproxide_planner::facts::LedgerFacts;
use kube::api::PostParams;

use super::client::Client;
use super::convert::{ledger_facts, ledger_object};
use super::crd::{LEDGER_NAME, Ledger};
use super::error::{Cas, Error};
use super::view::CustomView;

const RESOURCE: &str = "ledgers";

/// The present Ledger, by a quorum read. Creates an empty one if there is none.
///
/// # Errors
/// [`Error::Unreadable`] if it is there but cannot be read: it must not be taken for an empty one.
pub async fn get_or_create(client: &Client) -> Result<LedgerFacts, Error> {
    if let Some(found) = get(client).await? {
        return Ok(found);
    }
    let created = client
        .all::<CustomView<Ledger>>()
        .create(
            &PostParams::default(),
            &ledger_object(&LedgerFacts::default()),
        )
        .await
        .map_err(Error::of("create", RESOURCE, LEDGER_NAME));
    match created {
        Ok(created) => Ok(ledger_facts(&created)?),
        // Another leader was faster.
        Err(Error::AlreadyExists { .. }) => get(client).await?.ok_or_else(|| Error::NotFound {
            request: super::error::Request {
                verb: "get",
                resource: RESOURCE,
                name: LEDGER_NAME.to_owned(),
            },
        }),
        Err(other) => Err(other),
    }
}

/// The present Ledger, by a quorum read. `None` if there is none yet.
///
/// # Errors
/// As [`get_or_create`].
pub async fn get(client: &Client) -> Result<Option<LedgerFacts>, Error> {
    let found = client
        .all::<CustomView<Ledger>>()
        .get_opt(LEDGER_NAME)
        .await
        .map_err(Error::of("get", RESOURCE, LEDGER_NAME))?;
    Ok(found.as_ref().map(ledger_facts).transpose()?)
}

/// Replaces the Ledger of that resource version by this one. Nothing that depends on it may be done before this returns
/// [`Cas::Written`], which holds the new resource version.
///
/// # Errors
/// After [`Error::Transport`] it may have been written: read it again.
pub async fn replace(client: &Client, ledger: &LedgerFacts) -> Result<Cas<LedgerFacts>, Error> {
    if ledger.resource_version.is_empty() {
        // These facts never came from the API server, so anything on the server is newer.
        return Ok(Cas::Conflict);
    }
    let written = client
        .all::<CustomView<Ledger>>()
        .replace(LEDGER_NAME, &PostParams::default(), &ledger_object(ledger))
        .await
        .map_err(Error::of("update", RESOURCE, LEDGER_NAME));
    Cas::of(written.and_then(|ledger| Ok(ledger_facts(&ledger)?)))
}
