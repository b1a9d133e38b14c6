//! libFuzzer's way into `gpuvmk_fuzz::viewer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::viewer::run(data));
