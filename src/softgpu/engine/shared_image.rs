//! A context that shares a part of its image with others.
//!
//! The channels of a group work with one graphics context: NVIDIA's CUDA says once, by whatever channel,
//! where local memory is, and launches by all of them. Here every channel has an image of its own for what a
//! stream of methods is in the middle of, and its image may name another one for what is set up once.

use std::ops::Range;

use super::context::Image;
use super::model::Model;
use crate::mmu::system::MemorySystem;
use gpuvmk_chip::channel_event::MmuFault;

/// A channel's image on an engine, and the image that has the part it shares.
#[derive(Debug)]
pub(super) struct SharedImage {
    own: Image,
    /// The other image, and the bytes of the saved state that are there.
    other: Option<(Image, Range<usize>)>,
}

impl SharedImage {
    /// That of an image.
    pub(super) fn of(system: &MemorySystem, own: Image, model: &dyn Model) -> Result<Self, MmuFault> {
        let other = match model.setup() {
            None => None,
            Some(part) => own.with_setup(system)?.map(|image| (image, part)),
        };
        Ok(Self { own, other })
    }

    /// Has the model load it.
    pub(super) fn load(&self, system: &MemorySystem, model: &mut dyn Model) -> Result<(), MmuFault> {
        let mut bytes = vec![0; model.image_size()];
        let start = model.image_offset();
        self.own.read(system, start, &mut bytes)?;
        if let Some((image, part)) = &self.other
            && let Some(bytes) = bytes.get_mut(part.clone())
        {
            image.read(system, start.saturating_add(part.start as u64), bytes)?;
        }
        model.load(&bytes);
        Ok(())
    }

    /// Saves the model's state.
    pub(super) fn save(&self, system: &MemorySystem, model: &dyn Model) -> Result<(), MmuFault> {
        let bytes = model.save();
        let start = model.image_offset();
        self.own.write(system, start, &bytes)?;
        match &self.other {
            Some((image, part)) => {
                let bytes = bytes.get(part.clone()).unwrap_or_default();
                image.write(system, start.saturating_add(part.start as u64), bytes)
            }
            None => Ok(()),
        }
    }
}
