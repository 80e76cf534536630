//! Which pods and claims the controllers of workloads would make and remove.

use super::*;
use crate::manifest::documents;

fn read(text: &str) -> Vec<Object> {
    documents("f.yaml", text, "default").unwrap()
}

fn layers(texts: &[&str]) -> Objects {
    let mut objects = Objects::default();
    for text in texts {
        objects.add(read(text));
    }
    objects
}

/// What is made and what goes.
fn names(objects: &Objects, wanted: &[&str]) -> (Vec<String>, Vec<String>) {
    let wanted: Vec<_> = wanted
        .iter()
        .map(|text| Replicas::read(text).unwrap())
        .collect();
    let now = Timestamp::UNIX_EPOCH;
    let made = made(objects, &standing(objects), &wanted, now).unwrap();
    (
        made.objects
            .iter()
            .map(|object| format!("{}/{}", object.namespace(), object.name()))
            .collect(),
        made.surplus.into_iter().map(|(_, name)| name).collect(),
    )
}

fn workload(kind: &str, name: &str, spec: &str) -> String {
    let group = match kind {
        "ReplicationController" => "v1",
        "Job" | "CronJob" => "batch/v1",
        _ => "apps/v1",
    };
    format!(
        "{{apiVersion: {group}, kind: {kind}, metadata: {{name: {name}}}, spec: {{{spec}}}}}\n---\n"
    )
}

fn pod(name: &str, owner: &str, owner_name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, ownerReferences: [{{kind: {owner}, name: {owner_name}, controller: true}}]}}, spec: {{nodeName: node}}}}\n---\n"
    )
}

#[test]
fn each_kind_of_workload_makes_its_pods() {
    let text = [
        workload("Deployment", "web", "replicas: 2"),
        workload("StatefulSet", "db", "replicas: 2"),
        workload("ReplicaSet", "rs", ""),
        workload("ReplicationController", "rc", ""),
        workload("Job", "once", "parallelism: 5, completions: 3"),
        workload("Job", "held", "suspend: true"),
        workload("CronJob", "night", "jobTemplate: {spec: {parallelism: 2}}"),
        workload(
            "CronJob",
            "stopped",
            "suspend: true, jobTemplate: {spec: {}}",
        ),
    ];
    let (made, surplus) = names(&layers(&[&text.concat()]), &[]);
    let expected = [
        "web-1", "web-2", "db-0", "db-1", "rs-1", "rc-1", "once-1", "once-2", "once-3", "night-1",
        "night-2",
    ];
    assert_eq!(made, expected.map(|name| format!("default/{name}")));
    assert!(surplus.is_empty(), "{surplus:?}");
}

#[test]
fn a_cron_job_of_a_cluster_makes_no_pod_between_its_runs() {
    let cron = |name: &str, uid: &str| {
        format!(
            "{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: {name}{uid}}}, spec: {{jobTemplate: {{spec: {{}}}}}}}}\n---\n"
        )
    };
    let text = cron("new", "") + &cron("old", ", uid: 0e4c");
    let (made, _) = names(&layers(&[&text]), &[]);
    assert_eq!(made, ["default/new-1"]);
}

#[test]
fn kubernetes_makes_the_claims_of_ephemeral_volumes() {
    let spec = "volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: fast}}}}, {name: none, emptyDir: {}}]";
    let text = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: one, uid: u1}}, spec: {{{spec}}}}}\n---\n"
    ) + &workload(
        "Deployment",
        "web",
        &format!("replicas: 1, template: {{spec: {{{spec}}}}}"),
    );
    let objects = layers(&[&text]);
    let made = made(&objects, &standing(&objects), &[], Timestamp::UNIX_EPOCH).unwrap();
    let claims = made
        .objects
        .iter()
        .filter(|one| one.kind() == "PersistentVolumeClaim");
    let claims: Vec<_> = claims
        .map(|claim| {
            (
                claim.name(),
                &claim.value["metadata"]["ownerReferences"][0]["uid"],
                &claim.value["spec"]["storageClassName"],
            )
        })
        .collect();
    assert_eq!(
        claims,
        [
            ("web-1-scratch", &json!(""), &json!("fast")),
            ("one-scratch", &json!("u1"), &json!("fast"))
        ]
    );
}

#[test]
fn pods_that_are_there_count_whoever_stands_between() {
    let text = [
        workload("Deployment", "web", "replicas: 3"),
        workload("Deployment", "web-more", "replicas: 1"),
        pod("web-abc-1", "ReplicaSet", "web-abc"),
        pod("web-more-def-1", "ReplicaSet", "web-more-def"),
        workload("StatefulSet", "db", "replicas: 3"),
        pod("db-1", "StatefulSet", "db"),
    ];
    let (made, surplus) = names(&layers(&[&text.concat()]), &[]);
    assert_eq!(
        made,
        [
            "default/web-1",
            "default/web-2",
            "default/db-0",
            "default/db-2"
        ]
    );
    assert!(surplus.is_empty(), "{surplus:?}");
}

#[test]
fn a_replica_set_of_a_deployment_makes_nothing_itself() {
    let owned = "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-abc, ownerReferences: [{kind: Deployment, name: web, controller: true}]}, spec: {replicas: 2}}\n---\n";
    let text = [
        workload("Deployment", "web", "replicas: 2"),
        owned.to_owned(),
    ];
    assert_eq!(names(&layers(&[&text.concat()]), &[]).0.len(), 2);
    // Alone it does.
    assert_eq!(names(&layers(&[owned]), &[]).0.len(), 2);
}

