//! The operator's settings: JSON text to the author's type, with errors that name the field.
//!
//! kproxide writes the JSON, from the YAML of an operator. It is read here by some 300 lines of our own instead of
//! `serde_json`, which would make a component of 50 KiB one of 140: mostly for printing floating point numbers in errors.

mod json;
mod read;

use serde::de::DeserializeOwned;

use self::json::Json;
use crate::PolicyError;

/// What an operator may set. No settings at all mean `Default`.
///
/// Implemented for every type that serde can read: derive `Deserialize` with `#[serde(deny_unknown_fields, default)]`, so
/// that a misspelt setting is refused instead of ignored.
pub trait Settings: Default {
    /// Reads settings as kproxide hands them over. No text, or `null`, means the defaults.
    ///
    /// # Errors
    /// [`PolicyError::InvalidSettings`] with the path of the field and what is wrong with it.
    fn parse(json: &str) -> Result<Self, PolicyError>;
}

impl<S: DeserializeOwned + Default> Settings for S {
    fn parse(text: &str) -> Result<S, PolicyError> {
        let json = parse(text)?;
        if matches!(json, Json::Null) {
            return Ok(S::default());
        }
        read::read(&json).map_err(|error| PolicyError::invalid_settings(error.to_string()))
    }
}

/// No text is `null`.
fn parse(text: &str) -> Result<Json, PolicyError> {
    if text.trim_ascii().is_empty() {
        return Ok(Json::Null);
    }
    json::parse(text)
        .map_err(|why| PolicyError::invalid_settings(format!("the settings are no JSON: {why}")))
}

/// The settings of a policy that has none: any is refused.
///
/// Does not go through serde, so that a policy without settings is not larger for having none.
#[derive(Debug, Default)]
pub struct NoSettings;

impl NoSettings {
    /// The JSON Schema that says so.
    pub const SCHEMA: &'static str = r#"{"type":"object","additionalProperties":false}"#;
}

impl Settings for NoSettings {
    fn parse(text: &str) -> Result<NoSettings, PolicyError> {
        let why = match parse(text)? {
            Json::Null => return Ok(NoSettings),
            Json::Map(entries) => match entries.first() {
                None => return Ok(NoSettings),
                Some((field, _)) => format!("unknown field `{field}`, there are none"),
            },
            Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::List(_) => {
                "expected an empty map".to_owned()
            }
        };
        Err(PolicyError::invalid_settings(format!("settings: {why}")))
    }
}

#[cfg(test)]
mod tests;
