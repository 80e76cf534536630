//! File after file under one name, good and bad, while it is asked: no decision is lost, none is made by half a file, and nothing grows.

use std::fs;
use std::sync::Arc;

use fastrand::Rng;
use kproxide_builtins::builtin;
use kproxide_planner::plan::question::AnswerBody;
use kproxide_policy::{Budget, Library, PolicyFile, PolicyFiles};

use super::questions::question;
use super::{caged, wasm};
use tokio::time::Instant;

const RELOADS: usize = 500;
/// While each file loads.
const ASKS: u32 = 5;

/// The policy with a section that says which one this is, which nobody reads: other bytes, and the same answers.
fn numbered(number: usize) -> Arc<[u8]> {
    let mut bytes = wasm("pack").to_vec();
    // Section 0, its length, the name "n", and the number.
    bytes.extend([0, 10, 1, b'n']);
    bytes.extend((number as u64).to_le_bytes());
    bytes.into()
}

fn children() -> usize {
    let children = fs::read_to_string("/proc/thread-self/children").unwrap();
    children.split_whitespace().count()
}

/// What this process itself has in memory.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib << 10
}

fn files(bytes: Arc<[u8]>) -> PolicyFiles {
    let file = PolicyFile {
        path: "mine.wasm".into(),
        content: Ok(bytes.into()),
    };
    [("mine".into(), vec![file])].into()
}

#[tokio::test]
async fn f92_hundreds_of_reloads_lose_no_decision_and_leave_nothing_behind() {
    let library = Library::new(caged());
    let kind = builtin("pack").unwrap().kind;
    let question = question(kind, "mine", "", &mut Rng::with_seed(5));
    let mut expected: Option<AnswerBody> = None;
    let mut swaps = Vec::new();
    let mut level = 0;
    for number in 0..RELOADS {
        let good = number % 2 == 0;
        let bytes = match good {
            true => numbered(number),
            // Half a file, as a copy that is under way has it.
            false => {
                let whole = numbered(number);
                whole[..whole.len() / 2].into()
            }
        };
        let began = Instant::now();
        let reloading = library.sync(files(bytes));
        tokio::pin!(reloading);
        // Asked while it loads, it answers by what was there before.
        let mut asks = 0;
        loop {
            let asked = async {
                let mut budget = Budget::default();
                library.ask(&question, &mut budget).await
            };
            tokio::select! {
                biased;
                reloads = &mut reloading => {
                    assert_eq!(reloads.len(), 1, "{number}: {reloads:?}");
                    break;
                }
                answer = asked, if expected.is_some() && asks < ASKS => {
                    assert_eq!((answer.fallback, Some(answer.body)), (None, expected.clone()), "{number}");
                    asks += 1;
                }
            }
        }
        let answer = library.ask(&question, &mut Budget::default()).await;
        assert_eq!(answer.fallback, None, "{number}");
        assert_eq!(
            *expected.get_or_insert_with(|| answer.body.clone()),
            answer.body
        );
        if good {
            swaps.push(began.elapsed());
        }
        if number == 50 {
            level = resident_bytes();
        }
    }
    swaps.sort();
    let grown = resident_bytes().saturating_sub(level);
    eprintln!(
        "{RELOADS} reloads: from the file to its answer {:?}, of a hundred one takes {:?} or more; {} KiB more memory",
        swaps[swaps.len() / 2],
        swaps[swaps.len() * 99 / 100],
        grown >> 10
    );
    // Those of other tests are no children of this thread.
    assert!(children() <= 2, "{} children", children());
    assert!(grown < 64 << 20, "{} MiB", grown >> 20);
}
