//! The functions of templates that are not the engine's own: `targetHost`, and those that make text, which here has a limit.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::sync::{Arc, LazyLock};

use gotmpl::{FuncMap, Result, Template, TemplateError, Value, html_escape, js_escape, url_encode};

use crate::printf::printf;
use crate::template::known;

/// What the functions of one render may make in all. A label is short: what takes more than this is a mistake, such as a
/// text that a loop doubles.
pub(crate) const MADE_BYTES_MAX: usize = 1 << 20;

/// Every name that a template may call.
pub(crate) const NAMES: &str = "and call eq ge gt html index js le len lt ne not or \
    print printf println slice targetHost urlquery";

/// No template can write these three names. `resolve` puts this where a template asks a value for what is no variable.
pub(crate) const ATTRIBUTE: &str = "attribute of";
/// And this where a template writes what may be a number: the engine would not write it as Go does.
pub(crate) const TEXT: &str = "text of";
/// And this where a template calls another one without a value.
pub(crate) const NOTHING: &str = "nothing of";

thread_local! {
    /// Of the render that runs: functions have no other place to look.
    static RENDER: RefCell<Render> = const { RefCell::new(Render { host: Value::Nil, left: 0 }) };
}

struct Render {
    host: Value,
    left: usize,
}

/// A render begins, for the hypervisor of this name.
pub(crate) fn begin(host: Value) {
    let left = MADE_BYTES_MAX;
    RENDER.set(Render { host, left });
}

type Function = fn(&[Value]) -> Result<Value>;

pub(crate) fn all() -> FuncMap {
    let functions: [(&str, Function); 11] = [
        (ATTRIBUTE, attribute),
        (TEXT, text),
        (NOTHING, |_| Ok(Value::Nil)),
        ("html", |arguments| escaped(arguments, html_escape)),
        ("js", |arguments| escaped(arguments, js_escape)),
        ("print", |arguments| made(|out| print(out, arguments))),
        ("printf", |arguments| made(|out| printf(out, arguments))),
        ("println", |arguments| made(|out| println(out, arguments))),
        ("slice", slice),
        ("targetHost", target_host),
        ("urlquery", |arguments| escaped(arguments, url_encode)),
    ];
    functions
        .into_iter()
        .map(|(name, function)| (name.to_owned(), Arc::new(function) as _))
        .collect()
}

/// `{{ targetHost }}`: what kproximate's values file tells its users to write, though only `{{ .TargetHost }}` worked.
fn target_host(arguments: &[Value]) -> Result<Value> {
    if !arguments.is_empty() {
        return refuse("targetHost takes no arguments".to_owned());
    }
    Ok(RENDER.with_borrow(|render| render.host.clone()))
}

/// The first argument's entry by the name of the second: an attribute that may be missing, or what is no variable.
fn attribute(arguments: &[Value]) -> Result<Value> {
    let (of, name) = match arguments {
        [of, Value::String(name)] => (of, name),
        _ => return refuse("an attribute has a name".to_owned()),
    };
    // Of all values only the variables themselves hold a map.
    let attributes = of.field("Attributes");
    if attributes.is_some_and(|value| matches!(value, Value::Map(_))) {
        let known = known();
        return refuse(format!("there is no variable .{name}; {known}"));
    }
    match of {
        Value::Map(_) | Value::Nil => Ok(of.field(name).cloned().unwrap_or(Value::Nil)),
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Float(_)
        | Value::String(_)
        | Value::List(_)
        | Value::Function(_) => refuse(format!(
            "can't evaluate field {name} in type {}",
            of.type_name()
        )),
    }
}

/// The engine writes a value that is not there.
fn text(arguments: &[Value]) -> Result<Value> {
    match arguments {
        [value @ (Value::Float(_) | Value::Map(_))] => made(|out| write_value(out, value)),
        [value] => Ok(value.clone()),
        _ => refuse("only one value is written at once".to_owned()),
    }
}

