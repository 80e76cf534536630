//! A controller that runs in a ward, and what each place says of it at one moment: conditions, `status`, `explain`, metrics, doctor.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use kproxide_planner::ids::ObjectKey;
use serde_json::Value;
use tokio::time::sleep;
use tower::ServiceExt as _;

use super::ward::Ward;
use crate::doctor::{Report, Sources, examine};
use crate::manifest::Object;
use crate::status::{Screen, Seen};
use crate::whatif::{self, Changes, Input, SavedWorld, Scene, Subject};
use kproxide_controller::admin;
use kproxide_controller::config::Config;
use kproxide_controller::judge::{Finding, Stops, reasons};
use kproxide_kube::client::Client;
use kproxide_kube::crd::ConditionStatus;
use kproxide_lab::MACHINE;
use kproxide_lab::config;
use kproxide_policy::{Engine, Execution, Library};

/// What every place says at one moment.
pub(super) struct Said {
    /// All that the controller found.
    findings: Vec<Finding>,
    pub(super) screen: Screen,
    scene: Scene,
    conditions: BTreeSet<(String, String, String)>,
    metrics: BTreeSet<(String, String)>,
}

/// A controller that runs in the ward, with its admin endpoints.
pub(super) struct Running {
    router: Router,
    policies: Library,
}

impl Running {
    async fn get(&self, path: &str) -> Vec<u8> {
        // The controller shows its plan once a second.
        sleep(Duration::from_millis(1100)).await;
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .to_vec()
    }

    pub(super) async fn said(&self, ward: &Ward) -> Said {
        let plan: Value = serde_json::from_slice(&self.get("/debug/plan").await).unwrap();
        let findings: Vec<Finding> = serde_json::from_value(plan["findings"].clone()).unwrap();
        let saved = SavedWorld::read(&Object::from_elsewhere(plan, "the controller")).unwrap();
        let input = Input {
            saved: Some(saved),
            ..Input::default()
        };
        let changes = Changes::default();
        let now = ward.lab.clock.now();
        let mut scene = whatif::build(input, &changes, None, now).unwrap();
        scene.finish(&changes).unwrap();
        scene.take_policies(&self.policies);
        let plan = scene.planned.take().unwrap();
        let kinds = ["proxmoxclusters", "nodeclasses", "nodepools"];
        let objects = kinds.map(|kind| ward.lab.kube.list(&format!("{kind}.kproxide.dev")));
        let objects = objects.into_iter().flatten();
        let objects = objects.map(|it| Object::from_elsewhere(it, "the API server"));
        let screen = Screen::of(Seen {
            scene: &scene,
            plan: &plan,
            decisions: &[],
            objects: &objects.collect::<Vec<_>>(),
            findings: findings.clone(),
            source: "the controller".to_owned(),
            is_computed: false,
        });
        scene.planned = Some(plan);
        let metrics = String::from_utf8(self.get("/metrics").await).unwrap();
        Said {
            findings,
            screen,
            scene,
            conditions: conditions(ward),
            metrics: troubles_in(&metrics),
        }
    }
}

/// Object, type and reason of each condition of our objects.
fn conditions(ward: &Ward) -> BTreeSet<(String, String, String)> {
    let kinds = ["proxmoxclusters", "nodeclasses", "nodepools", "nodeclaims"];
    let objects = kinds
        .iter()
        .flat_map(|kind| ward.lab.kube.list(&format!("{kind}.kproxide.dev")));
    let mut all = BTreeSet::new();
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = format!(
            "{}/{}",
            text(&object["kind"]),
            text(&object["metadata"]["name"])
        );
        for condition in object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
        {
            all.insert((
                name.clone(),
                text(&condition["type"]),
                text(&condition["reason"]),
            ));
        }
    }
    all
}

fn troubles_in(metrics: &str) -> BTreeSet<(String, String)> {
    let rows = metrics
        .lines()
        .filter(|line| line.starts_with("kproxide_troubles{"));
    let label = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    rows.map(|line| {
        (
            format!("{}/{}", label(line, "kind"), label(line, "name")),
            label(line, "reason"),
        )
    })
    .collect()
}

impl Said {
    pub(super) fn troubles(&self) -> BTreeSet<(String, String)> {
        let troubles = self.screen.troubles.iter();
        troubles
            .map(|it| (it.object.clone(), it.reason.word.to_owned()))
            .collect()
    }

