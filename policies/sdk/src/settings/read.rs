//! A JSON tree to any type that serde can read. An error carries the path of the field.

use std::borrow::Cow;
use std::fmt;
use std::slice;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer as _,
    MapAccess, SeqAccess, Unexpected, Visitor,
};

use super::json::Json;

pub(super) fn read<T: DeserializeOwned>(json: &Json) -> Result<T, Error> {
    T::deserialize(json)
}

/// What is wrong, and where: `racks[2].name`. The path is put together from the inside out.
#[derive(Debug)]
pub(super) struct Error {
    path: String,
    what: String,
}

impl Error {
    /// Puts a field's name or an item's index before the path.
    fn within(mut self, outer: &str) -> Error {
        if !self.path.is_empty() && !self.path.starts_with('[') {
            self.path.insert(0, '.');
        }
        self.path.insert_str(0, outer);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "settings: {}", self.what)
        } else {
            write!(f, "settings field \"{}\": {}", self.path, self.what)
        }
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(what: T) -> Error {
        Error {
            path: String::new(),
            what: what.to_string(),
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Error {
        Error::custom(format_args!(
            "found {}, expected {expected}",
            describe(&found)
        ))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Error {
        Error::invalid_type(found, expected)
    }
}

/// serde's own description would bring the formatting of floating point numbers along.
fn describe<'a>(found: &Unexpected<'a>) -> Cow<'a, str> {
    match found {
        Unexpected::Str(value) => format!("\"{value}\"").into(),
        Unexpected::Unsigned(value) => value.to_string().into(),
        Unexpected::Signed(value) => value.to_string().into(),
        Unexpected::Other(what) => (*what).into(),
        Unexpected::Bool(true) => "true".into(),
        Unexpected::Bool(false) => "false".into(),
        Unexpected::Unit | Unexpected::Option => "null".into(),
        Unexpected::Seq => "a list".into(),
        Unexpected::Map => "a map".into(),
        Unexpected::Float(_) => "a number with a fraction".into(),
        Unexpected::Char(_)
        | Unexpected::Bytes(_)
        | Unexpected::NewtypeStruct
        | Unexpected::Enum
        | Unexpected::UnitVariant
        | Unexpected::NewtypeVariant
        | Unexpected::TupleVariant
        | Unexpected::StructVariant => "a value of another kind".into(),
    }
}

impl Json {
    fn mismatch(&self, expected: &dyn Expected) -> Error {
        match self {
            Json::Null => Error::invalid_type(Unexpected::Unit, expected),
            Json::Bool(value) => Error::invalid_type(Unexpected::Bool(*value), expected),
            Json::Number(text) => Error::invalid_type(Unexpected::Other(text), expected),
            Json::Text(text) => Error::invalid_type(Unexpected::Str(text), expected),
            Json::List(_) => Error::invalid_type(Unexpected::Seq, expected),
            Json::Map(_) => Error::invalid_type(Unexpected::Map, expected),
        }
    }

    /// A whole number; a fraction or one too large for 64 bits is none.
    fn whole<'de, V: Visitor<'de>>(&'de self, visitor: V) -> Result<V::Value, Error> {
        let Json::Number(text) = self else {
            return Err(self.mismatch(&visitor));
        };
        match (text.parse::<u64>(), text.parse::<i64>()) {
            (Ok(number), _) => visitor.visit_u64(number),
            (Err(_), Ok(number)) => visitor.visit_i64(number),
            (Err(_), Err(_)) => Err(self.mismatch(&visitor)),
        }
    }

    /// Any number.
    fn fraction<'de, V: Visitor<'de>>(&'de self, visitor: V) -> Result<V::Value, Error> {
        let Json::Number(text) = self else {
            return Err(self.mismatch(&visitor));
        };
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => visitor.visit_f64(number),
            Ok(_) | Err(_) => Err(self.mismatch(&visitor)),
        }
    }
}

