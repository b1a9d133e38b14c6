//! libFuzzer's way into `gpuvmk_fuzz::shaders::words`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::shaders::words(data));