    /// No two places disagree.
    pub(super) fn check(&self, name: &str) {
        let now = self.scene.now;
        // Machines and Nodes have no names there.
        let counted = self.troubles().into_iter().map(|(object, reason)| {
            let kind = object.split('/').next().unwrap_or_default();
            match kind {
                "NodeClaim" | "Node" => (format!("{kind}/"), reason),
                _ => (object, reason),
            }
        });
        let counted: BTreeSet<_> = counted.collect();
        assert_eq!(self.metrics, counted, "{name}: metrics and status");
        for finding in self.findings.iter().filter(|it| it.is_ripe(now)) {
            let Some((condition, _)) = finding.condition() else {
                continue;
            };
            let mut of_kind = self.conditions.iter();
            let stands =
                of_kind.find(|(object, kind, _)| *object == finding.object && kind == condition);
            let stands = stands.map(|(.., reason)| reason.as_str());
            assert_eq!(
                stands,
                Some(finding.reason.word),
                "{name}: {} {condition}",
                finding.object
            );
        }
        // Without a Proxmox cluster nobody makes a machine. Each row of a pool says of it what its condition says.
        let ready = |kind: &'static str| {
            let of_kind = self.conditions.iter().filter(|it| it.1 == "Ready");
            let of_kind = of_kind.filter(move |it| it.0.starts_with(kind));
            of_kind.filter_map(|it| reasons::of(&it.2))
        };
        let is_lost = ready("ProxmoxCluster/").all(|it| it.stops == Stops::All);
        for kind in ["NodeClass/", "NodePool/"] {
            let any = ready(kind).any(|it| it.status == ConditionStatus::True);
            assert!(!is_lost || !any, "{name}: {kind}");
        }
        for row in &self.screen.pools {
            let object = format!("NodePool/{}", row.name);
            let mut of_pool = self.conditions.iter();
            let stands = of_pool.find(|it| it.0 == object && it.1 == "Ready");
            let (.., stands) = stands.expect("a pool has a condition Ready");
            let is_well = ["Ready", "NotJudgedYet"].contains(&stands.as_str());
            let is_said = row.state.contains(stands);
            let of_ready = |word: &String| {
                let reason = reasons::of(word).and_then(|it| it.of.condition);
                reason == Some("Ready") && word != "Ready"
            };
            let says = row.state.iter().any(of_ready);
            assert!(
                is_said || is_well && !says,
                "{name}: {:?}, {stands}",
                row.state
            );
        }
        // An unready object is a trouble, or follows from one.
        for (object, kind, reason) in self.conditions.iter().filter(|it| it.1 == "Ready") {
            let Some(reason) = reasons::of(reason) else {
                continue;
            };
            let is_bad = reason.status == ConditionStatus::False;
            let mut about = self.findings.iter().filter(|it| it.object == *object);
            let is_found = about.any(|it| it.reason == reason);
            assert!(!is_bad || is_found, "{name}: {object} {kind} {reason:?}");
        }
        for trouble in &self.screen.troubles {
            // Nobody asks `explain` for a class that no pool uses.
            let mut pools = self.scene.world.pools().values();
            let is_used = pools.any(|it| trouble.object == format!("NodeClass/{}", it.node_class));
            if trouble.object.starts_with("NodeClass/") && !is_used {
                continue;
            }
            let explained = self.explained(&trouble.object);
            assert!(
                explained.contains(trouble.reason.word),
                "{name}: {explained}"
            );
        }
    }

    /// What `explain` says of the thing that a person would ask about.
    pub(super) fn explained(&self, object: &str) -> String {
        let (kind, name) = object.split_once('/').unwrap();
        let subject = match kind {
            "NodeClaim" => Subject::Claim(name.into()),
            "Node" => Subject::Node(name.into()),
            "Hypervisor" => Subject::Hypervisor(name.to_owned()),
            "Pod" => Subject::Pod(ObjectKey::new("default", name)),
            _ => Subject::Pool("workers".into()),
        };
        let plan = self.scene.planned.as_ref().unwrap();
        match whatif::explain(&self.scene, plan, &[], &subject) {
            Ok(explanation) => explanation.to_string(),
            Err(error) => error,
        }
    }
}

/// Runs a controller with one machine in service while the story is told.
pub(super) async fn told(ward: &Ward, story: impl AsyncFnOnce(&Running)) {
    let config = Config {
        join_dir: ward.join.path().to_owned(),
        ..config("kproxide-0")
    };
    told_with(ward, config, story).await;
}

pub(super) async fn told_with(ward: &Ward, config: Config, story: impl AsyncFnOnce(&Running)) {
    let kube = Client::from_service(ward.lab.kube.as_user("kproxide-0").service());
    let (app, host) = ward
        .lab
        .host_over("kproxide-0", config, kube, ward.connect())
        .unwrap();
    let running = Running {
        router: admin::router(app.vitals(), app.metrics()),
        policies: Library::new(Engine::new(Execution::Inline).unwrap()),
    };
    let story = async {
        sleep(MACHINE).await;
        story(&running).await;
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}

/// Doctor, of the controller that runs.
pub(super) async fn examined(ward: &Ward) -> Report {
    let sources = Sources {
        namespace: "kube-system".to_owned(),
        ..ward.sources()
    };
    examine(&sources, Vec::new()).await.unwrap()
}
