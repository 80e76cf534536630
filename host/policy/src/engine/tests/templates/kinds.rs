//! Where `go-template` may differ from Go, and nowhere else.

/// What came of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// It was refused before it was rendered, for this reason.
    Parse(String),
    /// It failed when it was rendered.
    Render(String),
    Text(String),
}

use Outcome::{Parse, Render, Text};

/// A kind of difference.
pub(super) struct Kind {
    pub(super) name: &'static str,
    is: fn(go: &Outcome, ours: &Outcome) -> bool,
}

pub(super) const KINDS: [Kind; 6] = [
    Kind {
        name: "a verb of printf that is not for its value: Go writes %!, go-template refuses",
        is: |go, ours| matches!((go, ours), (Text(text), Render(why)) if text.contains("%!") && why.contains(": printf: ")),
    },
    Kind {
        name: "a directive of printf that gotmpl does not write as Go does: go-template refuses",
        is: |go, ours| matches!((go, ours), (Text(text), Render(why)) if !text.contains("%!") && is_refused_directive(why)),
    },
    Kind {
        name: "a slice that begins or ends within a character: go-template refuses",
        is: |go, ours| matches!((go, ours), (Text(_), Render(why)) if why.ends_with("slice: index not on UTF-8 character boundary")),
    },
    Kind {
        name: "a variable that is assigned and nowhere declared: go-template refuses before it renders",
        is: |go, ours| matches!((go, ours), (Text(_) | Render(_), Parse(why)) if why.contains(": there is no variable $")),
    },
    Kind {
        name: "a | with nothing behind it: go-template refuses",
        is: |go, ours| matches!((go, ours), (Text(_) | Render(_), Parse(why)) if why.contains(": empty command, in the template ")),
    },
    Kind {
        name: "two values, or a block, written in a way that Go does not read: go-template reads them",
        is: |go, ours| matches!((go, ours), (Parse(why), Text(_) | Render(_)) if LOOSE.iter().any(|loose| why.contains(loose))),
    },
];

/// What Go says of what gotmpl reads: `1_.000`, `2.5-7`, `and.5`, `1.5. 2`, `and-1`, `$a= 1`, `len(.A)`, `{{ block "a" }}`.
const LOOSE: [&str; 8] = [
    "illegal number syntax",
    "bad number syntax",
    "unexpected \".",
    "unexpected <.> in operand",
    "bad character U+002D",
    "bad character U+003D",
    "unexpected \"(\" in operand",
    "missing value for block clause",
];

fn is_refused_directive(why: &str) -> bool {
    why.contains(": printf: %") && why.contains(" cannot write a value of type ")
}

/// Which kind a difference is of, `None` if there is none.
///
/// # Errors
/// It is of no kind.
pub(super) fn judge(go: &Outcome, ours: &Outcome) -> Result<Option<usize>, ()> {
    let is_same = match (go, ours) {
        // What kproximate would label a Node with, and go-template refuses.
        (Text(text), Render(why)) if text.contains("<no value>") => {
            why.contains(": the template yields ")
        }
        (Text(go), Text(ours)) => go == ours,
        (Parse(_), Parse(_)) | (Render(_), Render(_)) => true,
        (Parse(_) | Render(_) | Text(_), _) => false,
    };
    if is_same {
        return Ok(None);
    }
    let kind = KINDS.iter().position(|kind| (kind.is)(go, ours));
    kind.map(Some).ok_or(())
}
