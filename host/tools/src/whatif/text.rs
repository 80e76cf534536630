//! A plan for people: the answer in the first line, then what goes up, what goes down, and why the rest stays.

use std::fmt;

use super::answer::{Answer, Outcome, Pending};

/// Rows of a section. More are only counted.
const MOST_ROWS: usize = 20;
/// Pods of a row that are named.
const MOST_PODS: usize = 3;
/// A column of text is never narrower.
const LEAST_WIDTH: usize = 20;

/// An answer as text.
pub struct Text<'a>(pub &'a Answer);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answer {
            summary,
            launches,
            removals,
            pending,
            kept,
            hypervisors,
            findings,
            remarks,
            assumed,
            ignored,
            verdicts,
            ..
        } = self.0;
        writeln!(
            f,
            "kproxide would launch {} and remove {}. {}",
            counted(summary.launches, "machine"),
            counted(summary.removals, "Node"),
            help(summary.pending_pods, summary.pods_without_help),
        )?;
        let rows = launches.iter().map(|launch| {
            vec![
                launch.pool.clone(),
                format!(
                    "{} {}x{}",
                    launch.instance_type,
                    launch.cpu_cores,
                    gib(launch.memory_mib)
                ),
                format!("{}/{}", launch.cluster, launch.hypervisor),
                match launch.pod_count {
                    0 => launch.reason.clone(),
                    count => named(&launch.pods, count),
                },
            ]
        });
        section(
            f,
            "LAUNCH",
            &["POOL", "TYPE", "HYPERVISOR", "FOR"],
            rows.collect(),
        )?;
        let rows = removals
            .iter()
            .map(|node| vec![node.node.clone(), node.pool.clone(), node.reason.clone()]);
        section(f, "REMOVE", &["NODE", "POOL", "WHY"], rows.collect())?;
        let of = |wanted: Outcome| {
            let rows = pending.iter();
            rows.filter(move |row| row.outcome == wanted)
        };
        let rows = of(Outcome::NoHelp).flat_map(|row| {
            row.reasons.iter().enumerate().map(|(index, why)| {
                let pods = match index {
                    0 => named(&row.pods, row.count),
                    _ => String::new(),
                };
                let pool = why.pool.clone();
                vec![
                    pods,
                    pool.unwrap_or_else(|| "(all)".to_owned()),
                    why.reason.clone(),
                ]
            })
        });
        section(
            f,
            "PODS THAT GET NO HELP",
            &["PODS", "POOL", "WHY"],
            rows.collect(),
        )?;
        let placed = |row: &Pending| {
            let on = match row.outcome {
                Outcome::FitsNode => format!("Node {}", row.on.join(", ")),
                Outcome::FitsClaim | Outcome::Launching | Outcome::NoHelp => {
                    format!("{}, on its way", row.on.join(", "))
                }
            };
            vec![named(&row.pods, row.count), on]
        };
        let rows = of(Outcome::FitsNode)
            .chain(of(Outcome::FitsClaim))
            .map(placed);
        section(f, "PODS THAT FIT", &["PODS", "FIRST ON"], rows.collect())?;
        let rows = kept
            .iter()
            .map(|node| vec![node.node.clone(), node.pool.clone(), node.reason.clone()]);
        section(
            f,
            "NODES THAT STAY",
            &["NODE", "POOL", "WHY"],
            rows.collect(),
        )?;
        let rows = hypervisors.iter().map(|one| {
            vec![
                format!("{}/{}", one.cluster, one.hypervisor),
                one.pool.clone(),
                one.reason.clone(),
            ]
        });
        section(
            f,
            "HYPERVISORS THAT TAKE NO MORE MACHINES",
            &["HYPERVISOR", "POOL", "WHY"],
            rows.collect(),
        )?;
        let found = findings.iter().map(|finding| {
            let about = format!("{} ({})", finding.object, finding.reason.word);
            vec![finding.level.to_string(), about, finding.message.clone()]
        });
        let odd = remarks.iter().map(|remark| {
            let (about, message) = (remark.about.clone(), remark.message.clone());
            vec![remark.severity.to_string(), about, message]
        });
        section(
            f,
            "FINDINGS",
            &["LEVEL", "ABOUT", "MESSAGE"],
            found.chain(odd).collect(),
        )?;
        if let Some(verdicts) = verdicts {
            let rows = verdicts.iter().map(|verdict| {
                let (plugin, reason) = match &verdict.not_evaluated {
                    Some(what) => (
                        "not evaluated",
                        format!("kproxide does not evaluate {what}"),
                    ),
                    None => (
                        verdict.plugin.unwrap_or("fits"),
                        verdict.reason.clone().unwrap_or_default(),
                    ),
                };
                vec![
                    verdict.pod.clone(),
                    verdict.node.clone(),
                    plugin.to_owned(),
                    reason,
                ]
            });
            // Whoever asks for all wants all.
            table(
                f,
                "VERDICTS",
                &["POD", "NODE", "PLUGIN", "WHY"],
                rows.collect(),
                usize::MAX,
                usize::MAX,
            )?;
        }
        if !assumed.is_empty() {
            writeln!(f, "\nASSUMED")?;
            for sentence in assumed {
                writeln!(f, "  {sentence}")?;
            }
        }
        if !ignored.is_empty() {
            let kinds = ignored
                .iter()
                .map(|(kind, count)| format!("{kind} ({count})"));
            let kinds = kinds.collect::<Vec<_>>().join(", ");
            writeln!(f, "\nNOT LOOKED AT\n  {kinds}")?;
        }
        Ok(())
    }
}

