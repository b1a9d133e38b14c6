//! The copy engine from Turing on: the classes whose names end in `DMA_COPY`, from TURING_DMA_COPY_A.
//!
//! The following is refused with the engine's own error, as hardware refuses what it was not set up for:
//! physical addresses, encryption, video protection, scrubbing, semaphores with conditional interrupts,
//! conditional launches, and fields that the class does not have.

use super::layout::{Blocks, Gob, Layout, Surface};
use super::remap::{Remap, Select};
use super::transfer::{Position, Transfer};
use crate::engine::model::{Effects, Model, Progress, Refusal, Run};
use crate::mmu::channel_memory::Report;
use crate::words::halves;
use gpuvmk_chip::gh100::methods::copy::{
    self, FIRST_STATE, LAST_STATE, LAUNCH_DMA, METHODS, SET_REMAP_COMPONENTS as REMAP, surface,
};
use gpuvmk_chip::gh100::methods::{host, role};
use gpuvmk_chip::gmmu::Gmmu;
use gpuvmk_chip::nv::classes::Role;
use gpuvmk_chip::reduction::{Operand, Reduction};
use gpuvmk_chip::registers::Field;
use gpuvmk_chip::stream::Method;

/// Addresses of these classes are as wide as the widest page tables' are.
const VA_MAX: u64 = Gmmu::V3.va_max();

/// Number of words of the context: the methods, LAUNCH_DMA, whether a copy runs, and how far it got.
const SAVED_WORDS: usize = METHODS.len() + 6;

/// Bytes of a copy context image.
pub(crate) const IMAGE_SIZE: u64 = 0x1000;
const _: () = assert!(SAVED_WORDS as u64 * 4 <= IMAGE_SIZE);

/// ROBUST_CHANNEL_CE0_ERROR. The numbers of engines 1 and 2 follow it.
const CE0_ERROR: u32 = 39;
/// ROBUST_CHANNEL_CE3_ERROR. The numbers of later engines follow it.
const CE3_ERROR: u32 = 70;

/// log2 of the largest number of GOBs that a block may be high or deep.
const MAX_BLOCK_SHIFT: u32 = 5;

/// State of a copy engine; a channel's context holds it while another channel has the engine.
#[derive(Clone, Debug)]
pub(crate) struct TuringCopy {
    /// Number of this copy engine.
    number: u8,
    words: [u32; METHODS.len()],
    launch: u32,
    position: Option<Position>,
}

/// The work that a launch starts.
enum Work {
    Nothing,
    Copy(Transfer),
    Remap(Remap),
}

fn index(method: u16) -> Option<usize> {
    METHODS.iter().position(|def| def.method == method)
}

impl TuringCopy {
    /// Copy engine `number` in its state after power-on.
    pub(crate) fn new(number: u8) -> Self {
        let mut words = [0; METHODS.len()];
        let enable = index(copy::SET_RENDER_ENABLE_C).and_then(|index| words.get_mut(index));
        if let Some(enable) = enable {
            *enable = copy::SET_RENDER_ENABLE_C::MODE::TRUE;
        }
        Self { number, words, launch: 0, position: None }
    }

    /// The error by which hardware reports a launch that it refuses.
    fn refusal(&self) -> Refusal {
        let number = u32::from(self.number);
        Refusal::Robust(number.checked_sub(3).map_or(CE0_ERROR + number, |above| CE3_ERROR + above))
    }

    fn word(&self, method: u16) -> u32 {
        index(method).and_then(|index| self.words.get(index)).copied().unwrap_or(0)
    }

    fn set(&mut self, method: u16, value: u32) {
        if let Some(word) = index(method).and_then(|index| self.words.get_mut(index)) {
            *word = value;
        }
    }

    fn address(&self, upper: u16) -> u64 {
        (u64::from(self.word(upper)) << 32 | u64::from(self.word(upper + 4))) & VA_MAX
    }

    fn store(&mut self, method: Method) -> Result<(), Refusal> {
        let Method { method, data, .. } = method;
        let known = METHODS.iter().find(|def| def.method == method);
        if known.is_none_or(|def| data & !def.mask != 0) {
            return Err(self.refusal());
        }
        if !(FIRST_STATE..=LAST_STATE).contains(&method) {
            return Ok(());
        }
        self.set(method, data);
        let packed = match method {
            copy::SET_DST_ORIGIN => Some((copy::DST_ORIGIN_X, copy::DST_ORIGIN_Y)),
            copy::SET_SRC_ORIGIN => Some((copy::SRC_ORIGIN_X, copy::SRC_ORIGIN_Y)),
            _ => None,
        };
        if let Some((x, y)) = packed {
            self.set(x, copy::SET_DST_ORIGIN::X.get(data));
            self.set(y, copy::SET_DST_ORIGIN::Y.get(data));
        }
        Ok(())
    }

