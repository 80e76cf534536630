//! One template: parsed once, rendered for each hypervisor.

use std::cell::RefCell;
use std::collections::HashMap;

use gtmpl_ng::{Context, ExecError, FuncError, Limits, ParseError, Template, Value};
use kproxide_policy_sdk::{Attribute, Hypervisor, Machine, PolicyError, Value as Fact};

use crate::syntax;

/// The facts that a template may use, by name. Any other name is an error, as for the fields of a Go struct.
pub(crate) struct Variables<'a> {
    hypervisor: &'a Hypervisor,
    fields: HashMap<String, Value>,
}

const NAMES: &str =
    ".TargetHost, .Cluster, .Zone, .Pool, .InstanceType, .Cores, .MemoryMiB, .Attributes";

impl<'a> Variables<'a> {
    pub(crate) fn of(machine: &Machine, hypervisor: &'a Hypervisor) -> Variables<'a> {
        let milli_cores = machine.size.milli_cores;
        let cores = match milli_cores % 1000 {
            0 => Value::from(milli_cores / 1000),
            _ => Value::from(milli_cores as f64 / 1000.0),
        };
        let fields = [
            ("TargetHost", Value::from(hypervisor.id.name.as_str())),
            ("Cluster", Value::from(hypervisor.id.cluster.as_str())),
            ("Zone", Value::from(hypervisor.zone.as_str())),
            ("Pool", Value::from(machine.pool.as_str())),
            ("InstanceType", Value::from(machine.instance_type.as_str())),
            ("Cores", cores),
            ("MemoryMiB", Value::from(machine.size.memory_bytes >> 20)),
            ("Attributes", attributes(&hypervisor.attributes)),
        ];
        Variables {
            hypervisor,
            fields: fields.map(|(name, value)| (name.to_owned(), value)).into(),
        }
    }
}

/// By key, as a Go map: a key that this hypervisor lacks is no error of the template by itself (`with` and `or` see it).
fn attributes(attributes: &[Attribute]) -> Value {
    let value = |attribute: &Attribute| match &attribute.value {
        Fact::Text(text) => Value::from(text.as_str()),
        Fact::Integer(integer) => Value::from(*integer),
        Fact::Number(number) => Value::from(*number),
        Fact::Boolean(boolean) => Value::from(*boolean),
    };
    let of_each = attributes.iter().map(|it| (it.key.clone(), value(it)));
    Value::Map(of_each.collect())
}

/// A parsed template and what it is for.
pub(crate) struct Compiled {
    what: &'static str,
    pub(crate) key: String,
    template: Template,
}

impl Compiled {
    /// Checks the key and parses the template of a label, an annotation or a taint (`what`).
    pub(crate) fn new(what: &'static str, key: &str, text: &str) -> Result<Compiled, PolicyError> {
        syntax::check_key(key)
            .map_err(|why| PolicyError::invalid_settings(format!("{what}: {why}")))?;
        let mut template = Template::with_limits(limits());
        template.add_func("targetHost", target_host);
        template.parse(text).map_err(|error| {
            let cause = parse_cause(&error);
            PolicyError::invalid_settings(format!(
                "{what} {key:?}: the template {text:?} is not valid: {cause}"
            ))
        })?;
        Ok(Compiled {
            what,
            key: key.to_owned(),
            template,
        })
    }

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
        TARGET_HOST.set(variables.hypervisor.id.name.clone());
        let context = Context::from(Value::Object(variables.fields.clone()));
        let value = self
            .template
            .render(&context)
            .map_err(|error| exec_cause(&error))?;
        if value.contains("<no value>") {
            let attributes = &variables.hypervisor.attributes;
            let keys: Vec<&str> = attributes.iter().map(|it| it.key.as_str()).collect();
            let keys = match keys.is_empty() {
                true => "none".to_owned(),
                false => keys.join(", "),
            };
            return Err(format!(
                "the template yields {value:?}; the variables are {NAMES} (here: {keys})"
            ));
        }
        Ok(value)
    }
}

/// Labels are short: what takes more than this is a mistake. The defaults would allow 64 MiB.
fn limits() -> Limits {
    Limits::default()
        .with_iterations(1000)
        .with_total_iterations(10_000)
        .with_output_bytes(64 << 10)
}

thread_local! {
    /// Template functions are plain function pointers, with no other place to look for the hypervisor.
    static TARGET_HOST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// `{{ targetHost }}`: what kproximate's values file tells its users to write, though only `{{ .TargetHost }}` worked.
fn target_host(_: &[Value]) -> Result<Value, FuncError> {
    Ok(Value::from(TARGET_HOST.with_borrow(String::clone)))
}

fn parse_cause(error: &ParseError) -> String {
    if let ParseError::WithContext(at, cause) = error {
        return format!("line {}, column {}: {cause}", at.line, at.col);
    }
    error.to_string()
}

fn exec_cause(error: &ExecError) -> String {
    match error.as_structured() {
        // The engine's own text would list all fields with their values.
        Some(error) if error.message.starts_with("no field ") => {
            let field = error.message.split('`').nth(1).unwrap_or_default();
            format!("there is no variable .{field}; the variables are {NAMES}")
        }
        Some(error) => format!(
            "line {}, column {}: {}",
            error.context.line, error.context.col, error.message
        ),
        None => error.to_string(),
    }
}
