//! `kproxide completions`: what shells need to complete commands and flags.

use std::io::{self, Write};

use clap_complete::generate;

use super::args::Shell;

/// # Errors
/// The output is closed.
pub(super) fn print(shell: Shell, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&script(shell))
}

fn script(shell: Shell) -> Vec<u8> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut super::command(), "kproxide", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Command, ValueEnum as _};

    use super::*;

    /// The names of all commands below this one.
    fn names(command: &Command) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for verb in command.get_subcommands() {
            found.insert(verb.get_name().to_owned());
            found.extend(names(verb));
        }
        found
    }

    #[test]
    fn the_script_of_each_shell_names_each_command() {
        let names = names(&super::super::command());
        assert!(names.contains("status") && names.contains("digest"));
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).unwrap();
            let words = script.split(|it: char| !it.is_alphanumeric() && it != '-');
            let words: BTreeSet<&str> = words.collect();
            for name in &names {
                assert!(words.contains(name.as_str()), "{shell:?} lacks {name}");
            }
        }
    }
}
