//! JSON text to a tree, as RFC 8259 has it, but for a key that is given twice: that is an error.

/// A JSON value. Numbers stay text until somebody asks for one of a certain type.
#[derive(Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

/// Deeper settings are a mistake, and each level takes stack.
const DEPTH_MAX: usize = 64;

/// Reads one value and nothing after it; an error says what was expected where.
pub(super) fn parse(text: &str) -> Result<Json, String> {
    let mut parser = Parser { text, rest: text };
    let value = parser.value(0)?;
    parser.skip_whitespace();
    if !parser.rest.is_empty() {
        return Err(parser.expected("the end"));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    /// What is not read yet: an end of `text`. Never sliced by an index, so that no panic (and its text) is linked.
    rest: &'a str,
}

impl Parser<'_> {
    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} levels deep"));
        }
        self.skip_whitespace();
        if self.take('{') {
            self.map(depth)
        } else if self.take('[') {
            self.list(depth)
        } else if self.take('"') {
            self.string().map(Json::Text)
        } else if self.take_word("null") {
            Ok(Json::Null)
        } else if self.take_word("true") {
            Ok(Json::Bool(true))
        } else if self.take_word("false") {
            Ok(Json::Bool(false))
        } else if self.peek().is_some_and(|c| c == '-' || c.is_ascii_digit()) {
            self.number()
        } else {
            Err(self.expected("a value"))
        }
    }

    /// After the brace.
    fn map(&mut self, depth: usize) -> Result<Json, String> {
        let mut entries: Vec<(String, Json)> = Vec::new();
        self.skip_whitespace();
        if self.take('}') {
            return Ok(Json::Map(entries));
        }
        loop {
            self.skip_whitespace();
            if !self.take('"') {
                return Err(self.expected("a key in quotes"));
            }
            let key = self.string()?;
            if entries.iter().any(|(other, _)| *other == key) {
                return Err(format!("\"{key}\" is given twice"));
            }
            self.skip_whitespace();
            if !self.take(':') {
                return Err(self.expected("':'"));
            }
            entries.push((key, self.value(depth + 1)?));
            self.skip_whitespace();
            if self.take('}') {
                return Ok(Json::Map(entries));
            }
            if !self.take(',') {
                return Err(self.expected("',' or '}'"));
            }
        }
    }

    /// After the bracket.
    fn list(&mut self, depth: usize) -> Result<Json, String> {
        let mut items = Vec::new();
        self.skip_whitespace();
        if self.take(']') {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_whitespace();
            if self.take(']') {
                return Ok(Json::List(items));
            }
            if !self.take(',') {
                return Err(self.expected("',' or ']'"));
            }
        }
    }

    /// After the opening quote.
    fn string(&mut self) -> Result<String, String> {
        let mut string = String::new();
        loop {
            // Character by character, a long text would take a third of a call's instructions.
            let is_special = |byte| matches!(byte, b'"' | b'\\' | 0..0x20);
            let plain = self.rest.bytes().position(is_special);
            let (plain, rest) = self.rest.split_at(plain.unwrap_or(self.rest.len()));
            string.push_str(plain);
            self.rest = rest;
            if self.take('"') {
                return Ok(string);
            }
            if !self.take('\\') {
                return Err(self.expected("'\"'"));
            }
            string.push(self.escape()?);
        }
    }

    /// After the backslash.
    fn escape(&mut self) -> Result<char, String> {
        let c = match self.peek() {
            Some(c @ ('"' | '\\' | '/' | 'u')) => c,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            _ => return Err(self.expected("an escaped character")),
        };
        self.skip();
        if c == 'u' {
            self.unicode_escape()
        } else {
            Ok(c)
        }
    }

    /// After `\u`: four hexadecimal digits, or two such escapes for a character beyond 16 bits.
    fn unicode_escape(&mut self) -> Result<char, String> {
        let unit = self.hex4()?;
        let code = match unit {
            0xd800..0xdc00 => {
                let low = if self.take_word("\\u") {
                    self.hex4()?
                } else {
                    0
                };
                if !(0xdc00..0xe000).contains(&low) {
                    return Err(self.expected("the second of two surrogates"));
                }
                0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00)
            }
            unit => unit,
        };
        char::from_u32(code).ok_or_else(|| self.expected("the first of two surrogates"))
    }

    fn hex4(&mut self) -> Result<u32, String> {
        let mut value = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(16)) else {
                return Err(self.expected("four hexadecimal digits"));
            };
            value = value << 4 | digit;
            self.skip();
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Json, String> {
        let mut number = String::new();
        self.copy('-', &mut number);
        if !self.copy('0', &mut number) {
            self.digits(&mut number)?;
        }
        if self.copy('.', &mut number) {
            self.digits(&mut number)?;
        }
        if self.copy('e', &mut number) || self.copy('E', &mut number) {
            let _ = self.copy('+', &mut number) || self.copy('-', &mut number);
            self.digits(&mut number)?;
        }
        Ok(Json::Number(number))
    }

    /// At least one.
    fn digits(&mut self, number: &mut String) -> Result<(), String> {
        if !self.peek().is_some_and(|c| c.is_ascii_digit()) {
            return Err(self.expected("a digit"));
        }
        while let Some(c @ '0'..='9') = self.peek() {
            self.copy(c, number);
        }
        Ok(())
    }

    fn skip_whitespace(&mut self) {
        while let Some(' ' | '\t' | '\n' | '\r') = self.peek() {
            self.skip();
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip(&mut self) {
        let mut rest = self.rest.chars();
        rest.next();
        self.rest = rest.as_str();
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.skip();
        }
        found
    }

    fn copy(&mut self, c: char, to: &mut String) -> bool {
        let found = self.take(c);
        if found {
            to.push(c);
        }
        found
    }

    fn take_word(&mut self, word: &str) -> bool {
        let rest = self.rest.strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expected(&self, what: &str) -> String {
        match self.peek() {
            Some(c) => format!(
                "expected {what} and not '{c}' at byte {}",
                self.text.len() - self.rest.len()
            ),
            None => format!("expected {what} and not the end"),
        }
    }
}