pub(crate) fn write_value(out: &mut Bounded, value: &Value) -> Result<()> {
    match value {
        Value::Float(_) => out.write_str(&written_by_engine("%g", value)?)?,
        Value::Map(entries) => {
            out.write_str("map[")?;
            for (at, (key, value)) in entries.iter().enumerate() {
                write!(out, "{}{key}:", if at > 0 { " " } else { "" })?;
                write_value(out, value)?;
            }
            out.write_str("]")?;
        }
        Value::Nil
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::String(_)
        | Value::List(_)
        | Value::Function(_) => write!(out, "{value}")?,
    }
    Ok(())
}

/// One value by the engine's own `printf`, of which this policy has one in its place.
pub(crate) fn written_by_engine(directive: &str, value: &Value) -> Result<String> {
    static PRINTF: LazyLock<Result<Template>> =
        LazyLock::new(|| Template::new("").parse("{{ printf (index . 0) (index . 1) }}"));
    match &*PRINTF {
        Ok(printf) => {
            let arguments = [Value::from(directive), value.clone()];
            printf.execute_to_string(&Value::List(Arc::new(arguments)))
        }
        Err(error) => refuse(error.to_string()),
    }
}

/// As Go's: numbers are bytes.
fn slice(arguments: &[Value]) -> Result<Value> {
    let index = |at: usize| match arguments.get(at) {
        None => Ok(None),
        Some(Value::Int(index)) => Ok(Some(*index)),
        Some(other) => refuse(format!("slice: {} is no index", other.type_name())),
    };
    match arguments {
        [of @ Value::String(_)] | [of @ Value::String(_), _] | [of @ Value::String(_), _, _] => {
            let part = of.slice(index(1)?, index(2)?)?;
            made(|out| Ok(write!(out, "{part}")?))
        }
        _ => refuse("slice takes a text, and where to begin and to end".to_owned()),
    }
}

fn print(out: &mut Bounded, arguments: &[Value]) -> Result<()> {
    let is_text = |value: &Value| matches!(value, Value::String(_));
    for (at, value) in arguments.iter().enumerate() {
        // As Go's: a space between two that are no text.
        if at > 0 && !is_text(value) && !is_text(&arguments[at - 1]) {
            out.write_str(" ")?;
        }
        write_value(out, value)?;
    }
    Ok(())
}

fn println(out: &mut Bounded, arguments: &[Value]) -> Result<()> {
    for (at, value) in arguments.iter().enumerate() {
        out.write_str(if at > 0 { " " } else { "" })?;
        write_value(out, value)?;
    }
    Ok(out.write_str("\n")?)
}

fn escaped(arguments: &[Value], escape: fn(&str) -> String) -> Result<Value> {
    let mut plain = Bounded::new(MADE_BYTES_MAX);
    match arguments {
        [Value::Nil] => plain.write_str("<no value>")?,
        _ => print(&mut plain, arguments)?,
    }
    made(|out| Ok(out.write_str(&escape(&plain.text))?))
}

/// The text that `write` makes, which counts against what this render may make.
fn made(write: impl FnOnce(&mut Bounded) -> Result<()>) -> Result<Value> {
    let mut out = Bounded::new(RENDER.with_borrow(|render| render.left));
    match write(&mut out) {
        Ok(()) => {}
        Err(TemplateError::Write) => {
            return refuse(format!(
                "its functions make more than {MADE_BYTES_MAX} bytes of text"
            ));
        }
        Err(error) => return Err(error),
    }
    RENDER.with_borrow_mut(|render| render.left = out.left);
    Ok(Value::from(out.text))
}

pub(crate) fn refuse<T>(why: String) -> Result<T> {
    Err(TemplateError::Exec(why))
}

/// A text that takes so much and no more.
pub(crate) struct Bounded {
    pub(crate) text: String,
    left: usize,
}

impl Bounded {
    pub(crate) fn new(left: usize) -> Self {
        let text = String::new();
        Self { text, left }
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.left = self.left.checked_sub(text.len()).ok_or(fmt::Error)?;
        self.text.push_str(text);
        Ok(())
    }
}
