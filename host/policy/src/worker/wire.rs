//! What a parent and its child say to each other: frames of `postcard`, each after its length in four bytes, least significant first.

use std::borrow::Cow;
use std::io::{self, Read};

use kproxide_planner::facts::PolicyKind;
use kproxide_planner::plan::question::Question;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::{PolicyInfo, Replied, Reply};
use kproxide_common::foreign;

/// Ten times what 1000 hypervisors with attributes are.
pub(super) const FRAME_BYTES_MAX: usize = 8 << 20;
/// Two are all that a policy may have, in several versions perhaps.
const IMPORTS_MAX: usize = 10;

#[derive(Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(super) enum Request<'a> {
    /// So many bytes follow the frame: a file may be larger than a frame.
    Load(u64),
    /// A core module becomes a component; as many bytes follow.
    Wrap(u64),
    CheckSettings(Cow<'a, str>),
    /// With the instructions that others have taken for the same question.
    Ask(Cow<'a, Question>, u64),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Response {
    /// The cage is shut; these parts of it the kernel refuses.
    Ready(Vec<String>),
    Loaded(Result<Described, String>),
    /// So many bytes follow the frame, the component.
    Wrapped(Result<u64, String>),
    Checked(Replied<()>),
    Replied(Replied<Reply>),
}

/// What a policy is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Described {
    pub(crate) info: PolicyInfo,
    pub(crate) kinds: Vec<PolicyKind>,
    pub(crate) imports: Vec<String>,
    pub(crate) unpacked_bytes: usize,
}

impl Described {
    /// As they can be shown.
    pub(crate) fn imports(&self) -> Vec<String> {
        let imports = self.imports.iter().take(IMPORTS_MAX);
        imports.map(|name| foreign::line(name, 200)).collect()
    }
}

/// A frame with its length.
///
/// # Errors
/// It is too long.
pub(super) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; size_of::<u32>()];
    frame = postcard::to_extend(message, frame).map_err(io::Error::other)?;
    let length = frame.len() - size_of::<u32>();
    let prefix = check_length(u32::try_from(length).unwrap_or(u32::MAX))?;
    frame[..size_of::<u32>()].copy_from_slice(&(prefix as u32).to_le_bytes());
    Ok(frame)
}

/// A frame with its length, and these bytes behind it.
///
/// # Errors
/// As of [`encode`].
pub(super) fn with_bytes(request: &Request<'_>, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut message = encode(request)?;
    message.extend(bytes);
    Ok(message)
}

/// # Errors
/// The other side wants to send more than a frame may have.
pub(super) fn check_length(length: u32) -> io::Result<usize> {
    match usize::try_from(length) {
        Ok(length) if length <= FRAME_BYTES_MAX => Ok(length),
        _ => Err(io::Error::other(format!(
            "a message of {length} bytes; at most {FRAME_BYTES_MAX} are read"
        ))),
    }
}

/// # Errors
/// It is no such message, or there is more than one.
pub(super) fn decode<T: DeserializeOwned>(frame: &[u8]) -> io::Result<T> {
    match postcard::take_from_bytes(frame) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(io::Error::other("a message with something behind it")),
        Err(error) => Err(io::Error::other(format!("no message: {error}"))),
    }
}

/// The child's side: the next request and, of a file, its bytes. `None`: the parent has closed the pipe.
///
/// # Errors
/// The pipe breaks, or what comes is no request.
pub(super) fn read(from: &mut impl Read) -> io::Result<Option<(Request<'static>, Vec<u8>)>> {
    let mut length = [0; size_of::<u32>()];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut frame = vec![0; check_length(u32::from_le_bytes(length))?];
    from.read_exact(&mut frame)?;
    let request = decode(&frame)?;
    let mut bytes = Vec::new();
    if let Request::Load(length) | Request::Wrap(length) = request {
        let expected = from.take(length).read_to_end(&mut bytes)? as u64;
        if expected != length {
            return Ok(None);
        }
    }
    Ok(Some((request, bytes)))
}
