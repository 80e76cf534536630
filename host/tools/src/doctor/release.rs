//! Objects of ours that Helm once made and whose values no longer have them. Helm keeps them, because machines go with a
//! NodePool. What a release has stands in Helm's own record: a Secret with the manifests, packed by gzip, in base64
//! (<https://helm.sh/docs/topics/advanced/#storage-backends>).

use std::collections::BTreeSet;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde_json::Value;

use super::Sources;
use super::cluster::{OfHelm, Seen};
use super::installation::get;
use kproxide_controller::judge::{Finding, Group};
use kproxide_controller::judge::{named, reasons};

/// A record holds at most 1 MiB packed, as each Secret does.
const LARGEST: u64 = 64 << 20;

pub(super) async fn check(sources: &Sources, seen: &Seen) -> Vec<Finding> {
    let Some(kube) = &sources.kube else {
        return Vec::new();
    };
    let releases: BTreeSet<_> = seen.of_helm.iter().map(OfHelm::release).collect();
    let mut findings = Vec::new();
    for (namespace, release) in releases {
        let path = format!(
            "/api/v1/namespaces/{namespace}/secrets?labelSelector=owner%3Dhelm%2Cname%3D{release}%2Cstatus%3Ddeployed"
        );
        // Without the right to read it, or uninstalled: then nobody knows what the values have.
        let Some((200, records)) = get(kube, &path).await else {
            continue;
        };
        let record = records["items"].as_array().and_then(|items| items.last());
        let Some(has) = record.and_then(manifest) else {
            continue;
        };
        let of_release = seen.of_helm.iter();
        let of_release = of_release.filter(|it| it.release() == (namespace, release));
        for object in of_release.filter(|it| !has.contains(&(it.kind.clone(), it.name.clone()))) {
            let kind = object.kind.to_lowercase();
            let text = format!(
                "release {release} made it, and its values no longer have it. If you want its machines gone, delete it"
            );
            let command = format!("kubectl delete {kind} {}", object.name);
            let object = named(&object.kind, &object.name);
            let reason = &reasons::LEFT_OVER;
            let finding = Finding::warning(Group::Configuration, object, reason, text);
            findings.push(finding.typing([command]));
        }
    }
    findings
}

/// Kind and name of each object of a release.
fn manifest(record: &Value) -> Option<BTreeSet<(String, String)>> {
    let outer = STANDARD.decode(record["data"]["release"].as_str()?).ok()?;
    let packed = STANDARD.decode(outer).ok()?;
    let mut text = String::new();
    let unpacked = GzDecoder::new(&*packed).take(LARGEST);
    { unpacked }.read_to_string(&mut text).ok()?;
    let release: Value = serde_json::from_str(&text).ok()?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(release["manifest"].as_str()?).ok()?;
    let names = objects.iter().filter_map(|object| {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some((text(&object["kind"])?, text(&object["metadata"]["name"])?))
    });
    Some(names.collect())
}
