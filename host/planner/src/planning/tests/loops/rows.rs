//! What a row of the Ledger stands for, and which goes when there are too many.

use super::*;

#[test]
fn what_min_nodes_and_headroom_ask_for_is_made_ever_more_rarely_too() {
    let mut play = Play::new();
    play.scene.workers().limits.min_nodes = 3;
    play.run(7200);
    assert_eq!(play.made.len(), 3, "they stand unused, as they should");
    // A machine is removed as empty all the same, by a policy or a mistake.
    for _ in 0..20 {
        let Some(name) = play.scene.claims.keys().next().cloned() else {
            play.run(360);
            continue;
        };
        let (now, claim) = (at(play.now()), play.scene.claim(name.as_str()));
        claim.deleting_since = Some(now);
        claim.status.phase = Phase::Terminating;
        claim.status.conditions.push(ClaimCondition {
            reason: "Empty".to_owned(),
            ..condition(Condition::Drained, now)
        });
        play.run(360);
    }
    assert!(play.made.len() <= 3 + 6, "{:?}", play.made);
}

#[test]
fn the_oldest_row_is_forgotten_and_a_launch_that_fails_counts_nowhere() {
    let mut play = Play::new();
    play.pod("web-1", ("ReplicaSet", "web"), "cpu=1");
    play.run(20);
    let claim = play.scene.claims.keys().next().cloned().unwrap();
    assert_eq!(play.scene.ledger.tries[0].machines[0].claim, claim);
    let made = play.scene.claim(claim.as_str());
    made.deleting_since = Some(at(NOW + 20));
    made.status.phase = Phase::Terminating;
    play.run(20);
    let row = &play.scene.ledger.tries[0];
    assert_eq!((row.rounds, row.late, row.machines.len()), (0, 0, 1));
    assert_ne!(row.machines[0].claim, claim, "the next one");

    let make = |ledger: &mut LedgerFacts, workload: String, machine: &str| {
        let key = Key {
            workload: &workload.into(),
            pods: &"pods".into(),
            pool: &"workers".into(),
            instance_type: &"medium".into(),
            settings: &"settings".into(),
        };
        loops::made(ledger, &key, &machine.into());
    };
    let mut ledger = LedgerFacts::default();
    for number in 0..300 {
        make(
            &mut ledger,
            format!("Deployment ns{}/d{number}", number % 30),
            "m",
        );
    }
    assert_eq!(ledger.tries.len(), 256);
    assert_eq!(&*ledger.tries[0].workload, "Deployment ns14/d44");

    // Of one namespace: one that rests stays, and the machines of the others go on to count for it.
    let mut ledger = LedgerFacts::default();
    for number in 0..40 {
        make(
            &mut ledger,
            format!("Job ns/j{number}"),
            &format!("m{number}"),
        );
        ledger.tries[0].rounds = 1;
    }
    let rows: Vec<(&str, usize)> = ledger
        .tries
        .iter()
        .map(|row| (&*row.workload, row.machines.len()))
        .collect();
    assert_eq!(rows.len(), 32);
    assert_eq!(rows[0], ("Job ns/j0", 1));
    assert_eq!(rows[1..3], [("Job ns/j10", 1), ("Job ns/j11", 1)]);
    assert!(rows.contains(&("all pods in ns", 9)), "{rows:?}");
}

#[test]
fn a_workload_is_what_a_person_wrote() {
    let mut scene = Scene::default();
    scene.pending("pod", 7, spec("cpu=1"));
    let owners = [
        ("ReplicaSet", "web-5d4f8b9c7d"),
        ("Job", "report-28394820"),
        ("Job", "once-7"),
        ("StatefulSet", "db"),
        // Texts that would name another namespace.
        ("Job", "a other/b"),
        ("Job other/", "b"),
    ];
    for (number, (kind, name)) in owners.into_iter().enumerate() {
        let pod = scene.pod(&format!("pod-{number:05}"));
        pod.owner = Some(Owner {
            kind: kind.into(),
            name: name.into(),
            uid: "owner".into(),
        });
        pod.labels
            .insert("pod-template-hash".into(), "5d4f8b9c7d".into());
    }
    scene.pod("pod-00006").owner = None;
    let world = scene.world();
    let pending = world.pending();
    let mut names: Vec<_> = pending
        .iter()
        .flat_map(|(_, pods)| pods.iter())
        .map(|pod| workload(&pod))
        .collect();
    names.sort();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let expected = [
        "CronJob default/report",
        "Deployment default/web",
        "Job default/once-7",
        "StatefulSet default/db",
        "pods without controller in default",
        "pods without controller in default",
        "pods without controller in default",
    ];
    assert_eq!(names, expected);
}