/// Each method that serde calls for a kind of type, by what it does. A type that says what it is (nearly all do) gets no
/// code for the others: `deserialize_any` alone would bring the reading of floating point numbers into every policy.
macro_rules! methods {
    ($($method:ident),* => |$self:ident, $visitor:ident| $body:expr) => {
        $(fn $method<V: Visitor<'de>>($self, $visitor: V) -> Result<V::Value, Error> { $body })*
    };
}

impl<'de> Deserializer<'de> for &'de Json {
    type Error = Error;

    methods!(deserialize_any => |self, visitor| match self {
        Json::Null => visitor.visit_unit(),
        Json::Bool(value) => visitor.visit_bool(*value),
        Json::Number(text) if text.bytes().all(|c| c == b'-' || c.is_ascii_digit()) => self.whole(visitor),
        Json::Number(_) => self.fraction(visitor),
        Json::Text(text) => visitor.visit_borrowed_str(text),
        Json::List(items) => visitor.visit_seq(Items { items: items.iter(), index: 0 }),
        Json::Map(entries) => visitor.visit_map(Entries::new(entries)),
    });

    methods!(deserialize_bool => |self, visitor| {
        let Json::Bool(value) = self else { return Err(self.mismatch(&visitor)) };
        visitor.visit_bool(*value)
    });

    methods!(deserialize_i8, deserialize_i16, deserialize_i32, deserialize_i64, deserialize_u8, deserialize_u16,
        deserialize_u32, deserialize_u64 => |self, visitor| self.whole(visitor));

    methods!(deserialize_f32, deserialize_f64 => |self, visitor| self.fraction(visitor));

    methods!(deserialize_char, deserialize_str, deserialize_string, deserialize_bytes, deserialize_byte_buf,
        deserialize_identifier => |self, visitor| {
        let Json::Text(text) = self else { return Err(self.mismatch(&visitor)) };
        visitor.visit_borrowed_str(text)
    });

    methods!(deserialize_option => |self, visitor| {
        if matches!(self, Json::Null) { visitor.visit_none() } else { visitor.visit_some(self) }
    });

    methods!(deserialize_unit, deserialize_ignored_any => |self, visitor| visitor.visit_unit());

    methods!(deserialize_seq => |self, visitor| {
        let Json::List(items) = self else { return Err(self.mismatch(&visitor)) };
        visitor.visit_seq(Items { items: items.iter(), index: 0 })
    });

    methods!(deserialize_map => |self, visitor| {
        let Json::Map(entries) = self else { return Err(self.mismatch(&visitor)) };
        visitor.visit_map(Entries::new(entries))
    });

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    /// A map only: serde would also take a list, field by field.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    /// A variant's name, or a map of its name to its content.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Json::Text(name) => {
                let name: StrDeserializer<'_, Error> = name.as_str().into_deserializer();
                visitor.visit_enum(name)
            }
            Json::Map(entries) if entries.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(Entries::new(entries)))
            }
            other @ (Json::Null
            | Json::Bool(_)
            | Json::Number(_)
            | Json::List(_)
            | Json::Map(_)) => Err(other.mismatch(&visitor)),
        }
    }
}

struct Items<'de> {
    items: slice::Iter<'de, Json>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(item) = self.items.next() else {
            return Ok(None);
        };
        let index = self.index;
        self.index += 1;
        seed.deserialize(item)
            .map(Some)
            .map_err(|error| error.within(&format!("[{index}]")))
    }
}

struct Entries<'de> {
    entries: slice::Iter<'de, (String, Json)>,
    /// The entry whose key was given out last.
    current: Option<&'de (String, Json)>,
}

impl<'de> Entries<'de> {
    fn new(entries: &'de [(String, Json)]) -> Entries<'de> {
        Entries {
            entries: entries.iter(),
            current: None,
        }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        self.current = self.entries.next();
        let Some((key, _)) = self.current else {
            return Ok(None);
        };
        seed.deserialize(key.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let (key, value) = self.current.expect("serde asks for a value after its key");
        seed.deserialize(value).map_err(|error| error.within(key))
    }
}
