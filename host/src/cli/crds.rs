//! `kproxide crds`: the CustomResourceDefinitions as text, or applied to a cluster.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use crate::args::Crds;
use crate::chain::chain;
use crate::kube::client::Client;
use crate::kube::crd;
use crate::kube::install::{self, InstallError};

/// The kubeconfig cannot be used.
const BAD_INPUT: u8 = 2;
/// Kubernetes was not reached, or refused.
const KUBERNETES: u8 = 3;

/// # Errors
/// The output is closed.
pub(super) fn run(args: &Crds, out: &mut impl Write) -> Result<ExitCode, Box<dyn Error>> {
    if args.apply {
        return apply(args, out);
    }
    let text = match args.values_schema {
        true => crd::values_schema(),
        false => crd::crds_yaml(),
    };
    write!(out, "{text}")?;
    Ok(ExitCode::SUCCESS)
}

fn apply(args: &Crds, out: &mut impl Write) -> Result<ExitCode, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let failed = |error: &dyn Error, code: Option<u8>| {
        eprintln!("kproxide: {}", chain(error));
        Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
    };
    let client = runtime.block_on(Client::connect(args.kubeconfig.as_deref()));
    let client = match client {
        Ok(client) => client,
        Err(error) => return failed(&error, Some(BAD_INPUT)),
    };
    match runtime.block_on(install::apply(&client, &crd::crds())) {
        Ok(done) => {
            for (name, outcome) in done {
                writeln!(out, "{name} {outcome}")?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error @ (InstallError::Refused(_) | InstallError::Interrupted(_))) => {
            failed(&error, Some(KUBERNETES))
        }
        Err(error) => failed(&error, None),
    }
}
