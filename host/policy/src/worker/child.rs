//! The child: it loads one policy and answers for it until its parent closes the pipe, or makes a policy of a core module.

use std::error::Error;
use std::io::{self, Write as _};

use super::cage;
use super::wire::{self, Described, Request, Response};
use crate::Escape;
use crate::engine::{Engine, Images, Module, Replied};
use crate::wrap;

/// Serves on standard input and output. `memory_bytes`: what it may use.
///
/// # Errors
/// wasmtime does not run here, the pipe breaks, or what comes through it is no request.
pub fn serve(memory_bytes: u64, escape: Option<Escape>) -> Result<(), Box<dyn Error>> {
    let mut refused = cage::limit(memory_bytes);
    // With its thread: after the filter there is no other.
    let mut engine = Engine::caged(Images::Kept)?;
    let unfiltered = cage::filter();
    if !unfiltered.is_empty() {
        // Nothing tells wasmtime that there are no files for them, and they cannot be had.
        engine = Engine::caged(Images::Never)?;
    }
    refused.extend(unfiltered);
    if let Some(escape) = escape {
        return try_to(escape);
    }
    let mut input = io::stdin().lock();
    send(&Response::Ready(refused), &[])?;
    let mut module = None;
    while let Some((request, bytes)) = wire::read(&mut input)? {
        let (response, behind) = respond(&engine, &mut module, &request, bytes);
        send(&response, &behind)?;
    }
    Ok(())
}

/// The answer, and the bytes that follow its frame.
fn respond(
    engine: &Engine,
    module: &mut Option<Module>,
    request: &Request<'_>,
    bytes: Vec<u8>,
) -> (Response, Vec<u8>) {
    let none = || "no policy was loaded".to_owned();
    let response = match request {
        Request::Load(_) => {
            let loaded = engine.load_here(&bytes).map_err(|error| error.to_string());
            Response::Loaded(loaded.map(|loaded| {
                let described = Described {
                    info: loaded.info().clone(),
                    kinds: loaded.kinds(),
                    imports: loaded.imports().to_vec(),
                    unpacked_bytes: loaded.unpacked_bytes(),
                };
                *module = Some(loaded);
                described
            }))
        }
        Request::Wrap(_) => match wrap::component(bytes) {
            Ok(component) => {
                let length = component.len() as u64;
                return (Response::Wrapped(Ok(length)), component);
            }
            Err(why) => Response::Wrapped(Err(why.to_string())),
        },
        Request::CheckSettings(settings) => Response::Checked(match module {
            Some(module) => engine.settings_reply(module, settings),
            None => Replied::lost(none()),
        }),
        Request::Ask(question, spent) => Response::Replied(match module {
            Some(module) => engine.reply(module, question, *spent),
            None => Replied::lost(none()),
        }),
    };
    (response, Vec::new())
}

fn send(response: &Response, behind: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(&wire::encode(response)?)?;
    output.write_all(behind)?;
    output.flush()
}

fn try_to(escape: Escape) -> Result<(), Box<dyn Error>> {
    match escape {
        Escape::OpenFile => drop(std::fs::read("/etc/hostname")?),
        Escape::ParentEnvironment => {
            let parent = std::os::unix::process::parent_id();
            drop(std::fs::read(format!("/proc/{parent}/environ"))?);
        }
        Escape::Socket => drop(std::net::UdpSocket::bind("127.0.0.1:0")?),
        Escape::Thread => std::thread::Builder::new().spawn(|| ()).map(drop)?,
        Escape::Process => drop(std::process::Command::new("/bin/true").status()?),
    }
    Ok(())
}
