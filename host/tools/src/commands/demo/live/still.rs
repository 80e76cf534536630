//! One picture of a run, for a page: a dead machine, and the one that replaces it.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::script;
use super::super::story::{Audience, Said};
use super::super::world::Policy;
use super::super::{DemoError, Leave};
use super::keys::Pressed;
use super::picture::{MachineState, World};
use super::svg::svg;
use super::{Live, Paint, run_of};
use crate::args::Demo;
use kproxide_lab::Lab;

/// As wide as a page, and high enough for what was told since the server died.
const SIZE: (u16, u16) = (100, 28);

/// Plays until that moment, and draws it as SVG.
///
/// # Errors
/// It never came.
pub(in super::super) async fn still(args: &Demo, policy: Policy) -> Result<String, DemoError> {
    let terminal =
        Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).map_err(std::io::Error::other)?;
    let nobody: fn(Duration) -> Pressed = |_| Ok(None);
    let mut still = Still {
        live: Live::new(terminal, nobody, Paint::Colours, 1.0, run_of(args)),
        svg: None,
    };
    let played = script::play(args.seed, policy, &mut still).await;
    match (still.svg, played) {
        (Some(svg), _) => Ok(svg),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Err(DemoError::Incomplete(
            "no machine was being replaced".to_owned(),
        )),
    }
}

struct Still {
    live: Live<TestBackend, fn(Duration) -> Pressed>,
    svg: Option<String>,
}

impl Audience for Still {
    fn hear(&mut self, said: Said) -> Result<(), DemoError> {
        self.live.hear(said)
    }

    fn look(&mut self, lab: &Lab, at: Duration) -> Result<(), DemoError> {
        self.live.look(lab, at)?;
        if !is_repaired(&self.live.picture.world) {
            return Ok(());
        }
        self.live.draw()?;
        let buffer = self.live.terminal.backend().buffer();
        self.svg = Some(svg(buffer, "kproxide demo: a dead machine is replaced"));
        Err(DemoError::Left(Leave::Quit))
    }
}

/// A machine is dead, and another one boots in its place.
fn is_repaired(world: &World) -> bool {
    let has = |state: MachineState| {
        let mut machines = world.hypervisors.iter().flat_map(|it| &it.machines);
        machines.any(|machine| machine.state == state)
    };
    has(MachineState::Dead) && has(MachineState::Booting)
}
