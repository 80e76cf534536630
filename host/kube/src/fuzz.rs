//! What no input whatsoever may break: each target takes any bytes and panics if something is wrong. Nothing of this is in what is shipped.

mod objects;

pub use crate::lease::fuzz::fence;
pub use crate::watch::fuzz::reflector;
pub use objects::objects;

#[cfg(test)]
mod tests;
