#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kproxide_policy::fuzz::component(data));
