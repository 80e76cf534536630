//! `kproxide policy`: tools for the authors of policies. Each verb has a file.

mod answered;
mod bench;
mod check;
mod digest;
mod facts;
mod files;
pub(super) mod given;
mod list;
#[cfg(feature = "init")]
mod new;
mod pack;
mod properties;
mod replay;
mod run;
mod settings;
mod test;

use std::error::Error;
use std::io::Write;

use super::Exit;
use crate::args::Policy;
use crate::args::policy::Show;

/// # Errors
/// Those of the verb.
pub fn run(args: &Policy, out: &mut impl Write) -> Result<Exit, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match args {
            Policy::Show(Show::List(args)) => list::list(args, out).await,
            Policy::Show(Show::Settings(args)) => settings::table_of(args, out).await,
            Policy::Show(Show::Digest(args)) => digest::digest(args, out),
            Policy::Show(Show::Facts(args)) => facts::facts(args, out).await,
            Policy::Show(Show::Files { dir }) => {
                Ok(files::export(dir, out).map(|()| Exit::Success)?)
            }
            #[cfg(feature = "init")]
            Policy::New(args) => Ok(new::new(args, out).map(|()| Exit::Success)?),
            Policy::Check(args) => check::check(args, out).await,
            Policy::Run(args) => run::run(args, out).await,
            Policy::Test(args) => test::test(args, out).await,
            Policy::Bench(args) => bench::bench(args, out).await,
            Policy::Pack(args) => pack::pack(args, out).await,
            Policy::Replay(args) => replay::replay(args, out).await,
        }
    })
}
