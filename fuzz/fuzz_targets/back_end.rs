//! libFuzzer's way into `gpuvmk_fuzz::back_end`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::back_end::run(data));
