//! What is on a Node, read afresh before anything is done to it.

use kproxide_planner::facts::{PodFacts, VolumeAttachmentFacts};
use kproxide_planner::ids::{NodeName, PodKey};
use kube::api::ListParams;

use super::client::{Client, PAGE, smaller_page};
use super::convert::{object_key, pod_facts, volume_attachment_facts};
use super::error::Error;
use super::view::{PodView, VolumeAttachmentView};

/// The pods bound to a Node, by a quorum read, by namespace and name. Finished ones are among them.
///
/// # Errors
/// No partial lists: an error on any page is an error.
pub async fn on_node(client: &Client, node: &NodeName) -> Result<Vec<(PodKey, PodFacts)>, Error> {
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let mut pods: Vec<_> = pages::<PodView>(client, params, "pods")
        .await?
        .iter()
        .map(|pod| (object_key(&pod.metadata), pod_facts(pod)))
        .collect();
    pods.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(pods)
}

/// The volumes attached to a Node, by a quorum read, by name of the attachment.
///
/// # Errors
/// As [`on_node`].
pub async fn volumes_attached_to(
    client: &Client,
    node: &NodeName,
) -> Result<Vec<(String, VolumeAttachmentFacts)>, Error> {
    let mut attachments: Vec<_> =
        pages::<VolumeAttachmentView>(client, ListParams::default(), "volumeattachments")
            .await?
            .iter()
            .filter_map(|one| {
                Some((
                    one.metadata.name.clone().unwrap_or_default(),
                    volume_attachment_facts(one)?,
                ))
            })
            .filter(|(_, facts)| facts.node == *node)
            .collect();
    attachments.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(attachments)
}

/// All of a kind.
pub(super) async fn pages<K>(
    client: &Client,
    params: ListParams,
    resource: &'static str,
) -> Result<Vec<K>, Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api = client.all::<K>();
    let mut size = PAGE;
    let mut params = params;
    let mut items = Vec::new();
    loop {
        params.limit = Some(size);
        let page = match api.list(&params).await {
            Ok(page) => page,
            Err(error) => {
                size = smaller_page(size, &error)
                    .ok_or_else(|| Error::of("list", resource, "")(error))?;
                continue;
            }
        };
        items.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(items),
        }
    }
}
