//! One template: parsed once, rendered for each hypervisor.

use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::parse::Parser;
use gotmpl::{Template, TemplateError, Value};
use kproxide_policy_sdk::{Attribute, Hypervisor, Machine, PolicyError, Value as Fact};

use crate::actions::checked;
use crate::functions::{self, Bounded};
use crate::resolve::resolve;
use crate::syntax;

/// Labels are short: what takes more than this is a mistake. Parsed and rendered, texts of this length take at most two thirds of the
/// instructions that kproxide lets a policy have, and a tenth of the memory.
const TEXT_BYTES_MAX: usize = 64 << 10;
const RANGES_MAX: u64 = 10_000;
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// The facts that a template may use, by name. Any other name is an error, as for the fields of a Go struct.
pub(crate) const VARIABLES: [&str; 8] = [
    "TargetHost",
    "Cluster",
    "Zone",
    "Pool",
    "InstanceType",
    "Cores",
    "MemoryMiB",
    "Attributes",
];

/// Those that are texts everywhere.
pub(crate) const TEXTS: &[&str] = VARIABLES.split_at(5).0;

/// What an error says of them.
pub(crate) fn known() -> String {
    format!("the variables are .{}", VARIABLES.join(", ."))
}

pub(crate) struct Variables<'a> {
    hypervisor: &'a Hypervisor,
    host: Value,
    all: Value,
}

