//! How many processors this host has.

use std::sync::OnceLock;

/// True where a thread may poll instead of sleeping, without taking a CPU from a guest.
pub fn to_spare() -> bool {
    // Asked once: the answer comes from files, which a daemon in its jail cannot read any more.
    static SPARE: OnceLock<bool> = OnceLock::new();
    *SPARE.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get) >= 8)
}
