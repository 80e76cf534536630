//! Draws the picture: values in, cells out. The words carry the meaning, colours only help to find them.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};

use super::super::story::clock;
use super::picture::{Hypervisor, Machine, MachineState, Picture, Presence, Share, World};
use super::words::wrap;

/// The smallest terminal that the picture fits.
const WIDTH_MIN: u16 = 80;
const HEIGHT_MIN: u16 = 24;
/// From this height on each hypervisor has more lines for its VMs.
const TALL: u16 = 32;
/// Cells of a VM's bar: on four cores, one for each pod of 500m.
const VM_BAR: usize = 8;
/// VMID, bar, the longest state, and the gap to the next.
const VM_WIDTH: usize = 3 + 1 + VM_BAR + 1 + 9 + 2;
const VM_INDENT: usize = 6;
/// Continued lines of what was told stand under its words, not under its time.
const TOLD_INDENT: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Paint {
    Colours,
    /// For `NO_COLOR`: bold and reversed at most.
    Monochrome,
}

impl Paint {
    /// The terminal's own colours, those that can be read on light and on dark.
    fn fg(self, colour: Color) -> Style {
        match self {
            Self::Colours => Style::new().fg(colour),
            Self::Monochrome => Style::new(),
        }
    }
}

pub(super) fn draw(frame: &mut Frame, picture: &Picture, paint: Paint) {
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        return frame.render_widget(too_small(picture, area), area);
    }
    let World {
        pods,
        hypervisors,
        others,
    } = &picture.world;
    let vm_lines: u16 = if area.height >= TALL { 4 } else { 2 };
    let width = usize::from(area.width);
    let mut lines = vec![
        Line::from(format!(" {}", picture.scene)).style(Modifier::BOLD),
        Line::from(vec![
            Span::raw(" pods  "),
            bar(
                share(pods.running, pods.all),
                width / 3,
                paint.fg(Color::Green),
            ),
            Span::raw(format!(
                "  {} of {} run, {} pending",
                pods.running, pods.all, pods.pending
            )),
        ]),
        Line::default(),
    ];
    for hypervisor in hypervisors {
        lines.push(head(hypervisor, width, paint));
        lines.extend(machines(
            &hypervisor.machines,
            width,
            vm_lines.into(),
            paint,
        ));
    }
    lines.push(statics(others, paint));
    let [title, world, told] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::try_from(lines.len()).unwrap_or(u16::MAX)),
        Constraint::Min(5),
    ])
    .areas(area);
    draw_title(frame, picture, title);
    frame.render_widget(Text::from(lines), world);
    draw_told(frame, picture, told);
}

fn draw_title(frame: &mut Frame, picture: &Picture, area: Rect) {
    let left = Line::from(format!(" kproxide demo, {}", picture.run));
    let paused = if picture.paused { "paused  " } else { "" };
    let right = Line::from(format!("{paused}{} ", clock(picture.at))).alignment(Alignment::Right);
    // Reversed, not coloured: a bar on every terminal.
    let style = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Paragraph::new(left).style(style), area);
    let [_, end] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(18)]).areas(area);
    frame.render_widget(Paragraph::new(right).style(style), end);
}

/// What was told, the newest last; at the end, the summary.
fn draw_told(frame: &mut Frame, picture: &Picture, area: Rect) {
    let (title, keys) = match (&picture.summary, picture.paused) {
        (Some(_), _) => (" summary ", " any key ends "),
        (None, true) => (
            " what happens, and why ",
            " space goes on, → steps, q ends ",
        ),
        (None, false) => (" what happens, and why ", " space pauses, → steps, q ends "),
    };
    let block = Block::new()
        .borders(Borders::TOP | Borders::BOTTOM)
        .title(title)
        .title_bottom(Line::from(keys).right_aligned());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if let Some(summary) = &picture.summary {
        let lines = summary.to_string();
        let lines = lines.lines().map(|line| Line::from(format!(" {line}")));
        return frame.render_widget(Text::from_iter(lines), inner);
    }
    let room = usize::from(inner.height);
    let width = usize::from(inner.width).saturating_sub(2);
    // From the newest back, until the pane is full.
    let mut lines: Vec<Line> = Vec::new();
    for told in picture.told.iter().rev() {
        if lines.len() >= room {
            break;
        }
        let style = if told.scene {
            Style::new().add_modifier(Modifier::BOLD)
        } else {
            Style::new()
        };
        let wrapped = wrap(&told.text, width, TOLD_INDENT);
        lines.extend(
            wrapped
                .into_iter()
                .rev()
                .map(|line| Line::from(format!(" {line}")).style(style)),
        );
    }
    lines.truncate(room);
    lines.reverse();
    frame.render_widget(Text::from(lines), inner);
}

