//! A copy engine's methods: state, and what a launch makes of it.
//!
//! Of the class's abilities, those that a driver's kernel uses: lines of plain pitch, fills, physical
//! addresses, semaphores. Block shapes, protected memory and other GPUs' memory are refused.

use super::action::{Combine, Component, Components, Element, Launch, Release, Transfer};
use super::memory::{Place, physical};
use super::refusal::Refusal;
use gpuvmk_chip::Aperture;
use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::gh100::methods::copy::{
    self, FIRST_STATE, LAST_STATE, LAUNCH_DMA, SET_REMAP_COMPONENTS as REMAP, SET_RENDER_ENABLE_C as RENDER,
    SET_SRC_PHYS_MODE as PHYS_MODE,
};
use gpuvmk_chip::reduction::Operand;
use gpuvmk_chip::registers::Field;
use gpuvmk_chip::stream::Method;

/// Words of state.
const WORDS: usize = ((LAST_STATE - FIRST_STATE) / 4 + 1) as usize;

/// A copy engine's state.
#[derive(Clone, Debug)]
pub struct CopyEngine {
    state: Box<[u32; WORDS]>,
}

impl Default for CopyEngine {
    fn default() -> Self {
        let mut engine = Self { state: Box::new([0; WORDS]) };
        engine.set(copy::SET_RENDER_ENABLE_C, RENDER::MODE::TRUE);
        engine
    }
}

const fn place(method: u16) -> usize {
    // CAST: widening.
    (method.saturating_sub(FIRST_STATE) / 4) as usize
}

