//! Ampere (GA10x): FWSEC is loaded by DMA.

use super::falcon_chips::row;
use super::{Descriptor, Hal};
use gpuvmk_chip::gsp as chip;
use gpuvmk_gsp::hal as gsp;

/// GA102.
pub static GA102: Hal = row(&chip::GA102, &gsp::GA102, Descriptor::V3, 4);
/// GA103.
pub static GA103: Hal = row(&chip::GA103, &gsp::GA103, Descriptor::V3, 4);
/// GA104.
pub static GA104: Hal = row(&chip::GA104, &gsp::GA104, Descriptor::V3, 4);
/// GA106.
pub static GA106: Hal = row(&chip::GA106, &gsp::GA106, Descriptor::V3, 4);
/// GA107.
pub static GA107: Hal = row(&chip::GA107, &gsp::GA107, Descriptor::V3, 4);
