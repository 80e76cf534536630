//! Bytes as they lie in a file: a component, or one packed with gzip or zstd. The first bytes tell which, whatever the file is called.

use std::borrow::Cow;
use std::io::{self, Read};

use super::LoadError;

/// The output of the largest tools for policies (Python) has 18 MB.
pub const UNPACKED_BYTES_MAX: usize = 32 << 20;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// At most a byte more than is allowed.
///
/// # Errors
/// It does not unpack, or wants more memory for it than it gets.
pub fn unpacked(packed: &[u8]) -> Result<Cow<'_, [u8]>, LoadError> {
    let bytes = if packed.starts_with(&GZIP) {
        limited(flate2::read::GzDecoder::new(packed))
    } else if packed.starts_with(&ZSTD) {
        check_window(packed)?;
        let decoder = ruzstd::decoding::StreamingDecoder::new(packed);
        limited(decoder.map_err(|error| LoadError::Unpack(error.to_string()))?)
    } else {
        return Ok(packed.into());
    };
    match bytes {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => Err(LoadError::Unpack(error.to_string())),
    }
}

/// One byte more than allowed is enough to know that it is too big.
fn limited(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader
        .take(UNPACKED_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The header of a zstd frame (RFC 8878, 3.1.1.1) says how much its reader must keep, and the reader takes that at once: either a window, of 5 bits of exponent
/// and 3 of mantissa, or all of the content.
fn check_window(packed: &[u8]) -> Result<(), LoadError> {
    let byte = |at: usize| packed.get(at).copied().unwrap_or(0);
    let descriptor = byte(4);
    let bytes = if descriptor & 0x20 == 0 {
        let window = byte(5);
        let base = 1_u64 << (10 + (window >> 3));
        base + base / 8 * u64::from(window & 7)
    } else {
        let at = 5 + [0, 1, 2, 4][usize::from(descriptor & 3)];
        let (length, more) = [(1, 0), (2, 256), (4, 0), (8, 0)][usize::from(descriptor >> 6)];
        let content = (0..length)
            .rev()
            .fold(0_u64, |sum, i| sum << 8 | u64::from(byte(at + i)));
        content.saturating_add(more)
    };
    if bytes <= UNPACKED_BYTES_MAX as u64 {
        return Ok(());
    }
    Err(LoadError::Unpack(format!(
        "to unpack it takes a buffer of {bytes} bytes, and at most {UNPACKED_BYTES_MAX} are given: pack it with `zstd -19`, without --long"
    )))
}
