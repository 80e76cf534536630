//! The alerts of the chart, on what `/metrics` shows in worlds where each of them is due, and in one where none is.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use kproxide_simulator::kube::fixtures;
use kproxide_simulator::kubelet::NodeSpec;
use kproxide_testkit::{Promtool, require_promtool};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::MACHINE;
use super::super::degraded::{HOUR, running, scale};
use super::stage::{MINUTE, Samples, Stage, metric, sampled};
use super::{CLAIMS, copied, used};
use kproxide_controller::metrics::Metrics;
use kproxide_lab::EPOCH;
use kproxide_lab::wide;
use kproxide_policy::{PolicyFile, PolicyFiles};

const ALERTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../charts/kproxide/files/alerts.yaml"
);
/// What Prometheus adds when it reads from the pod.
const TARGET: &str = "job=\"kproxide\",namespace=\"kproxide\",pod=\"kproxide-0\"";

/// Each rule: its alert and its expression.
pub(super) fn alerts() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(ALERTS).unwrap();
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    let rules = file["groups"][0]["rules"].as_array().unwrap().clone();
    let word = |rule: &Value, key: &str| rule[key].as_str().unwrap().to_owned();
    let rules = rules.iter();
    rules
        .map(|rule| (word(rule, "alert"), word(rule, "expr")))
        .collect()
}

/// A test for promtool: these samples, and what an expression is at their end.
fn test(samples: &Samples, expression: &str, expected: &str) -> String {
    let exprs: String = alerts().into_iter().map(|(_, expr)| expr + "\n").collect();
    let used: BTreeSet<String> = used(&exprs).into_iter().collect();
    let mut test = format!(
        "rule_files: [{}]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    start_timestamp: {EPOCH}\n    input_series:\n",
        PathBuf::from(ALERTS).canonicalize().unwrap().display()
    );
    for (series, values) in &samples.series {
        if !used.contains(metric(series)) {
            continue;
        }
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let comma = if labels == "}" { "" } else { "," };
        writeln!(
            test,
            "      - series: '{name}{{{TARGET}{comma}{labels}'\n        values: '{}'",
            (0..samples.minutes)
                .map(|minute| values
                    .get(&minute)
                    .map_or("_".to_owned(), ToString::to_string))
                .collect::<Vec<_>>()
                .join(" ")
        )
        .unwrap();
    }
    write!(
        test,
        "    promql_expr_test:\n      - expr: '{expression}'\n        eval_time: {}m\n        exp_samples: {expected}\n",
        samples.minutes - 1
    )
    .unwrap();
    test
}

/// The alert is firing when the samples end.
fn fires(alert: &str, samples: &Samples) {
    let Some(promtool) = require_promtool() else {
        return;
    };
    let firing = format!("max(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})");
    let test = test(samples, &firing, "[{labels: \"{}\", value: 1}]");
    let said = promtool.test_rules(&test).unwrap();
    assert_eq!(said, "", "{alert} does not fire");
}

fn is_silent(promtool: &Promtool, samples: &Samples) {
    let days = format!(
        "sum by (alertname) (count_over_time(ALERTS{{alertstate=\"firing\"}}[{}m]))",
        samples.minutes + 1
    );
    let said = promtool.test_rules(&test(samples, &days, "[]")).unwrap();
    assert_eq!(said, "");
}

