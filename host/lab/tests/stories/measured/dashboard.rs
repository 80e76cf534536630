//! The dashboard and the alerts name what the program exports, and each query parses.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use kproxide_testkit::require_promtool;
use serde_json::Value;

use super::alerts::alerts;
use super::used;
use kproxide_controller::metrics::Metrics;

const DASHBOARD: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../charts/kproxide/files/dashboard.json"
);
/// What Prometheus and its reader add.
const ADDED: [&str; 4] = ["le", "job", "namespace", "pod"];

fn panels() -> Vec<Value> {
    let text = std::fs::read_to_string(DASHBOARD).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    dashboard["panels"].as_array().unwrap().clone()
}

/// Each query with the title of its panel, and a legend.
fn queries() -> Vec<(String, String, String)> {
    let mut queries = Vec::new();
    for panel in panels() {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let word = |key: &str| target[key].as_str().unwrap().to_owned();
            queries.push((title.to_owned(), word("expr"), word("legendFormat")));
        }
    }
    queries
}

/// As Grafana sends it.
fn sent(query: &str) -> String {
    let query = query.replace("$__rate_interval", "5m");
    query.replace("$pool", ".*")
}

#[test]
fn each_query_of_the_dashboard_parses() {
    let Some(promtool) = require_promtool() else {
        return;
    };
    let mut rules = String::from("groups:\n  - name: queries\n    rules:\n");
    for (index, (_, query, _)) in queries().iter().enumerate() {
        let query = serde_json::to_string(&sent(query)).unwrap();
        writeln!(
            rules,
            "      - record: query:number{index}\n        expr: {query}"
        )
        .unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("queries.yaml");
    std::fs::write(&file, &rules).unwrap();
    assert_eq!(promtool.check_rules(&file).unwrap(), "");
    // It would say so.
    std::fs::write(&file, rules.replacen("sum(", "summ(", 1)).unwrap();
    let said = promtool.check_rules(&file).unwrap();
    assert!(said.contains("unknown function"), "{said}");
}

/// A word in braces before an operator, in `by ( )`, or in a legend.
fn labels(expression: &str, legend: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut labels = BTreeSet::new();
    for matchers in expression.split('{').skip(1) {
        let matchers = matchers.split('}').next().unwrap();
        // A value holds no comma.
        for matcher in matchers.split(',') {
            labels.insert(matcher.chars().take_while(|it| is_part(*it)).collect());
        }
    }
    for list in expression.split("by (").skip(1) {
        let list = list.split(')').next().unwrap().split(',');
        labels.extend(list.map(|label| label.trim().to_owned()));
    }
    for label in legend.split("{{").skip(1) {
        let label = label.split("}}").next().unwrap();
        labels.insert(label.trim().to_owned());
    }
    labels
}

#[test]
fn dashboard_and_alerts_name_metrics_and_labels_that_there_are() {
    let metrics = Metrics::new(false).unwrap();
    let described = metrics.described();
    let alerts = alerts().into_iter();
    let alerts = alerts.map(|(alert, expression)| (alert, expression, String::new()));
    let mut named = BTreeSet::new();
    for (place, expression, legend) in queries().into_iter().chain(alerts) {
        let mut known: BTreeSet<&str> = ADDED.into();
        for name in used(&expression) {
            let metric = described.iter().find(|it| it.name == name);
            let metric = metric.unwrap_or_else(|| panic!("{place}: there is no {name}"));
            known.extend(metric.labels.iter().map(|it| &**it));
            named.insert(name);
        }
        for label in labels(&expression, &legend) {
            assert!(known.contains(&*label), "{place}: {label} in {expression}");
        }
    }
    // And each metric is shown somewhere.
    let all = described.iter().map(|it| &it.name);
    let unseen: Vec<_> = all.filter(|name| !named.contains(*name)).collect();
    assert_eq!(unseen, [""; 0]);
}

#[test]
fn the_dashboard_has_a_row_for_each_part_and_no_panel_over_another() {
    let panels = panels();
    let rows = panels.iter().filter(|panel| panel["type"] == "row");
    let rows: Vec<&str> = rows.map(|row| row["title"].as_str().unwrap()).collect();
    assert_eq!(
        rows,
        [
            "Pools",
            "Hypervisors",
            "Lifecycle",
            "Decisions",
            "Policies",
            "Proxmox"
        ]
    );
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in &panels {
        assert!(ids.insert(panel["id"].as_u64()), "{panel}");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{panel}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{panel} lies over another");
            }
        }
    }
}