#[test]
fn another_number_of_replicas_makes_pods_or_lets_the_last_go() {
    let text = [
        workload("Deployment", "web", "replicas: 2"),
        workload("StatefulSet", "db", "replicas: 2"),
        pod("db-0", "StatefulSet", "db"),
        pod("db-1", "StatefulSet", "db"),
    ];
    let objects = layers(&[&text.concat()]);
    let (made, surplus) = names(&objects, &["deploy/web=3", "default/sts/db=1"]);
    assert_eq!((made.len(), surplus), (3, vec!["db-1".to_owned()]));
    let unknown = Replicas::read("deploy/other=1").unwrap();
    let problem = super::made(&objects, &[], &[unknown], Timestamp::UNIX_EPOCH).unwrap_err();
    assert_eq!(problem, "there is no Deployment other in the input");
    for wrong in ["web=3", "deploy/web", "deploy/web=x", "pod/web=1"] {
        assert!(Replicas::read(wrong).unwrap_err().contains("KIND/NAME=N"));
    }
}

#[test]
fn a_changed_template_replaces_the_pods_and_the_same_one_does_not() {
    let cluster = [
        workload("Deployment", "web", "replicas: 1, template: {spec: {dnsPolicy: Default, containers: [{name: a, resources: {requests: {cpu: '1'}}}]}}"),
        pod("web-abc-1", "ReplicaSet", "web-abc"),
    ]
    .concat();
    let same = workload(
        "Deployment",
        "web",
        "replicas: 1, template: {spec: {containers: [{name: a, resources: {requests: {cpu: 1}}}]}}",
    );
    let other = workload(
        "Deployment",
        "web",
        "replicas: 1, template: {spec: {containers: [{name: a, resources: {requests: {cpu: 2}}}]}}",
    );
    assert_eq!(names(&layers(&[&cluster, &same]), &[]), (vec![], vec![]));
    let (made, surplus) = names(&layers(&[&cluster, &other]), &[]);
    assert_eq!((made.len(), surplus), (1, vec!["web-abc-1".to_owned()]));
}

#[test]
fn what_the_cluster_has_filled_in_is_no_change_and_stays() {
    let given = |image: &str| {
        workload(
            "Deployment",
            "web",
            &format!(
                "template: {{spec: {{hostNetwork: false, containers: [{{name: a, image: {image}, env: [{{name: E, value: ''}}], resources: {{requests: {{cpu: 0.5}}}}}}]}}}}"
            ),
        )
    };
    let stored = workload(
        "Deployment",
        "web",
        "replicas: 3, template: {spec: {dnsPolicy: Default, containers: [{name: a, image: n, env: [{name: E}], resources: {requests: {cpu: 500m}}}]}}",
    );
    let pods = ["a", "b", "c"].map(|end| pod(&format!("web-abc-{end}"), "ReplicaSet", "web-abc"));
    let cluster = stored + &pods.concat();
    let layered = |image: &str| names(&layers(&[&cluster, &given(image)]), &[]);
    assert_eq!(layered("n"), (vec![], vec![]));
    let (made, surplus) = layered("other");
    assert_eq!((made.len(), surplus.len()), (3, 3));
    // A Job that has ended stays so, and a CronJob that is there has its Jobs.
    let cluster = "{apiVersion: batch/v1, kind: Job, metadata: {name: once, uid: j}, spec: {}, status: {conditions: [{type: Complete, status: 'True'}]}}\n---\n{apiVersion: batch/v1, kind: CronJob, metadata: {name: night, uid: c}, spec: {jobTemplate: {spec: {}}}}\n";
    let given =
        workload("Job", "once", "") + &workload("CronJob", "night", "jobTemplate: {spec: {}}");
    assert_eq!(names(&layers(&[cluster, &given]), &[]), (vec![], vec![]));
}

#[test]
fn a_claim_that_is_given_again_keeps_its_volume() {
    let stored = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, labels: {old: x, both: x}}, spec: {volumeName: pv}, status: {phase: Bound}}";
    let given = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, labels: {both: z}}, spec: {accessModes: []}}";
    let objects = layers(&[stored, given]);
    let (_, claim) = objects.iter().next().unwrap();
    assert_eq!(
        claim.value["spec"],
        json!({"accessModes": [], "volumeName": "pv"})
    );
    assert_eq!(claim.value["status"], json!({"phase": "Bound"}));
    assert_eq!(
        claim.value["metadata"]["labels"],
        json!({"old": "x", "both": "z"})
    );
}

#[test]
fn a_stateful_set_makes_the_claims_that_are_missing() {
    let set = workload(
        "StatefulSet",
        "db",
        "replicas: 2, volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: fast}}], template: {metadata: {labels: {app: db}}, spec: {containers: [], volumes: [{name: data, emptyDir: {}}]}}",
    );
    let claim =
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-db-0}, spec: {}}\n";
    let objects = layers(&[&format!("{set}{claim}")]);
    let made = made(&objects, &[], &[], Timestamp::UNIX_EPOCH)
        .unwrap()
        .objects;
    let named: Vec<_> = made
        .iter()
        .map(|object| (object.kind(), object.name()))
        .collect();
    let expected = [
        ("Pod", "db-0"),
        ("PersistentVolumeClaim", "data-db-1"),
        ("Pod", "db-1"),
    ];
    assert_eq!(named, expected);
    assert_eq!(made[1].value["spec"], json!({"storageClassName": "fast"}));
    assert_eq!(
        made[2].value["spec"]["volumes"],
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}}])
    );
    assert_eq!(
        made[2].value["metadata"]["labels"]["apps.kubernetes.io/pod-index"],
        "1"
    );
}
