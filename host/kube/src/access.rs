//! What an account may do, as the API server's own authorizer says. Nothing is written by asking.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::api::PostParams;

use super::client::Client;
use super::error::Error;

/// Whose rights are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// Of whoever asks.
    Caller,
    /// A ServiceAccount. To ask for it, the caller needs the right to create SubjectAccessReviews.
    Service { namespace: String, name: String },
}

/// One verb on one resource, as RBAC names them. Empty: of no namespace, of no certain name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    pub verb: String,
    pub group: String,
    /// Such as `pods` or `pods/eviction`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            verb,
            group,
            resource,
            namespace,
            name,
        } = self;
        write!(f, "{verb} {resource}")?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        if !name.is_empty() {
            write!(f, " {name}")?;
        }
        if !namespace.is_empty() {
            write!(f, " in namespace {namespace}")?;
        }
        Ok(())
    }
}

/// Whether the account may do it.
///
/// # Errors
/// The caller may not ask, or there is no answer.
pub async fn may(
    client: &Client,
    account: &Account,
    permission: &Permission,
) -> Result<bool, Error> {
    let Permission {
        verb,
        group,
        resource,
        namespace,
        name,
    } = permission.clone();
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, part)) => (resource.to_owned(), Some(part.to_owned())),
        None => (resource, None),
    };
    let some = |text: String| (!text.is_empty()).then_some(text);
    let attributes = ResourceAttributes {
        verb: Some(verb),
        group: some(group),
        resource: Some(resource),
        subresource,
        namespace: some(namespace),
        name: some(name),
        ..ResourceAttributes::default()
    };
    let status = match account {
        Account::Caller => {
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(attributes),
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            let api = client.all::<SelfSubjectAccessReview>();
            let asked = api.create(&PostParams::default(), &review).await;
            let failed = Error::of("create", "selfsubjectaccessreviews", "");
            asked.map_err(failed)?.status
        }
        Account::Service { namespace, name } => {
            let review = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    user: Some(format!("system:serviceaccount:{namespace}:{name}")),
                    groups: Some(vec![
                        "system:serviceaccounts".to_owned(),
                        format!("system:serviceaccounts:{namespace}"),
                        "system:authenticated".to_owned(),
                    ]),
                    resource_attributes: Some(attributes),
                    ..SubjectAccessReviewSpec::default()
                },
                ..SubjectAccessReview::default()
            };
            let api = client.all::<SubjectAccessReview>();
            let asked = api.create(&PostParams::default(), &review).await;
            let failed = Error::of("create", "subjectaccessreviews", "");
            asked.map_err(failed)?.status
        }
    };
    Ok(status.is_some_and(|SubjectAccessReviewStatus { allowed, .. }| allowed))
}
