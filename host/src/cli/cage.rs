//! What runs policies in each command that may be given files of them: one way, as nobody knows who made a file.

use crate::policy::{Engine, Execution, LoadError, Workers, memory_bytes};

/// For `kproxide run`: files are unpacked, compiled and called in processes of their own, with so much memory for all of them; without a number with what the
/// container leaves.
///
/// # Errors
/// Policies do not run here.
pub(super) fn for_the_loop(memory: Option<u64>) -> Result<Engine, LoadError> {
    Ok(Engine::new(Execution::Blocking)?.caging(workers(memory)?))
}

/// For commands that a person waits for. `execution`: of the policies that are built in.
///
/// # Errors
/// As of [`for_the_loop`].
pub(super) fn for_a_person(execution: Execution) -> Result<Engine, LoadError> {
    let engine = Engine::new(execution)?;
    // Here this program is that of the unit tests, which serves as no process for policies: `tests/cage` and `tests/commands` are about those.
    if cfg!(test) {
        return Ok(engine);
    }
    Ok(engine.caging(workers(None)?.patient()))
}

fn workers(memory: Option<u64>) -> Result<Workers, LoadError> {
    Workers::of_this_program(memory_bytes(memory))
        .map_err(|error| LoadError::Platform(error.to_string()))
}
