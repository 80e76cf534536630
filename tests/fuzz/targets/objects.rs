#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kproxide_kube::fuzz::objects(data));
