//! The screen as text. A narrow one has short bars, and texts that go on in further lines.

use std::fmt::{self, Write as _};

use jiff::{SignedDuration, Timestamp};

use super::order::{alike, short};
use super::{Hypervisor, Screen};
use crate::whatif::{Outcome, Pending, counted, gib, named, table, wrapped};
use kproxide_common::foreign::shown;
use kproxide_controller::judge::{Finding, Level};

/// Rows of a section. More are only counted.
const MOST_ROWS: usize = 10;
/// The narrowest screen that is drawn.
const LEAST_COLUMNS: usize = 80;
/// From here on bars are long.
const WIDE: usize = 110;

/// How it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// `None`: as wide as its texts, with one line for each row, for other programs.
    pub columns: Option<usize>,
    pub is_coloured: bool,
}

pub struct Text<'a>(pub &'a Screen, pub Look);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(screen, look) = self;
        let mut text = String::new();
        draw(
            &mut text,
            screen,
            look.columns.map(|it| it.max(LEAST_COLUMNS)),
        )?;
        let text = shown(&text);
        if !look.is_coloured {
            return f.write_str(&text);
        }
        let answer = match screen.level {
            Level::Ok => "\x1b[1;32m",
            Level::Warning => "\x1b[1;33m",
            Level::Error => "\x1b[1;31m",
        };
        let mut in_answer = true;
        for line in text.lines() {
            // The answer comes first. Of the rest, titles alone begin at the edge.
            in_answer &= !line.is_empty();
            let is_title = line.starts_with(|c: char| c.is_ascii_uppercase());
            match (in_answer, is_title) {
                (true, _) => writeln!(f, "{answer}{line}\x1b[0m")?,
                (false, true) => writeln!(f, "\x1b[1m{line}\x1b[0m")?,
                (false, false) => writeln!(f, "{line}")?,
            }
        }
        Ok(())
    }
}

fn draw(f: &mut String, screen: &Screen, columns: Option<usize>) -> fmt::Result {
    let Screen {
        answer,
        at,
        source,
        computed,
        troubles,
        soon,
        pools,
        policies,
        hypervisors,
        machines,
        pending,
        removals,
        kept,
        decisions,
        assumed,
        api_version: _,
        kind: _,
        level: _,
    } = screen;
    let width = columns.unwrap_or(usize::MAX);
    paragraph(f, "", answer, width)?;
    paragraph(f, "", &format!("\nAt {at:.0}, by {source}."), width)?;
    let said = alike(troubles);
    for (objects, trouble) in said.iter().take(MOST_ROWS) {
        told(f, objects, trouble, troubles, width)?;
    }
    for waits in soon {
        let since = waits.since.unwrap_or(*at);
        let seconds = at.duration_since(since).as_secs();
        let text = format!(
            "\n  {}: has not answered for {seconds} s (a trouble after {} s): {}",
            waits.object, waits.after, waits.message
        );
        paragraph(f, "", &text, width)?;
    }
    if said.len() > MOST_ROWS {
        let more = said.len() - MOST_ROWS;
        writeln!(f, "\n  and {more} more (-o json shows all)")?;
    }
    let mut section = |title: &str, heads: &[&str], rows: Vec<Vec<String>>| {
        table(f, title, heads, rows, MOST_ROWS, width)
    };
    let of = |used: String, most: Option<String>| match most {
        Some(most) => format!("{used} of {most}"),
        None => used,
    };
    let rows = pools.iter().map(|pool| {
        vec![
            pool.name.clone(),
            format!("{} of {}", pool.machines, pool.max_nodes),
            pool.ready.to_string(),
            pool.min_nodes.to_string(),
            of(
                pool.cpu_cores.to_string(),
                pool.max_cpu_cores.map(|it| it.to_string()),
            ),
            of(gib(pool.memory_mib), pool.max_memory_mib.map(gib)),
            pool.state.join(", "),
        ]
    });
    let heads = ["POOL", "MACHINES", "READY", "MIN", "CORES", "GIB", "STATE"];
    section("POOLS", &heads, rows.collect())?;
    let rows = policies.iter().map(|it| {
        let when = it.last_error_time.map(|then| age(*at, then));
        let error = it.last_error.as_ref().zip(when);
        let error = error.map(|(error, when)| format!("{when} ago: {error}"));
        vec![
            it.pool.clone(),
            it.kind.clone(),
            it.name.clone(),
            it.version
                .clone()
                .unwrap_or_else(|| "none answers".to_owned()),
            error.unwrap_or_default(),
        ]
    });
    let heads = ["POOL", "DECIDES", "POLICY", "VERSION", "LAST ERROR"];
    section("POLICIES", &heads, rows.collect())?;
    let bar = match width >= WIDE && columns.is_some() {
        true => 20,
        false => 6,
    };
    let rows = hypervisors.iter().map(|it| hypervisor(it, bar));
    let heads = [
        "HYPERVISOR",
        "STATE",
        "VMS",
        "CORES GIVEN",
        "GIB GIVEN",
        "FREE",
    ];
    section("HYPERVISORS", &heads, rows.collect())?;
    let rows = machines.iter().map(|machine| {
        vec![
            machine.claim.clone(),
            machine.pool.clone(),
            machine.phase.clone(),
            age(*at, machine.since),
            format!("{}/{}", machine.cluster, machine.hypervisor),
        ]
    });
    let heads = ["MACHINE", "POOL", "PHASE", "AGE", "HYPERVISOR"];
    section("ON THEIR WAY", &heads, rows.collect())?;
    let rows = pending
        .iter()
        .map(|row| vec![named(&row.pods, row.count), outcome(row, *computed)]);
    section(
        "PENDING PODS",
        &["PODS", "WHAT BECOMES OF THEM"],
        rows.collect(),
    )?;
    let nodes = |rows: &[crate::whatif::NodeLine]| {
        let rows = rows.iter();
        let rows = rows.map(|it| vec![it.node.clone(), it.pool.clone(), it.reason.clone()]);
        rows.collect::<Vec<_>>()
    };
    let title = match computed {
        true => "NODES THAT WOULD GO, IF KPROXIDE RAN",
        false => "NODES THAT GO",
    };
    section(title, &["NODE", "POOL", "WHY"], nodes(removals))?;
    section("NODES THAT STAY", &["NODE", "POOL", "WHY"], nodes(kept))?;
    let rows = decisions.iter().map(|it| {
        vec![
            format!("{} ago", age(*at, it.at)),
            it.pool.clone(),
            it.what.clone(),
        ]
    });
    section("LAST DECISIONS", &["WHEN", "POOL", "WHAT"], rows.collect())?;
    if !assumed.is_empty() {
        writeln!(f, "\nASSUMED")?;
    }
    for sentence in assumed {
        paragraph(f, "  ", sentence, width)?;
    }
    Ok(())
}

