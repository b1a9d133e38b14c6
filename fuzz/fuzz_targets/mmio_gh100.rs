//! libFuzzer's way into `gpuvmk_fuzz::mmio::gh100`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::mmio::fsp::gh100(data));
