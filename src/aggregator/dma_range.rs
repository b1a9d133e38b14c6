//! One range of guest memory, as both sides address it.

use gpuvmk_chip::addr::{Gpa, Iova};

/// One range of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaRange {
    /// First guest-physical address.
    pub gpa: Gpa,
    /// Size in bytes.
    pub size: u64,
    /// Where the physical GPU finds it.
    pub iova: Iova,
    /// True when the GPU may write.
    pub writable: bool,
}

impl DmaRange {
    /// Where `gpa` is reachable, how many bytes follow it in this range, and whether the GPU may write.
    /// `None` outside.
    pub fn translate(&self, gpa: Gpa) -> Option<(Iova, u64, bool)> {
        let into = gpa.0.checked_sub(self.gpa.0)?;
        let room = self.size.checked_sub(into).filter(|room| *room > 0)?;
        Some((self.iova.checked_add(into)?, room, self.writable))
    }
}
