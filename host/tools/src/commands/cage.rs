//! What runs policies in each command that may be given files of them: one way, as nobody knows who made a file.

use kproxide_policy::{Engine, Execution, LoadError, Workers, memory_bytes};

/// For commands that a person waits for. `execution`: of the policies that are built in.
///
/// # Errors
/// Policies do not run here.
pub(super) fn for_a_person(execution: Execution) -> Result<Engine, LoadError> {
    let engine = Engine::new(execution)?;
    // Here this program is that of the unit tests, which serves as no process for policies: `tests/cage` and `tests/commands` are about those.
    if cfg!(test) {
        return Ok(engine);
    }
    Ok(engine.caging(workers()?.patient()))
}

fn workers() -> Result<Workers, LoadError> {
    Workers::of_this_program(memory_bytes(None))
        .map_err(|error| LoadError::Platform(error.to_string()))
}
