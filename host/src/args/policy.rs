//! `kproxide policy`: tools for the authors of policies.

use std::path::PathBuf;

use clap::Subcommand;

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
}
