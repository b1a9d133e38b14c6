//! libFuzzer's way into `gpuvmk_fuzz::page_tables`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::page_tables::run(data));