/// Lines of words, none longer than `width` unless a single word is, or `width` is less than people can read.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(LEAST_WIDTH);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        let is_first = line.is_empty();
        if !is_first && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
            continue;
        }
        if !is_first {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

pub(crate) fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

fn help(pending: u32, unhelped: u32) -> String {
    match (pending, unhelped) {
        (0, _) => "No pod is pending.".to_owned(),
        (1, 0) => "The pending pod gets a place.".to_owned(),
        (1, _) => "The pending pod gets no help.".to_owned(),
        (count, 0) => format!("All {count} pending pods get a place."),
        (count, 1) => format!("1 of {count} pending pods gets no help."),
        (count, unhelped) => format!("{unhelped} of {count} pending pods get no help."),
    }
}

pub(crate) fn gib(mib: u64) -> String {
    match mib % 1024 {
        0 => (mib / 1024).to_string(),
        _ => format!("{:.1}", mib as f64 / 1024.0),
    }
}

/// A few of the pods, and how many more there are.
pub(crate) fn named(pods: &[String], count: u32) -> String {
    let shown = pods.iter().take(MOST_PODS).map(String::as_str);
    let shown = shown.collect::<Vec<_>>();
    let more = (count as usize).saturating_sub(shown.len());
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn section(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    heads: &[&str],
    rows: Vec<Vec<String>>,
) -> fmt::Result {
    table(f, title, heads, rows, MOST_ROWS, usize::MAX)
}

/// Columns that are as wide as their widest cell. The last one goes on in further lines where `width` is less than its
/// text needs.
pub(crate) fn table(
    f: &mut impl fmt::Write,
    title: &str,
    heads: &[&str],
    rows: Vec<Vec<String>>,
    most: usize,
    width: usize,
) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    let heads: Vec<String> = heads.iter().map(|&head| head.to_owned()).collect();
    let left = rows.len().saturating_sub(most);
    let mut shown = vec![heads];
    shown.extend(rows.into_iter().take(most));
    let widest = |column: usize| {
        let cells = shown.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..shown[0].len()).map(widest).collect();
    writeln!(f, "\n{title}")?;
    let last = shown[0].len() - 1;
    let indent: usize = 2 + widths[..last].iter().map(|width| width + 2).sum::<usize>();
    for row in &shown {
        let cells = row[..last].iter().zip(&widths);
        let cells = cells.map(|(cell, width)| format!("  {cell:width$}"));
        let mut line = cells.collect::<String>();
        for (index, part) in wrapped(&row[last], width.saturating_sub(indent))
            .iter()
            .enumerate()
        {
            if index > 0 {
                writeln!(f, "{}", line.trim_end())?;
                line = " ".repeat(indent - 2);
            }
            line.push_str("  ");
            line.push_str(part);
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    if left > 0 {
        writeln!(f, "  and {left} more (-o json shows all)")?;
    }
    Ok(())
}
