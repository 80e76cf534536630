//! Bytes as text in a record that Kubernetes keeps as JSON (RFC 4648, padded).

use serde::{Deserialize, Deserializer, Serializer, de};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn encode(bytes: &[u8]) -> String {
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let value = number(chunk.iter().map(|byte| u32::from(*byte)), 8, 3);
        (0..4).map(move |at| match at <= chunk.len() {
            true => char::from(DIGITS[(value >> (18 - 6 * at)) as usize % 64]),
            false => '=',
        })
    });
    digits.collect()
}

/// `None` unless it is what [`encode`] makes of some bytes.
fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |letter| DIGITS.iter().position(|digit| *digit == letter);
    let digits = text.trim_end_matches('=').bytes().map(digit);
    let digits: Vec<usize> = digits.collect::<Option<_>>()?;
    let bytes = digits.chunks(4).flat_map(|chunk| {
        let value = number(chunk.iter().map(|digit| *digit as u32), 6, 4);
        let [_, bytes @ ..] = value.to_be_bytes();
        bytes.into_iter().take(chunk.len() - 1)
    });
    let bytes: Vec<u8> = bytes.collect();
    (encode(&bytes) == text).then_some(bytes)
}

/// Digits of so many bits each, as one number of `places` digits.
fn number(digits: impl ExactSizeIterator<Item = u32>, bits: usize, places: usize) -> u32 {
    let missing = places - digits.len();
    digits.fold(0, |number, digit| number << bits | digit) << (bits * missing)
}

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&encode(bytes))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    decode(&text).ok_or_else(|| de::Error::custom("it is not base64"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 4648, section 10.
    #[test]
    fn the_words_of_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(encode(&[0xfb, 0xff]), "+/8=");
        // Without its padding, with bits that say nothing, cut off, of another alphabet.
        for odd in [
            "Zg", "Zh==", "Z", "Zm9vY", "-_8=", "Zm9 v", "====", "Zg==Zg==",
        ] {
            assert_eq!(decode(odd), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
    }
}
