//! libFuzzer's way into `gpuvmk_fuzz::mmio::falcons`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::mmio::falcons::run(data));
