//! libFuzzer's way into `gpuvmk_fuzz::mmio::gf100`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::mmio::gf100::run(data));
