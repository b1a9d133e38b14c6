//! libFuzzer's way into `gpuvmk_fuzz::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::config::run(data));