impl CopyEngine {
    /// A method of the engine; what it launches.
    ///
    /// # Errors
    /// The engine does not have it, or does not do that.
    pub fn method(&mut self, method: Method) -> Result<Option<Launch>, Refusal> {
        let known = gpuvmk_chip::methods::find(copy::METHODS, method.method);
        if known.is_none_or(|known| method.data & !known.mask != 0) {
            return Err(Refusal::Method(method));
        }
        match method.method {
            LAUNCH_DMA => self.launch(method.data).map(Some),
            address if (FIRST_STATE..=LAST_STATE).contains(&address) => {
                self.set(address, method.data);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// The state to save: methods with the last word of each that is not as it was at first, in their order.
    pub fn state(&self) -> Vec<(u16, u32)> {
        let first = Self::default();
        let words = self.state.iter().zip(first.state.iter()).zip((FIRST_STATE..).step_by(4));
        words.filter(|((word, first), _)| word != first).map(|((word, _), method)| (method, *word)).collect()
    }

    /// An engine in a saved state; none if no engine could have come into it.
    pub fn from_state(state: &[(u16, u32)]) -> Option<Self> {
        let mut engine = Self::default();
        for (method, data) in state {
            let known = gpuvmk_chip::methods::find(copy::METHODS, *method)?;
            (data & !known.mask == 0).then_some(())?;
            engine.set(*method, *data);
        }
        // In order, each once, and none as it was at first.
        (engine.state() == state).then_some(engine)
    }

    fn set(&mut self, method: u16, data: u32) {
        if let Some(word) = self.state.get_mut(place(method)) {
            *word = data;
        }
    }

    fn get(&self, method: u16) -> u32 {
        self.state.get(place(method)).copied().unwrap_or(0)
    }

    fn address(&self, upper: u16, lower: u16) -> u64 {
        u64::from(self.get(upper)) << 32 | u64::from(self.get(lower))
    }

    fn launch(&self, launch: u32) -> Result<Launch, Refusal> {
        let refuse = |why| Refusal::Copy { launch, why };
        if LAUNCH_DMA::COPY_TYPE.is_set(launch) || LAUNCH_DMA::VPRMODE.is_set(launch) {
            return Err(refuse("memory is protected"));
        }
        let notify = match LAUNCH_DMA::INTERRUPT_TYPE.get(launch) {
            LAUNCH_DMA::INTERRUPT_TYPE::NONE => false,
            LAUNCH_DMA::INTERRUPT_TYPE::NON_BLOCKING => true,
            _ => return Err(refuse("the engine is to wait for its driver")),
        };
        Ok(Launch { transfer: self.transfer(launch)?, release: self.release(launch)?, notify })
    }

    fn transfer(&self, launch: u32) -> Result<Option<Transfer>, Refusal> {
        let refuse = |why| Refusal::Copy { launch, why };
        match LAUNCH_DMA::DATA_TRANSFER_TYPE.get(launch) {
            LAUNCH_DMA::DATA_TRANSFER_TYPE::NONE => return Ok(None),
            LAUNCH_DMA::DATA_TRANSFER_TYPE::PIPELINED | LAUNCH_DMA::DATA_TRANSFER_TYPE::NON_PIPELINED => {}
            _ => return Err(refuse("there is no such way to transfer")),
        }
        match self.get(copy::SET_RENDER_ENABLE_C) {
            RENDER::MODE::TRUE => {}
            RENDER::MODE::FALSE => return Ok(None),
            _ => return Err(refuse("it depends on a condition")),
        }
        let element = if LAUNCH_DMA::MEMORY_SCRUB_ENABLE.is_set(launch) {
            Element::Zero
        } else if LAUNCH_DMA::REMAP_ENABLE.is_set(launch) {
            Element::Components(self.components().ok_or(refuse("a component comes from nowhere"))?)
        } else {
            Element::Byte
        };
        let (reads, _) = element.sizes();
        let pitch_in = LAUNCH_DMA::SRC_MEMORY_LAYOUT.is_set(launch) || reads == 0;
        if !pitch_in || !LAUNCH_DMA::DST_MEMORY_LAYOUT.is_set(launch) {
            return Err(refuse("surfaces are made of blocks"));
        }
        let place = |is_physical: bool, mode: u16, address: u64| {
            if !is_physical {
                return Ok(Place::Virtual(GpuVa(address)));
            }
            let aperture = match PHYS_MODE::TARGET.get(self.get(mode)) {
                PHYS_MODE::TARGET::LOCAL_FB => Aperture::Vram,
                PHYS_MODE::TARGET::COHERENT_SYSMEM => Aperture::SystemCoherent,
                PHYS_MODE::TARGET::NONCOHERENT_SYSMEM => Aperture::SystemNonCoherent,
                _ => return Err(refuse("memory is another GPU's")),
            };
            Ok(physical(aperture, address))
        };
        let source = if reads == 0 {
            // Nothing is read, wherever it is.
            Place::Virtual(GpuVa(0))
        } else {
            let address = self.address(copy::OFFSET_IN_UPPER, copy::OFFSET_IN_LOWER);
            place(LAUNCH_DMA::SRC_TYPE.is_set(launch), copy::SET_SRC_PHYS_MODE, address)?
        };
        let address = self.address(copy::OFFSET_OUT_UPPER, copy::OFFSET_OUT_LOWER);
        let target = place(LAUNCH_DMA::DST_TYPE.is_set(launch), copy::SET_DST_PHYS_MODE, address)?;
        let several = LAUNCH_DMA::MULTI_LINE_ENABLE.is_set(launch);
        Ok(Some(Transfer {
            source,
            target,
            source_pitch: self.get(copy::PITCH_IN).cast_signed(),
            target_pitch: self.get(copy::PITCH_OUT).cast_signed(),
            length: self.get(copy::LINE_LENGTH_IN),
            lines: if several { self.get(copy::LINE_COUNT) } else { 1 },
            element,
        }))
    }

    /// What becomes of an element; none where a component would come from one that the source lacks.
    fn components(&self) -> Option<Components> {
        let remap = self.get(copy::SET_REMAP_COMPONENTS);
        let one_more = |field: Field| field.get_u8(remap).saturating_add(1);
        let (sources, targets) = (one_more(REMAP::NUM_SRC_COMPONENTS), one_more(REMAP::NUM_DST_COMPONENTS));
        let mut target = [Component::Stays; 4];
        let fields = [REMAP::DST_X, REMAP::DST_Y, REMAP::DST_Z, REMAP::DST_W];
        for (component, field) in target.iter_mut().zip(fields).take(targets.into()) {
            *component = match field.get(remap) {
                REMAP::DST_X::CONST_A => Component::Constant(self.get(copy::SET_REMAP_CONST_A)),
                REMAP::DST_X::CONST_B => Component::Constant(self.get(copy::SET_REMAP_CONST_B)),
                REMAP::DST_X::NO_WRITE => Component::Stays,
                source if source < sources.into() => Component::Source(field.get_u8(remap)),
                _ => return None,
            };
        }
        Some(Components { size: one_more(REMAP::COMPONENT_SIZE), sources, target, targets })
    }

    fn release(&self, launch: u32) -> Result<Option<Release>, Refusal> {
        let refuse = |why| Refusal::Copy { launch, why };
        let stamped = match LAUNCH_DMA::SEMAPHORE_TYPE.get(launch) {
            0 => return Ok(None),
            LAUNCH_DMA::SEMAPHORE_TYPE::RELEASE_ONE_WORD_SEMAPHORE => false,
            LAUNCH_DMA::SEMAPHORE_TYPE::RELEASE_FOUR_WORD_SEMAPHORE => true,
            _ => return Err(refuse("there is no such semaphore")),
        };
        let width = Operand::of(LAUNCH_DMA::SEMAPHORE_PAYLOAD_SIZE.is_set(launch));
        let reduction = if LAUNCH_DMA::SEMAPHORE_REDUCTION_ENABLE.is_set(launch) {
            let signed = !LAUNCH_DMA::SEMAPHORE_REDUCTION_SIGN.is_set(launch);
            let number = LAUNCH_DMA::SEMAPHORE_REDUCTION.get(launch);
            let combine = Combine::of_host(number, width, signed);
            Some(combine.ok_or(refuse("there is no such reduction of numbers"))?)
        } else {
            None
        };
        let payload = self.address(copy::SET_SEMAPHORE_PAYLOAD_UPPER, copy::SET_SEMAPHORE_PAYLOAD);
        let address = GpuVa(self.address(copy::SET_SEMAPHORE_A, copy::SET_SEMAPHORE_B));
        Ok(Some(Release { address, payload, width, stamped, reduction }))
    }
}
