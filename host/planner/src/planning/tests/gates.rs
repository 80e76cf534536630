//! What may be removed, and what stands against it: each removal against each gate, as the planner decides it, and as the plan's check does.

mod rows;

use std::fmt::Write as _;

use self::rows::{GATES, Gate};

use super::lifecycle::draining;
use super::orphans::{GRACE, facts, orphaned, waited};
use super::*;
use crate::check::violations;
use crate::facts::*;
use crate::ids::Vmid;
use crate::plan::RemovalReason;
use crate::planning::Limits;
use crate::world::World;

/// What is to go, or goes already: the table's columns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    /// A machine in service for which this reason holds since now.
    Begins(RemovalReason),
    /// Its hypervisor was excluded before its clone was asked for.
    Withdrawn,
    /// It was deleted before it was in service.
    Cancelled,
    /// Its drain has begun for this reason.
    Drain(RemovalReason),
    Terminating,
    /// It has no claim, and has waited for its grace.
    Orphan,
    /// An orphan whose claim was made, to remove it.
    Condemned,
    /// On its way up, before and after its clone: nothing wants it gone.
    Pending,
    Launched,
}

const CASES: [(&str, Case); 28] = [
    ("Empty", Case::Begins(RemovalReason::Empty)),
    ("Underu", Case::Begins(RemovalReason::Underutilized)),
    ("Expire", Case::Begins(RemovalReason::Expired)),
    ("Mainte", Case::Begins(RemovalReason::Maintenance)),
    ("Replac", Case::Begins(RemovalReason::Replace)),
    ("PoolDe", Case::Begins(RemovalReason::PoolDeleted)),
    ("Repair", Case::Begins(RemovalReason::Repair)),
    ("NodeDe", Case::Begins(RemovalReason::NodeDeleted)),
    ("Lost", Case::Begins(RemovalReason::Lost)),
    ("Delete", Case::Begins(RemovalReason::Deleted)),
    ("Withdr", Case::Withdrawn),
    ("Cancel", Case::Cancelled),
    ("Empty", Case::Drain(RemovalReason::Empty)),
    ("Underu", Case::Drain(RemovalReason::Underutilized)),
    ("Expire", Case::Drain(RemovalReason::Expired)),
    ("Mainte", Case::Drain(RemovalReason::Maintenance)),
    ("Replac", Case::Drain(RemovalReason::Replace)),
    ("PoolDe", Case::Drain(RemovalReason::PoolDeleted)),
    ("Repair", Case::Drain(RemovalReason::Repair)),
    ("NodeDe", Case::Drain(RemovalReason::NodeDeleted)),
    ("Lost", Case::Drain(RemovalReason::Lost)),
    ("LaunFa", Case::Drain(RemovalReason::LaunchFailed)),
    ("Delete", Case::Drain(RemovalReason::Deleted)),
    ("Termin", Case::Terminating),
    ("Orphan", Case::Orphan),
    ("Condem", Case::Condemned),
    ("Pendin", Case::Pending),
    ("Launch", Case::Launched),
];

