//! Templates as people write them, and as they should not: drawn from a grammar, the same ones for the same seed.

use fastrand::Rng;

/// How many levels of expressions and blocks are drawn.
const DEPTH_MAX: usize = 3;

/// Each verb of Go's fmt, and one that is none.
const VERBS: [&str; 21] = [
    "s", "d", "v", "q", "t", "x", "X", "o", "O", "b", "c", "U", "e", "E", "f", "F", "g", "G", "T",
    "p", "z",
];

/// Of each type, two at least.
const VALUES: [&str; 18] = [
    ".TargetHost",
    r#""a b""#,
    r#""""#,
    ".MemoryMiB",
    "0",
    "-7",
    "1_000",
    "'a'",
    ".Attributes.price",
    "1.5",
    "-0.25",
    ".Attributes.large",
    ".Attributes.tiny",
    "true",
    ".Attributes.ssd",
    ".Attributes",
    "nil",
    ".Cores",
];

/// Each verb with each value, plain and once with flags, a width or a precision.
pub(super) fn printfs(rng: &mut Rng) -> Vec<String> {
    let mut templates = Vec::new();
    for verb in VERBS {
        for value in VALUES {
            templates.push(format!(r#"{{{{ printf "%{verb}" {value} }}}}"#));
            let before = before_verb(rng);
            templates.push(format!(r#"[{{{{ printf "%{before}{verb}" {value} }}}}]"#));
        }
    }
    templates
}

/// A flag at most, a width, a precision, each in half of all cases.
fn before_verb(rng: &mut Rng) -> String {
    let flag = pick(rng, &["", "", "", "-", "+", " ", "0", "#"]);
    let width = pick(rng, &["", "", "1", "8", "12"]);
    let precision = pick(rng, &["", "", "", ".0", ".2", ".", ".7"]);
    format!("{flag}{width}{precision}")
}

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

/// One template, of which every sixth is broken afterwards.
pub(super) fn template(rng: &mut Rng) -> String {
    let mut drawn = Drawn {
        rng,
        variables: Vec::new(),
        named: 0,
        in_range: false,
    };
    let mut text = String::new();
    if drawn.one_in(6) {
        text += &drawn.definition();
    }
    for _ in 0..drawn.rng.usize(1..4) {
        text += &drawn.item(0);
    }
    if rng.usize(..6) == 0 {
        text = broken(rng, &text);
    }
    text
}

/// What slips in where somebody types, or gets lost.
fn broken(rng: &mut Rng, text: &str) -> String {
    const SLIPS: [&str; 22] = [
        "{{ end }}",
        "{{ end }}lost",
        "{{ else }}",
        "{{ else if true }}",
        "{{ if true }}",
        "{{ range 2 }}",
        "{{ define \"x\" }}",
        "{{ break }}",
        "{{ upper .Zone }}",
        "{{ .Missing }}",
        "{{ $nowhere }}",
        "{{ template \"nowhere\" . }}",
        "{{",
        "}}",
        "(",
        ")",
        "|",
        "\"",
        "`",
        ".",
        " ",
        "{{/* c */}}",
    ];
    let borders: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    let at = borders[rng.usize(..borders.len())];
    let (before, after) = text.split_at(at);
    let mut rest = after.chars();
    match rng.usize(..4) {
        0 => {
            rest.next();
            before.to_owned() + rest.as_str()
        }
        1 => before.to_owned(),
        _ => before.to_owned() + pick(rng, &SLIPS) + after,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Type {
    Text,
    Integer,
    Number,
    Boolean,
}

struct Drawn<'a> {
    rng: &'a mut Rng,
    /// Declared, and in scope.
    variables: Vec<(String, Type)>,
    named: usize,
    in_range: bool,
}

impl Drawn<'_> {
    fn one_in(&mut self, of: usize) -> bool {
        self.rng.usize(..of) == 0
    }

    /// With trim markers, now and then.
    fn action(&mut self, inside: &str) -> String {
        let open = if self.one_in(6) { "{{- " } else { "{{ " };
        let close = if self.one_in(6) { " -}}" } else { " }}" };
        format!("{open}{inside}{close}")
    }

    fn item(&mut self, depth: usize) -> String {
        let blocks = if depth < DEPTH_MAX { 14 } else { 8 };
        match self.rng.usize(..blocks) {
            0 | 1 => self.plain().to_owned(),
            2..=4 => {
                let expression = self.any(depth);
                let piped = self.piped(expression);
                self.action(&piped)
            }
            5 => self.declaration(depth),
            6 => self.printf_action(depth),
            7 => match (self.in_range, self.one_in(3)) {
                (true, true) => self.action("break"),
                (true, false) => self.action("continue"),
                (false, true) => "{{- /* a comment */ -}}".to_owned(),
                (false, false) => pick(self.rng, &["{{/* c */}}", "{{- /* c */}}"]).to_owned(),
            },
            8 | 9 => self.conditional("if", depth),
            10 => self.conditional("with", depth),
            11 | 12 => self.range(depth),
            _ => {
                self.named += 1;
                let open = format!("block \"b{}\" .", self.named);
                let body = self.template_of_its_own(depth);
                self.action(&open) + &body + &self.action("end")
            }
        }
    }

    fn plain(&mut self) -> &'static str {
        pick(
            self.rng,
            &["a", " b ", "-", "\n c", "}}", "{ ", "ü\t", "x\"y`", " "],
        )
    }

    /// One of its own sees no variables of the one around it.
    fn template_of_its_own(&mut self, depth: usize) -> String {
        let outside = (std::mem::take(&mut self.variables), self.in_range);
        self.in_range = false;
        let body = self.item(depth + 1);
        (self.variables, self.in_range) = outside;
        body
    }

    fn definition(&mut self) -> String {
        self.named += 1;
        let open = format!("define \"t{}\"", self.named);
        let body = self.template_of_its_own(1);
        let call = format!("template \"t{}\" .", self.named);
        self.action(&open) + &body + &self.action("end") + &self.action(&call)
    }

    fn body(&mut self, depth: usize) -> String {
        let outside = self.variables.len();
        let mut body = self.item(depth + 1);
        if self.one_in(2) {
            body += &self.item(depth + 1);
        }
        self.variables.truncate(outside);
        body
    }

    fn conditional(&mut self, word: &str, depth: usize) -> String {
        let condition = if word == "if" && self.one_in(2) {
            self.of(Type::Boolean, depth)
        } else {
            self.any(depth)
        };
        // What is . within with is not the variables any more.
        let body = match (word, self.one_in(2)) {
            ("with", true) => "{{ . }}".to_owned(),
            ("with", false) => self.plain().to_owned(),
            _ => self.body(depth),
        };
        let mut text = self.action(&format!("{word} {condition}")) + &body;
        if self.one_in(4) {
            let again = self.of(Type::Boolean, depth);
            text += &self.action(&format!("else {word} {again}"));
            text += self.plain();
        }
        if self.one_in(2) {
            text += &self.action("else");
            text += &self.body(depth);
        }
        text + &self.action("end")
    }

    fn range(&mut self, depth: usize) -> String {
        let over = match self.rng.usize(..5) {
            0 => "range 3",
            1 => "range $n := 2",
            2 => "range .Attributes",
            3 => "range $key, $value := .Attributes",
            _ => "range .Attributes.missing",
        };
        let was = std::mem::replace(&mut self.in_range, true);
        let outside = self.variables.len();
        // Within, . is an element: only variables and what needs none.
        let mut body = pick(self.rng, &["{{ . }}", ",", "{{ $.Zone }}", "{{- . -}} "]).to_owned();
        if over.contains("$n") {
            self.variables.push(("$n".to_owned(), Type::Integer));
            body += "{{ $n }}";
        }
        if over.contains("$key") {
            self.variables.push(("$key".to_owned(), Type::Text));
            body += "{{ $key }}={{ $value }}";
        }
        if self.one_in(3) {
            let condition = format!(
                "eq {} {}",
                self.literal(Type::Text),
                self.literal(Type::Text)
            );
            let word = pick(self.rng, &["break", "continue"]);
            body += &format!("{{{{ if {condition} }}}}{{{{ {word} }}}}{{{{ end }}}};");
        }
        self.variables.truncate(outside);
        self.in_range = was;
        let mut text = self.action(over) + &body;
        if self.one_in(3) {
            text += &self.action("else");
            text += &self.body(depth);
        }
        text + &self.action("end")
    }

    fn declaration(&mut self, depth: usize) -> String {
        let kind = self.kind();
        let value = self.of(kind, depth);
        let known: Vec<String> = self
            .variables
            .iter()
            .map(|(name, _)| name.clone())
            .collect();
        if let (Some(name), true) = (known.last(), self.one_in(2)) {
            // A variable keeps no type.
            let value = self.any(depth);
            return self.action(&format!("{name} = {value}")) + &self.action(name);
        }
        self.named += 1;
        let name = format!("$v{}", self.named);
        self.variables.push((name.clone(), kind));
        self.action(&format!("{name} := {value}"))
    }

    fn printf_action(&mut self, depth: usize) -> String {
        let before = before_verb(self.rng);
        let kind = self.kind();
        let verb = match kind {
            Type::Text => pick(self.rng, &["s", "v", "q", "x"]),
            Type::Integer => pick(self.rng, &["d", "v", "x", "o", "b", "c"]),
            Type::Number => pick(self.rng, &["f", "e", "g", "v"]),
            Type::Boolean => pick(self.rng, &["t", "v"]),
        };
        let value = self.of(kind, depth);
        let host = pick(self.rng, &[".TargetHost", "targetHost", "$.Zone", ".Pool"]);
        let format = pick(self.rng, &["%s-%1%", "%s:%1%|%%", "%[1]s_%[2]2%"]);
        let format = match format.split_once("%[2]") {
            Some((format, _)) => format!("{format}%[2]{verb}"),
            None => format.replace("%1%", &format!("%{before}{verb}")),
        };
        self.action(&format!(r#"printf "{format}" {host} {value}"#))
    }

    fn kind(&mut self) -> Type {
        match self.rng.usize(..5) {
            0 | 1 => Type::Text,
            2 => Type::Integer,
            3 => Type::Number,
            _ => Type::Boolean,
        }
    }

    fn any(&mut self, depth: usize) -> String {
        let kind = self.kind();
        self.of(kind, depth)
    }

    fn piped(&mut self, expression: String) -> String {
        match self.rng.usize(..8) {
            0 => format!("{expression} | printf \"%v\""),
            1 => format!("{expression} | print \"p\" 1 2"),
            2 => format!("{expression} | html"),
            3 => format!("{expression} | urlquery | len"),
            4 => format!("{expression} | not | print"),
            _ => expression,
        }
    }

    fn literal(&mut self, kind: Type) -> &'static str {
        match kind {
            Type::Text => pick(
                self.rng,
                &[r#""a""#, "`b\\`", r#""x\"y\n""#, r#""ü&<>'""#, r#""""#],
            ),
            Type::Integer => pick(
                self.rng,
                &["0", "3", "-42", "0x1F", "1_000", "'a'", "0b101", "017"],
            ),
            Type::Number => pick(
                self.rng,
                &["1.5", "-0.25", "1e3", ".5", "2.5e-7", "1e21", "1234567.8"],
            ),
            Type::Boolean => pick(self.rng, &["true", "false"]),
        }
    }

    fn field(&mut self, kind: Type) -> &'static str {
        match kind {
            Type::Text => pick(
                self.rng,
                &[
                    "$.TargetHost",
                    "$.Cluster",
                    "$.Zone",
                    "$.Pool",
                    "$.InstanceType",
                    "targetHost",
                    "$.Attributes.rack",
                    r#"(index $.Attributes "pve.kernel")"#,
                    r#"(or $.Attributes.missing "none")"#,
                    "$.Attributes.missing",
                ],
            ),
            Type::Integer => pick(self.rng, &["$.Cores", "$.MemoryMiB", "$.Attributes.power"]),
            Type::Number => pick(
                self.rng,
                &[
                    "$.Attributes.price",
                    "$.Attributes.large",
                    "$.Attributes.tiny",
                ],
            ),
            Type::Boolean => pick(self.rng, &["$.Attributes.ssd", "$.Attributes.spare"]),
        }
    }

    /// An expression of this type, in parentheses where it needs them as an argument.
    fn of(&mut self, kind: Type, depth: usize) -> String {
        let known = self.variables.iter().filter(|(_, of)| *of == kind);
        let known: Vec<String> = known.map(|(name, _)| name.clone()).collect();
        if let (Some(name), true) = (known.last(), self.one_in(2)) {
            return name.clone();
        }
        if depth >= DEPTH_MAX || self.one_in(2) {
            let text = match self.one_in(2) {
                true => self.literal(kind),
                false => self.field(kind),
            };
            // Only in a define or a block is $ what . is, and there both are all variables.
            return text.to_owned();
        }
        let call = match kind {
            Type::Text => self.text_call(depth + 1),
            Type::Integer => format!("len {}", self.of(Type::Text, depth + 1)),
            Type::Number => {
                let (one, other) = (self.of(kind, depth + 1), self.of(kind, depth + 1));
                format!("{} {one} {other}", pick(self.rng, &["and", "or"]))
            }
            Type::Boolean => self.comparison(depth + 1),
        };
        format!("({call})")
    }

    fn text_call(&mut self, depth: usize) -> String {
        let text = self.of(Type::Text, depth);
        match self.rng.usize(..8) {
            0 => format!("slice {text} 0 1"),
            1 => format!("print {text} {} {}", self.any(depth), self.any(depth)),
            2 => format!("println {text} {}", self.any(depth)),
            3 => format!("html {text}"),
            4 => format!("js {text}"),
            5 => format!("urlquery {text}"),
            6 => format!("printf \"%s.%v\" {text} {}", self.any(depth)),
            _ => format!("or {text} {}", self.of(Type::Text, depth)),
        }
    }

    fn comparison(&mut self, depth: usize) -> String {
        let kind = self.kind();
        let one = self.of(kind, depth);
        // Now and then of two types, which is an error.
        let other = match self.one_in(8) {
            true => self.any(depth),
            false => self.of(kind, depth),
        };
        match self.rng.usize(..8) {
            0 => format!("not {one}"),
            1 => format!("and {one} {other} true"),
            2 => format!("eq {one} {other} {other}"),
            _ => {
                let word = pick(self.rng, &["eq", "ne", "lt", "le", "gt", "ge"]);
                format!("{word} {one} {other}")
            }
        }
    }
}