impl<'a> Variables<'a> {
    pub(crate) fn of(machine: &Machine, hypervisor: &'a Hypervisor) -> Variables<'a> {
        let milli_cores = machine.size.milli_cores;
        let cores = match milli_cores % 1000 {
            0 => integer(milli_cores / 1000),
            _ => Value::Float(milli_cores as f64 / 1000.0),
        };
        let host = Value::from(hypervisor.id.name.as_str());
        let values = [
            host.clone(),
            Value::from(hypervisor.id.cluster.as_str()),
            Value::from(hypervisor.zone.as_str()),
            Value::from(machine.pool.as_str()),
            Value::from(machine.instance_type.as_str()),
            cores,
            integer(machine.size.memory_bytes >> 20),
            attributes(&hypervisor.attributes),
        ];
        let names = VARIABLES.map(Arc::<str>::from);
        let all: BTreeMap<_, _> = names.into_iter().zip(values).collect();
        Variables {
            hypervisor,
            host,
            all: Value::from(all),
        }
    }
}

/// Go's `int` has no more; nobody has a machine of so much.
fn integer(value: u64) -> Value {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

/// By key, as a Go map: a key that this hypervisor lacks is no error of the template by itself (`with` and `or` see it).
fn attributes(attributes: &[Attribute]) -> Value {
    let value = |attribute: &Attribute| match &attribute.value {
        Fact::Text(text) => Value::from(text.as_str()),
        Fact::Integer(integer) => Value::Int(*integer),
        Fact::Number(number) => Value::Float(*number),
        Fact::Boolean(boolean) => Value::Bool(*boolean),
    };
    let of_each = attributes.iter();
    let of_each = of_each.map(|it| (Arc::<str>::from(it.key.as_str()), value(it)));
    Value::from(of_each.collect::<BTreeMap<_, _>>())
}

/// What makes templates of texts.
pub(crate) struct Compiler {
    /// What each begins as: the functions are dear to list.
    empty: Template,
    /// How many bytes of text are still taken.
    left: usize,
}

impl Default for Compiler {
    fn default() -> Compiler {
        let empty = Template::new(WHOLE).funcs(functions::all());
        Compiler {
            empty: empty.max_range_iters(RANGES_MAX),
            left: TEXT_BYTES_MAX,
        }
    }
}

impl Compiler {
    /// Checks the key and parses the template of a label, an annotation or a taint (`what`).
    pub(crate) fn compile(
        &mut self,
        what: &'static str,
        key: &str,
        text: &str,
    ) -> Result<Compiled, PolicyError> {
        syntax::check_key(key)
            .map_err(|why| PolicyError::invalid_settings(format!("{what}: {why}")))?;
        let template = self.parse(text).map_err(|why| {
            let template = syntax::shown(text);
            PolicyError::invalid_settings(format!(
                "{what} {key:?}: {why}, in the template {template}"
            ))
        })?;
        Ok(Compiled {
            what,
            key: key.to_owned(),
            template,
        })
    }

    fn parse(&mut self, text: &str) -> Result<Template, String> {
        let too_long = || format!("all templates together have more than {TEXT_BYTES_MAX} bytes");
        // Up to four times as long, it is checked all the same: another mistake says more than the length.
        if text.len() > 4 * TEXT_BYTES_MAX {
            return Err(too_long());
        }
        let checked = checked(text)?;
        self.left = self.left.checked_sub(text.len()).ok_or_else(too_long)?;
        let text = &*checked;
        let parsed = Parser::new(text, "{{", "}}").and_then(Parser::parse);
        let (whole, defined) = parsed.map_err(parse_cause)?;
        let defined = defined.into_iter();
        let defined = defined.map(|define| (define.name.to_string(), define.body));
        let mut template = self.empty.clone();
        for (name, mut tree) in [(WHOLE.to_owned(), whole)].into_iter().chain(defined) {
            resolve(text, &mut tree)?;
            match template.lookup(&name) {
                // As Go does it: one that is empty defines nothing again.
                Some(_) if tree.is_empty_tree() => {}
                Some(before) if !before.is_empty_tree() => {
                    return Err(format!("the template {name:?} is defined twice"));
                }
                _ => template = template.add_parse_tree(&name, tree),
            }
        }
        Ok(template)
    }
}

/// A parsed template and what it is for.
pub(crate) struct Compiled {
    what: &'static str,
    pub(crate) key: String,
    template: Template,
}

impl Compiled {
    /// Renders the template and holds the result against `check`.
    pub(crate) fn render_checked(
        &self,
        variables: &Variables<'_>,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<String, PolicyError> {
        let value = self
            .render(variables)
            .and_then(|value| check(&value).map(|()| value));
        value.map_err(|why| {
            let id = &variables.hypervisor.id;
            let (what, key) = (self.what, &self.key);
            PolicyError::invalid_settings(format!(
                "{what} {key:?} on hypervisor {}/{}: {why}",
                id.cluster, id.name
            ))
        })
    }

    fn render(&self, variables: &Variables<'_>) -> Result<String, String> {
        functions::begin(variables.host.clone());
        let mut out = Bounded::new(OUTPUT_BYTES_MAX);
        self.template
            .execute_template_fmt(&mut out, WHOLE, &variables.all)
            .map_err(render_cause)?;
        let value = out.text;
        if value.contains("<no value>") {
            let attributes = &variables.hypervisor.attributes;
            let keys: Vec<&str> = attributes.iter().map(|it| it.key.as_str()).collect();
            let keys = match keys.is_empty() {
                true => "none".to_owned(),
                false => keys.join(", "),
            };
            return Err(format!(
                "the template yields {}; {} (here: {keys})",
                syntax::shown(&value),
                known()
            ));
        }
        Ok(value)
    }
}

/// The name of a template among those that it defines: as in Go for one without a name.
const WHOLE: &str = "";

fn parse_cause(error: TemplateError) -> String {
    if let TemplateError::Parse {
        line, col, message, ..
    }
    | TemplateError::Lex {
        line, col, message, ..
    } = &error
    {
        // The engine does not say where everything is.
        return match line {
            0 => message.clone(),
            line => format!("line {line}, column {col}: {message}"),
        };
    }
    error.to_string()
}

/// The engine does not say where any of this is.
fn render_cause(error: TemplateError) -> String {
    match error {
        TemplateError::Exec(why) => why,
        TemplateError::RangeIterLimit => format!("its ranges repeat more than {RANGES_MAX} times"),
        TemplateError::RecursionLimit => "its templates call each other too deep".to_owned(),
        TemplateError::Write => format!("it makes more than {OUTPUT_BYTES_MAX} bytes"),
        TemplateError::Parse { .. }
        | TemplateError::Lex { .. }
        | TemplateError::IndexOutOfRange { .. }
        | TemplateError::TypeMismatch { .. }
        | TemplateError::MissingKey { .. }
        | TemplateError::UndefinedTemplate(_)
        | TemplateError::UndefinedFunction(_)
        | TemplateError::UndefinedVariable(_)
        | TemplateError::ArgCount { .. }
        | TemplateError::NotIterable(_) => error.to_string(),
    }
}
