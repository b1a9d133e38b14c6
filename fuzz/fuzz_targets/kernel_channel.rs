//! libFuzzer's way into `gpuvmk_fuzz::kernel_channel`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::kernel_channel::run(data));
