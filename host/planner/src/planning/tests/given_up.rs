//! Pods that are gone before their machines can serve, of ever new shapes: they count for their workload, and harm nobody else.

use super::loops::{Play, made_for_pod};
use super::*;
use crate::facts::*;
use crate::guard::loops;
use crate::ids::PodKey;
use jiff::SignedDuration;

/// A pod in a namespace, with this controller.
fn pod_in(play: &mut Play, namespace: &str, name: &str, owner: Option<Owner>, requests: &str) {
    let mut pod = pending_pod(spec(requests));
    pod.owner = owner;
    pod.created = at(play.now());
    pod.unschedulable_since = Some(at(play.now()));
    play.scene.pods.insert(PodKey::new(namespace, name), pod);
}

/// Every two minutes six pods, too large to share a machine. They live for 40 s, and a machine takes 60 s.
fn short_lived(play: &mut Play, make: fn(&mut Play, i64)) {
    let now = play.now();
    let is_over =
        |key: &PodKey, pod: &PodFacts| &*key.namespace == "evil" && pod.created <= at(now - 40);
    play.scene.pods.retain(|key, pod| !is_over(key, pod));
    if play.seconds % 120 == 20 {
        for number in 0..6 {
            make(play, play.seconds / 120 * 6 + number);
        }
    }
}

#[test]
fn s3_a_namespace_whose_pods_are_gone_too_early_rests_whatever_they_ask_for() {
    // Each of a shape of its own; each with a controller of its own that there is not. Those that were on their way when it was noticed come too.
    let floods: [(fn(&mut Play), _); 2] = [
        (
            |play| {
                short_lived(play, |play, number| {
                    let shape = format!("cpu={}m", 3000 + number % 300);
                    pod_in(play, "evil", &format!("p{number}"), None, &shape);
                });
            },
            21..=36,
        ),
        (
            |play| {
                short_lived(play, |play, number| {
                    let owner = Owner {
                        kind: "Job".into(),
                        name: format!("job-{number}").into(),
                        uid: "owner".into(),
                    };
                    pod_in(play, "evil", &format!("p{number}"), Some(owner), "cpu=3");
                });
            },
            41..=60,
        ),
    ];
    for (flood, expected) in floods {
        let mut play = Play::new();
        play.scene.workers().scale_down.min_node_age = SignedDuration::ZERO.into();
        play.scene.workers().limits.max_nodes = 1000;
        play.scheduler = flood;
        play.run(3600);
        let made = play.made.len();
        assert!(expected.contains(&made), "{made}");
        assert_eq!(play.scene.ledger.in_vain, [], "no pool is paused");
        let rows = &play.scene.ledger.tries;
        assert!((1..=32).contains(&rows.len()), "{}", rows.len());
        play.run(20);
        assert!(play.said.contains("given_up: true"), "{}", play.said);

        // Others are served at once.
        let before = play.made.len();
        pod_in(&mut play, "default", "other", None, "cpu=2");
        play.run(20);
        assert_eq!(play.made.len(), before + 1);
        // Hours later one machine is tried at a time.
        play.run(4 * 3600);
        let later = play.made.len() - before;
        assert!(later <= 12, "{later}");
    }
}

/// Machines that end one after the other, each made for a pod of one Deployment. Tells how many rests of the whole workload there were.
fn ended(count: usize, end: impl Fn(&mut Scene, &str)) -> (Scene, usize) {
    let mut scene = Scene::default();
    let mut rests = 0;
    for number in 0..count {
        let name = format!("m{number}");
        scene.claims.clear();
        scene.pods.clear();
        scene.pending("web", 1, spec("cpu=1"));
        scene.coming_machine(&name, "alpha", Phase::Launching);
        made_for_pod(&mut scene, "web-00000", &name);
        scene.claim(&name).status.phase = Phase::Terminating;
        end(&mut scene, &name);
        let world = scene.world();
        loops::review(&world, &mut scene.ledger, at(NOW));
        let mut rows = scene.ledger.tries.iter().filter(|row| row.is_whole());
        rests += usize::from(rows.any(|row| row.rests_until().is_some()));
    }
    (scene, rests)
}

/// Of whole workloads and namespaces, how many machines came for nobody.
fn whole(scene: &Scene) -> Vec<(&str, usize)> {
    let rows = scene.ledger.tries.iter().filter(|row| row.is_whole());
    rows.map(|row| (&*row.workload, row.given_up.len()))
        .collect()
}

/// Its pod was gone when it came into service, and nobody needed it.
fn came_for_nobody(scene: &mut Scene, name: &str, found_a_place: bool) {
    scene.claim(name).status.conditions = vec![
        condition(Condition::Initialized, at(NOW - 30)),
        ClaimCondition {
            reason: RemovalReason::Empty.as_str().to_owned(),
            ..condition(Condition::Drained, at(NOW))
        },
    ];
    scene.pods.clear();
    // One that ran before says nothing; one that got its Node after the machine was asked for does.
    scene.running("web", 2, "node", spec("cpu=1"));
    scene.pod("web-00000").bound_since = Some(at(NOW - 61));
    let since = if found_a_place { NOW - 60 } else { NOW - 62 };
    scene.pod("web-00001").bound_since = Some(at(since));
}

#[test]
fn s3_pods_that_find_another_place_do_not_rest_however_often() {
    let (scene, rests) = ended(50, |scene, name| came_for_nobody(scene, name, true));
    assert_eq!((rests, whole(&scene)), (0, vec![]));
    assert_eq!(scene.ledger.tries, [], "its own pods do not rest either");
    // From the 21st on: more than 20 in an hour.
    let (scene, rests) = ended(22, |scene, name| came_for_nobody(scene, name, false));
    assert_eq!(rests, 2);
    assert_eq!(
        whole(&scene),
        [
            ("ReplicaSet default/owner", 20),
            ("all pods in default", 22)
        ]
    );
    assert_eq!(scene.ledger.in_vain, []);
}

#[test]
fn s3_a_launch_that_fails_says_nothing_of_its_pods_whoever_is_to_blame() {
    for reason in [
        "StorageBusy",
        "VmidTaken",
        "NumberSpoilt",
        "ProvisionTimeout",
    ] {
        let (scene, rests) = ended(22, |scene, name| {
            let status = &mut scene.claim(name).status;
            status.nonce = Some("nonce".into());
            let failed = |kind, reason: &str| ClaimCondition {
                status: false,
                reason: reason.to_owned(),
                ..condition(kind, at(NOW))
            };
            status.conditions = vec![
                failed(Condition::Launched, reason),
                failed(Condition::Drained, "LaunchFailed"),
            ];
        });
        assert_eq!((rests, whole(&scene)), (0, vec![]), "{reason}");
    }
}

#[test]
fn s3_what_is_counted_brings_no_more_rows_than_a_ledger_takes() {
    let (scene, _) = ended(1, |scene, name| {
        came_for_nobody(scene, name, false);
        let made = scene.ledger.tries[0].clone();
        for number in 0..255 {
            scene.ledger.tries.push(Tries {
                workload: format!("Deployment ns{}/d{number}", number % 10).into(),
                machines: vec![],
                rounds: 1,
                at: Some(at(NOW)),
                ..made.clone()
            });
        }
    });
    assert_eq!(scene.ledger.tries.len(), 256);
    assert_eq!(whole(&scene).len(), 2);
}
