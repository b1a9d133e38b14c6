//! libFuzzer's way into `gpuvmk_fuzz::gsp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::gsp::run(data));
