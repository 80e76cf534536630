//! Structured input drawn from bytes: a fuzzer that changes a byte changes one thing.

/// Draws from bytes, in order. When they are used up everything drawn is the first, the smallest, the empty one: all bytes are an input.
#[derive(Clone, Debug)]
pub struct Draw<'a>(&'a [u8]);

impl<'a> Draw<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What was not drawn.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        let mut drawn = usize::from(self.byte());
        if end > 256 {
            drawn = drawn << 8 | usize::from(self.byte());
        }
        if end > 65_536 {
            drawn = drawn << 16 | usize::from(self.byte()) << 8 | usize::from(self.byte());
        }
        drawn.checked_rem(end).unwrap_or(0)
    }

    /// One of them. Panics if there is none.
    pub fn pick<'b, T>(&mut self, of: &'b [T]) -> &'b T {
        &of[self.below(of.len())]
    }

    /// One of these words. Panics if there is none.
    pub fn word<'b>(&mut self, of: &[&'b str]) -> &'b str {
        *self.pick::<&'b str>(of)
    }

    /// Small, at a limit, or anything.
    pub fn number(&mut self) -> i64 {
        match self.byte() % 8 {
            0..4 => i64::from(self.byte()),
            4 => -i64::from(self.byte()),
            5 => i64::MAX - i64::from(self.byte()),
            6 => i64::MIN + i64::from(self.byte()),
            _ => i64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    /// At most so many bytes.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let length = self.below(most + 1).min(self.0.len());
        let (drawn, rest) = self.0.split_at(length);
        self.0 = rest;
        drawn
    }

    /// At most so many bytes, those that are no text replaced.
    pub fn text(&mut self, most: usize) -> String {
        String::from_utf8_lossy(self.bytes(most)).into_owned()
    }
}
