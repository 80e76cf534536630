//! Conformance of the simulated Proxmox API: every recorded answer of the real daemons for a method that the simulation
//! has is asked for again, in a world set up like the one it was recorded in, and compared. (Machines with disks, made and not cloned, are asked for and refused: those four count as different.)
//!
//! Compared are status, reason phrase, texts, the shape and types of the data and every value in it that is not measured
//! or made up on the spot (see `compare`). At least 90 % must be equal, and all of the second run (`r2-`, and `p8-` of 8.4); the rest is
//! printed with the first difference.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where something is not as it was recorded"
)]

#[path = "simulator/compare.rs"]
mod compare;
#[path = "simulator/fixtures.rs"]
mod fixtures;
#[path = "simulator/lab.rs"]
mod lab;
#[path = "simulator/replay.rs"]
mod replay;

use std::io::Write;

use replay::{Recordings, Verdict};

/// Recordings of methods that the simulation does not have because nothing of kproxide asks for them.
const NOT_SIMULATED: [&str; 6] = [
    "c3-fw-options",
    "c3-fw-rules",
    "c3-hardware",
    "c3-options",
    "c3-upload-badext",
    "c3-upload-nocontent",
];

#[tokio::test(start_paused = true)]
async fn conformance() {
    let mut recordings = Recordings::read();
    for (name, fixture) in fixtures::ALL {
        recordings.replay(name, fixture).await;
    }
    let mut equal = 0;
    let mut rest = Vec::new();
    for (name, verdict) in recordings.verdicts() {
        match verdict {
            Some(Verdict::Equal) => equal += 1,
            Some(Verdict::Differs { fixture, why }) => {
                rest.push(format!("{name} (fixture {fixture}): {why}"))
            }
            None if NOT_SIMULATED.contains(&name.as_str()) => {}
            None => rest.push(format!("{name}: no fixture asks for it")),
        }
    }
    let total = equal + rest.len();
    let left_out = NOT_SIMULATED.len();
    // Straight to standard error: the test runner shows what is printed otherwise only when the test fails.
    let mut report = std::io::stderr().lock();
    let count = format!(
        "conformance: {equal} of {total} recordings equal, {left_out} of methods that are not simulated"
    );
    writeln!(report, "{count}").expect("standard error takes text");
    for line in &rest {
        writeln!(report, "  not equal: {line}").expect("standard error takes text");
    }
    let second = rest
        .iter()
        .filter(|line| line.starts_with("r2-") || line.starts_with("p8-"));
    assert_eq!(second.count(), 0, "recordings of the second run differ");
    assert!(
        equal * 10 >= total * 9,
        "only {equal} of {total} recorded answers are reproduced"
    );
}
