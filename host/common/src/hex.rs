//! Bytes as lower-case hexadecimal digits, two for each.

use std::fmt::Write as _;

/// `[0x0a, 0xff]` is `0aff`.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
