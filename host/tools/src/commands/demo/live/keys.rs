//! What the keyboard says.

#![allow(
    clippy::disallowed_types,
    reason = "somebody looks at the picture in real time; the world's own stands still meanwhile"
)]

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Key {
    Quit,
    /// Ctrl-C: in raw mode a key like any other.
    Interrupt,
    Pause,
    /// To the next thing that happens.
    Step,
    /// No key: the terminal has another size.
    Resize,
    Other,
}

/// The key that ended a wait, if one did. An error: the terminal is gone.
pub(super) type Pressed = io::Result<Option<Key>>;

/// How far behind its time the picture may be and still catch up. What is later than that was a slow machine's, and is not taken from what comes.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Waits for a key, but not longer than the picture is to be seen. What was computed since the last wait is part of that time, and so is a wait that took too long:
/// a busy machine shows the same run in hardly more time than an idle one.
pub(super) fn keys() -> impl FnMut(Duration) -> Pressed {
    let mut until = Instant::now();
    move |time| {
        let now = Instant::now();
        until = until.max(now.checked_sub(LATE_MAX).unwrap_or(now)) + time;
        if !event::poll(until.saturating_duration_since(now))? {
            return Ok(None);
        }
        let key = meaning(&event::read()?);
        // The user ended the wait, so there is nothing to catch up with.
        until = Instant::now();
        Ok(key)
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "keyboards have more keys than the demo has uses for"
)]
fn meaning(event: &Event) -> Option<Key> {
    match event {
        Event::Key(KeyEvent {
            code,
            modifiers,
            kind: KeyEventKind::Press,
            ..
        }) => Some(match code {
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => Key::Quit,
            KeyCode::Char(' ') => Key::Pause,
            KeyCode::Right | KeyCode::Enter => Key::Step,
            _ => Key::Other,
        }),
        Event::Resize(..) => Some(Key::Resize),
        Event::Key(_)
        | Event::FocusGained
        | Event::FocusLost
        | Event::Mouse(_)
        | Event::Paste(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
        meaning(&Event::Key(KeyEvent::new(code, modifiers)))
    }

    #[test]
    fn each_key_that_the_picture_names_has_its_meaning() {
        let none = KeyModifiers::NONE;
        assert_eq!(pressed(KeyCode::Char('q'), none), Some(Key::Quit));
        assert_eq!(pressed(KeyCode::Esc, none), Some(Key::Quit));
        assert_eq!(
            pressed(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Key::Interrupt)
        );
        assert_eq!(pressed(KeyCode::Char('c'), none), Some(Key::Other));
        assert_eq!(pressed(KeyCode::Char(' '), none), Some(Key::Pause));
        assert_eq!(pressed(KeyCode::Right, none), Some(Key::Step));
        assert_eq!(pressed(KeyCode::Enter, none), Some(Key::Step));
    }

    #[test]
    fn a_key_counts_when_it_is_pressed_and_not_again_when_it_is_released() {
        let released = KeyEvent::new_with_kind(
            KeyCode::Char('q'),
            KeyModifiers::NONE,
            KeyEventKind::Release,
        );
        assert_eq!(meaning(&Event::Key(released)), None);
    }
}
