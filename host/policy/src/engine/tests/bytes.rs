//! Bytes that are no policy, each with what an operator is told.

use std::io::Write as _;
use std::sync::Arc;

use super::{UNPACKED_BYTES_MAX, digest, engine};
use crate::fixtures::{component_exporting, component_importing, wasm};

async fn refused(bytes: impl Into<Arc<[u8]>>) -> String {
    engine().load(bytes.into()).await.unwrap_err().to_string()
}

#[tokio::test]
async fn f91_what_is_no_component_is_refused_with_what_it_is() {
    let not_wasm = r"it is not WebAssembly: its first bytes are not \0asm";
    assert_eq!(refused([]).await, not_wasm);
    assert_eq!(refused(*b"(component)").await, not_wasm);
    assert_eq!(refused(*b"<html>404</html>").await, not_wasm);
    assert_eq!(
        refused(*b"\0asm\x01\0\0\0").await,
        "it is a core WebAssembly module, not a component: for Rust, build for wasm32-unknown-unknown with linker = \"wasm-component-ld\"; \
         for Go, C and others, `kproxide policy pack FILE --into NAME.wasm` makes a policy of it"
    );
    assert_eq!(
        refused(vec![0; (32 << 20) + 1]).await,
        "it has more than 33554432 bytes unpacked, which is the most that is loaded"
    );
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

#[tokio::test]
async fn f94_packed_bytes_are_unpacked_and_known_by_the_digest_of_the_file() {
    let plain = wasm("spread");
    for packed in [gzip(&plain), zstd(&plain)] {
        assert!(packed.len() < plain.len());
        let expected = digest(&packed);
        let module = engine().load(packed.into()).await.unwrap();
        assert_eq!(module.info().name, "spread");
        assert_eq!(module.digest(), &expected);
    }
}

#[tokio::test]
async fn f93_what_does_not_unpack_is_refused_before_it_takes_memory() {
    let too_big = "it has more than 33554432 bytes unpacked, which is the most that is loaded";
    assert_eq!(
        refused(gzip(&vec![0; UNPACKED_BYTES_MAX * 4])).await,
        too_big
    );
    assert_eq!(
        refused(*b"\x1f\x8b").await,
        "it cannot be unpacked: unexpected end of file"
    );
    assert!(
        refused(*b"\x28\xb5\x2f\xfd")
            .await
            .starts_with("it cannot be unpacked: FrameDescriptorReadError")
    );
    // A window of 2 GiB; and content of 2 GiB, which is its own window.
    for header in [&[0x00, 21 << 3][..], &[0xa0, 0, 0, 0, 0x80]] {
        let bomb = [&[0x28, 0xb5, 0x2f, 0xfd], header, &[0; 9]].concat();
        assert_eq!(
            refused(bomb).await,
            "it cannot be unpacked: to unpack it takes a buffer of 2147483648 bytes, and at most 33554432 are given: \
             pack it with `zstd -19`, without --long"
        );
    }
}

/// What wasmtime would take as machine code, and run without asking.
#[tokio::test]
async fn f94_compiled_code_is_refused_whatever_its_file_is_called() {
    let engine = wasmtime::Engine::default();
    let compiled = engine.precompile_component(&wasm("spread")).unwrap();
    assert_eq!(
        refused(compiled).await,
        r"it is not WebAssembly: its first bytes are not \0asm"
    );
}

#[tokio::test]
async fn f90_a_component_that_wants_more_than_the_log_is_refused_with_advice() {
    let only = "but a policy may import kproxide:policy/types and kproxide:policy/log only";
    assert_eq!(
        refused(component_importing("wasi:clocks/wall-clock@0.2.6")).await,
        format!(
            "it imports wasi:clocks/wall-clock@0.2.6, {only}. WASI is not offered: for Rust, build for wasm32-unknown-unknown instead of \
             wasm32-wasip2; for JavaScript, `jco componentize --backend quickjs --backend-qjs-stub-wasi --backend-qjs-disable-async`; \
             for Go and C, give the core module to `kproxide policy pack`; for Python, `componentize-py componentize --stub-wasi`, \
             which makes 18 MB"
        )
    );
    assert_eq!(
        refused(component_importing("kproxide:policy/log@0.2.0")).await,
        format!(
            "it imports kproxide:policy/log@0.2.0, {only}. It was built for another version of the interface"
        )
    );
    assert_eq!(
        refused(component_importing("acme:racks/table")).await,
        format!("it imports acme:racks/table, {only}")
    );
}

#[tokio::test]
async fn f91_a_component_with_another_interface_is_refused_with_the_difference() {
    let nothing =
        "it exports none of kproxide:policy/host-selection, /scale-down, /labels (version 0.1)";
    assert_eq!(refused(*b"\0asm\x0d\0\x01\0").await, nothing);
    assert_eq!(
        refused(component_exporting("kproxide:policy/labels@0.2.0")).await,
        nothing
    );
    assert_eq!(
        refused(component_exporting("kproxide:policy/labels@0.1.0")).await,
        "it was built against another version of policy.wit: no export `check-settings` found"
    );
    // A field of another name, as if the record had changed.
    let spread = wasm("spread");
    let (name, other) = (b"milli-cores", b"milli-chips");
    let mut patched = spread.to_vec();
    let places: Vec<usize> = (0..patched.len() - name.len())
        .filter(|at| patched[*at..].starts_with(name))
        .collect();
    for at in places {
        patched[at..at + name.len()].copy_from_slice(other);
    }
    assert_eq!(
        refused(patched).await,
        "it was built against another version of policy.wit: failed to convert function to given type: type mismatch with parameters: \
         type mismatch for field machine: type mismatch for field size: expected record field named milli-cores, found milli-chips"
    );
}

/// Never a panic, never an endless compilation, whatever the bytes: half a component, and one with bytes turned over.
#[tokio::test]
async fn f91_broken_components_are_refused_or_work() {
    let spread = wasm("spread");
    assert!(
        refused(&spread[..spread.len() / 2])
            .await
            .starts_with("it does not compile: ")
    );
    for at in (8..spread.len()).step_by(spread.len() / 20) {
        let mut broken = spread.to_vec();
        broken[at] ^= 0x55;
        let _ = engine().load(broken.into()).await;
    }
}

#[tokio::test]
async fn a_good_component_says_what_it_is() {
    let module = engine().load(wasm("spread")).await.unwrap();
    let builtin = kproxide_builtins::builtin("spread").unwrap();
    assert_eq!(module.digest().as_str(), builtin.sha256);
    assert_eq!(
        (module.info().name.as_str(), module.info().version.as_str()),
        ("spread", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(
        module.kinds(),
        [kproxide_planner::facts::PolicyKind::HostSelection]
    );
}