/// Pods come in the morning and go in the evening, some come and go all day, and a policy file is changed.
#[tokio::test(start_paused = true)]
async fn no_alert_fires_on_a_healthy_day() {
    let Some(promtool) = require_promtool() else {
        return;
    };
    let stage = Stage::new(json!({ "limits": { "minNodes": 1, "maxNodes": 4 } }));
    let lab = &stage.lab;
    let mut config = stage.config();
    // A tick each half minute, when nothing happens: the day is long enough.
    config.timing.poll_interval = MINUTE / 2;
    let (app, host) = stage.host(config);
    host.policy_files.send(PolicyFiles::new()).await.unwrap();
    let samples = sampled(app, host, async |host| {
        wide(lab, "here", "workers", 1);
        wide(lab, "there", "spare", 1);
        for hour in 0..24 {
            let day = 1 + u32::from((4..16).contains(&hour)) + u32::from((8..12).contains(&hour));
            scale(lab, "here", day);
            sleep(HOUR / 2).await;
            scale(lab, "there", day + hour % 2);
            if hour == 6 {
                let spread = kproxide_builtins::BUILTINS.iter();
                let spread = spread.clone().find(|it| it.name == "spread").unwrap();
                let files: PolicyFiles = [("mine".into(), PolicyFile::alone(spread.wasm))].into();
                host.policy_files.send(files).await.unwrap();
            }
            sleep(HOUR / 2).await;
        }
    })
    .await;
    assert_eq!(samples.minutes, 24 * 60 - 1);
    // It was a day with machines that came and went.
    let count = |name: &str| {
        let of_it = samples.series.iter().filter(|(it, _)| metric(it) == name);
        of_it
            .filter_map(|(_, values)| values.values().last())
            .sum::<f64>()
    };
    assert!(count("kproxide_launches_total") > 8.0);
    assert!(count("kproxide_removals_total") > 5.0);
    is_silent(&promtool, &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_the_loop_stalls() {
    let stage = Stage::new(json!({}));
    let (app, host) = stage.host(stage.config());
    host.policy_files.send(PolicyFiles::new()).await.unwrap();
    let metrics = app.metrics();
    let mut samples = Samples::default();
    let sample = async |samples: &mut Samples| {
        for _ in 0..15 {
            sleep(MINUTE).await;
            samples.take(&metrics);
        }
    };
    // The loop stands still, and what it measured is still shown.
    tokio::select! {
        biased;
        () = sample(&mut samples) => {}
        ended = app.run() => panic!("{ended:?}"),
    }
    sample(&mut samples).await;
    fires("KproxideLoopStalled", &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_pods_wait_that_no_machine_helps() {
    let stage = Stage::new(json!({}));
    let lab = &stage.lab;
    let samples = stage
        .watched(async |_| {
            let large = fixtures::deployment("default", "large", 2, "64", "1Gi");
            lab.apply([("deployments.apps", large)]);
            sleep(HOUR / 2).await;
        })
        .await;
    fires("KproxidePendingPodsStuck", &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_a_pool_has_reached_a_limit() {
    let stage = Stage::new(json!({ "limits": { "minNodes": 0, "maxNodes": 1 } }));
    let samples = stage
        .watched(async |_| {
            wide(&stage.lab, "here", "workers", 2);
            sleep(HOUR / 2).await;
        })
        .await;
    fires("KproxideMaxNodesReached", &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_machines_cannot_be_made() {
    let stage = Stage::new(json!({}));
    stage
        .lab
        .pve
        .set_starts_fail(Some("start failed: out of luck"));
    let samples = stage
        .watched(async |_| {
            wide(&stage.lab, "here", "workers", 2);
            sleep(HOUR).await;
        })
        .await;
    fires("KproxideProvisionFailing", &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_machines_do_not_join() {
    let stage = Stage::new(json!({}));
    stage.away.set_next_never_boot(1000);
    let samples = stage
        .watched(async |_| {
            wide(&stage.lab, "there", "spare", 2);
            sleep(HOUR).await;
        })
        .await;
    fires("KproxideJoinTimeouts", &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_drains_are_given_up_again_and_again() {
    let stage = Stage::new(json!({ "drainTimeout": "60s" }));
    let lab = &stage.lab;
    let samples = stage
        .watched(async |_| {
            let mut report = fixtures::deployment("default", "report", 1, "3", "1Gi");
            report["spec"]["template"]["metadata"]["annotations"] =
                json!({ "cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion" });
            lab.apply([("deployments.apps", report)]);
            sleep(MACHINE).await;
            assert_eq!(running(lab, "report"), 1);
            let uuid = "a0000000-0000-4000-8000-000000000009";
            let large = NodeSpec::new("large", uuid, 32_000, 65_536);
            lab.kubelets.start_node(large);
            sleep(3 * HOUR).await;
        })
        .await;
    fires("KproxideDrainStuck", &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_machines_without_a_claim_stay() {
    let stage = Stage::new(json!({}));
    let lab = &stage.lab;
    wide(lab, "here", "workers", 1);
    stage.watched(async |_| sleep(MACHINE).await).await;
    for claim in lab.kube.list(CLAIMS) {
        let name = claim["metadata"]["name"].as_str().unwrap();
        lab.kube.delete(CLAIMS, "", name).unwrap();
        let none = json!({ "metadata": { "finalizers": null } });
        lab.kube.patch(CLAIMS, "", "", name, none).unwrap();
    }
    let vms = lab.pve.snapshot().vms;
    let machine = vms.iter().find(|vm| !vm.template).unwrap();
    lab.kube
        .delete("nodepools.kproxide.dev", "", "workers")
        .unwrap();
    lab.kubelets.stop_node(&machine.name);
    lab.kube.delete("nodes", "", &machine.name).unwrap();
    // Nobody knows what the other server has.
    let mut servers = ["pve1", "pve2"].into_iter();
    let other = servers.find(|it| *it != machine.hypervisor);
    lab.pve.set_hypervisor_hung(other.unwrap(), true);
    let samples = stage.watched(async |_| sleep(4 * HOUR).await).await;
    fires("KproxideOrphanVMs", &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_a_proxmox_cluster_has_no_quorum() {
    let stage = Stage::new(json!({}));
    let samples = stage
        .watched(async |_| {
            sleep(MACHINE).await;
            stage.away.set_quorate(false);
            sleep(HOUR / 2).await;
        })
        .await;
    fires("KproxideProxmoxUnreachable", &samples);
    fires("KproxideNoQuorum", &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_a_server_with_machines_goes_off() {
    let stage = Stage::new(json!({}));
    let lab = &stage.lab;
    let samples = stage
        .watched(async |_| {
            wide(lab, "here", "workers", 1);
            sleep(MACHINE).await;
            let claims = lab.kube.list(CLAIMS);
            let mut here = claims.iter().filter(|it| it["spec"]["cluster"] == "home");
            let server = here.next().unwrap()["spec"]["hypervisor"].as_str().unwrap();
            lab.pve.set_hypervisor_online(server, false);
            sleep(HOUR / 2).await;
        })
        .await;
    fires("KproxideHypervisorDown", &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_pods_wait_and_no_machine_can_be_made() {
    let stage = Stage::new(json!({}));
    let lab = &stage.lab;
    let samples = stage
        .watched(async |_| {
            for pve in [&lab.pve, &stage.away] {
                pve.set_quorate(false);
            }
            wide(lab, "here", "workers", 2);
            sleep(HOUR / 2).await;
        })
        .await;
    fires("KproxideLaunchesImpossible", &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_a_policy_fails() {
    let stage = Stage::new(json!({}));
    let lab = &stage.lab;
    let samples = stage
        .watched(async |host| {
            wide(lab, "here", "workers", 1);
            sleep(MACHINE).await;
            let mut hostile = kproxide_builtins::HOSTILE.iter();
            let hostile = hostile.find(|it| it.name == "hostile-scale-down").unwrap();
            let files: PolicyFiles = [("down".into(), PolicyFile::alone(hostile.wasm))].into();
            host.policy_files.send(files).await.unwrap();
            let policy = json!({ "use": "down", "settings": { "do": "panic" } });
            let spec = json!({ "spec": { "policies": { "scaleDown": policy } } });
            stage.patch("nodepools.kproxide.dev", "workers", spec);
            scale(lab, "here", 0);
            sleep(HOUR).await;
        })
        .await;
    fires("KproxidePolicyFailing", &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_a_policy_file_is_refused() {
    let stage = Stage::new(json!({}));
    let samples = stage
        .watched(async |host| {
            let files: PolicyFiles = [("mine".into(), PolicyFile::alone(b"not wasm"))].into();
            host.policy_files.send(files).await.unwrap();
            sleep(HOUR / 2).await;
        })
        .await;
    fires("KproxidePolicyRefused", &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_removals_are_frozen() {
    let stage = Stage::new(json!({}));
    let lab = &stage.lab;
    let samples = stage
        .watched(async |_| {
            wide(lab, "here", "workers", 3);
            wide(lab, "there", "spare", 2);
            sleep(2 * MACHINE).await;
            for pve in [&lab.pve, &stage.away] {
                pve.set_hypervisor_online("pve1", false);
                pve.set_hypervisor_online("pve2", false);
            }
            sleep(HOUR / 2).await;
        })
        .await;
    fires("KproxideFrozen", &samples);
}

#[tokio::test(start_paused = true)]
async fn an_alert_fires_when_the_mark_of_an_anchor_is_foreign() {
    fires("KproxideAnchorForeign", &copied().await);
}

#[test]
fn each_alert_has_a_scene_and_a_section_in_the_runbooks() {
    let scenes = include_str!("alerts.rs");
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/manual/runbooks.md"
    );
    let runbooks = std::fs::read_to_string(page).unwrap();
    let alerts = alerts();
    assert_eq!(alerts.len(), 15);
    for (alert, _) in &alerts {
        assert!(
            scenes.contains(&format!("fires(\"{alert}\", &")),
            "{alert} has no scene"
        );
        let section = format!("\n## {alert}\n");
        assert_eq!(runbooks.matches(&section).count(), 1, "{alert}");
    }
    assert_eq!(runbooks.matches("\n## ").count(), alerts.len());
    let text = std::fs::read_to_string(ALERTS).unwrap();
    for key in ["for:", "severity:", "summary:", "description:"] {
        assert_eq!(text.matches(key).count(), alerts.len(), "{key}");
    }
    for (alert, _) in &alerts {
        let link = format!("/examples/manual/runbooks.md#{}\n", alert.to_lowercase());
        assert_eq!(text.matches(&link).count(), 1, "{alert}");
    }
}

#[test]
fn the_rules_parse() {
    let Some(promtool) = require_promtool() else {
        return;
    };
    let said = promtool.check_rules(ALERTS.as_ref()).unwrap();
    assert_eq!(said, "");
}

/// kproximate's names would make it speak.
#[tokio::test(start_paused = true)]
async fn promlint_finds_nothing_in_our_metrics() {
    let Some(promtool) = require_promtool() else {
        return;
    };
    for kproximate in [false, true] {
        let stage = Stage::new(json!({}));
        let config = kproxide_controller::config::Config {
            kproximate_metrics: kproximate,
            ..stage.config()
        };
        let (app, host) = stage.host(config);
        host.policy_files.send(PolicyFiles::new()).await.unwrap();
        let metrics: Metrics = app.metrics();
        wide(&stage.lab, "here", "workers", 1);
        sampled(app, host, async |_| sleep(MACHINE).await).await;
        let said = promtool.check_metrics(&metrics.render().unwrap()).unwrap();
        assert_eq!(said.is_empty(), !kproximate, "{said}");
        assert!(!said.contains("kproxide_"), "{said}");
    }
}