fn head(hypervisor: &Hypervisor, width: usize, paint: Paint) -> Line<'static> {
    let Hypervisor {
        name,
        presence,
        cores,
        memory,
        machines: _,
    } = hypervisor;
    let (word, style) = match presence {
        Presence::Online => ("online", Style::new()),
        Presence::Offline => (
            "offline",
            paint.fg(Color::Red).add_modifier(Modifier::REVERSED),
        ),
        Presence::Maintenance => ("maintenance", paint.fg(Color::Magenta)),
    };
    let numbers = [
        format!("{}/{} cores", cores.used, cores.of),
        format!("{}/{} GiB", memory.used, memory.of),
    ];
    // Name, presence and the numbers stand in columns; the bars take the rest.
    let [name_width, presence_width, cores_width, memory_width] = [6, 13, 13, 10];
    let taken = 1 + name_width + presence_width + cores_width + memory_width + 2;
    let bar_width = (width.saturating_sub(taken) / 2).min(40);
    let bar_style = paint.fg(Color::Blue);
    Line::from(vec![
        Span::styled(
            format!(" {name:<name_width$}"),
            Style::new().add_modifier(Modifier::BOLD),
        ),
        Span::styled(word, style),
        Span::raw(" ".repeat(presence_width - word.len())),
        bar(*cores, bar_width, bar_style),
        Span::raw(format!(" {:<cores_width$}", numbers[0])),
        bar(*memory, bar_width, bar_style),
        Span::raw(format!(" {}", numbers[1])),
    ])
}

/// The VMs of one hypervisor, on so many lines; those that do not fit are counted.
fn machines(machines: &[Machine], width: usize, lines: usize, paint: Paint) -> Vec<Line<'static>> {
    let columns = (width - VM_INDENT) / VM_WIDTH;
    let shown = if machines.len() > columns * lines {
        columns * lines - 1
    } else {
        machines.len()
    };
    let mut cells: Vec<Vec<Span>> = machines[..shown]
        .iter()
        .map(|machine| cell(machine, paint))
        .collect();
    if shown < machines.len() {
        cells.push(vec![Span::raw(format!(
            "and {} more",
            machines.len() - shown
        ))]);
    }
    let mut drawn: Vec<Line> = cells
        .chunks(columns)
        .map(|row| {
            let mut spans = vec![Span::raw(" ".repeat(VM_INDENT))];
            spans.extend(row.iter().flatten().cloned());
            Line::from(spans)
        })
        .collect();
    drawn.resize(lines, Line::default());
    drawn
}

fn cell(machine: &Machine, paint: Paint) -> Vec<Span<'static>> {
    let (word, style) = state(machine.state, paint);
    vec![
        Span::raw(format!("{:>3} ", machine.name)),
        bar(machine.requested, VM_BAR, style),
        Span::raw(" "),
        Span::styled(word, style),
        Span::raw(" ".repeat(11 - word.len())),
    ]
}

/// Nodes that no hypervisor of ours carries.
fn statics(others: &[Machine], paint: Paint) -> Line<'static> {
    let mut spans = vec![Span::raw(" not ours  ")];
    for machine in others {
        let (word, style) = state(machine.state, paint);
        spans.extend([
            Span::raw(format!("{} ", machine.name)),
            bar(machine.requested, VM_BAR, style),
            Span::raw(" "),
            Span::styled(word, style),
            Span::raw("   "),
        ]);
    }
    Line::from(spans)
}

fn state(state: MachineState, paint: Paint) -> (&'static str, Style) {
    match state {
        MachineState::Cloning => ("cloning", paint.fg(Color::Cyan)),
        MachineState::Booting => ("booting", paint.fg(Color::Cyan)),
        MachineState::Ready => ("Ready", paint.fg(Color::Green)),
        MachineState::Lost => ("not Ready", paint.fg(Color::Red)),
        MachineState::Dead => ("dead", paint.fg(Color::Red).add_modifier(Modifier::BOLD)),
        MachineState::Draining => ("draining", paint.fg(Color::Magenta)),
        MachineState::Going => ("going", paint.fg(Color::Magenta)),
    }
}

/// A bar is never empty while there is something, and never full while there is not all of it.
fn bar(share: Share, width: usize, style: Style) -> Span<'static> {
    let full = filled(share, width);
    Span::styled(
        format!("{}{}", "█".repeat(full), "░".repeat(width - full)),
        style,
    )
}

fn filled(Share { used, of }: Share, width: usize) -> usize {
    if used == 0 || of == 0 || width == 0 {
        return 0;
    }
    if used >= of {
        return width;
    }
    let cells = usize::try_from(used.saturating_mul(width as u64) / of).unwrap_or(width);
    cells.clamp(1, (width - 1).max(1))
}

fn share(used: usize, of: usize) -> Share {
    Share {
        used: used as u64,
        of: of as u64,
    }
}

/// What can be said in any terminal.
fn too_small(picture: &Picture, area: Rect) -> Paragraph<'static> {
    let pods = picture.world.pods;
    Paragraph::new(vec![
        Line::from(format!(
            "The picture needs {WIDTH_MIN}×{HEIGHT_MIN}; this terminal is {}×{}.",
            area.width, area.height
        )),
        Line::from("Make it larger, or press q and use --plain."),
        Line::from(format!(
            "{}  {} of {} pods run",
            clock(picture.at),
            pods.running,
            pods.all
        )),
    ])
    .wrap(Wrap { trim: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_empty_only_for_nothing_and_full_only_for_everything() {
        let cells = |used, of| filled(Share { used, of }, 8);
        assert_eq!([cells(0, 16), cells(1, 1000), cells(8, 16)], [0, 1, 4]);
        assert_eq!([cells(999, 1000), cells(16, 16), cells(20, 16)], [7, 8, 8]);
        assert_eq!(cells(1, 0), 0);
    }
}
