//! libFuzzer's way into `gpuvmk_fuzz::trace`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::trace::run(data));
