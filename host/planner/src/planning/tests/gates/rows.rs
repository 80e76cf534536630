//! The rows of the table: what can stand against a removal.

use super::*;

/// What stands against it: the table's rows.
pub(super) enum Gate {
    Scene(fn(&mut Scene)),
    /// Something that no scene is without is gone.
    Gone(fn() -> Delta),
}

pub(super) const GATES: [(&str, Gate); 44] = [
    ("nothing", Gate::Scene(|_| ())),
    (
        "just started",
        Gate::Scene(|scene| scene.host.armed_at = None),
    ),
    (
        "cold start",
        Gate::Scene(|scene| scene.host.armed_at = Some(at(NOW + 30))),
    ),
    (
        "definition",
        Gate::Scene(|scene| scene.host.definition_problem = Some("the CRD is deleted".into())),
    ),
    (
        "clock",
        Gate::Scene(|scene| scene.host.clock_problem = Some("the clock is wrong".into())),
    ),
    (
        "watch",
        Gate::Scene(|scene| scene.host.failing_watches = vec!["pods".into()]),
    ),
    (
        "no ProxmoxCluster",
        Gate::Gone(|| Delta::Cluster("pve".into(), None)),
    ),
    (
        "no inventory",
        Gate::Gone(|| Delta::Inventory("pve".into(), None)),
    ),
    (
        "unreachable",
        Gate::Scene(|scene| scene.inventory.reachable = false),
    ),
    (
        "no quorum",
        Gate::Scene(|scene| scene.inventory.quorate = false),
    ),
    (
        "list not whole",
        Gate::Scene(|scene| scene.inventory.complete = false),
    ),
    (
        "another one is off",
        Gate::Scene(|scene| scene.hypervisor("beta").online = false),
    ),
    (
        "its own is unknown",
        Gate::Scene(|scene| {
            scene.hypervisor("alpha").online = false;
            for guest in scene.inventory.guests.values_mut() {
                guest.status = GuestStatus::Unknown;
            }
        }),
    ),
    ("no key", Gate::Scene(|scene| scene.host.key_known = false)),
    (
        "anchor unseen",
        Gate::Scene(|scene| {
            scene.host.anchor_nonce = Some("one".into());
            unread_anchor(scene);
        }),
    ),
    (
        "anchor watched",
        Gate::Scene(|scene| anchor(scene).watched_since = Some(at(NOW - 60))),
    ),
    (
        "anchor foreign",
        Gate::Scene(|scene| {
            anchor(scene).foreign = Some(ForeignMark {
                vmid: Vmid(2999),
                mark: mark(7, "another"),
                since: at(NOW - 60),
                moved: 0,
            });
            unread_anchor(scene);
        }),
    ),
    (
        "frozen",
        Gate::Scene(|scene| {
            for name in ["x0", "x1", "x2", "x3"] {
                scene.machine(name, "beta");
                let node = scene.nodes.get_mut(name).unwrap();
                (node.ready, node.ready_since) = (false, at(NOW - 1));
            }
        }),
    ),
    (
        "allowance used up",
        Gate::Scene(|scene| {
            let row = |index| Removal {
                claim: format!("gone-{index}").as_str().into(),
                at: at(NOW - 10),
                reason: RemovalReason::Repair,
            };
            scene.ledger.removals = (0..100).map(row).collect();
        }),
    ),
    (
        "pool paused",
        Gate::Scene(|scene| scene.workers().paused = true),
    ),
    ("pool gone", Gate::Scene(|scene| scene.pools.clear())),
    (
        "claim paused",
        Gate::Scene(|scene| of_claim(scene, |claim| claim.paused = true)),
    ),
    (
        "no finalizer",
        Gate::Scene(|scene| of_claim(scene, |claim| claim.has_finalizer = false)),
    ),
    (
        "two claims",
        Gate::Scene(|scene| {
            let Some(mut other) = scene.claims.get("m").cloned() else {
                return;
            };
            other.uid = "claim-other".into();
            other.status = ClaimStatus::default();
            (other.deleting_since, other.spec.adopts) = (None, None);
            scene.claims.insert("other".into(), other);
            of_claim(scene, |claim| {
                let adopts = claim.spec.adopts.get_or_insert(Adopts {
                    claim_uid: "claim-other".into(),
                    nonce: "abc".into(),
                    condemned: false,
                });
                adopts.claim_uid = "claim-other".into();
            });
        }),
    ),
    (
        "own Node",
        Gate::Scene(|scene| scene.host.own_node = Some("m".into())),
    ),
    (
        "control plane",
        Gate::Scene(|scene| {
            of_node(scene, |node| {
                let role = crate::keys::CONTROL_PLANE_ROLES[0];
                node.labels.insert(role.into(), String::new());
            });
        }),
    ),
    (
        "keep, on the claim",
        Gate::Scene(|scene| of_claim(scene, |claim| claim.do_not_disrupt = true)),
    ),
    (
        "keep, on the Node",
        Gate::Scene(|scene| {
            of_node(scene, |node| {
                let key = crate::keys::DO_NOT_DISRUPT;
                node.annotations.insert(key.into(), "true".into());
            });
        }),
    ),
    (
        "VM protected",
        Gate::Scene(|scene| {
            of_claim(scene, |claim| {
                claim.status.conditions.push(ClaimCondition {
                    message: "somebody protects VM 1000".into(),
                    ..condition(Condition::ProtectedVM, at(NOW - 60))
                });
            });
        }),
    ),
    (
        "drain given up",
        Gate::Scene(|scene| {
            of_claim(scene, |claim| {
                claim.status.conditions.push(ClaimCondition {
                    status: false,
                    reason: crate::claim::GIVEN_UP.into(),
                    ..condition(Condition::Unneeded, at(NOW - 10))
                });
            });
        }),
    ),
    (
        "scale-down off",
        Gate::Scene(|scene| scene.workers().scale_down.enabled = false),
    ),
    (
        "budget used up",
        Gate::Scene(|scene| scene.workers().scale_down.budget = 0),
    ),
    (
        "outside its window",
        Gate::Scene(|scene| {
            scene.workers().disruption.windows = vec![DisruptionWindow {
                reasons: DisruptionReason::ALL.to_vec(),
                when: super::super::windows::recurring(60, 60),
            }];
        }),
    ),
    (
        "budgets used up",
        Gate::Scene(|scene| {
            scene.workers().disruption.budgets = vec![DisruptionBudget {
                nodes: Share::Nodes(0),
                reasons: vec![],
                when: None,
            }];
        }),
    ),
    (
        "times unreadable",
        Gate::Scene(|scene| {
            let never = Recurring::new("0 0 30 2 *", Period::minutes(60), None);
            scene.workers().scale_up.windows = vec![never];
        }),
    ),
    (
        "minNodes",
        Gate::Scene(|scene| scene.workers().limits.min_nodes = 5),
    ),
    (
        "minNodeAge",
        Gate::Scene(|scene| of_node(scene, |node| node.created = at(NOW - 1))),
    ),
    (
        "stabilization",
        Gate::Scene(|scene| {
            scene.machine("new", "beta");
            let new = scene.claim("new");
            new.status.conditions = vec![condition(Condition::Initialized, at(NOW - 1))];
            scene.running("new", 4, "new", spec("cpu=1"));
        }),
    ),
    (
        "unneededTime",
        Gate::Scene(|scene| {
            scene.workers().scale_down.unneeded_time = jiff::SignedDuration::from_mins(1).into();
        }),
    ),
    (
        "cordoned",
        Gate::Scene(|scene| of_node(scene, |node| node.unschedulable = true)),
    ),
    (
        "pod that stays",
        Gate::Scene(|scene| {
            scene.running("keep", 1, "m", spec("cpu=1"));
            scene.pod("keep-00000").do_not_disrupt = true;
        }),
    ),
    (
        "pending pod",
        Gate::Scene(|scene| {
            let mut picky = spec("cpu=1");
            picky.node_selector = labels("kubernetes.io/hostname=m");
            scene.pending("waits", 1, picky);
        }),
    ),
    (
        "no room for a pod",
        Gate::Scene(|scene| {
            scene.running("web", 1, "m", spec("cpu=1"));
            let full = scene.nodes.get_mut("static").unwrap();
            full.taints = vec![taint("full", TaintEffect::NoSchedule)];
        }),
    ),
    (
        "Node Ready again",
        Gate::Scene(|scene| of_node(scene, |node| node.ready = true)),
    ),
];

