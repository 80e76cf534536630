//! Alerts and the dashboard: only when asked for, and with the braces that are for Prometheus and Grafana.

use std::fs;

use kproxide_testkit::require_controlplane;
use serde_json::{Value, json};

use crate::render::{names, render, repository, required_values, the, values};

#[tokio::test]
async fn alerts_and_dashboard_are_rendered_as_their_files_say() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let objects = render(&programs, &required_values()).await.unwrap();
    assert!(names(&objects, "PrometheusRule").is_empty());
    assert!(names(&objects, "ConfigMap").is_empty());

    let more = json!({
        "prometheusRule": { "enabled": true, "labels": { "release": "prometheus" } },
        "dashboard": { "enabled": true, "annotations": { "grafana_folder": "Kubernetes" } },
    });
    let objects = render(&programs, &values(more)).await.unwrap();
    let rule = the(&objects, "PrometheusRule");
    assert_eq!(rule["metadata"]["labels"]["release"], "prometheus");
    let file =
        |name: &str| fs::read_to_string(repository(&format!("charts/kproxide/files/{name}")));
    let alerts: Value = serde_saphyr::from_str(&file("alerts.yaml").unwrap()).unwrap();
    assert_eq!(rule["spec"], alerts);
    let summary = &rule["spec"]["groups"][0]["rules"][1]["annotations"]["summary"];
    assert!(
        summary.as_str().unwrap().contains("{{ $value }}"),
        "{summary}"
    );

    let map = the(&objects, "ConfigMap");
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    assert_eq!(
        map["metadata"]["annotations"],
        json!({ "grafana_folder": "Kubernetes" })
    );
    assert_eq!(
        map["data"]["kproxide.json"],
        file("dashboard.json").unwrap()
    );
}

#[tokio::test]
async fn a_pod_monitor_finds_the_pod_without_a_service() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let more = json!({
        "service": { "enabled": false },
        "podMonitor": { "enabled": true, "labels": { "release": "prometheus" }, "interval": "1m" },
    });
    let objects = render(&programs, &values(more)).await.unwrap();
    let monitor = the(&objects, "PodMonitor");
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    let pod = &the(&objects, "Deployment")["spec"]["template"]["metadata"]["labels"];
    let selector = monitor["spec"]["selector"]["matchLabels"]
        .as_object()
        .unwrap();
    assert!(!selector.is_empty());
    assert!(selector.iter().all(|(key, value)| pod[key] == *value));
    assert_eq!(
        monitor["spec"]["podMetricsEndpoints"],
        json!([{ "port": "admin", "path": "/metrics", "interval": "1m" }])
    );
}
