//! What a person can do about a refusal.

use kproxide_planner::facts::{Reach, VolumeName, VolumeNeed, VolumeProblem, VolumeWait};
use kproxide_planner::ids::PoolName;
use kproxide_planner::kubernetes::resources::amount_text;
use kproxide_planner::plan::report::{LearnedWhy, Limit, Misfit, Unusable, Why};
use kproxide_planner::reasons::no_hypervisor::{Refusal, Refused};

use super::Explanation;
use kproxide_pve::error::MISSING_PRIVILEGE;

pub(super) fn next_for(pool: &PoolName, why: &Why, explanation: &mut Explanation) {
    let step = match why {
        Why::TooBig {
            resource,
            requested,
            largest,
            daemons,
        } => {
            let taken = daemons.as_ref().map_or(0, |daemons| daemons.asked);
            larger(resource, requested.saturating_add(taken), *largest)
        }
        Why::LearnedTooBig(why) => for_learned(why),
        Why::Misfit(misfit) => for_misfit(pool, misfit),
        Why::Limit(Limit::Machines { .. }) => format!("raise limits.maxNodes of NodePool {pool}"),
        Why::Limit(_) => format!("raise that limit of NodePool {pool}"),
        Why::NoHypervisor(refused) => for_hypervisors(refused),
        Why::Policy { .. } => format!("mend the policy or its settings in NodePool {pool}"),
        Why::Unusable(Unusable::Lacks(resource, _)) => larger(resource, 1, 0),
        Why::Unusable(Unusable::Paused(_)) => unpause(pool),
        Why::Unusable(Unusable::BeingDeleted(_)) => {
            "make another NodePool for such pods: this one is being deleted".to_owned()
        }
        Why::UnexpectedTaint { taint, .. } => format!(
            "name the taint {taint} in spec.taints of NodePool {pool} if it stays, or in spec.startupTaints if something takes it off"
        ),
        Why::Unusable(_) => format!("mend NodePool {pool} or what it names"),
        Why::Window(_) => {
            format!("wait for that moment, or change scaleUp.windows of NodePool {pool}")
        }
        Why::Stabilizing { .. }
        | Why::MadeInVain { .. }
        | Why::InVain(_)
        | Why::PoliciesNextTick
        | Why::NextTick => "wait: kproxide tries again by itself".to_owned(),
    };
    explanation.next(step);
}

pub(super) fn unpause(pool: &PoolName) -> String {
    let commands = kproxide_controller::judge::unpause(pool).join(" && ");
    format!("let NodePool {pool} go on: {commands}")
}

/// Every hypervisor has its reason: room helps against some of them alone.
fn for_hypervisors(refused: &[Refused]) -> String {
    let threads = |(_, refusal): &Refused| {
        if let Refusal::FewThreads { threads, .. } = refusal {
            Some(*threads)
        } else {
            None
        }
    };
    let threads: Option<Vec<u64>> = refused.iter().map(threads).collect();
    if let Some(most) = threads.and_then(|all| all.into_iter().max()) {
        return format!("add an instance type of at most {most} cores to the NodeClass");
    }
    // Also if it were empty.
    let whole = |(_, refusal): &Refused| {
        if let Refusal::Lacks {
            resource,
            asked,
            whole: Some(whole),
            ..
        } = refusal
            && asked > whole
        {
            Some((*whole, resource.clone()))
        } else {
            None
        }
    };
    let whole: Option<Vec<(i64, String)>> = refused.iter().map(whole).collect();
    if let Some((most, resource)) = whole.and_then(|all| all.into_iter().max()) {
        return format!(
            "no server is that large: add an instance type of at most {} of {resource} to the NodeClass",
            amount_text(&resource, most)
        );
    }
    let is_of_template = |(_, refusal): &Refused| {
        matches!(
            refusal,
            Refusal::NoTemplate { .. }
                | Refusal::TemplateStays(_)
                | Refusal::NoAgent(_)
                | Refusal::NotLinkable { .. }
                | Refusal::NotBase { .. }
        )
    };
    if !refused.is_empty() && refused.iter().all(is_of_template) {
        return "correct spec.template of the NodeClass, or make the template there: kproxide doctor says more"
            .to_owned();
    }
    let failed = |(_, refusal): &Refused| {
        if let Refusal::LeftAlone { why, .. } = refusal {
            Some(why.contains(MISSING_PRIVILEGE))
        } else {
            None
        }
    };
    let failed: Option<Vec<bool>> = refused.iter().map(failed).collect();
    match failed.as_deref() {
        None | Some([]) => {}
        Some(lacks) if lacks.contains(&true) => {
            return "run kproxide doctor: it prints the pveum commands that grant what is missing"
                .to_owned();
        }
        Some(_) => {
            return "mend what made the launches fail; kproxide then tries again by itself"
                .to_owned();
        }
    }
    "make room on a hypervisor, or add one: kproxide explain hypervisor NAME shows each".to_owned()
}

