//! The live form: a picture in the terminal, drawn between two moments of the world.
//!
//! One thread does everything. While the picture waits for the next frame or for a key it blocks that thread, and with it the world, whose clock then stands still: what is
//! seen cannot change what happens.

mod draw;
mod keys;
mod picture;
mod still;
mod svg;
#[cfg(test)]
mod tests;
mod words;

use std::io;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::{Backend, CrosstermBackend};

use super::story::{Audience, Said, What, clock};
use super::{DemoError, Leave};
use crate::args::Demo;
pub(super) use draw::Paint;
use keys::{Key, Pressed};
use kproxide_lab::Lab;
use picture::{Picture, Told, World};
pub(super) use still::still;

/// How long a second of the world is shown in which something was told, at `--speed 1` …
const EVENTFUL: Duration = Duration::from_millis(350);
/// … and one in which nothing was.
const QUIET: Duration = Duration::from_millis(15);
/// So many quiet seconds share a frame: more frames than this nobody can see.
const QUIET_PER_FRAME: u32 = 6;
/// The announcement of a scene is there to be read for so long.
const SCENE: Duration = Duration::from_secs(3);
/// What the frames of a run may take together. An unusually eventful run is shown faster at its end.
const FRAMES_MAX: Duration = Duration::from_secs(75);
/// The finished picture stays for so long, or until a key.
const STAY: Duration = Duration::from_secs(20);
/// How long a paused picture waits for a key before it waits again.
const PAUSED: Duration = Duration::from_secs(3600);
/// Older lines are forgotten: no terminal shows more.
const TOLD_MAX: usize = 200;

/// A run in a terminal. `keys` waits so long for a key at most.
pub(super) struct Live<B: Backend, K> {
    terminal: Terminal<B>,
    keys: K,
    paint: Paint,
    /// From `--speed`: all times are divided by it.
    speed: f64,
    picture: Picture,
    /// What is left of [`FRAMES_MAX`].
    frames_left: Duration,
    /// Quiet seconds since the last frame.
    quiet: u32,
    /// How long the next frame is to be seen because of what was told.
    due: Duration,
    /// What belongs into the terminal's scrollback when the picture is gone.
    end: Option<String>,
}

type Screen = CrosstermBackend<io::Stdout>;

/// Takes over the terminal on standard output. A panic gives it back.
///
/// # Errors
/// It cannot be taken over.
pub(super) fn open(
    args: &Demo,
    paint: Paint,
) -> io::Result<Live<Screen, impl FnMut(Duration) -> Pressed>> {
    let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
    Ok(Live::new(
        terminal,
        keys::keys(),
        paint,
        args.speed,
        run_of(args),
    ))
}

/// Which run it is.
fn run_of(args: &Demo) -> String {
    format!("seed {}, policy {}", args.seed, args.policy())
}

impl<K> Live<Screen, K> {
    /// Gives the terminal back and says what is to stand in it: the summary, or how far the run came.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn close(mut self) -> io::Result<Option<String>> {
        let shown = self.terminal.show_cursor();
        ratatui::try_restore()?;
        shown?;
        Ok(self.end)
    }
}

impl<B, K> Live<B, K>
where
    B: Backend,
    B::Error: Send + Sync + 'static,
    K: FnMut(Duration) -> Pressed,
{
    pub(super) fn new(
        terminal: Terminal<B>,
        keys: K,
        paint: Paint,
        speed: f64,
        run: String,
    ) -> Self {
        Self {
            terminal,
            keys,
            paint,
            speed,
            picture: Picture {
                run,
                ..Picture::default()
            },
            frames_left: FRAMES_MAX,
            quiet: 0,
            due: Duration::ZERO,
            end: None,
        }
    }

    fn draw(&mut self) -> Result<(), DemoError> {
        let (picture, paint) = (&self.picture, self.paint);
        self.terminal
            .draw(|frame| draw::draw(frame, picture, paint))
            .map_err(io::Error::other)?;
        Ok(())
    }

    /// Shows the picture as it is for so long, or while it is paused. Another key ends the wait early: nobody sees the difference.
    fn show(&mut self, time: Duration) -> Result<(), DemoError> {
        let time = time.min(self.frames_left);
        self.frames_left -= time;
        loop {
            self.draw()?;
            let paused = self.picture.paused;
            let wait = if paused {
                PAUSED
            } else {
                time.div_f64(self.speed)
            };
            match (self.keys)(wait)? {
                None | Some(Key::Other | Key::Resize) if paused => {}
                None | Some(Key::Other) => return Ok(()),
                Some(Key::Resize) => return self.draw(),
                Some(Key::Pause) => self.picture.paused = !paused,
                Some(Key::Step) => {
                    self.picture.paused = true;
                    return Ok(());
                }
                Some(Key::Quit) => return Err(self.left(Leave::Quit)),
                Some(Key::Interrupt) => return Err(self.left(Leave::Interrupt)),
            }
            if paused && !self.picture.paused {
                return self.draw();
            }
        }
    }

    /// The finished picture, until a key or for a while.
    fn stay(&mut self) -> Result<(), DemoError> {
        loop {
            self.draw()?;
            match (self.keys)(STAY)? {
                Some(Key::Resize) => {}
                None | Some(_) => return Ok(()),
            }
        }
    }

    fn left(&mut self, leave: Leave) -> DemoError {
        self.end = Some(format!(
            "left at {} of the run's time, in: {}",
            clock(self.picture.at),
            self.picture.scene
        ));
        DemoError::Left(leave)
    }
}

impl<B, K> Audience for Live<B, K>
where
    B: Backend,
    B::Error: Send + Sync + 'static,
    K: FnMut(Duration) -> Pressed,
{
    fn hear(&mut self, said: Said) -> Result<(), DemoError> {
        self.picture.at = said.at;
        let text = said.to_string();
        let scene = match said.what {
            What::Scene(scene) => {
                self.picture.scene = scene;
                self.due = SCENE;
                true
            }
            What::Line(_) => {
                self.due = self.due.max(EVENTFUL);
                false
            }
            What::Summary(summary) => {
                self.end = Some(text);
                self.picture.summary = Some(summary);
                return self.stay();
            }
        };
        self.picture.told.push(Told {
            scene,
            text: text.trim_start().to_owned(),
        });
        let old = self.picture.told.len().saturating_sub(TOLD_MAX);
        self.picture.told.drain(..old);
        Ok(())
    }

    fn look(&mut self, lab: &Lab, at: Duration) -> Result<(), DemoError> {
        self.picture.at = at;
        self.picture.world = World::of(lab);
        self.quiet += 1;
        // A step goes to the next moment in which something is told.
        if self.due.is_zero() && (self.picture.paused || self.quiet < QUIET_PER_FRAME) {
            return Ok(());
        }
        let time = self.due.max(QUIET * self.quiet);
        self.quiet = 0;
        self.due = Duration::ZERO;
        self.show(time)
    }
}
