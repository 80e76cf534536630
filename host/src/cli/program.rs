//! What the chart's templates know of this program: `program.yaml` in the chart. They compare values with it.

use clap::CommandFactory as _;
use kproxide_builtins::{BUILTINS, Kind};
use serde_json::json;

use super::Cli;

/// The flags of `kproxide run`, and the built-in policies by the field of a NodePool that names them.
fn program() -> String {
    let cli = Cli::command();
    let run = cli.find_subcommand("run").unwrap();
    let mut flags: Vec<String> = run
        .get_arguments()
        .filter_map(|argument| argument.get_long())
        .map(|name| format!("--{name}"))
        .collect();
    flags.sort();
    let named = |kind: Kind| {
        let mut names: Vec<&str> = BUILTINS
            .iter()
            .filter(|builtin| builtin.kind == kind)
            .map(|builtin| builtin.name)
            .collect();
        names.sort_unstable();
        names
    };
    let known = json!({
        "flags": flags,
        "policies": {
            "hostSelection": named(Kind::HostSelection),
            "scaleDown": named(Kind::ScaleDown),
            "labels": named(Kind::Labels),
        },
    });
    let yaml = serde_saphyr::to_string(&known).unwrap();
    format!("# Made by the program: KPROXIDE_UPDATE=1 cargo test -p kproxide --lib program\n{yaml}")
}

/// After a change of a flag of `run`, or of a built-in: `KPROXIDE_UPDATE=1 cargo test -p kproxide --lib program`.
#[test]
fn the_chart_knows_the_flags_and_the_built_in_policies_of_this_program() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../charts/kproxide/program.yaml"
    );
    let text = program();
    if std::env::var_os("KPROXIDE_UPDATE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}
