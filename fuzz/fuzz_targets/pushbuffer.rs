//! libFuzzer's way into `gpuvmk_fuzz::pushbuffer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::pushbuffer::run(data));
