//! libFuzzer's way into `gpuvmk_fuzz::launches`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::launches::run(data));