fn of_claim(scene: &mut Scene, change: impl FnOnce(&mut ClaimFacts)) {
    scene.claims.get_mut("m").map(change);
}

fn of_node(scene: &mut Scene, change: impl FnOnce(&mut NodeFacts)) {
    scene.nodes.get_mut("m").map(change);
}

fn mark(sequence: u64, nonce: &str) -> Mark {
    Mark {
        sequence,
        nonce: nonce.into(),
    }
}

/// One that the Ledger knows, in order.
fn anchor(scene: &mut Scene) -> &mut Anchor {
    scene.host.anchor_nonce = Some("one".into());
    scene.ledger.anchors = vec![Anchor {
        cluster: "pve".into(),
        vmid: Vmid(2999),
        mark: None,
        next: mark(1, "one"),
        at: at(NOW - 60),
        watched_since: None,
        foreign: None,
    }];
    &mut scene.ledger.anchors[0]
}

/// A VM that is called like one, and was not looked at yet.
fn unread_anchor(scene: &mut Scene) {
    let guest = GuestFacts {
        hypervisor: "gamma".into(),
        name: Some("kproxide-anchor-2999".into()),
        status: GuestStatus::Stopped,
        template: false,
        lock: None,
        pool: Some("kproxide".into()),
        max_threads: 1,
        max_memory_bytes: 1,
    };
    scene.inventory.guests.insert(Vmid(2999), guest);
}