/// One thing that is wrong, and what to do.
fn told(
    f: &mut String,
    objects: &[&str],
    trouble: &Finding,
    all: &[Finding],
    width: usize,
) -> fmt::Result {
    let Finding {
        level,
        reason,
        message,
        ..
    } = trouble;
    let (reason, remedy) = (reason.word, trouble.remedy());
    // Those of each object.
    let alike = all.iter().filter(|it| {
        objects.contains(&&*it.object) && (it.reason, &it.message) == (trouble.reason, message)
    });
    let mut commands: Vec<&String> = alike.flat_map(|it| &it.commands).collect();
    commands.dedup();
    let few = short(objects);
    paragraph(
        f,
        "",
        &format!("\n  {level} {few} ({reason}): {message}"),
        width,
    )?;
    if commands.is_empty() && !remedy.is_empty() {
        paragraph(f, "    ", remedy, width)?;
    }
    for command in commands {
        // Never broken: it is pasted.
        writeln!(f, "    $ {command}")?;
    }
    Ok(())
}

fn hypervisor(row: &Hypervisor, bar_length: usize) -> Vec<String> {
    let Hypervisor {
        cluster,
        name,
        state,
        machines,
        silent_seconds,
        full,
        size,
    } = row;
    let state = match silent_seconds {
        Some(seconds) => format!("no answer for {seconds} s"),
        None => (*state).to_owned(),
    };
    let mut cells = vec![
        format!("{cluster}/{name}"),
        state.clone(),
        machines.to_string(),
    ];
    let Some(size) = size else {
        let unknown = "not asked".to_owned();
        cells.extend([unknown.clone(), unknown, String::new()]);
        return cells;
    };
    let given = |given: u64, all: u64, text: &dyn Fn(u64) -> String| {
        format!(
            "{} {} of {}",
            bar(given, all, bar_length),
            text(given),
            text(all)
        )
    };
    cells.push(given(size.cpu_cores_given, size.cpu_cores, &|it| {
        it.to_string()
    }));
    cells.push(given(size.memory_given_mib, size.memory_mib, &gib));
    cells.push(match (&*state, full) {
        (_, Some(full)) => (*full).to_owned(),
        ("online", None) => format!(
            "{} cores, {} GiB",
            size.cpu_cores_free,
            gib(size.memory_free_mib)
        ),
        _ => "nothing".to_owned(),
    });
    cells
}

/// Full only if all is given, or more.
fn bar(given: u64, all: u64, length: usize) -> String {
    let length = length as u64;
    let full = (given.min(all) * length).checked_div(all).unwrap_or(0);
    let is_some = |n: u64| usize::try_from(n).unwrap_or(0);
    format!(
        "{}{}",
        "█".repeat(is_some(full)),
        "░".repeat(is_some(length - full))
    )
}

fn outcome(row: &Pending, is_computed: bool) -> String {
    match row.outcome {
        Outcome::FitsNode => format!("fit on Node {}", row.on.join(", ")),
        Outcome::FitsClaim => format!("wait for {}, which is on its way", row.on.join(", ")),
        Outcome::Launching if is_computed => {
            let machines = counted(row.on.len(), "machine");
            format!("{machines} would be made, if kproxide ran")
        }
        Outcome::Launching => format!("a machine is being made: {}", row.on.join(", ")),
        Outcome::NoHelp => {
            let reasons = row.reasons.iter().map(|why| match &why.pool {
                Some(pool) => format!("NodePool {pool}: {}", why.reason),
                None => why.reason.clone(),
            });
            format!("no help: {}", reasons.collect::<Vec<_>>().join("; "))
        }
    }
}

/// As kubectl writes it: the two largest units.
fn age(now: Timestamp, since: Timestamp) -> String {
    let seconds = now
        .duration_since(since)
        .max(SignedDuration::ZERO)
        .as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h{minutes}m"),
        (days, hours, _) => format!("{days}d{hours}h"),
    }
}

/// A text with this before each of its lines. A newline at its beginning leaves a line free.
fn paragraph(f: &mut String, before: &str, text: &str, width: usize) -> fmt::Result {
    let text = match text.strip_prefix('\n') {
        Some(text) => {
            writeln!(f)?;
            text
        }
        None => text,
    };
    let spaces = text.chars().take_while(|c| *c == ' ').count();
    let before = format!("{before}{}", " ".repeat(spaces));
    for line in wrapped(text.trim_start(), width.saturating_sub(before.len())) {
        writeln!(f, "{before}{line}")?;
    }
    Ok(())
}
