//! The plain form: lines on an output, for logs, pipes and comparing one run with another.

use std::io::Write;
use std::time::Duration;

use super::DemoError;
use super::story::{Audience, Said};
use kproxide_lab::Lab;

pub(super) struct Plain<W>(pub(super) W);

impl<W: Write> Audience for Plain<W> {
    fn hear(&mut self, said: Said) -> Result<(), DemoError> {
        Ok(writeln!(self.0, "{said}")?)
    }

    fn look(&mut self, _lab: &Lab, _at: Duration) -> Result<(), DemoError> {
        Ok(())
    }
}