impl Case {
    /// The machine `m` on `alpha`, and a Node with room beside it.
    fn scene(self) -> Scene {
        let mut scene = Scene::default();
        match self {
            Self::Begins(reason) => {
                scene.machine("m", "alpha");
                match reason {
                    RemovalReason::Empty | RemovalReason::LaunchFailed => {}
                    RemovalReason::Underutilized => {
                        scene.running("moved", 1, "m", spec("cpu=1"));
                    }
                    RemovalReason::Expired => {
                        scene.workers().expire_after = Some(jiff::SignedDuration::ZERO.into())
                    }
                    RemovalReason::Maintenance => {
                        scene.cluster.hypervisors.drain = vec!["alpha".into()]
                    }
                    RemovalReason::Replace => scene.claim("m").replace = true,
                    RemovalReason::PoolDeleted => {
                        scene.workers().existence.deleting_since = Some(at(NOW - 1));
                    }
                    RemovalReason::Repair => break_down(&mut scene),
                    RemovalReason::NodeDeleted => delete_node(&mut scene),
                    RemovalReason::Lost => {
                        break_down(&mut scene);
                        scene.guest("m", None);
                    }
                    RemovalReason::Deleted => scene.claim("m").deleting_since = Some(at(NOW - 1)),
                }
            }
            Self::Withdrawn => {
                scene.coming_machine("m", "alpha", Phase::Pending);
                scene.cluster.hypervisors.exclude = vec!["alpha".into()];
            }
            Self::Cancelled => {
                scene.coming_machine("m", "alpha", Phase::Launched);
                scene.claim("m").deleting_since = Some(at(NOW - 1));
            }
            Self::Drain(reason) => {
                draining(&mut scene, "m", reason);
                match reason {
                    RemovalReason::Repair | RemovalReason::Lost => break_down(&mut scene),
                    RemovalReason::NodeDeleted => delete_node(&mut scene),
                    RemovalReason::LaunchFailed => {
                        let conditions = &mut scene.claim("m").status.conditions;
                        conditions.retain(|it| it.kind != Condition::Initialized);
                        break_down(&mut scene);
                    }
                    RemovalReason::Deleted => scene.claim("m").deleting_since = Some(at(NOW - 60)),
                    RemovalReason::PoolDeleted => {
                        scene.workers().existence.deleting_since = Some(at(NOW - 60));
                    }
                    RemovalReason::Maintenance => {
                        scene.cluster.hypervisors.drain = vec!["alpha".into()]
                    }
                    RemovalReason::Empty
                    | RemovalReason::Underutilized
                    | RemovalReason::Expired
                    | RemovalReason::Replace => {}
                }
                if reason == RemovalReason::Lost {
                    scene.guest("m", None);
                }
            }
            Self::Terminating => {
                draining(&mut scene, "m", RemovalReason::Empty);
                scene.claim("m").status.phase = Phase::Terminating;
                scene.claim("m").deleting_since = Some(at(NOW - 60));
            }
            Self::Orphan => {
                let vmid = orphaned(&mut scene, "m");
                scene.nodes.get_mut("m").unwrap().ready = false;
                waited(&mut scene, vmid, "m", GRACE);
            }
            Self::Condemned => {
                scene.machine("m", "alpha");
                break_down(&mut scene);
                let claim = scene.claim("m");
                claim.status.phase = Phase::Draining;
                claim.spec.adopts = Some(Adopts {
                    claim_uid: "claim-old".into(),
                    nonce: "abc".into(),
                    condemned: true,
                });
                claim.status.conditions = vec![ClaimCondition {
                    status: false,
                    reason: "Deleted".into(),
                    ..condition(Condition::Drained, at(NOW - 60))
                }];
            }
            Self::Pending => {
                scene.workers().limits.min_nodes = 10;
                scene.coming_machine("m", "alpha", Phase::Pending);
            }
            Self::Launched => {
                scene.coming_machine("m", "alpha", Phase::Launched);
            }
        }
        scene.node("static", node("cpu=16 memory=32Gi"));
        scene
    }

    fn world(self, gate: &Gate) -> World {
        let mut scene = self.scene();
        if let Gate::Scene(change) = gate {
            change(&mut scene);
        }
        let mut world = scene.world();
        if self == Self::Orphan {
            let vmid = scene.ledger.entries[0].vmid;
            let look = OrphanLook::Ours(Box::new(OrphanFacts {
                tombstoned: true,
                ..facts("m")
            }));
            world.apply(Delta::Orphans("pve".into(), [(vmid, look)].into()));
        }
        if let Gate::Gone(delta) = gate {
            world.apply(delta());
        }
        world
    }

    /// The reason that its removal has, or that a planner gone wrong could give it.
    fn reason(self) -> RemovalReason {
        match self {
            Self::Begins(reason) | Self::Drain(reason) => reason,
            Self::Withdrawn | Self::Pending => RemovalReason::LaunchFailed,
            Self::Terminating => RemovalReason::Empty,
            Self::Cancelled | Self::Orphan | Self::Condemned | Self::Launched => {
                RemovalReason::Deleted
            }
        }
    }

    fn has_begun(self) -> bool {
        match self {
            Self::Drain(_) | Self::Terminating | Self::Condemned => true,
            Self::Begins(_) | Self::Withdrawn | Self::Cancelled => false,
            Self::Orphan | Self::Pending | Self::Launched => false,
        }
    }
}

/// Not Ready for long enough to be repaired.
fn break_down(scene: &mut Scene) {
    let node = scene.nodes.get_mut("m").unwrap();
    (node.ready, node.ready_since) = (false, at(NOW - 3600));
}

/// For long enough. Its VM runs.
fn delete_node(scene: &mut Scene) {
    scene.nodes.remove("m");
    let gone = condition(Condition::NodeMissing, at(NOW - 3600));
    scene.claim("m").status.conditions.push(gone);
}

