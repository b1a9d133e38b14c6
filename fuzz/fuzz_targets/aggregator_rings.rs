//! libFuzzer's way into `gpuvmk_fuzz::aggregator_rings`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::aggregator_rings::run(data));