    /// Refuses a launch that asks for anything that this model does not do.
    fn check(&self, data: u32) -> Result<(), Refusal> {
        let refused = [
            LAUNCH_DMA::SRC_TYPE,
            LAUNCH_DMA::DST_TYPE,
            LAUNCH_DMA::COPY_TYPE,
            LAUNCH_DMA::VPRMODE,
            LAUNCH_DMA::MEMORY_SCRUB_ENABLE,
        ];
        let semaphore = LAUNCH_DMA::SEMAPHORE_TYPE.get(data);
        let enable = self.word(copy::SET_RENDER_ENABLE_C);
        let wrong = refused.iter().any(|field| field.is_set(data))
            || LAUNCH_DMA::DATA_TRANSFER_TYPE.get(data) > LAUNCH_DMA::DATA_TRANSFER_TYPE::NON_PIPELINED
            || semaphore > LAUNCH_DMA::SEMAPHORE_TYPE::RELEASE_FOUR_WORD_SEMAPHORE
            || (semaphore != 0
                && LAUNCH_DMA::SEMAPHORE_REDUCTION_ENABLE.is_set(data)
                && self.reduction(data).is_none())
            || ![copy::SET_RENDER_ENABLE_C::MODE::FALSE, copy::SET_RENDER_ENABLE_C::MODE::TRUE]
                .contains(&enable);
        if wrong {
            log::debug!("softgpu: copy engine {} refuses launch {data:#010x}", self.number);
            return Err(self.refusal());
        }
        Ok(())
    }

    fn reduction(&self, data: u32) -> Option<Reduction> {
        let signed = !LAUNCH_DMA::SEMAPHORE_REDUCTION_SIGN.is_set(data);
        let reduction = Reduction::of_host(LAUNCH_DMA::SEMAPHORE_REDUCTION.get(data))?;
        reduction.supports(operand(data), signed).then_some(reduction)
    }

    /// The source or the target of a launch. `element` is the number of bytes that widths and origins are
    /// counted in.
    fn surface(&self, side: &Side, element: u64) -> Result<Surface, Refusal> {
        let layout = if side.linear.is_set(self.launch) {
            Layout::Pitch(i64::from(self.word(side.pitch).cast_signed()))
        } else {
            let shape = self.word(side.block_size);
            use copy::SET_DST_BLOCK_SIZE::{DEPTH, HEIGHT, WIDTH};
            let [width, height_shift, depth_shift] = [WIDTH, HEIGHT, DEPTH].map(|field| field.get(shape));
            if width != 0 || height_shift > MAX_BLOCK_SHIFT || depth_shift > MAX_BLOCK_SHIFT {
                return Err(self.refusal());
            }
            // Below 2^32 times 16: no overflow.
            Layout::Blocks(Blocks {
                gob: Gob::Sectors,
                height_shift,
                depth_shift,
                width: u64::from(self.word(side.block_size + surface::WIDTH)) * element,
                height: u64::from(self.word(side.block_size + surface::HEIGHT)),
                x: u64::from(self.word(side.origin_x)) * element,
                y: u64::from(self.word(side.origin_x + 4)),
                z: u64::from(self.word(side.block_size + surface::LAYER)),
            })
        };
        Ok(Surface { base: self.address(side.address), layout, va_max: VA_MAX })
    }

    fn work(&self) -> Result<Work, Refusal> {
        let none = !LAUNCH_DMA::DATA_TRANSFER_TYPE.is_set(self.launch);
        if none || self.word(copy::SET_RENDER_ENABLE_C) == copy::SET_RENDER_ENABLE_C::MODE::FALSE {
            return Ok(Work::Nothing);
        }
        let length = u64::from(self.word(copy::LINE_LENGTH_IN));
        let multi = LAUNCH_DMA::MULTI_LINE_ENABLE.is_set(self.launch);
        let count = if multi { u64::from(self.word(copy::LINE_COUNT)) } else { 1 };
        if !LAUNCH_DMA::REMAP_ENABLE.is_set(self.launch) {
            let (source, target) = (self.surface(&SOURCE, 1)?, self.surface(&TARGET, 1)?);
            return Ok(Work::Copy(Transfer { source, target, length, count }));
        }
        let components = self.word(REMAP);
        // CAST: two bits.
        let one_more = |field: Field| field.get(components) as usize + 1;
        let component = one_more(REMAP::COMPONENT_SIZE);
        let sources = one_more(REMAP::NUM_SRC_COMPONENTS);
        let targets = one_more(REMAP::NUM_DST_COMPONENTS);
        let mut selects = [Select::Keep; 4];
        let places = [REMAP::DST_X, REMAP::DST_Y, REMAP::DST_Z, REMAP::DST_W];
        for (place, select) in places.into_iter().zip(&mut selects) {
            *select = match place.get(components) {
                number @ 0..=REMAP::DST_X::SRC_W => Select::Source(u8::try_from(number).unwrap_or(0)),
                REMAP::DST_X::CONST_A => Select::Constant(self.word(copy::SET_REMAP_CONST_A)),
                REMAP::DST_X::CONST_B => Select::Constant(self.word(copy::SET_REMAP_CONST_B)),
                REMAP::DST_X::NO_WRITE => Select::Keep,
                _ => return Err(self.refusal()),
            };
        }
        let missing = |select: &Select| matches!(select, Select::Source(n) if usize::from(*n) >= sources);
        if selects.iter().take(targets).any(missing) {
            return Err(self.refusal());
        }
        let source = self.surface(&SOURCE, (component * sources) as u64)?;
        let target = self.surface(&TARGET, (component * targets) as u64)?;
        Ok(Work::Remap(Remap { source, target, length, count, component, sources, targets, selects }))
    }