/// What the planner does with it, as one letter, and what it says.
fn outcome(case: Case, world: &World) -> (char, String) {
    let plan = plan(world, at(NOW), Limits::default(), reasonable);
    check_sound(&plan);
    if case == Case::Orphan {
        return match (&plan.adoptions[..], &plan.report.orphans[..]) {
            ([adoption], _) if adoption.is_condemned() => ('b', String::new()),
            ([_], _) => ('k', "adopted".into()),
            ([], [report]) => {
                let said = report
                    .message
                    .split("has lost its NodeClaim: ")
                    .last()
                    .unwrap();
                let said = said
                    .split("kproxide does not remove it yet: ")
                    .last()
                    .unwrap();
                ('k', said.to_owned())
            }
            (_, reports) => ('-', format!("{reports:?}")),
        };
    }
    match verdict(&plan, "m") {
        Verdict::Remove(reason) => {
            let letter = if case.has_begun() { 'g' } else { 'b' };
            let is_other = reason != case.reason();
            let said = is_other.then(|| format!("(as {reason:?})"));
            (letter, said.unwrap_or_default())
        }
        Verdict::Hold(why) => ('H', why.to_string()),
        Verdict::GiveUp(why) => ('U', why.to_string()),
        Verdict::Keep if world.nodes().any(|node| node.name().as_str() == "m") => {
            ('k', kept(&plan, "m").unwrap())
        }
        Verdict::Keep => ('+', String::new()),
    }
}

/// What the plan's check says of a plan that removes it all the same.
fn checked(case: Case, gate: &Gate, is_counted: bool) -> String {
    let limits = Limits::default();
    let world = case.world(gate);
    let mut plan = plan(&world, at(NOW), limits, reasonable);
    if case == Case::Orphan {
        let open = case.world(&Gate::Scene(|_| ()));
        plan.adoptions = crate::fixtures::plan(&open, at(NOW), limits, reasonable).adoptions;
    }
    for advance in &mut plan.advances {
        if advance.claim.as_str() == "m" {
            advance.verdict = Verdict::Remove(case.reason());
        } else {
            advance.verdict = Verdict::Keep;
        }
    }
    if is_counted {
        let ledger = world.ledger().cloned().unwrap_or_default();
        let removals = &mut plan.ledger.get_or_insert(ledger).removals;
        removals.retain(|row| row.claim.as_str() != "m");
        removals.push(Removal {
            claim: "m".into(),
            at: at(NOW),
            reason: case.reason(),
        });
    }
    let found = violations(&world, at(NOW), &limits, &plan);
    let found = found.iter().find(|(claim, _)| claim.as_str() == "m");
    found.map_or("-".into(), |(_, violation)| {
        format!("{violation:?}").chars().take(6).collect()
    })
}

/// The rules as they are.
fn table() -> String {
    let mut words: Vec<String> = Vec::new();
    let mut rows = String::new();
    let head = |rows: &mut String, title: &str| {
        write!(rows, "{title:19}").unwrap();
        for (name, _) in CASES {
            write!(rows, "{name:7}").unwrap();
        }
        *rows = format!("{}\n", rows.trim_end());
    };
    head(&mut rows, "plan");
    for (name, gate) in &GATES {
        let mut row = format!("{name:19}");
        for (_, case) in CASES {
            let (letter, said) = outcome(case, &case.world(gate));
            let cell = match said.is_empty() {
                true => letter.to_string(),
                false => {
                    let known = words.iter().position(|word| *word == said);
                    let number = known.unwrap_or_else(|| {
                        words.push(said);
                        words.len() - 1
                    });
                    format!("{letter}{}", number + 1)
                }
            };
            write!(row, "{cell:7}").unwrap();
        }
        writeln!(rows, "{}", row.trim_end()).unwrap();
    }
    rows.push('\n');
    head(&mut rows, "check");
    for (name, gate) in &GATES {
        let mut row = format!("{name:19}");
        for (_, case) in CASES {
            write!(
                row,
                "{:7}",
                checked(case, gate, *name != "allowance used up")
            )
            .unwrap();
        }
        writeln!(rows, "{}", row.trim_end()).unwrap();
    }
    rows.push('\n');
    for (index, said) in words.iter().enumerate() {
        writeln!(rows, "{:2} {said}", index + 1).unwrap();
    }
    rows
}

/// One column for each removal: from `Empty` to `Cancel` it would begin, from the second `Empty` to `Termin` it has begun; `Condem` is
/// the orphan's claim, under way; `Pendin` and `Launch` are to stay. One row for each gate.
///
/// `b` begins, `g` goes on, `H` is held where it is, `U` is given up, `k` stays in service, `+` goes on its way up. The numbers are those of
/// the sentences at the end. The second table is what the check of a plan says to the same removal.
const RULES: &str = include_str!("gates.txt");

#[test]
fn every_removal_meets_every_gate_as_the_table_says() {
    let found = table();
    assert!(found == RULES, "the rules are now:\n{found}");
}
