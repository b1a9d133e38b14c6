//! Where the commands look for the host's NVIDIA driver.

use crate::gpu::rm::Places;

/// A folder that tests put in the place of `/` for the files of `/proc`, `/dev` and `/sys` that belong to the
/// NVIDIA driver.
const VARIABLE: &str = "GPUVMK_TEST_ROOT";

/// The host's files.
pub(super) fn places() -> Places {
    match std::env::var_os(VARIABLE) {
        Some(root) => {
            log::warn!("{VARIABLE}: an NVIDIA driver is looked for below {}", root.display());
            Places::below(root)
        }
        None => Places::default(),
    }
}
