//! libFuzzer's way into `gpuvmk_fuzz::fifo`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::fifo::run(data));