fn for_learned(why: &LearnedWhy) -> String {
    let LearnedWhy { resource, node, .. } = why;
    // The type has the device, and its machines do not show it.
    match resource.contains('/') {
        true => format!(
            "find out why Node {node} does not offer {resource}: mostly its driver or its device plugin is missing. Then let kproxide forget what Nodes have shown"
        ),
        false => larger(resource, why.requested, why.offered),
    }
}

/// No machine is large enough. `requested`: thousandths of a core, bytes, or a number of devices. So is what the largest
/// machine offers.
fn larger(resource: &str, requested: i64, largest: i64) -> String {
    let requested = requested.unsigned_abs();
    // A machine offers a little less than it has.
    let with_overhead = |amount: u64| amount + amount.div_ceil(8);
    let (cores, gib) = match resource {
        "cpu" => {
            let cores = with_overhead(requested.div_ceil(1000)).max(2);
            (cores, cores * 4)
        }
        "memory" => {
            let gib = with_overhead(requested.div_ceil(1 << 30)).max(4);
            (gib.div_ceil(4), gib)
        }
        "ephemeral-storage" => {
            return "set a larger diskGiB for an instance type of the NodeClass".to_owned();
        }
        "pods" => return "set a larger maxPods for an instance type of the NodeClass".to_owned(),
        device if largest > 0 => {
            return format!(
                "set {requested} of {device} in extendedResources of an instance type of the NodeClass, if its machines have so many"
            );
        }
        device => {
            return format!(
                "add {device} to extendedResources of an instance type of the NodeClass, if its machines have it"
            );
        }
    };
    format!(
        "add a larger instance type to the NodeClass; kproxide plan --from-cluster --add-type big={cores}x{gib} shows whether it helps"
    )
}

fn for_misfit(pool: &PoolName, misfit: &Misfit<'_>) -> String {
    match misfit {
        Misfit::Taint(taint) => {
            format!("give the pod a toleration of {taint}, or make a NodePool without that taint")
        }
        Misfit::Labels(_) => format!(
            "add the label to spec.labels of NodePool {pool}, or change what the pod asks for"
        ),
        Misfit::VolumeWait(wait) => for_claim(wait),
        Misfit::Volume(need) => for_volume(need),
        Misfit::VolumeLimit { driver } => format!(
            "use fewer volumes of CSI driver {driver} in one pod, or raise csi[].limit of the NodeClass if the driver can attach more"
        ),
        Misfit::PodAffinity { .. } => {
            "start the pods that its podAffinity asks for, or change its podAffinity".to_owned()
        }
        Misfit::PodAntiAffinity { .. } | Misfit::TopologySpread { .. } => {
            "change the rule about its neighbours that the message names, or move those neighbours"
                .to_owned()
        }
        Misfit::Cordon | Misfit::TooLittle { .. } | Misfit::HostPort(_) => {
            "change what the pod asks for, or make room where it may run".to_owned()
        }
    }
}

fn for_claim(wait: &VolumeWait) -> String {
    let claim = &wait.claim;
    match &wait.why {
        VolumeProblem::ClaimMissing => format!("create PersistentVolumeClaim {claim}"),
        VolumeProblem::ClaimDeleting => {
            format!("create PersistentVolumeClaim {claim} again when it is gone")
        }
        VolumeProblem::ClaimLost | VolumeProblem::VolumeMissing(_) => format!(
            "restore the PersistentVolume, or delete PersistentVolumeClaim {claim} and create it again: it then has a new volume"
        ),
        VolumeProblem::OfAnother => format!(
            "delete PersistentVolumeClaim {claim} if nobody needs it: Kubernetes then makes the pod's own"
        ),
        VolumeProblem::NotBound => format!(
            "kubectl describe pvc {claim} shows why it is not bound. Without a StorageClass it needs a PersistentVolume that you make"
        ),
        VolumeProblem::VolumeAwaited(volume) => format!(
            "create PersistentVolume {volume}. To plan as if PersistentVolumeClaim {claim} was bound, give its PersistentVolume too"
        ),
        VolumeProblem::NotProvisioned { provisioner, .. } => format!(
            "wait for {provisioner}; kubectl describe pvc {claim} shows what it says. To plan as if it was bound, give the claim with spec.volumeName and its PersistentVolume"
        ),
        VolumeProblem::ClassMissing(class) => format!(
            "create StorageClass {class}, or name another one in PersistentVolumeClaim {claim}"
        ),
        VolumeProblem::NoVolume(class) => format!(
            "create a PersistentVolume of StorageClass {class} that is large enough for PersistentVolumeClaim {claim}"
        ),
        VolumeProblem::InUse(pod) => format!(
            "wait until pod {pod} has ended, or make PersistentVolumeClaim {claim} ReadWriteOnce"
        ),
        VolumeProblem::Unknown(_) => {
            format!("use a CSI, NFS, local or hostPath volume for PersistentVolumeClaim {claim}")
        }
    }
}

