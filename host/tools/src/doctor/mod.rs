//! `kproxide doctor`: what keeps kproxide from making machines, found before the first launch. It only reads.
//!
//! Most of it is what the one judge says ([`kproxide_controller::judge`]) of a world that is read once. The others ask what the controller learns only when it is too late, or never. They run side by side, each with a deadline.

mod cluster;
mod definitions;
mod installation;
mod joining;
mod judged;
mod nodes;
mod pod;
mod proxmox;
mod release;
mod report;
mod rights;
mod templates;
#[cfg(test)]
mod tests;
mod values;

use cluster::KUBERNETES_DEADLINE;
use futures::join;
use tokio::time::timeout;

use crate::manifest::Object;
use kproxide_common::clock::Clock;
use kproxide_controller::app::ownership::problem_of;
use kproxide_controller::judge::{Finding, Group, reasons};
use kproxide_controller::observe::Connect;
use kproxide_kube::access::Account;
use kproxide_kube::client::Client;
use kproxide_policy::Library;

pub use cluster::NoKubernetes;
pub use installation::{Files, Installation};
pub use joining::Scripts;
pub use pod::check as check_pod;
pub use report::{Report, Summary};
pub use values::Values;

/// What doctor looks at, and from where.
pub struct Sources {
    /// `None`: nothing is installed yet, and `objects` are those of the chart's values.
    pub kube: Option<Client>,
    pub objects: Vec<Object>,
    pub connect: Connect,
    /// With the files of the policy folders.
    pub policies: Library,
    pub scripts: Scripts,
    /// Namespace and name of the controller.
    pub namespace: String,
    pub name: String,
    /// Whose rights the controller has. `None`: it is not known.
    pub account: Option<Account>,
    pub clock: Clock,
    /// Where network findings are seen from, such as `this computer`.
    pub place: String,
}

/// Makes all checks. `findings`: what was found before.
///
/// # Errors
/// Kubernetes cannot be asked at all.
pub async fn examine(
    sources: &Sources,
    mut findings: Vec<Finding>,
) -> Result<Report, NoKubernetes> {
    let cluster::Read {
        mut world,
        seen,
        connections,
        findings: read,
    } = cluster::read(sources).await?;
    findings.extend(read);
    let (key, looks, scripts, definitions, rights, unlisted, left) = join!(
        key_problem(sources),
        proxmox::look(sources, &world, &connections),
        joining::check(sources, &world),
        definitions::check(sources),
        rights::check(sources, sources.account.as_ref()),
        cluster::unlisted(sources),
        release::check(sources, &seen),
    );
    for look in &looks {
        world.apply(look.delta());
    }
    findings.extend(judged::judge(sources, &world, &looks, key.as_ref(), seen.has_books).await);
    // One that cannot be used is not in the world either, and has its own finding.
    if world.pools().is_empty() && !findings.iter().any(|it| it.object.starts_with("NodePool")) {
        findings.push(Finding::error(
            Group::Configuration,
            "NodePool",
            &reasons::NO_POOL,
            "there is none, so kproxide makes no machine",
        ));
    }
    findings.extend(nodes::check(&world, &seen));
    findings.extend(looks.into_iter().flat_map(|look| look.findings));
    findings.extend(scripts);
    findings.extend(definitions);
    findings.extend(rights);
    findings.extend(unlisted);
    findings.extend(left);
    Ok(Report::of(findings))
}

/// Why kproxide could not mark its machines. `None`: it can, or it is not known.
async fn key_problem(sources: &Sources) -> Option<String> {
    let kube = sources.kube.as_ref()?;
    let asked = problem_of(kube, &sources.namespace, &sources.name);
    timeout(KUBERNETES_DEADLINE, asked).await.ok()?.ok()?
}
