//! What was asked of the API: one entry per request that wants to change something.

use std::{fmt, sync::Arc};

use jiff::Timestamp;

use super::object::micro_time;

/// The verbs of RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// One object.
    Get,
    /// A collection.
    List,
    /// The changes of a collection.
    Watch,
    /// A new object, or an action on a subresource (eviction, binding).
    Create,
    /// A replace.
    Update,
    /// Any patch, server-side apply included.
    Patch,
    /// One object.
    Delete,
    /// All objects that a selector finds.
    DeleteCollection,
}

impl Verb {
    /// The word that RBAC rules use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    pub(crate) fn mutates(self) -> bool {
        match self {
            Self::Get | Self::List | Self::Watch => false,
            Self::Create | Self::Update | Self::Patch | Self::Delete | Self::DeleteCollection => {
                true
            }
        }
    }
}

/// One mutating request and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// When it was answered.
    pub at: Timestamp,
    /// Who asked; [`super::Kube::as_user`] sets it.
    pub user: Arc<str>,
    /// The `User-Agent` of the request; empty for direct access.
    pub agent: String,
    /// What was asked.
    pub verb: Verb,
    /// The resource as `plural.group`.
    pub resource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The name; for a create with `generateName` the generated one.
    pub name: String,
    /// Empty for the object itself.
    pub subresource: String,
    /// Of a delete or an eviction: it is of the object of this UID and of no other one of that name.
    pub names_uid: bool,
    /// Nothing was written.
    pub dry_run: bool,
    /// The HTTP status of the answer.
    pub code: u16,
    /// The newest revision after the request.
    pub revision: u64,
}

impl fmt::Display for AuditEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            user,
            agent,
            verb,
            resource,
            namespace,
            name,
            subresource,
            names_uid: _,
            dry_run,
            code,
            revision,
        } = self;
        write!(f, "{} {user} {} {resource}", micro_time(*at), verb.word())?;
        if !subresource.is_empty() {
            write!(f, "/{subresource}")?;
        }
        write!(f, " {namespace}/{name} -> {code} @{revision}")?;
        if *dry_run {
            f.write_str(" (dry run)")?;
        }
        if !agent.is_empty() {
            write!(f, " by {agent}")?;
        }
        Ok(())
    }
}
