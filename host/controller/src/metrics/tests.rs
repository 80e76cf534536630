use kproxide_common::metrics::Rows;

use super::*;

#[test]
fn kproximates_eight_names_are_there_with_values_unless_they_are_not_wanted() {
    let gauges = KproximateGauges {
        machines: 3,
        running: 2,
        cpu_allocated_cores: 1.5,
        ..Default::default()
    };
    let lines = [
        "kpnodes_total 3",
        "kpnodes_running 2",
        "cpu_provisioned_total 0",
        "memory_provisioned_total 0",
        "cpu_allocatable_total 0",
        "memory_allocatable_total 0",
        "cpu_allocated_total 1.5",
        "memory_allocated_total 0",
    ];
    for wanted in [true, false] {
        let metrics = Metrics::new(wanted).unwrap();
        metrics.show_kproximate(&gauges);
        let text = metrics.render().unwrap();
        for line in lines {
            let is_there = text.lines().any(|it| it == line);
            assert_eq!(is_there, wanted, "{line} in\n{text}");
        }
    }
}

#[test]
fn rows_that_a_look_does_not_name_disappear_and_equal_labels_add_up() {
    let metrics = Metrics::new(false).unwrap();
    let shown = |metrics: &Metrics| {
        let text = metrics.render().unwrap();
        let lines = text.lines().filter(|it| it.starts_with("kproxide_nodes{"));
        lines.map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let row = |pool| [pool, "home", "pve1", "ready"];
    let mut rows = Rows::default();
    rows.add(&row("a"), 1.0);
    rows.add(&row("b"), 1.0);
    rows.add(&row("b"), 1.0);
    metrics.found.nodes.show(&rows);
    let line = |pool, count| {
        format!(
            "kproxide_nodes{{cluster=\"home\",hypervisor=\"pve1\",pool=\"{pool}\",state=\"ready\"}} {count}"
        )
    };
    assert_eq!(shown(&metrics), [line("a", 1), line("b", 2)]);
    let mut rows = Rows::default();
    rows.add(&row("b"), 1.0);
    metrics.found.nodes.show(&rows);
    assert_eq!(shown(&metrics), [line("b", 1)]);
    metrics.forget_found();
    assert_eq!(shown(&metrics), [""; 0]);
}

#[test]
fn no_gauge_of_ours_is_named_as_a_counter_and_units_are_base_units() {
    let metrics = Metrics::new(false).unwrap();
    for Described { name, kind, .. } in metrics.described() {
        assert!(name.starts_with("kproxide_"), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == "counter", "{name}");
        for unit in ["milli", "_mib", "_gib", "_ms", "minutes", "percent"] {
            assert!(!name.contains(unit), "{name}");
        }
    }
}

/// `KPROXIDE_UPDATE=1` writes it.
#[test]
fn the_list_for_people_is_of_these_metrics() {
    let metrics = Metrics::new(true).unwrap();
    let mut table = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for Described {
        name,
        kind,
        labels,
        help,
    } in metrics.described()
    {
        let labels: Vec<String> = labels.iter().map(|it| format!("`{it}`")).collect();
        let labels = labels.join(", ");
        table += &format!("| `{name}` | {kind} | {labels} | {help} |\n");
    }
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../charts/kproxide/METRICS.md"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once("| metric |").unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    let expected = format!("{before}{table}\n{after}");
    if std::env::var_os("KPROXIDE_UPDATE").is_some() {
        std::fs::write(path, &expected).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
}
