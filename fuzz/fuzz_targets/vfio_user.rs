//! libFuzzer's way into `gpuvmk_fuzz::vfio_user`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuvmk_fuzz::vfio_user::run(data));
