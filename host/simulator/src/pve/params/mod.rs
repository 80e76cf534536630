//! The check of a request's parameters against the table, with the server's own texts.

mod formats;
mod table;

use std::collections::BTreeMap;

use super::answer::{Params, Refusal};
use super::routes::{Endpoint, Route, Vars};
use super::topology::Version;

use table::parameters;

/// One parameter of a method.
pub(crate) struct Param {
    /// With `[n]` at the end for a numbered family like `net[n]`.
    name: &'static str,
    kind: Kind,
    required: bool,
}

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Boolean,
    Integer {
        min: Option<i64>,
        max: Option<i64>,
    },
    Number {
        min: f64,
        max: Option<f64>,
    },
    Text(Format),
    OneOf(&'static [&'static str]),
    /// May be sent several times.
    List,
}

/// The shapes of text that the server checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Any,
    /// At most this many characters.
    Max(usize),
    VmidList,
    NodeName,
    StorageId,
    StorageIdList,
    PoolId,
    DnsName,
    ConfigId,
    ConfigIdList,
    Tags,
    UrlEncoded,
    /// `+5G`, `32G`
    Growth,
    /// Disk of a machine.
    Disk,
    /// Property strings, of which the keys are checked.
    Network,
    IpConfig,
    Agent,
    Cpu,
    VolumeId,
    Memory,
}

/// Checks all parameters, those of the path included, and refuses with every complaint at once.
pub(crate) fn check(
    params: &Params,
    vars: &Vars,
    route: &Route,
    version: Version,
) -> Result<(), Refusal> {
    let groups = parameters(route.endpoint);
    let known = |name: &str| {
        groups
            .iter()
            .flat_map(|group| group.iter())
            .find(|param| param.covers(name, version))
    };
    let mut errors = BTreeMap::new();
    for (name, values) in params.iter() {
        let complaint = match known(name) {
            None => Some("property is not defined in schema and the schema does not allow additional properties".into()),
            // The format of a new machine's number is checked before its bounds.
            Some(param) if param.name == "vmid" && route.endpoint == Endpoint::Create => param
                .complaint(values)
                .map(|_| "invalid format - value does not look like a valid VM ID\n".to_owned()),
            Some(param) => param.complaint(values),
        };
        if let Some(text) = complaint {
            errors.insert(name.to_owned(), text);
        }
    }
    for (name, value) in vars {
        let complaint = known(name).and_then(|param| param.complaint(std::slice::from_ref(value)));
        if let Some(text) = complaint {
            errors.insert((*name).to_owned(), text);
        }
    }
    for param in groups
        .iter()
        .flat_map(|group| group.iter())
        .filter(|param| param.required)
    {
        if params.get(param.name).is_none() && !vars.contains_key(param.name) {
            errors.insert(
                param.name.to_owned(),
                "property is missing and it is not optional".into(),
            );
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Refusal::Parameters(errors))
    }
}

impl Param {
    fn covers(&self, name: &str, version: Version) -> bool {
        if version == Version::V8 && table::ONLY_V9.contains(&self.name) {
            return false;
        }
        match self.name.strip_suffix("[n]") {
            Some(family) => super::state::is_indexed(name, family) && within_family(name, family),
            None => self.name == name,
        }
    }

    fn complaint(&self, values: &[String]) -> Option<String> {
        if self.kind == Kind::List {
            return None;
        }
        match values {
            [value] => self.kind.complaint(self.name, value),
            _ => Some("type check ('string') failed - got 'ARRAY'".into()),
        }
    }
}

/// How many members a numbered family has.
fn within_family(name: &str, family: &str) -> bool {
    let count = match family {
        "ide" => 4,
        "sata" => 6,
        "scsi" => 31,
        "virtio" | "hostpci" => 16,
        "net" | "ipconfig" => 32,
        "numa" => 8,
        "parallel" => 3,
        "serial" => 4,
        "unused" => 256,
        "usb" => 14,
        "virtiofs" => 10,
        _ => 0,
    };
    name[family.len()..]
        .parse::<u32>()
        .is_ok_and(|number| number < count)
}

impl Kind {
    fn complaint(self, name: &str, value: &str) -> Option<String> {
        match self {
            Kind::Boolean => {
                let valid = matches!(
                    value,
                    "1" | "0" | "on" | "off" | "yes" | "no" | "true" | "false"
                );
                // A form takes `1` and `0` and these words; `true` arrives as 1 from JSON only.
                let valid = valid && !matches!(value, "true" | "false");
                (!valid).then(|| format!("type check ('boolean') failed - got '{value}'"))
            }
            Kind::Integer { min, max } => {
                let Ok(number) = value.trim().parse::<i64>() else {
                    return Some(format!("type check ('integer') failed - got '{value}'"));
                };
                let low = min.filter(|min| number < *min);
                let high = max.filter(|max| number > *max);
                low.map(|min| format!("value must have a minimum value of {min}"))
                    .or_else(|| high.map(|max| format!("value must have a maximum value of {max}")))
            }
            Kind::Number { min, max } => {
                let Ok(number) = value.trim().parse::<f64>() else {
                    return Some(format!("type check ('number') failed - got '{value}'"));
                };
                let high = max.filter(|max| number > *max);
                (number < min)
                    .then(|| format!("value must have a minimum value of {min}"))
                    .or_else(|| high.map(|max| format!("value must have a maximum value of {max}")))
            }
            Kind::OneOf(values) => (!values.contains(&value)).then(|| {
                format!(
                    "value '{value}' does not have a value in the enumeration '{}'",
                    values.join(", ")
                )
            }),
            Kind::Text(format) => formats::complaint(format, name, value),
            Kind::List => None,
        }
    }
}

#[cfg(test)]
mod tests;
