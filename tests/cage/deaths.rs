//! Workers that die: what is said of it, and that the next question has its answer.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use kproxide_builtins::{HOSTILE, builtin};
use kproxide_planner::facts::{PolicyMember, PolicyRef, PolicyUse};
use kproxide_planner::plan::question::{AnswerBody, Question};
use kproxide_policy::{
    Budget, CallError, Directories, Engine, Execution, Library, LoadError, Module, PolicyFile,
    PolicyFiles, Workers,
};
use kproxide_testkit::eventually;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use super::questions::question;
use super::{PROGRAM, caged, caged_by, wasm};

const SOON: Duration = Duration::from_secs(60);

/// The workers that this thread has started and that run now: those of one test, whose runtime has one thread.
fn workers() -> Vec<Pid> {
    let children = fs::read_to_string("/proc/thread-self/children").unwrap();
    let pids = children.split_whitespace().map(|pid| pid.parse().unwrap());
    pids.map(|pid| Pid::from_raw(pid).unwrap()).collect()
}

fn kill_all() {
    for worker in workers() {
        kill_process(worker, Signal::KILL).unwrap();
    }
}

fn to_spread() -> Question {
    let policy = builtin("spread").unwrap();
    question(policy.kind, "spread", "", &mut Rng::with_seed(3))
}

