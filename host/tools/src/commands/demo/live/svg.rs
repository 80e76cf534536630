//! The picture as SVG: one for a page that no terminal shows.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// Of one character, in pixels.
const WIDTH: u32 = 8;
const HEIGHT: u32 = 18;
/// From the top of a line down to where its letters stand.
const BASE: u32 = 13;
const FONT_SIZE: u32 = 13;
const MARGIN: u32 = 10;

const BACKGROUND: &str = "#0d1117";
const TEXT: &str = "#d1d7e0";
/// Of what is not filled in a bar.
const FAINT: &str = "0.3";

/// Everything in the buffer. Bars are drawn, so that they look alike in each font; each piece of text is stretched to the width of its characters.
pub(super) fn svg(buffer: &Buffer, title: &str) -> String {
    let area = buffer.area;
    let (width, height) = (u32::from(area.width), u32::from(area.height));
    let (width, height) = (width * WIDTH + 2 * MARGIN, height * HEIGHT + 2 * MARGIN);
    let title = escaped(title);
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>{title}</title>
<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>
<g font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="{FONT_SIZE}" xml:space="preserve">
"#
    );
    for (row, cells) in (0..).zip(buffer.content.chunks(area.width.into())) {
        let mut column = 0;
        for run in cells.chunk_by(|a, b| look(a) == look(b)) {
            draw(&mut svg, row, column, run);
            column += u32::try_from(run.len()).unwrap_or_default();
        }
    }
    svg += "</g>\n</svg>\n";
    svg
}

#[derive(PartialEq)]
enum Kind {
    Full,
    Empty,
    Text,
}

/// What cells of one piece have in common.
fn look(cell: &Cell) -> (Kind, Color, Modifier) {
    let kind = match cell.symbol() {
        "█" => Kind::Full,
        "░" => Kind::Empty,
        _ => Kind::Text,
    };
    (kind, cell.fg, cell.modifier)
}

fn draw(svg: &mut String, row: u32, column: u32, run: &[Cell]) {
    let Some(first) = run.first() else { return };
    let (kind, colour, modifier) = look(first);
    let (x, y) = (MARGIN + column * WIDTH, MARGIN + row * HEIGHT);
    let width = u32::try_from(run.len()).unwrap_or_default() * WIDTH;
    let colour = hex(colour);
    let is_reversed = modifier.contains(Modifier::REVERSED);
    let text: String = run.iter().map(Cell::symbol).collect();
    // Writing to a String cannot fail.
    let _ = match kind {
        Kind::Full | Kind::Empty => {
            let opacity = match kind {
                Kind::Empty => format!(r#" opacity="{FAINT}""#),
                Kind::Full | Kind::Text => String::new(),
            };
            let (y, height) = (y + 3, HEIGHT - 6);
            writeln!(
                svg,
                r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour}"{opacity}/>"#
            )
        }
        Kind::Text if text.trim().is_empty() && !is_reversed => Ok(()),
        Kind::Text => {
            if is_reversed {
                let _ = writeln!(
                    svg,
                    r#"<rect x="{x}" y="{y}" width="{width}" height="{HEIGHT}" fill="{colour}"/>"#
                );
            }
            let fill = if is_reversed { BACKGROUND } else { colour };
            let weight = if modifier.contains(Modifier::BOLD) {
                r#" font-weight="bold""#
            } else {
                ""
            };
            let spaces = text.len() - text.trim_start().len();
            let text = text.trim();
            let x = x + u32::try_from(spaces).unwrap_or_default() * WIDTH;
            let length = u32::try_from(text.chars().count()).unwrap_or_default() * WIDTH;
            let (y, text) = (y + BASE, escaped(text));
            if text.is_empty() {
                Ok(())
            } else {
                writeln!(
                    svg,
                    r#"<text x="{x}" y="{y}" textLength="{length}" fill="{fill}"{weight}>{text}</text>"#
                )
            }
        }
    };
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the picture uses these colours and the terminal's own"
)]
fn hex(colour: Color) -> &'static str {
    match colour {
        Color::Red => "#ff7b72",
        Color::Green => "#56d364",
        Color::Blue => "#79c0ff",
        Color::Cyan => "#56d4dd",
        Color::Magenta => "#d2a8ff",
        _ => TEXT,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