    fn complete(&self, run: &Run<'_>, effects: &mut Effects) -> Result<(), Refusal> {
        let data = self.launch;
        let semaphore = LAUNCH_DMA::SEMAPHORE_TYPE.get(data);
        if semaphore != 0 {
            let va = self.address(copy::SET_SEMAPHORE_A);
            let operand = operand(data);
            let upper = u64::from(self.word(copy::SET_SEMAPHORE_PAYLOAD_UPPER)) << 32;
            let payload = (upper | u64::from(self.word(copy::SET_SEMAPHORE_PAYLOAD))) & operand.mask();
            let timed = semaphore == LAUNCH_DMA::SEMAPHORE_TYPE::RELEASE_FOUR_WORD_SEMAPHORE;
            if LAUNCH_DMA::SEMAPHORE_REDUCTION_ENABLE.is_set(data) {
                let reduction = self.reduction(data).ok_or(self.refusal())?;
                if timed {
                    run.memory.write_time(va)?;
                }
                let signed = !LAUNCH_DMA::SEMAPHORE_REDUCTION_SIGN.is_set(data);
                run.memory.reduce(va, reduction, operand, signed, payload)?;
            } else {
                let report = match operand {
                    _ if timed => Report::FourWords,
                    Operand::DoubleWord => Report::DoubleWord,
                    Operand::Word => Report::Word,
                };
                run.memory.write_report(va, payload, report)?;
            }
            effects.released = true;
        }
        effects.interrupt |= LAUNCH_DMA::INTERRUPT_TYPE.is_set(data);
        Ok(())
    }
}

fn operand(data: u32) -> Operand {
    Operand::of(LAUNCH_DMA::SEMAPHORE_PAYLOAD_SIZE.is_set(data))
}

/// The methods that describe the source or the target.
struct Side {
    address: u16,
    pitch: u16,
    block_size: u16,
    /// The line follows.
    origin_x: u16,
    /// Bit of a launch.
    linear: Field,
}

const SOURCE: Side = Side {
    address: copy::OFFSET_IN_UPPER,
    pitch: copy::PITCH_IN,
    block_size: copy::SET_SRC_BLOCK_SIZE,
    origin_x: copy::SRC_ORIGIN_X,
    linear: LAUNCH_DMA::SRC_MEMORY_LAYOUT,
};

const TARGET: Side = Side {
    address: copy::OFFSET_OUT_UPPER,
    pitch: copy::PITCH_OUT,
    block_size: copy::SET_DST_BLOCK_SIZE,
    origin_x: copy::DST_ORIGIN_X,
    linear: LAUNCH_DMA::DST_MEMORY_LAYOUT,
};

impl Model for TuringCopy {
    fn method(&mut self, run: &Run<'_>, method: Method, effects: &mut Effects) -> Result<Progress, Refusal> {
        match method.method {
            host::SET_OBJECT if role(host::SET_OBJECT::NVCLASS.get(method.data)) == Some(Role::Copy) => {}
            host::SET_OBJECT => return Err(self.refusal()),
            LAUNCH_DMA => {
                self.check(method.data)?;
                self.store(method)?;
                self.launch = method.data;
                self.position = Some(Position::default());
                return self.resume(run, effects);
            }
            _ => self.store(method)?,
        }
        Ok(Progress::Done)
    }

    fn resume(&mut self, run: &Run<'_>, effects: &mut Effects) -> Result<Progress, Refusal> {
        let Some(mut position) = self.position.take() else { return Ok(Progress::Done) };
        let progress = match self.work()? {
            Work::Nothing => Progress::Done,
            Work::Copy(transfer) => transfer.advance(run, &mut position)?,
            Work::Remap(remap) => remap.advance(run, &mut position)?,
        };
        match progress {
            Progress::Paused => self.position = Some(position),
            Progress::Done => self.complete(run, effects)?,
        }
        Ok(progress)
    }

    fn save(&self) -> Vec<u8> {
        let position = self.position.unwrap_or_default();
        let [a, b] = halves(position.line);
        let [c, d] = halves(position.at);
        let state = [self.launch, self.position.is_some().into(), a, b, c, d];
        self.words.into_iter().chain(state).flat_map(u32::to_le_bytes).collect()
    }

    fn load(&mut self, image: &[u8]) {
        let mut words = image.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let mut next = || words.next().unwrap_or(0);
        for word in &mut self.words {
            *word = next();
        }
        self.launch = next();
        let running = next() != 0;
        let line = u64::from(next()) | u64::from(next()) << 32;
        let at = u64::from(next()) | u64::from(next()) << 32;
        self.position = running.then_some(Position { line, at });
    }

    fn image_size(&self) -> usize {
        SAVED_WORDS * 4
    }

    fn image_offset(&self) -> u64 {
        0
    }

    fn reset(&mut self) {
        *self = Self::new(self.number);
    }
}