fn to_hostile(what: &str) -> Question {
    let kind = HOSTILE.iter().find(|it| it.name == "hostile").unwrap().kind;
    let settings = format!(r#"{{"do": "{what}"}}"#);
    question(kind, "hostile", &settings, &mut Rng::with_seed(3))
}

#[tokio::test]
async fn f83_a_worker_that_somebody_kills_between_two_questions_is_missed_by_none() {
    let engine = caged();
    let module = engine.load_file(wasm("spread")).await.unwrap();
    let answer = engine.ask(&module, &to_spread()).await;
    assert!(answer.result.is_ok());
    for _ in 0..3 {
        let before = workers();
        assert_eq!(before.len(), 1);
        kill_all();
        assert_eq!(in_time(&engine, &module).await, answer.result);
        assert_ne!(workers(), before);
    }
}

/// Once, or each time: a file is no worse for it.
#[tokio::test]
async fn a_file_whose_worker_is_killed_while_it_starts_is_loaded_by_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("worker");
    let script = |dies: &str| format!("#!/bin/sh\n{dies} && kill -9 $$\nexec '{PROGRAM}' \"$@\"\n");
    let writes = |dies: &str| {
        fs::write(&program, script(dies)).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let first = folder.path().join("first").display().to_string();
    writes(&format!("/bin/mkdir '{first}'"));
    let engine = caged_by(program.clone(), SOON);
    let module = engine.load_file(wasm("spread")).await.unwrap();
    assert!(engine.ask(&module, &to_spread()).await.result.is_ok());

    writes("true");
    let refused = engine.load_file(wasm("pack")).await.unwrap_err();
    assert!(refused.to_string().contains("SIGKILL"), "{refused}");
    writes("false");
    engine.load_file(wasm("pack")).await.unwrap();
}

/// A machine that is busy starts a process late: an asker does not wait for it, and comes again.
async fn in_time(
    engine: &Engine,
    module: &Module,
) -> Result<kproxide_planner::plan::question::AnswerBody, CallError> {
    eventually(SOON, "a worker that has started", async || {
        match engine.ask(module, &to_spread()).await.result {
            Err(CallError::Starting | CallError::NoRoom(_)) => None,
            result => Some(result),
        }
    })
    .await
}

/// Kills whatever worker there is, so many times, each time when it is at work.
async fn kill_next(times: usize) {
    let mut killed = Vec::new();
    for _ in 0..times {
        let worker = eventually(SOON, "a worker at work", async || {
            let mut workers = workers().into_iter();
            workers.find(|worker| !killed.contains(worker) && is_asked(*worker))
        })
        .await;
        kill_process(worker, Signal::KILL).unwrap();
        killed.push(worker);
    }
}

/// Its main thread, on which policies run, waits for nothing, and its file is loaded: it has written two messages, with one call each. (kproxide starts a
/// process that is killed while it loads once more for the same question.)
fn is_asked(worker: Pid) -> bool {
    let read = |file: &str| {
        let path = format!("/proc/{}/{file}", worker.as_raw_nonzero());
        fs::read_to_string(path).unwrap_or_default()
    };
    let io = read("io");
    let writes = io.lines().find_map(|line| line.strip_prefix("syscw: "));
    let is_loaded = writes.is_some_and(|writes| writes.parse::<u32>().unwrap() >= 2);
    // The name of the program stands in brackets before the state.
    is_loaded && read("stat").contains(") R ")
}

#[tokio::test]
async fn f83_a_question_outlives_one_worker_that_is_killed_over_it_and_fails_with_the_second() {
    let engine = caged();
    let module = engine.load_file(wasm("hostile")).await.unwrap();
    let good = engine.ask(&module, &to_hostile("behave")).await;
    assert!(good.result.is_ok());
    for (kills, expected) in [(1, false), (2, true)] {
        let spinning = to_hostile("spin");
        let mut asking = pin!(engine.ask(&module, &spinning));
        let (called, are_killed) = tokio::select! {
            called = &mut asking => (called, false),
            () = kill_next(kills) => (asking.await, true),
        };
        let said = called.result.unwrap_err();
        let is_death = said.to_string().contains("was killed (SIGKILL)");
        // Too slow a machine starts none in time.
        assert!(
            are_killed && is_death == expected || said == CallError::Starting,
            "{said}, all killed: {are_killed}"
        );
        eventually(SOON, "the answer of another worker", async || {
            let again = engine.ask(&module, &to_hostile("behave")).await;
            (again == good).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_worker_ends_with_the_last_who_has_its_policy() {
    let engine = caged();
    let modules = [
        engine.load_file(wasm("spread")).await.unwrap(),
        engine.load_file(wasm("pack")).await.unwrap(),
    ];
    assert_eq!(workers().len(), 2);
    drop(modules);
    eventually(SOON, "the end of the workers", async || {
        workers().is_empty().then_some(())
    })
    .await;
}

/// Two files, of which pools use one. The other is asked again later, and its bytes lie on the disk alone.
#[tokio::test]
async fn workers_of_policies_that_no_pool_uses_end_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["spread", "pack"] {
        std::fs::write(folder.path().join(format!("{name}.wasm")), wasm(name)).unwrap();
    }
    let library = Library::new(caged());
    let mut directories = Directories::new(&[folder.path().to_path_buf()]);
    let reloads = library.sync(directories.read(&BTreeSet::new())).await;
    assert_eq!(reloads.len(), 2, "{reloads:?}");
    assert_eq!(workers().len(), 2);
    let question = to_spread();
    let used = || {
        let used = (question.pool().clone(), question.policy().clone());
        [used].into_iter()
    };
    library.judge(used(), &mut Budget::unlimited()).await;
    eventually(SOON, "the end of the one that is not used", async || {
        (workers().len() == 1).then_some(())
    })
    .await;
    let asked = |name: &str| {
        let mut question = question.clone();
        if let Question::Rank(rank) = &mut question {
            rank.policy.policy.name = name.into();
        }
        question
    };
    for name in ["spread", "pack"] {
        let answer = eventually(SOON, "the answer", async || {
            let answer = library.ask(&asked(name), &mut Budget::unlimited()).await;
            matches!(answer.body, AnswerBody::Ranking(_)).then_some(answer)
        })
        .await;
        assert_eq!(answer.fallback, None, "{name}");
    }
    // What lies there now is another policy: it does not answer in the name of this one.
    library.judge(used(), &mut Budget::unlimited()).await;
    eventually(SOON, "the end of the other one", async || {
        (workers().len() == 1).then_some(())
    })
    .await;
    std::fs::write(folder.path().join("pack.wasm"), wasm("hostile")).unwrap();
    let answer = library.ask(&asked("pack"), &mut Budget::unlimited()).await;
    let said = answer.fallback.unwrap();
    assert!(said.contains("another file lies in its place"), "{said}");
}

fn together(names: &[&str]) -> Question {
    let mut question = to_spread();
    if let Question::Rank(rank) = &mut question {
        let kind = rank.policy.policy.kind;
        let member = |name: &&str| PolicyMember {
            policy: PolicyRef {
                kind,
                name: (*name).into(),
            },
            settings: "".into(),
            weight: 1,
            state: Vec::new(),
        };
        rank.policy = PolicyUse::together(kind, names.iter().map(member).collect());
    }
    question
}

/// A pool with four of them had no machine for ever, and was Ready.
#[tokio::test]
async fn w16_policies_that_decide_together_and_do_not_fit_the_memory_fail_with_what_they_need() {
    // A process takes some MiB of it. So there is room for one, and not for two.
    let room = Workers::new(PathBuf::from(PROGRAM), 177 << 20);
    let library = Library::new(Engine::new(Execution::Blocking).unwrap().caging(room));
    let files = [("one", "spread"), ("two", "pack")];
    let files = files.map(|(name, of)| (Arc::from(name), PolicyFile::alone(&wasm(of))));
    let reloads = library.sync(PolicyFiles::from(files)).await;
    assert_eq!(reloads.len(), 2, "{reloads:?}");
    eventually(SOON, "the end of the first for the second", async || {
        (workers().len() == 1).then_some(())
    })
    .await;

    let both = together(&["one", "two", "max-cpu"]);
    let answer = library.ask(&both, &mut Budget::unlimited()).await;
    let said = answer.fallback.unwrap();
    assert!(
        said.contains("MiB at once, and there are 177 MiB for policies"),
        "{said}"
    );
    assert!(matches!(answer.body, AnswerBody::Ranking(_)));
    let used = [(both.pool().clone(), both.policy().clone())];
    let mut budget = Budget::unlimited();
    let unfit = library.judge(used.into_iter(), &mut budget).await;
    let given_up = unfit.given_up;
    assert_eq!(given_up.len(), 3, "{given_up:?}");
    assert!(
        given_up.values().all(|why| said.ends_with(why)),
        "{given_up:?}"
    );

    // One alone has its turn, and so has the other.
    for name in ["one", "two", "one"] {
        let one = together(&[name, "max-cpu"]);
        let answer = eventually(SOON, "the answer", async || {
            let answer = library.ask(&one, &mut Budget::unlimited()).await;
            matches!(answer.body, AnswerBody::Ranking(_)).then_some(answer)
        })
        .await;
        assert_eq!(answer.fallback, None, "{name}");
    }
}

/// A worker has its three pipes, and nothing that the program has open.
#[tokio::test]
async fn f90_a_worker_gets_no_files_and_no_environment() {
    let _socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let engine = caged();
    let _module = engine.load_file(wasm("spread")).await.unwrap();
    let [worker] = workers()[..] else {
        panic!("{:?}", workers());
    };
    let of = |file: &str| format!("/proc/{}/{file}", worker.as_raw_nonzero());
    // What whoever started this test has left open is not ours to close, but a worker can read three alone.
    let links = |folder: &str| -> Vec<PathBuf> {
        let files = fs::read_dir(folder).unwrap();
        files
            .filter_map(|file| fs::read_link(file.unwrap().path()).ok())
            .collect()
    };
    let is_socket = |link: &&PathBuf| link.to_string_lossy().starts_with("socket:");
    assert!(links("/proc/self/fd").iter().any(|link| is_socket(&link)));
    assert_eq!(links(&of("fd")).iter().find(is_socket), None);
    assert_eq!(fs::read(of("environ")).unwrap(), b"");
    let limits = fs::read_to_string(of("limits")).unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(limit("Max open files"), "3");
    assert_eq!(limit("Max file size"), "0");
    assert_eq!(limit("Max core file size"), "1");
    let data: u64 = limit("Max data size").parse().unwrap();
    assert!(data < super::MEMORY_BYTES / 2, "{data}");
}

/// Each is refused with a reason, in its time and its memory, and what is good goes on answering meanwhile.
#[tokio::test]
async fn f83_f93_hostile_files_are_refused_and_end_nothing_but_their_workers() {
    let engine = super::caged_within(Duration::from_secs(10));
    let good = engine.load_file(wasm("spread")).await.unwrap();
    let expected = engine.ask(&good, &to_spread()).await.result;
    assert!(expected.is_ok());
    let files = super::hostile::files(&wasm("spread"));
    assert!(files.len() >= 60, "{}", files.len());
    let mut died = Vec::new();
    for (name, bytes) in files {
        let (began, size) = (Instant::now(), bytes.len());
        let error = match engine.load_file(Arc::<[u8]>::from(bytes.clone())).await {
            Err(error) => error,
            Ok(module) => panic!("{name} is a policy: {module:?}"),
        };
        eprintln!("{name}, {size} bytes, {:?}: {error}", began.elapsed());
        if matches!(error, LoadError::Died(_)) {
            died.push(name.clone());
            // It is not tried again.
            let before = workers();
            let again = engine
                .load_file(Arc::<[u8]>::from(bytes))
                .await
                .unwrap_err();
            assert_eq!((again, workers()), (error, before), "{name}");
        }
        assert_eq!(in_time(&engine, &good).await, expected, "after {name}");
    }
    for name in [
        "nested-component-types-20000",
        "instantiated-twice-30",
        "loops-and-locals",
    ] {
        assert!(
            died.iter().any(|it| it == name),
            "{name} is not among {died:?}"
        );
    }
}
