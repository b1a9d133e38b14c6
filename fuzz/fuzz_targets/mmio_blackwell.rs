//! libFuzzer's way into `gpuvmk_fuzz::mmio::fsp::blackwell`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::mmio::fsp::blackwell(data));
