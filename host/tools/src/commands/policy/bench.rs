//! `kproxide policy bench`: what an answer costs.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::given::{Given, Tools, no_settings, settings};
use super::properties::generated;
use crate::args::Format;
use crate::args::policy::Bench;
use crate::commands::Exit;
use crate::commands::plan::print;
use crate::whatif::table;

const CANDIDATES: [u32; 3] = [10, 100, 1000];
/// One row takes so long, or so many calls.
const TIME: Duration = Duration::from_millis(300);
const CALLS: usize = 200;

#[derive(Debug, Serialize)]
struct Measure {
    kind: &'static str,
    candidates: u32,
    instructions: u64,
    /// Of one call: the middle one of all.
    microseconds: u64,
    calls: usize,
}

/// # Errors
/// The policy or its settings cannot be used, it fails, or the output is closed.
pub(super) async fn bench(args: &Bench, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let given = Given::read(&args.subject.policy)?;
    let settings = settings(args.subject.settings.as_deref())?.unwrap_or_else(no_settings);
    let tools = Tools::new()?;
    let module = given.loaded(&tools).await?;
    let mut measures = Vec::new();
    for kind in module.kinds() {
        for candidates in CANDIDATES {
            let question = generated(kind, candidates, 1, &given.name, &settings);
            let begin = Instant::now();
            let mut times = Vec::new();
            let mut instructions = 0;
            while times.is_empty() || (begin.elapsed() < TIME && times.len() < CALLS) {
                let asked = tools.ask(&module, &question).await;
                let place = &given.place;
                let failed = |error| {
                    format!(
                        "{place}: for {candidates} {}: {error}",
                        subjects(kind.as_str())
                    )
                };
                asked.called.result.map_err(failed)?;
                instructions = asked.called.fuel;
                times.push(asked.microseconds);
            }
            times.sort_unstable();
            measures.push(Measure {
                kind: kind.as_str(),
                candidates,
                instructions,
                microseconds: times[times.len() / 2],
                calls: times.len(),
            });
        }
    }
    match args.output {
        Format::Text => {
            let rows = measures.iter().map(|it| {
                vec![
                    it.kind.to_owned(),
                    it.candidates.to_string(),
                    it.instructions.to_string(),
                    it.calls.to_string(),
                    format!("{} µs", it.microseconds),
                ]
            });
            let heads = ["KIND", "CANDIDATES", "INSTRUCTIONS", "CALLS", "TIME"];
            let mut text = String::new();
            table(
                &mut text,
                "",
                &heads,
                rows.collect(),
                usize::MAX,
                usize::MAX,
            )?;
            write!(out, "{}", text.trim_start_matches('\n'))?;
        }
        format @ (Format::Json | Format::Yaml) => print(out, format, &measures)?,
    }
    Ok(Exit::Success)
}

fn subjects(kind: &str) -> &'static str {
    match kind {
        "scale-down" => "Nodes",
        _ => "hypervisors",
    }
}
