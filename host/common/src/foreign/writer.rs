//! What commands write to.

use std::io::{self, Write};

use super::shown;

/// Standard output or standard error, or what stands for them in a test. All that is written to it is cleaned.
pub struct Out<W>(W);

impl<W: Write> Out<W> {
    pub fn new(to: W) -> Self {
        Self(to)
    }

    /// As it is, for what moves the cursor, for colours around lines that are clean, and for files of ours.
    pub fn raw(&mut self) -> &mut W {
        &mut self.0
    }
}

impl<W: Write> Write for Out<W> {
    /// `write!` and `println!` give whole letters. Of what is no UTF-8, nothing is shown but its place.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .write_all(shown(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
