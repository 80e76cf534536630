//! `kproxide policy list`: the built-in policies.

use std::io::{self, Write};

use kproxide_builtins::{BUILTINS, Kind};

/// One line per built-in: name, kind, size, digest.
///
/// # Errors
/// The output is closed.
pub(super) fn list(out: &mut impl Write) -> io::Result<()> {
    for builtin in BUILTINS {
        let kind = match builtin.kind {
            Kind::HostSelection => "host-selection",
            Kind::ScaleDown => "scale-down",
            Kind::Labels => "labels",
        };
        let kib = builtin.wasm.len().div_ceil(1024);
        writeln!(
            out,
            "{:<14} {kind:<15} {kib:>4} KiB  sha256:{}",
            builtin.name, builtin.sha256
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_shows_name_kind_and_digest() {
        let mut printed = Vec::new();
        list(&mut printed).unwrap();
        let text = String::from_utf8(printed).unwrap();
        let spread = kproxide_builtins::builtin("spread").unwrap();
        assert!(
            text.lines().any(|l| l.starts_with("spread ")
                && l.contains("host-selection")
                && l.ends_with(spread.sha256)),
            "{text}"
        );
    }
}
