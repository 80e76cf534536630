//! New files: taken if they are good, refused with the reason if not, and the last good one goes on answering.

use futures::FutureExt as _;
use kproxide_common::captured::log_of;

use super::*;
use crate::engine::Execution;

/// Whose bytes answer for `mine` in host selection, by the name of the embedded policy.
async fn answering(library: &Library, name: &str) -> &'static str {
    let answer = ask(library, &named(name, "spread", "")).await;
    assert_eq!(answer.fallback, None);
    let known = BUILTINS.iter().chain(kproxide_builtins::HOSTILE);
    known
        .into_iter()
        .find(|policy| policy.sha256 == answer.digest.as_str())
        .unwrap()
        .name
}

fn digest_of(library: &Library, kind: PolicyKind, name: &str) -> Option<String> {
    let facts = library.facts();
    facts
        .get(&PolicyRef {
            kind,
            name: name.into(),
        })
        .map(|facts| facts.digest.to_string())
}

fn taken(name: &str, of: &str) -> Reload {
    let outcome = ReloadOutcome::Taken {
        digest: embedded(of).sha256.into(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    Reload {
        policy: name.into(),
        outcome,
    }
}

fn refused(name: &str, reason: &str) -> Reload {
    Reload {
        policy: name.into(),
        outcome: ReloadOutcome::Refused(reason.to_owned()),
    }
}

fn bytes(name: &str, bytes: &[u8]) -> PolicyFiles {
    [(Arc::from(name), PolicyFile::alone(bytes))].into()
}

/// The same name in two directories, the last first.
fn layered(name: &str, last: &[u8], earlier: &[u8]) -> PolicyFiles {
    let both = [last, earlier].map(PolicyFile::alone).concat();
    [(Arc::from(name), both)].into()
}

#[tokio::test]
async fn a_file_takes_the_place_of_the_built_in_of_its_name_until_it_is_gone() {
    let library = library();
    assert_eq!(answering(&library, "spread").await, "spread");

    assert_eq!(
        library.sync(files(&[("spread", "pack")])).await,
        [taken("spread", "pack")]
    );
    assert_eq!(answering(&library, "spread").await, "pack");
    assert_eq!(
        digest_of(&library, PolicyKind::HostSelection, "spread").as_deref(),
        Some(embedded("pack").sha256)
    );

    assert_eq!(
        library.sync(files(&[("spread", "pack")])).await,
        [],
        "nothing has changed"
    );

    let removed = Reload {
        policy: "spread".into(),
        outcome: ReloadOutcome::Removed { builtin: true },
    };
    assert_eq!(library.sync(PolicyFiles::new()).await, [removed]);
    assert_eq!(answering(&library, "spread").await, "spread");
    assert_eq!(
        digest_of(&library, PolicyKind::HostSelection, "spread").as_deref(),
        Some(embedded("spread").sha256)
    );
}

#[tokio::test]
async fn a_file_of_a_new_name_is_a_new_policy_until_it_is_gone() {
    let library = library();
    assert_eq!(
        library.sync(files(&[("mine", "pack")])).await,
        [taken("mine", "pack")]
    );
    assert_eq!(answering(&library, "mine").await, "pack");

    let removed = Reload {
        policy: "mine".into(),
        outcome: ReloadOutcome::Removed { builtin: false },
    };
    assert_eq!(library.sync(PolicyFiles::new()).await, [removed]);
    assert_eq!(digest_of(&library, PolicyKind::HostSelection, "mine"), None);
    assert!(
        ask(&library, &named("mine", "spread", ""))
            .await
            .fallback
            .unwrap()
            .starts_with("policy mine: there is no host-selection policy")
    );
}

#[tokio::test]
async fn f91_f92_a_broken_file_is_refused_once_and_the_last_good_one_stays() {
    let library = with_files(&[("mine", "pack")]).await;
    let reason = r"it is not WebAssembly: its first bytes are not \0asm";
    assert_eq!(
        library.sync(bytes("mine", b"<html>")).await,
        [refused("mine", reason)]
    );
    assert_eq!(answering(&library, "mine").await, "pack");
    assert_eq!(
        library.sync(bytes("mine", b"<html>")).await,
        [],
        "it is told once"
    );

    let unreadable = FilesError::Read {
        path: "/policies/mine.wasm".to_owned(),
        problem: "Input/output error".to_owned(),
    };
    let unreadable = PolicyFile {
        path: "/policies/mine.wasm".into(),
        content: Err(unreadable),
    };
    assert_eq!(
        library
            .sync([(Arc::from("mine"), vec![unreadable])].into())
            .await,
        [refused(
            "mine",
            "/policies/mine.wasm cannot be read: Input/output error"
        )]
    );
    assert_eq!(answering(&library, "mine").await, "pack");

    assert_eq!(
        library.sync(files(&[("mine", "balanced")])).await,
        [taken("mine", "balanced")]
    );
    assert_eq!(answering(&library, "mine").await, "balanced");
}

#[tokio::test]
async fn a_policy_whose_only_file_is_refused_says_so() {
    let library = library();
    library.sync(bytes("mine", b"<html>")).await;
    let refusal = library.refusals()["mine"].clone();
    assert_eq!(refusal.instead, Instead::Nothing);
    assert!(refusal.reason.contains("not WebAssembly"), "{refusal}");
    assert_eq!(
        ask(&library, &named("mine", "spread", ""))
            .await
            .fallback
            .unwrap(),
        r"policy mine: its file is refused: it is not WebAssembly: its first bytes are not \0asm"
    );
}

/// After a restart there is no last good one: what an earlier directory has decides.
#[tokio::test]
async fn w10_behind_a_bad_file_that_of_an_earlier_directory_answers() {
    let library = library();
    let reason = r"it is not WebAssembly: its first bytes are not \0asm";
    let broken = layered("spread", b"<html>", embedded("pack").wasm);
    assert_eq!(
        library.sync(broken.clone()).await,
        [refused("spread", reason), taken("spread", "pack")]
    );
    assert_eq!(answering(&library, "spread").await, "pack");
    assert_eq!(library.refusals()["spread"].instead, Instead::Earlier);
    assert_eq!(library.sync(broken).await, [], "nothing has changed");

    // A new version of the earlier one is taken, and the bad one not told again.
    let newer = layered("spread", b"<html>", embedded("balanced").wasm);
    assert_eq!(library.sync(newer).await, [taken("spread", "balanced")]);
    let mended = layered(
        "spread",
        embedded("max-cpu").wasm,
        embedded("balanced").wasm,
    );
    assert_eq!(library.sync(mended).await, [taken("spread", "max-cpu")]);
    assert_eq!(library.refusals().len(), 0);

    // Without a restart the last good one of the last directory stays.
    let broken = layered("spread", b"<html>", embedded("balanced").wasm);
    assert_eq!(library.sync(broken).await, [refused("spread", reason)]);
    assert_eq!(answering(&library, "spread").await, "max-cpu");
    assert_eq!(library.refusals()["spread"].instead, Instead::LastGood);
}

#[tokio::test]
async fn w10_where_all_files_of_a_name_are_bad_the_refusal_says_what_decides() {
    let library = library();
    library.sync(layered("spread", b"<html>", b"")).await;
    library
        .sync(layered("spread", b"<html>", b"#!/bin/sh"))
        .await;
    let refusal = library.refusals()["spread"].to_string();
    assert!(
        refusal.starts_with("the file of policy spread is refused and the built-in of that name answers: it is not WebAssembly"),
        "{refusal}"
    );
    assert_eq!(answering(&library, "spread").await, "spread");
}

/// A policy calls itself what it likes. Who reads the log looks for the name of its file.
#[test]
fn w13_lines_of_tests_carry_the_files_name() {
    let (_, log) = log_of(|| {
        let take = async {
            let library = library();
            let logging = named("mine", "hostile", r#"{"do": "log-then-panic"}"#);
            library.note_uses([(logging.pool(), logging.policy())]);
            library.sync(files(&[("mine", "hostile")])).await
        };
        take.now_or_never().unwrap()
    });
    assert!(log.len() > 2, "{log:?}");
    let strange = log
        .iter()
        .find(|line| !line.contains(r#"policy="mine (test)""#));
    assert_eq!(strange, None);
}

/// The policy's own check lets it pass.
#[tokio::test]
async fn w12_settings_that_the_schema_does_not_allow_are_refused() {
    let module = fixtures::module("max-cpu");
    let library = library();
    let check = async |settings: &str| {
        library
            .check_settings(&module, "mine", &settings.into())
            .await
    };
    assert_eq!(check(r#"{"measure": "cores"}"#).await, Ok(()));
    let said = check(r#"{"measure": "mhz"}"#)
        .await
        .unwrap_err()
        .to_string();
    assert!(said.contains("measure"), "{said}");
}

#[tokio::test]
async fn a_file_that_does_not_accept_the_settings_in_use_is_refused() {
    let library = with_files(&[("mine", "max-cpu")]).await;
    let cores = named("mine", "spread", r#"{"measure": "cores"}"#);
    assert_eq!(ask(&library, &cores).await.fallback, None);
    assert_eq!(
        library.sync(files(&[("mine", "pack")])).await,
        [refused(
            "mine",
            "it does not accept the settings of pool blue, {\"measure\": \"cores\"}: its settings are wrong: settings: unknown field `measure`, \
             there are none"
        )]
    );
    let answer = ask(&library, &cores).await;
    assert_eq!(
        (answer.digest.as_str(), answer.fallback),
        (embedded("max-cpu").sha256, None)
    );

    // Whoever changes file and settings together has the file refused for the settings before: it is tried again when they have changed.
    assert_eq!(library.sync(files(&[("mine", "pack")])).await, []);
    assert_eq!(answering(&library, "mine").await, "max-cpu");
    assert_eq!(
        library.sync(files(&[("mine", "pack")])).await,
        [taken("mine", "pack")]
    );
}

#[tokio::test]
async fn settings_of_a_pool_that_is_gone_do_not_count() {
    let library = with_files(&[("mine", "max-cpu")]).await;
    ask(
        &library,
        &named("mine", "spread", r#"{"measure": "cores"}"#),
    )
    .await;
    library.forget_pool(&"blue".into());
    assert_eq!(
        library.sync(files(&[("mine", "pack")])).await,
        [taken("mine", "pack")]
    );
}

#[tokio::test]
async fn f91_a_file_that_fails_its_self_test_is_refused() {
    let library = with_files(&[("mine", "hostile")]).await;
    // Only `hostile` understands these settings, so that the new file must be it too: as if it came with a defect.
    ask(
        &library,
        &named("mine", "hostile", r#"{"do": "nan-score"}"#),
    )
    .await;
    library.sync(bytes("mine", b"")).await;
    assert_eq!(
        library.sync(files(&[("mine", "hostile")])).await,
        [refused(
            "mine",
            "it fails its self-test: its answer is invalid: the score NaN of placement 0 is not between 0 and 1"
        )]
    );
}

#[tokio::test]
async fn a_file_that_answers_other_questions_is_refused() {
    let library = library();
    assert_eq!(
        library.sync(files(&[("spread", "least-loaded")])).await,
        [refused(
            "spread",
            "it takes the name of a built-in host-selection policy, but does not answer host-selection questions"
        )]
    );
    let library = with_files(&[("mine", "pack")]).await;
    answering(&library, "mine").await;
    assert_eq!(
        library.sync(files(&[("mine", "least-loaded")])).await,
        [refused(
            "mine",
            "it does not answer host-selection questions, for which pool blue uses it"
        )]
    );
}

/// Even with the same bytes as before: whoever puts them back wants them tried.
#[tokio::test]
async fn a_new_file_is_another_chance_for_a_policy_that_kept_failing() {
    let library = with_files(&[("mine", "hostile")]).await;
    let failing = named("mine", "hostile", INTERNAL);
    for _ in 0..FAILURES_MAX {
        ask(&library, &failing).await;
    }
    assert!(
        ask(&library, &failing)
            .await
            .fallback
            .unwrap()
            .contains("kproxide does not call it")
    );

    library.forget_pool(&"blue".into());
    library.sync(files(&[("mine", "pack")])).await;
    library.sync(files(&[("mine", "hostile")])).await;
    assert_eq!(
        ask(&library, &failing).await.fallback.unwrap(),
        format!("policy mine: {DEFECT}")
    );
}

/// On threads, as in production: on one, which is held until the call stands in line for it.
#[test]
fn f96_a_call_that_is_under_way_ends_with_the_code_that_it_began_with() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let library = Library::new(Engine::new(Execution::Blocking).unwrap());
        library.sync(files(&[("mine", "pack")])).await;
        let (release, held) = std::sync::mpsc::channel::<()>();
        let holder = tokio::task::spawn_blocking(move || held.recv());
        let question = named("mine", "spread", "");
        let mut budget = Budget {
            time_left: std::time::Duration::MAX,
            ..Budget::default()
        };
        let mut asked = std::pin::pin!(library.ask(&question, &mut budget));
        assert!(futures::poll!(&mut asked).is_pending());
        drop(release);
        assert!(holder.await.unwrap().is_err());

        assert_eq!(
            library.sync(files(&[("mine", "balanced")])).await,
            [taken("mine", "balanced")]
        );
        let answer = asked.await;
        assert_eq!(
            (answer.digest.as_str(), answer.fallback),
            (embedded("pack").sha256, None)
        );
        assert_eq!(answering(&library, "mine").await, "balanced");
    });
}

#[tokio::test]
async fn f95_code_that_answers_no_more_is_let_go() {
    let library = with_files(&[("a", "hostile"), ("b", "hostile")]).await;
    assert_eq!(library.lock().compiled.len(), 1, "one for both");
    library.sync(files(&[("a", "pack")])).await;
    let compiled: Vec<_> = library
        .lock()
        .compiled
        .keys()
        .map(ToString::to_string)
        .collect();
    assert_eq!(compiled, [embedded("pack").sha256]);
}

#[tokio::test]
async fn a_failing_policy_does_not_hide_that_others_work() {
    let library = with_files(&[("mine", "hostile"), ("other", "pack")]).await;
    assert!(
        ask(&library, &named("mine", "hostile", PANIC))
            .await
            .fallback
            .is_some()
    );
    assert_eq!(answering(&library, "other").await, "pack");
}
