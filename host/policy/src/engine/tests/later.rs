//! A later version of the interface beside today's, in one engine: both names hold their version, so neither is in the
//! other's way.

use wasmtime::component::Component;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::super::bindings::host_selection::kproxide::policy::log::Level;
use super::*;

mod bindings {
    wasmtime::component::bindgen!({ world: "later-policy", path: "src/engine/tests/later.wit" });
}

use self::bindings::LaterPolicyPre;
use self::bindings::exports::kproxide::policy::host_selection::PolicyError;

/// Takes the last hypervisor; of none it says when to ask again.
const POLICY: &str = r#"
(module
  (import "kproxide:policy/log@0.2.0" "log" (func $log (param i32 i32)))
  (memory (export "memory") 1)
  (global $free (mut i32) (i32.const 4096))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (global.set $free (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
    (global.get $free)
    (global.set $free (i32.add (global.get $free) (local.get 3))))
  (func (export "kproxide:policy/host-selection@0.2.0#rank") (param i32 i32) (result i32)
    (call $log (i32.const 3000) (i32.const 5))
    (if (local.get 1)
      (then (i32.store (i32.const 2052) (i32.sub (local.get 1) (i32.const 1))))
      (else
        (i32.store8 (i32.const 2048) (i32.const 1))
        (i32.store8 (i32.const 2052) (i32.const 1))
        (i32.store (i32.const 2056) (i32.const 30))))
    (i32.const 2048))
  (data (i32.const 3000) "later"))
"#;

fn later() -> Vec<u8> {
    let mut module = wat::parse_str(POLICY).unwrap();
    let mut resolve = Resolve::default();
    let package = resolve.push_str("later.wit", include_str!("later.wit"));
    let world = resolve.select_world(&[package.unwrap()], None).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    let encoder = ComponentEncoder::default().module(&module).unwrap();
    encoder.validate(true).encode().unwrap()
}

#[tokio::test]
async fn a_later_version_is_served_beside_todays() {
    let mut engine = Engine::new(Execution::Inline).unwrap();
    let refusal = engine.load(later().into()).await.unwrap_err().to_string();
    assert!(refusal.contains("kproxide:policy/log@0.2.0"), "{refusal}");
    let asked = question("spread", "{}");
    let today = engine.load(wasm("spread")).await.unwrap();
    let alone = engine.ask(&today, &asked).await;

    let mut linker = store::linker(&engine.wasmtime).unwrap();
    let mut log = linker.instance("kproxide:policy/log@0.2.0").unwrap();
    log.func_wrap("log", |mut store, (message,): (String,)| {
        let state: &mut State = store.data_mut();
        state.say(Level::Info, &message);
        Ok(())
    })
    .unwrap();
    engine.linker = Arc::new(linker);
    let today = engine.load(wasm("spread")).await.unwrap();
    let beside = engine.ask(&today, &asked).await;
    assert_eq!(beside.result.unwrap(), alone.result.unwrap());
    assert_eq!(beside.fuel, alone.fuel);

    let later = Component::new(&engine.wasmtime, later()).unwrap();
    let later = LaterPolicyPre::new(engine.linker.instantiate_pre(&later).unwrap()).unwrap();
    let mut answers = Vec::new();
    for hypervisors in [&["pve1", "pve2"][..], &[]] {
        let mut store = store::store(&engine, 0);
        let policy = later.instantiate(&mut store).unwrap();
        let policy = policy.kproxide_policy_host_selection();
        let hypervisors: Vec<String> = hypervisors.iter().map(ToString::to_string).collect();
        answers.push(policy.call_rank(&mut store, &hypervisors).unwrap());
    }
    assert!(matches!(
        answers[..],
        [Ok(1), Err(PolicyError::RetryAfter(30))]
    ));
}
