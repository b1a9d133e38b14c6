//! Ada: as Ampere.

use super::falcon_chips::row;
use super::{Descriptor, Hal};
use gpuvmk_chip::gsp as chip;
use gpuvmk_gsp::hal as gsp;

/// AD102.
pub static AD102: Hal = row(&chip::AD102, &gsp::AD102, Descriptor::V3, 4);
/// AD103.
pub static AD103: Hal = row(&chip::AD103, &gsp::AD103, Descriptor::V3, 4);
/// AD104.
pub static AD104: Hal = row(&chip::AD104, &gsp::AD104, Descriptor::V3, 4);
/// AD106.
pub static AD106: Hal = row(&chip::AD106, &gsp::AD106, Descriptor::V3, 4);
/// AD107.
pub static AD107: Hal = row(&chip::AD107, &gsp::AD107, Descriptor::V3, 4);
