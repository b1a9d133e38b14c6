//! libFuzzer's way into `gpuvmk_fuzz::shaders::run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::shaders::run(data));
