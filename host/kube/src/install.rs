//! Brings the CustomResourceDefinitions of a cluster to those of this program.
//!
//! All or nothing, as far as the API server lets it: each of the five is looked at, and shown to the API server as a dry
//! run, before the first one is changed. Within one API version fields are only added, so that a program of an earlier
//! version works with later definitions; the other way round fields would be lost.

use std::fmt;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use semver::Version;
use tokio::time::{Instant, sleep};

use super::client::Client;
use super::crd::VERSION_ANNOTATION;
use super::error::Error;

/// Helm installs the definitions first, and from then on they are its fields.
const MANAGER: &str = "helm";
const RESOURCE: &str = "customresourcedefinitions";
/// The API server takes a definition up within a second or two.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What became of one definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Created,
    Updated,
    Unchanged,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
        })
    }
}

/// Why the definitions are not those of this program. Nothing was changed, but for the last two.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error(
        "CustomResourceDefinition {name} is of kproxide {theirs}, and this is kproxide {ours}: kproxide never goes back to \
         an earlier one. Nothing was changed. This kproxide works with the later definitions: install its chart with \
         --set crds.hook=false"
    )]
    Newer {
        name: String,
        theirs: Version,
        ours: Version,
    },
    #[error(
        "CustomResourceDefinition {name}: its annotation {VERSION_ANNOTATION} is {text:?}, which is no version such as \
         0.1.0. Nothing was changed. Correct or remove it: kubectl annotate crd {name} {VERSION_ANNOTATION}-"
    )]
    Unreadable { name: String, text: String },
    #[error(
        "CustomResourceDefinition {name} is being deleted, and all objects of its kind with it. Nothing was changed. \
         Wait until it is gone"
    )]
    BeingDeleted { name: String },
    #[error("nothing was changed")]
    Refused(#[source] Error),
    #[error("it may be that only some CustomResourceDefinitions were changed: run it again")]
    Interrupted(#[source] Error),
    #[error(
        "the API server does not serve CustomResourceDefinition {name} after {SERVED_WITHIN:?}: kubectl describe crd {name}"
    )]
    NotServed { name: String },
}

/// Creates or updates the definitions; the names in their order, each with what became of it.
///
/// # Errors
/// See [`InstallError`].
pub async fn apply(
    client: &Client,
    definitions: &[CustomResourceDefinition],
) -> Result<Vec<(String, Outcome)>, InstallError> {
    let api = client.all::<CustomResourceDefinition>();
    let params = PatchParams::apply(MANAGER).force();
    let mut before = Vec::new();
    for definition in definitions {
        let name = name_of(definition);
        let found = api
            .get_metadata_opt(name)
            .await
            .map_err(|error| InstallError::Refused(Error::of("get", RESOURCE, name)(error)))?
            .map(|found| found.metadata);
        if let Some(found) = &found {
            if found.deletion_timestamp.is_some() {
                let name = name.to_owned();
                return Err(InstallError::BeingDeleted { name });
            }
            let version = |annotations: Option<&_>| annotated(name, annotations);
            let theirs = version(found.annotations.as_ref())?;
            let ours = version(definition.metadata.annotations.as_ref())?;
            if let (Some(theirs), Some(ours)) = (theirs, ours)
                && theirs > ours
            {
                let name = name.to_owned();
                return Err(InstallError::Newer { name, theirs, ours });
            }
        }
        before.push(found.and_then(|found| found.resource_version));
    }
    let trial = params.clone().dry_run();
    for definition in definitions {
        let name = name_of(definition);
        let answer = api.patch(name, &trial, &Patch::Apply(definition)).await;
        answer.map_err(|error| InstallError::Refused(Error::of("patch", RESOURCE, name)(error)))?;
    }
    let mut done = Vec::new();
    for (definition, before) in definitions.iter().zip(before) {
        let name = name_of(definition);
        let interrupted =
            |error| InstallError::Interrupted(Error::of("patch", RESOURCE, name)(error));
        let answer = api.patch(name, &params, &Patch::Apply(definition)).await;
        let after = answer.map_err(interrupted)?.metadata.resource_version;
        let outcome = match before {
            None => Outcome::Created,
            Some(_) if before == after => Outcome::Unchanged,
            Some(_) => Outcome::Updated,
        };
        done.push((name.to_owned(), outcome));
    }
    let deadline = Instant::now() + SERVED_WITHIN;
    for (name, _) in &done {
        while !is_served(client, name).await? {
            if Instant::now() >= deadline {
                return Err(InstallError::NotServed { name: name.clone() });
            }
            sleep(LOOK_EVERY).await;
        }
    }
    Ok(done)
}

async fn is_served(client: &Client, name: &str) -> Result<bool, InstallError> {
    let found = client.all::<CustomResourceDefinition>().get(name).await;
    let found = found
        .map_err(|error| InstallError::Interrupted(Error::of("get", RESOURCE, name)(error)))?;
    let conditions = found.status.and_then(|status| status.conditions);
    let is_established = |condition: &_| {
        let k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionCondition {
            type_,
            status,
            ..
        } = condition;
        type_ == "Established" && status == "True"
    };
    Ok(conditions.unwrap_or_default().iter().any(is_established))
}

fn name_of(definition: &CustomResourceDefinition) -> &str {
    definition.metadata.name.as_deref().unwrap_or_default()
}

/// The version of kproxide that a definition is of; none if it says none, as those before 0.1.0 did.
fn annotated(
    name: &str,
    annotations: Option<&std::collections::BTreeMap<String, String>>,
) -> Result<Option<Version>, InstallError> {
    let text = annotations.and_then(|annotations| annotations.get(VERSION_ANNOTATION));
    let Some(text) = text else {
        return Ok(None);
    };
    let version = Version::parse(text).map_err(|_| InstallError::Unreadable {
        name: name.to_owned(),
        text: text.clone(),
    })?;
    Ok(Some(version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::crds;

    #[test]
    fn each_definition_says_which_kproxide_it_is_of() {
        for definition in crds() {
            let annotations = definition.metadata.annotations.as_ref();
            let version = annotated(name_of(definition), annotations).unwrap();
            assert_eq!(version.unwrap().to_string(), env!("CARGO_PKG_VERSION"));
        }
    }

    #[test]
    fn versions_are_ordered_as_releases_are() {
        let of = |text: &str| {
            let annotations = [(VERSION_ANNOTATION.to_owned(), text.to_owned())].into();
            annotated("a", Some(&annotations))
        };
        let version = |text: &str| of(text).unwrap().unwrap();
        for (earlier, later) in [
            ("0.1.0", "0.1.1"),
            ("0.9.0", "0.10.0"),
            ("0.2.0-rc.1", "0.2.0"),
        ] {
            assert!(version(earlier) < version(later), "{earlier} {later}");
        }
        assert!(annotated("a", None).unwrap().is_none());
        let said = of("newest").unwrap_err().to_string();
        assert!(
            said.contains("\"newest\"") && said.contains("kubectl annotate crd a"),
            "{said}"
        );
    }
}
