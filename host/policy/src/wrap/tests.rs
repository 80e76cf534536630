use wasmtime::component::{Component, Linker, Val};
use wasmtime::{Engine, Store};

use super::*;

/// A policy that answers with a text, `no-candidate`, and says each question that it asks of WASI by trapping where the
/// answer is wrong. `$RANK` is what it does first.
fn module(rank: &str) -> Vec<u8> {
    wat::parse_str(text_of_module(rank)).unwrap()
}

fn text_of_module(rank: &str) -> String {
    let text = r#"
(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environment (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 2)
  (global $free (mut i32) (i32.const 65536))
  (func $must (param i32) (if (i32.eqz (local.get 0)) (then (unreachable))))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (global.set $free (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
    (global.get $free)
    (global.set $free (i32.add (global.get $free) (local.get 3))))
  (func (export "describe") (result i32) (i32.const 1200))
  (func (export "check-settings") (param i32 i32) (result i32) (i32.const 1024))
  ;; At 2048 the answer: error, no-candidate, 8 bytes at 3000.
  (func (export "kproxide:policy/host-selection@0.1.0#rank") (param i32) (result i32)
    RANK
    (i32.store8 (i32.const 2048) (i32.const 1))
    (i32.store (i32.const 2056) (i32.const 3000))
    (i32.store (i32.const 2060) (i32.const 8))
    (i32.const 2048))
  (data (i32.const 3000) "no words")
  ;; Name and version are the text at 1240, description and schema are empty.
  (data (i32.const 1200) "\d8\04\00\00\03\00\00\00\d8\04\00\00\03\00\00\00")
  (data (i32.const 1240) "0.1")
  ;; Two pieces, then a line without words.
  (data (i32.const 4000) "\88\13\00\00\06\00\00\00\8f\13\00\00\06\00\00\00\96\13\00\00\01\00\00\00")
  (data (i32.const 5000) "first\n\00second\00\n")
)"#;
    text.replace("RANK", rank)
}

/// What the policy answers, and its log, once for each call in a fresh instance.
fn asked(component: &[u8], times: usize) -> Vec<Result<(String, Vec<String>), String>> {
    let engine = Engine::default();
    let component = Component::new(&engine, component).unwrap();
    let world = component.component_type();
    let mut imports: Vec<_> = world.imports(&engine).map(|(name, _)| name).collect();
    imports.sort_unstable();
    assert_eq!(
        imports,
        ["kproxide:policy/log@0.1.0", "kproxide:policy/types@0.1.0"]
    );
    let mut linker: Linker<Vec<String>> = Linker::new(&engine);
    let mut log = linker.instance("kproxide:policy/log@0.1.0").unwrap();
    log.func_new("log", |mut store, _, arguments, _| {
        let [Val::Enum(level), Val::String(message)] = arguments else {
            panic!("{arguments:?}");
        };
        store.data_mut().push(format!("{level}: {message}"));
        Ok(())
    })
    .unwrap();
    (0..times)
        .map(|_| {
            let mut store = Store::new(&engine, Vec::new());
            let said = |error: wasmtime::Error| format!("{error:?}");
            let instance = linker.instantiate(&mut store, &component).map_err(said)?;
            let interface = "kproxide:policy/host-selection@0.1.0";
            let interface = instance.get_export_index(&mut store, None, interface);
            let rank = instance
                .get_export_index(&mut store, interface.as_ref(), "rank")
                .unwrap();
            let rank = instance.get_func(&mut store, rank).unwrap();
            let mut answer = [Val::Bool(false)];
            let arguments = [context(), request(), Val::List(Vec::new())];
            rank.call(&mut store, &arguments, &mut answer)
                .map_err(said)?;
            let [Val::Result(Err(Some(error)))] = answer else {
                panic!("{answer:?}");
            };
            let Val::Variant(kind, Some(text)) = *error else {
                panic!("{error:?}");
            };
            let Val::String(text) = *text else {
                panic!("{text:?}");
            };
            assert_eq!(kind, "no-candidate");
            Ok((text, store.into_data()))
        })
        .collect()
}

fn record(fields: &[(&str, Val)]) -> Val {
    let fields = fields.iter();
    Val::Record(
        fields
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect(),
    )
}

fn context() -> Val {
    record(&[
        ("cluster", Val::String("home".into())),
        ("now", Val::U64(0)),
        ("seed", Val::U64(0)),
        ("dry-run", Val::Bool(false)),
        ("state", Val::List(Vec::new())),
        ("settings", Val::String("{}".into())),
    ])
}

fn request() -> Val {
    let size = record(&[("milli-cores", Val::U64(1)), ("memory-bytes", Val::U64(1))]);
    let machine = record(&[
        ("pool", Val::String("workers".into())),
        ("instance-type", Val::String("small".into())),
        ("size", size),
        ("attributes", Val::List(Vec::new())),
    ]);
    record(&[
        ("machine", machine),
        ("batch-index", Val::U32(0)),
        ("batch-size", Val::U32(1)),
        ("sequence", Val::U64(0)),
        ("previous", Val::Option(None)),
    ])
}

fn says(rank: &str) -> Result<(String, Vec<String>), String> {
    asked(&component(module(rank)).unwrap(), 1).remove(0)
}

#[test]
fn a_wrapped_module_sees_nothing_of_the_world_outside() {
    let rank = "
    (call $must (i32.eqz (call $args (i32.const 0) (i32.const 8))))
    (call $must (i64.eqz (i64.load (i32.const 0))))
    (call $must (i32.eqz (call $environment (i32.const 0) (i32.const 4))))
    (call $must (i64.eqz (i64.load (i32.const 0))))
    (call $must (i32.eqz (call $read (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 16))))
    (call $must (i32.eqz (i32.load (i32.const 16))))
    (call $must (call $read (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 16)))
    (call $must (i32.eq (call $prestat (i32.const 3) (i32.const 0)) (i32.const 8)))
    (call $must (call $open (i32.const 3) (i32.const 0) (i32.const 3000) (i32.const 2) (i32.const 0)
      (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 0)))";
    assert_eq!(says(rank), Ok(("no words".to_owned(), Vec::new())));
}

#[test]
fn its_clock_begins_at_0_and_moves_when_it_is_asked_or_slept_on() {
    let rank = "
    (drop (call $clock (i32.const 1) (i64.const 1) (i32.const 8)))
    (drop (call $clock (i32.const 0) (i64.const 1) (i32.const 16)))
    (call $must (i64.eq (i64.load (i32.const 8)) (i64.const 1000)))
    (call $must (i64.eq (i64.load (i32.const 16)) (i64.const 2000)))
    ;; Sleeps for a second, then until two seconds, then until one, which has passed.
    (i64.store (i32.const 64) (i64.const 77))
    (i64.store offset=24 (i32.const 64) (i64.const 1000000000))
    (call $must (i32.eqz (call $poll (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 192))))
    (call $must (i32.eq (i32.load (i32.const 192)) (i32.const 1)))
    (call $must (i64.eq (i64.load (i32.const 128)) (i64.const 77)))
    (drop (call $clock (i32.const 0) (i64.const 1) (i32.const 8)))
    (call $must (i64.eq (i64.load (i32.const 8)) (i64.const 1000003000)))
    (i32.store16 offset=40 (i32.const 64) (i32.const 1))
    (i64.store offset=24 (i32.const 64) (i64.const 2000000000))
    (drop (call $poll (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 192)))
    (i64.store offset=24 (i32.const 64) (i64.const 1000000000))
    (drop (call $poll (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 192)))
    (drop (call $clock (i32.const 0) (i64.const 1) (i32.const 8)))
    (call $must (i64.eq (i64.load (i32.const 8)) (i64.const 2000001000)))
    ;; A file that becomes readable is nothing that it can wait for.
    (i32.store8 offset=8 (i32.const 64) (i32.const 1))
    (call $must (call $poll (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 192)))";
    assert_eq!(says(rank), Ok(("no words".to_owned(), Vec::new())));
}

#[test]
fn its_random_numbers_differ_from_each_other_and_not_from_call_to_call() {
    // As letters, since a text must be one.
    let letters = "
    (drop (call $random (i32.const 8) (i32.const 8)))
    (i64.store (i32.const 3000) (i64.or (i64.const 0x6161616161616161)
      (i64.and (i64.load (i32.const 8)) (i64.const 0x0e0e0e0e0e0e0e0e))))";
    let one = asked(&component(module(letters)).unwrap(), 2);
    assert_eq!(one[0], one[1]);
    let (first, _) = one[0].clone().unwrap();
    assert_ne!(first, "no words");
    let (second, _) = says(&letters.repeat(2)).unwrap();
    assert_ne!(first, second);
}

#[test]
fn what_it_writes_are_lines_of_the_log() {
    let write = |fd: u8, expected: u8| {
        format!(
            "(call $must (i32.eq (call $write (i32.const {fd}) (i32.const 4000) (i32.const 3) (i32.const 8)) (i32.const {expected})))"
        )
    };
    let rank = format!(
        "{}{}(call $must (i32.eq (i32.load (i32.const 8)) (i32.const 13))){}",
        write(2, 0),
        write(1, 0),
        write(3, 8)
    );
    let lines = [
        "error: first",
        "error: second",
        "info: first",
        "info: second",
    ];
    let lines = lines.map(str::to_owned).to_vec();
    assert_eq!(says(&rank), Ok(("no words".to_owned(), lines)));
}

/// Writes a piece to standard error.
fn writes(piece: &str) -> String {
    let stores = piece
        .bytes()
        .enumerate()
        .map(|(at, byte)| format!("(i32.store8 (i32.const {}) (i32.const {byte}))", 6000 + at));
    let length = piece.len();
    format!(
        "{}(i32.store (i32.const 5992) (i32.const 6000))(i32.store (i32.const 5996) (i32.const {length}))
        (drop (call $write (i32.const 2) (i32.const 5992) (i32.const 1) (i32.const 5984)))",
        stores.collect::<String>()
    )
}

#[tokio::test]
async fn a_module_that_answers_two_kinds_of_question_is_a_policy_of_both() {
    use kproxide_planner::facts::PolicyKind;

    use crate::{CallError, Engine, Execution, fixtures};

    // Its memory is used up, where the other says that there is no candidate.
    let order = r#"(func (export "kproxide:policy/scale-down@0.1.0#order")
        (param i32 i32 i64 i64 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
        (drop (memory.grow (i32.const 2000))) (i32.const 2048))
      (data (i32.const 3000)"#;
    let text = text_of_module("").replace("(data (i32.const 3000)", order);
    let wasm = component(wat::parse_str(text).unwrap()).unwrap();
    let engine = Engine::new(Execution::Inline).unwrap();
    let module = engine.load(wasm.into()).await.unwrap();
    let both = [PolicyKind::HostSelection, PolicyKind::ScaleDown];
    assert_eq!(module.kinds(), both);
    let mut said = Vec::new();
    for asked in ["spread", "least-loaded", "go-template"] {
        let called = engine.ask(&module, &fixtures::question(asked, "{}")).await;
        said.push(called.result.map(|answer| format!("{answer:?}")));
    }
    let [Ok(ranked), ordered, labelled] = &said[..] else {
        panic!("{said:?}");
    };
    assert!(ranked.contains("no words"), "{ranked}");
    assert_eq!(*ordered, Err(CallError::OutOfMemory));
    assert_eq!(*labelled, Err(CallError::WrongKind(PolicyKind::Labels)));
}

/// The runtime of Go writes piece by piece, and its stack behind the reason. A program in C writes lines.
#[tokio::test]
async fn the_reason_of_a_go_panic_is_what_stands_before_its_stack() {
    use crate::{Engine, Execution, fixtures};

    let pieces =
        "one more line\n|panic: |index out of range [|5|]|\n|\ngoroutine |1| [|running|]:\n";
    let lines = "it begins\n|assertion failed: rank.c\n";
    let mut reasons = Vec::new();
    for said in [pieces, lines] {
        let written: String = said.split('|').map(writes).collect();
        let wasm = component(module(&format!("{written}(call $exit (i32.const 2))"))).unwrap();
        let engine = Engine::new(Execution::Inline).unwrap();
        let module = engine.load(wasm.into()).await.unwrap();
        let question = fixtures::question("spread", "{}");
        let called = engine.ask(&module, &question).await;
        reasons.push(called.result.unwrap_err().to_string());
    }
    let expected = [
        "it crashed: panic: index out of range [ 5 ]",
        "it crashed: assertion failed: rank.c",
    ];
    assert_eq!(reasons, expected);
}

#[test]
fn leaving_the_process_is_a_trap() {
    let said = says("(call $exit (i32.const 0))").unwrap_err();
    assert!(said.contains("unreachable"), "{said}");
}

#[test]
fn what_cannot_be_wrapped_is_refused_with_what_mends_it() {
    let refusal = |text: &str| component(wat::parse_str(text).unwrap()).unwrap_err();
    assert_eq!(component(b"\x7fELF".to_vec()), Err(Refusal::NotWasm));
    let spread = kproxide_builtins::builtin("spread").unwrap();
    assert_eq!(component(spread.wasm.to_vec()), Err(Refusal::Component));
    assert_eq!(refusal("(module)"), Refusal::NoQuestion);
    assert_eq!(
        refusal(r#"(module (func (export "_start")))"#),
        Refusal::Program
    );
    let foreign = r#"(module (import "env" "helper" (func)))"#;
    let import = Refusal::Import {
        module: "env".to_owned(),
        name: "helper".to_owned(),
    };
    assert_eq!(refusal(foreign), import);
    // The question of another signature, and the rest of a policy is missing.
    let rank = r#"(module (func (export "kproxide:policy/host-selection@0.1.0#rank")))"#;
    let misfit = refusal(rank).to_string();
    assert!(
        misfit.starts_with("it does not fit policy.wit: ") && misfit.contains("rank"),
        "{misfit}"
    );
    let mut broken = module("");
    broken.truncate(200);
    assert!(matches!(component(broken), Err(Refusal::Broken(_))));
}

#[test]
fn a_function_that_wasi_does_not_have_is_refused_by_name() {
    let unknown = String::from_utf8(wat_of("fd_nosuch")).unwrap();
    let error = component(wat::parse_str(unknown).unwrap()).unwrap_err();
    assert!(error.to_string().contains("fd_nosuch"), "{error}");
}

fn wat_of(function: &str) -> Vec<u8> {
    format!(
        r#"(module (import "{WASI}" "{function}" (func))
          (memory (export "memory") 1)
          (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0))
          (func (export "describe") (result i32) (i32.const 0))
          (func (export "check-settings") (param i32 i32) (result i32) (i32.const 0))
          (func (export "kproxide:policy/host-selection@0.1.0#rank") (param i32) (result i32) (call 0) (i32.const 0)))"#
    )
    .into_bytes()
}
