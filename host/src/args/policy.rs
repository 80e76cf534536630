//! `kproxide policy`: tools for the authors of policies.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub enum Policy {
    /// List the built-in policies with their digests
    List,
    /// Write the built-in policies as NAME.wasm into a folder
    Export {
        /// The folder; kproxide creates it if it does not exist
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Make a folder with a policy in your language, that builds and works
    ///
    /// It has all that the policy is built of, a test, and a README with the next commands.
    #[cfg(feature = "init")]
    New(New),
}

/// What a policy may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    HostSelection,
    ScaleDown,
    Labels,
}

#[derive(Debug, Args)]
pub struct New {
    /// Name of the policy and of its folder: lower-case letters, digits and dashes
    pub name: String,
    /// What the policy decides: the server of a machine, the Node to remove, or the labels of a Node
    #[arg(long, value_enum, default_value_t = Kind::HostSelection, value_name = "KIND")]
    pub kind: Kind,
    /// Language of the policy
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    pub lang: Language,
    /// Folder in which the folder NAME is made
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub into: PathBuf,
}

/// In which a new policy is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    Rust,
    Js,
    Go,
    C,
    Python,
}
