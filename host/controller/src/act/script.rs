//! Join scripts: where they may come from, and how they travel into a guest.
//!
//! Proxmox takes text and makes bytes of it in its own way: a letter up to U+00FF reaches the guest as one byte of Latin-1, and one beyond it is an error
//! ("Wide character"). So only ASCII is sent. A script that is more than that is written by the guest's shell, out of ASCII.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

/// As many letters as Proxmox takes as a command's input (`input-data` of `agent/exec`).
const INPUT_MAX: usize = 65_536;

/// The way out where there is no such file.
pub const MOUNT_IT: &str = "mount the Secret with the join script, or correct the path";

/// What an operator wrote.
pub struct Script(Vec<u8>);

impl Script {
    /// Scripts come from one folder only. Otherwise a user who may write a NodeClass could have any file of kproxide (a
    /// token, say) sent into a machine.
    ///
    /// # Errors
    /// Why it cannot be read or sent, in one sentence.
    pub fn read(folder: &Path, file: &Path) -> Result<Self, String> {
        let io = |error: std::io::Error| format!("{error}: {MOUNT_IT}");
        let folder = folder
            .canonicalize()
            .map_err(|error| format!("--join-dir {}: {error}", folder.display()))?;
        let file = folder.join(file).canonicalize().map_err(io)?;
        if !file.starts_with(&folder) {
            return Err(format!(
                "it is not in --join-dir {}: {MOUNT_IT}",
                folder.display()
            ));
        }
        let found = file.metadata().map_err(io)?;
        if !found.is_file() {
            return Err(format!("it is not a file: {MOUNT_IT}"));
        }
        // Nobody knows what else it is: its length is enough to refuse it.
        if usize::try_from(found.len()).map_or(true, |bytes| bytes > INPUT_MAX) {
            return Err(too_long(found.len()));
        }
        Self::new(std::fs::read(file).map_err(io)?)
    }

    /// # Errors
    /// It cannot be sent; why.
    pub fn new(bytes: Vec<u8>) -> Result<Self, String> {
        let script = Self(bytes);
        let letters = script.input().len();
        match letters > INPUT_MAX {
            true => Err(too_long(letters as u64)),
            false => Ok(script),
        }
    }

    /// For people, and for what looks for words in it.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// What a shell in the guest reads. `printf` is a part of the shell: nothing of the script shows in the list of processes, or lies on the disk.
    pub(super) fn input(&self) -> Cow<'_, str> {
        let Self(bytes) = self;
        if bytes.is_ascii() {
            return self.text();
        }
        let mut input = String::from("printf '");
        for byte in bytes {
            match byte {
                b'%' => input += "%%",
                b'\\' => input += r"\\",
                // A quote ends the text, a NUL may end the shell's line.
                b'\'' | 0 | 0x80.. => {
                    let _ = write!(input, r"\{byte:03o}");
                }
                _ => input.push(char::from(*byte)),
            }
        }
        input += "' | /bin/sh -s\n";
        Cow::Owned(input)
    }
}

fn too_long(letters: u64) -> String {
    format!(
        "it takes {letters} letters on its way into a guest, where each byte beyond ASCII takes four, and Proxmox takes at most {INPUT_MAX}: let the script \
         fetch the rest"
    )
}

#[cfg(test)]
mod tests;
