//! The graphics engine, as far as copies and reports go: M2MF in full, queries and notifiers of the other
//! classes. Other state of the 2D, 3D and compute classes is accepted and not kept; nothing is drawn and no
//! shader runs.

use super::m2mf::{self, M2mf};
use crate::engine::model::{Effects, Model, Progress, Refusal, Run};
use crate::mmu::channel_memory::Report;
use gpuvmk_chip::gf100::GRAPHICS_CONTEXT_SIZE;
use gpuvmk_chip::gf100::methods::{self, graphics, host, query};
use gpuvmk_chip::gf100::regs::pgraph::NV_PGRAPH_INTR;
use gpuvmk_chip::stream::Method;

/// Number of words of a class's report methods.
const REPORT_WORDS: usize = 3;

/// Number of words of the saved state: classes, notifier address, queries of 3D and compute, M2MF.
const SAVED_WORDS: usize = 8 + 2 + 2 * REPORT_WORDS + m2mf::SAVED_WORDS;

/// Offset of the state in the image. The header that the context loader reads lies before it.
const STATE_OFFSET: u64 = 0x100;
const _: () = assert!(STATE_OFFSET + SAVED_WORDS as u64 * 4 <= GRAPHICS_CONTEXT_SIZE as u64);

/// Query state of one class: address and sequence.
#[derive(Clone, Copy, Debug, Default)]
struct Query {
    words: [u32; REPORT_WORDS],
}

impl Query {
    fn address(&self) -> u64 {
        let [high, low, _] = self.words;
        u64::from(query::ADDRESS_HIGH::OFFSET_UPPER.get(high)) << 32 | u64::from(low)
    }

    fn sequence(&self) -> u32 {
        let [_, _, sequence] = self.words;
        sequence
    }

    fn method(
        &mut self,
        run: &Run<'_>,
        method: u16,
        data: u32,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let [high, low, sequence] = &mut self.words;
        match method {
            query::ADDRESS_HIGH => *high = data,
            query::ADDRESS_LOW => *low = data,
            query::SEQUENCE => *sequence = data,
            query::GET => self.get(run, data, effects)?,
            _ => {}
        }
        Ok(())
    }

    fn get(&self, run: &Run<'_>, data: u32, effects: &mut Effects) -> Result<(), Refusal> {
        if query::GET::MODE.get(data) != query::GET::MODE::SYNC {
            // The model counts no samples or primitives: every counter reads 0.
            let selected = query::GET::SELECT.get(data);
            let value = if selected == 0 { self.sequence() } else { 0 };
            let short = query::GET::SHORT.is_set(data);
            let report = if short { Report::Word } else { Report::FourWords };
            run.memory.write_report(self.address(), value.into(), report)?;
            effects.released = true;
        }
        effects.interrupt |= query::GET::INTERRUPT.is_set(data);
        Ok(())
    }
}

/// State of the graphics engine; a channel's context holds it while another channel has the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graphics {
    /// Class bound to each subchannel; 0 if none is.
    classes: [u16; 8],
    /// Address of the notifier: its high word, then its low word.
    notifier: [u32; 2],
    threed: Query,
    compute: Query,
    m2mf: M2mf,
}

impl Graphics {
    fn bind(&mut self, method: Method) -> Result<(), Refusal> {
        let class = host::SET_OBJECT::NVCLASS.get_u16(method.data);
        let known = [methods::m2mf::CLASS, methods::CLASS_2D, methods::CLASS_3D, methods::CLASS_COMPUTE];
        if !known.contains(&class) {
            return Err(Refusal::Graphics { status: NV_PGRAPH_INTR::ILLEGAL_CLASS.mask(), class });
        }
        if let Some(bound) = self.classes.get_mut(usize::from(method.subchannel)) {
            *bound = class;
        }
        Ok(())
    }

    fn notify(&self, run: &Run<'_>, data: u32, effects: &mut Effects) -> Result<(), Refusal> {
        let [high, low] = self.notifier;
        let upper = graphics::NOTIFY_ADDRESS_HIGH::OFFSET_UPPER.get(high);
        let va = u64::from(upper) << 32 | u64::from(low);
        let mut notifier = [0; 16];
        let time = run.clock.timestamp().to_le_bytes();
        for (to, from) in notifier.iter_mut().zip(time) {
            *to = from;
        }
        run.memory.write(va, &notifier)?;
        effects.released = true;
        effects.interrupt |= graphics::NOTIFY::AWAKEN.is_set(data);
        Ok(())
    }
}

impl Model for Graphics {
    fn method(&mut self, run: &Run<'_>, method: Method, effects: &mut Effects) -> Result<Progress, Refusal> {
        if method.method == host::SET_OBJECT {
            self.bind(method)?;
            return Ok(Progress::Done);
        }
        let class = self.classes.get(usize::from(method.subchannel)).copied().unwrap_or(0);
        if class == 0 {
            return Err(Refusal::Graphics { status: NV_PGRAPH_INTR::ILLEGAL_CLASS.mask(), class });
        }
        let data = method.data;
        let [high, low] = &mut self.notifier;
        match method.method {
            graphics::NOTIFY_ADDRESS_HIGH => *high = data,
            graphics::NOTIFY_ADDRESS_LOW => *low = data,
            graphics::NOTIFY => self.notify(run, data, effects)?,
            other => match class {
                methods::m2mf::CLASS => return self.m2mf.method(run, other, data, effects),
                methods::CLASS_3D => self.threed.method(run, other, data, effects)?,
                methods::CLASS_COMPUTE => self.compute.method(run, other, data, effects)?,
                _ => {}
            },
        }
        Ok(Progress::Done)
    }

    fn resume(&mut self, run: &Run<'_>, effects: &mut Effects) -> Result<Progress, Refusal> {
        self.m2mf.resume(run, effects)
    }

    fn save(&self) -> Vec<u8> {
        let words = self.classes.iter().map(|&class| u32::from(class));
        let words = words.chain(self.notifier).chain(self.threed.words).chain(self.compute.words);
        words.chain(self.m2mf.save()).flat_map(u32::to_le_bytes).collect()
    }

    fn load(&mut self, image: &[u8]) {
        let mut words = image.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        for class in &mut self.classes {
            let [low, high, _, _] = words.next().unwrap_or(0).to_le_bytes();
            *class = u16::from_le_bytes([low, high]);
        }
        let state = [&mut self.notifier[..], &mut self.threed.words, &mut self.compute.words];
        for word in state.into_iter().flatten() {
            *word = words.next().unwrap_or(0);
        }
        self.m2mf.load(&mut words);
    }

    fn image_size(&self) -> usize {
        SAVED_WORDS * 4
    }

    fn image_offset(&self) -> u64 {
        STATE_OFFSET
    }

    fn reset(&mut self) {
        *self = Self::default();
    }
}
