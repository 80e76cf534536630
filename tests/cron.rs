//! The table that kproxide's schedules are held against (`host/planner/src/time/cron/tests.rs`) is what Kubernetes' parser says.

use std::fs;

use kproxide_testkit::require_cron_table;

const TABLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../host/planner/src/time/cron/table.tsv"
);

#[test]
fn the_table_of_schedules_is_what_kubernetes_parser_says() {
    let Some(program) = require_cron_table() else {
        return;
    };
    let said = program.draw().unwrap();
    if std::env::var_os("KPROXIDE_UPDATE").is_some() {
        fs::write(TABLE, &said).unwrap();
    }
    let table = fs::read_to_string(TABLE).unwrap();
    assert_eq!(table, said, "KPROXIDE_UPDATE=1 writes it anew");
    assert_eq!(table.lines().count(), 500);
}