fn for_volume(need: &VolumeNeed) -> String {
    let volume = match &need.volume {
        VolumeName::Of(name) => format!("PersistentVolume {name}"),
        VolumeName::New(class) => format!("the volumes of StorageClass {class}"),
    };
    match &need.reach {
        Some(Reach::Chosen(node)) => format!(
            "wait for Node {node}; if it is gone, take the annotation volume.kubernetes.io/selected-node off the claim"
        ),
        Some(Reach::Room { .. }) => format!("make room in the storage of {volume}"),
        Some(Reach::Free { made: None, .. }) => {
            format!(
                "make one more PersistentVolume for {volume}, or make room on a Node that reaches a free one"
            )
        }
        Some(Reach::Free { made: Some(_), .. }) => {
            format!("let a NodePool make machines where {volume} can be made")
        }
        Some(Reach::Class(_)) => {
            format!("let a NodePool make machines where {volume} can be made (allowedTopologies)")
        }
        Some(Reach::Affinity(_) | Reach::Zone(_)) | None => format!(
            "let a NodePool make machines that reach {volume}, or bring back the Node that does"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kproxide_planner::ids::HypervisorId;

    #[test]
    fn what_helps_depends_on_why_each_hypervisor_was_refused() {
        let few = |threads| Refusal::FewThreads { asked: 8, threads };
        let because = |why: &str| Refusal::LeftAlone {
            until: jiff::Timestamp::UNIX_EPOCH,
            failures: 2,
            why: why.to_owned(),
        };
        let left = || because("no");
        let gone = || Refusal::NoTemplate {
            template: "k8s-nod".to_owned(),
            cluster: None,
        };
        let lacks = || because("POST /x at pve1: missing privilege VM.Clone on /vms/1: grant it…");
        for (refusals, words) in [
            ([few(2), few(4)], "at most 4 cores"),
            ([left(), left()], "mend what made the launches fail"),
            ([left(), lacks()], "kproxide doctor"),
            ([few(4), lacks()], "make room"),
            ([few(4), left()], "make room"),
            ([Refusal::Offline, left()], "make room"),
            ([gone(), gone()], "correct spec.template"),
            ([gone(), Refusal::Offline], "make room"),
        ] {
            let names = ["alpha", "beta"].map(|name| HypervisorId::new("pve", name));
            let refused: Vec<Refused> = names.into_iter().zip(refusals).collect();
            let step = for_hypervisors(&refused);
            assert!(step.contains(words), "{step}");
        }
    }

    #[test]
    fn a_device_that_the_type_has_is_not_to_be_added_to_it() {
        let learned = |resource: &str, requested| {
            for_learned(&LearnedWhy {
                resource: resource.into(),
                requested,
                offered: 0,
                instance_type: "gpu".into(),
                class: "default".into(),
                node: "workers-x7".into(),
                since: jiff::Timestamp::UNIX_EPOCH,
                again: jiff::Timestamp::UNIX_EPOCH,
            })
        };
        let why = "find out why Node workers-x7 does not offer nvidia.com/gpu:";
        let text = learned("nvidia.com/gpu", 1);
        assert!(
            text.starts_with(why) && !text.contains("extendedResources"),
            "{text}"
        );
        assert!(learned("cpu", 4000).starts_with("add a larger instance type"));
        let too_few = larger("nvidia.com/gpu", 2, 1);
        assert!(
            too_few.starts_with("set 2 of nvidia.com/gpu in"),
            "{too_few}"
        );
        assert!(larger("amd.com/gpu", 1, 0).starts_with("add amd.com/gpu to"));
    }
}
