//! `kproxide crds`: the CustomResourceDefinitions as text, or applied to a cluster.

use std::error::Error;
use std::io::Write;

use super::Exit;
use crate::args::Crds;
use kproxide_kube::client::Client;
use kproxide_kube::crd;
use kproxide_kube::install;

/// # Errors
/// The output is closed, or the definitions cannot be applied.
pub fn run(args: &Crds, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    if args.apply {
        return apply(args, out);
    }
    let text = match args.values_schema {
        true => crd::values_schema(),
        false => crd::crds_yaml(),
    };
    write!(out, "{text}")?;
    Ok(Exit::Success)
}

fn apply(args: &Crds, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let client = runtime.block_on(Client::connect(args.kubeconfig.as_deref()))?;
    for (name, outcome) in runtime.block_on(install::apply(&client, crd::crds()))? {
        writeln!(out, "{name} {outcome}")?;
    }
    Ok(Exit::Success)
}
