//! The graphics engine from Turing on, as far as this GPU executes it: compute grids, inline to memory,
//! reports and notifiers, and macros (MME), which send methods as the command stream does.
//!
//! Everything else that sets state is accepted, and kept for macros to read: a driver's start-up sends
//! thousands of such methods. What would draw is refused: what does nothing would look like a result.

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::compute::{self, Compute, Work};
use super::inline::{self, InlineToMemory};
use super::report::{self, Reports};
use crate::engine::model::{Effects, Model, Progress, Refusal, Run};
use crate::mme::{Front, Mme, Sender, Sent, Step};
use gpuvmk_chip::gh100::methods::graphics::{self, NV_PGRAPH_INTR};
use gpuvmk_chip::gh100::methods::macros::{self, MacroClass};
use gpuvmk_chip::gh100::methods::report::{COMPUTE, Form, THREED};
use gpuvmk_chip::gh100::methods::{GRAPHICS_SUBCHANNELS, MethodDef, host, lookup, role};
use gpuvmk_chip::methods::find;
use gpuvmk_chip::nv::classes::Role;
use gpuvmk_chip::stream::Method;

/// Number of words of the saved state: classes, notifier, and the state of each class.
const SAVED_WORDS: usize = 8 + 2 + 2 * report::SAVED_WORDS + 3 * inline::SAVED_WORDS + compute::SAVED_WORDS;

/// The words of the saved state before those of the compute class.
const BEFORE_COMPUTE: usize = SAVED_WORDS - compute::SAVED_WORDS;

/// Number of bytes of the image before the state: the header that the context loader reads.
const STATE_OFFSET: u64 = 0x100;

/// Bytes of a graphics context image.
pub(crate) const IMAGE_SIZE: u64 = 0x1000;
const _: () = assert!(STATE_OFFSET + SAVED_WORDS as u64 * 4 <= IMAGE_SIZE);

/// Steps of macros between two looks at whether the engine has to pause. A step is a group, or a method.
const MACRO_QUANTUM: u32 = 256;

/// A class that is bound to a subchannel.
#[derive(Clone, Copy, Debug, Default)]
struct Bound {
    /// Its number in methods.
    class: u16,
    /// What its objects do; none: it is no class of the engine.
    role: Option<Role>,
    /// What the MME is to it.
    macros: Option<MacroClass>,
}

impl Bound {
    /// Looks a class up.
    fn new(class: u16) -> Self {
        let role = role(class.into());
        Self { class, role, macros: role.and_then(|role| macros::of_class(class, role)) }
    }
}

/// State of the graphics engine; a channel's context holds it while another channel has the engine.
#[derive(Debug)]
pub(crate) struct TuringGraphics {
    /// What is bound to each subchannel.
    bound: [Bound; 8],
    /// Address of the notifier: its high word, then its low word.
    notifier: [u32; 2],
    threed: Reports,
    compute: Reports,
    /// Inline to memory of the class of that name, of 3D, and of compute.
    inline: [InlineToMemory; 3],
    /// Launches of the compute class.
    grids: Compute,
    /// Macros, and what they read; none before the first method of a class that has them.
    mme: Option<Box<Mme>>,
}

/// What a context has beside its image.
#[derive(Debug)]
struct Kept {
    grid: Option<Box<Work>>,
    mme: Option<Box<Mme>>,
}

impl Default for TuringGraphics {
    fn default() -> Self {
        let [a, b, c, d] = GRAPHICS_SUBCHANNELS;
        Self {
            bound: [a, b, c, d, 0, 0, 0, 0].map(Bound::new),
            notifier: [0; 2],
            threed: Reports::default(),
            compute: Reports::default(),
            inline: [InlineToMemory::default(), InlineToMemory::default(), InlineToMemory::default()],
            grids: Compute::default(),
            mme: None,
        }
    }
}

/// True for a method that would draw.
fn draws(role: Role, method: u16) -> bool {
    let listed = |methods: &'static [MethodDef]| find(methods, method).is_some();
    match role {
        Role::ThreeD => listed(graphics::THREED_METHODS),
        Role::TwoD => listed(graphics::TWOD_METHODS),
        _ => false,
    }
}

/// Refuses a method that would draw. The explanation is logged once, the method each time.
fn refuse_drawing(class: u16, method: u16) -> Refusal {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let name = lookup(class, method).map_or("?", |def| def.name);
    if TOLD.swap(true, Ordering::Relaxed) {
        log::debug!("softgpu: class {class:04x} method {name} ({method:#x}) refused");
    } else {
        log::warn!(
            "The software GPU draws nothing: class {class:04x} method {name} ({method:#x}) stops its channel. Use \
             a physical GPU for graphics."
        );
    }
    Refusal::Graphics { status: NV_PGRAPH_INTR::ILLEGAL_METHOD.mask(), class }
}

impl TuringGraphics {
    fn bind(&mut self, method: Method) -> Result<(), Refusal> {
        let new = Bound::new(host::SET_OBJECT::NVCLASS.get_u16(method.data));
        let graphics = [Role::InlineToMemory, Role::TwoD, Role::ThreeD, Role::Compute];
        if !new.role.is_some_and(|role| graphics.contains(&role)) {
            let status = NV_PGRAPH_INTR::ILLEGAL_CLASS.mask();
            return Err(Refusal::Graphics { status, class: new.class });
        }
        if let Some(bound) = self.bound.get_mut(usize::from(method.subchannel)) {
            *bound = new;
        }
        Ok(())
    }

    fn notify(&self, run: &Run<'_>, data: u32, effects: &mut Effects) -> Result<(), Refusal> {
        let [high, low] = self.notifier;
        let va = u64::from(graphics::SET_NOTIFY_A::ADDRESS_UPPER.get(high)) << 32 | u64::from(low);
        run.memory.write(va.saturating_add(8), &[0; 8])?;
        run.memory.write(va, &run.clock.timestamp().to_le_bytes())?;
        effects.released = true;
        effects.interrupt |= graphics::NOTIFY::AWAKEN.is_set(data);
        Ok(())
    }

    fn bound(&self, subchannel: u8) -> Bound {
        self.bound.get(usize::from(subchannel)).copied().unwrap_or_default()
    }

    /// Executes a method, whoever sends it.
    fn execute(
        &mut self,
        run: &Run<'_>,
        bound: Bound,
        (method, data): (u16, u32),
        effects: &mut Effects,
    ) -> Result<Progress, Refusal> {
        if bound.role.is_some_and(|role| draws(role, method)) {
            return Err(refuse_drawing(bound.class, method));
        }
        if bound.role == Some(Role::Compute)
            && let Some(progress) = self.grids.method(run, (bound.class, method, data), effects)
        {
            return progress;
        }
        let [high, low] = &mut self.notifier;
        match method {
            graphics::SET_NOTIFY_A => *high = data,
            graphics::SET_NOTIFY_B => *low = data,
            graphics::NOTIFY => self.notify(run, data, effects)?,
            other => self.class_method(run, (bound, other, data), effects)?,
        }
        Ok(Progress::Done)
    }

    /// Sends a method through the MME, if its class has it there.
    fn front(
        &mut self,
        run: &Run<'_>,
        (bound, subchannel): (Bound, u8),
        (method, data): (u16, u32),
        sender: Sender,
    ) -> Result<Front, Refusal> {
        match (bound.macros, &mut self.mme) {
            (Some(class), mme) => {
                let mme = mme.get_or_insert_default();
                Ok(mme.method(run.memory, (class, subchannel), (method, data), sender)?)
            }
            (None, Some(mme)) => {
                mme.stream_goes_on()?;
                Ok(Front::Pass(data))
            }
            (None, None) => Ok(Front::Pass(data)),
        }
    }

    /// Moves the macro on that was called, until it ends, waits for data, or the engine has to pause.
    fn go_on(&mut self, run: &Run<'_>, effects: &mut Effects) -> Result<Progress, Refusal> {
        let mut left = MACRO_QUANTUM;
        loop {
            let Some(mme) = &mut self.mme else { return Ok(Progress::Done) };
            let Some(subchannel) = mme.subchannel() else { return Ok(Progress::Done) };
            match mme.step()? {
                Step::Ran => {}
                Step::Waits | Step::Ended => return Ok(Progress::Done),
                Step::Sends(sent) => {
                    let progress = self.sent(run, subchannel, sent, effects);
                    if progress != Ok(Progress::Done) {
                        return progress;
                    }
                }
            }
            left = left.saturating_sub(1);
            if left == 0 {
                if run.control.should_pause() {
                    return Ok(Progress::Paused);
                }
                left = MACRO_QUANTUM;
            }
        }
    }

    /// Executes a method that a macro sends.
    fn sent(
        &mut self,
        run: &Run<'_>,
        subchannel: u8,
        Sent { method, data }: Sent,
        effects: &mut Effects,
    ) -> Result<Progress, Refusal> {
        let bound = self.bound(subchannel);
        match self.front(run, (bound, subchannel), (method, data), Sender::Macro)? {
            Front::Pass(data) => self.execute(run, bound, (method, data), effects),
            Front::Done | Front::Macro => Ok(Progress::Done),
        }
    }

    /// Ends the macro whose method was refused.
    fn abandon_macro(&mut self, refused: &Result<Progress, Refusal>) {
        if refused.is_err()
            && let Some(mme) = &mut self.mme
        {
            mme.abandon();
        }
    }

    fn class_method(
        &mut self,
        run: &Run<'_>,
        (Bound { class, role, .. }, method, data): (Bound, u16, u32),
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let [own, in_threed, in_compute] = &mut self.inline;
        let (inline, reports): (_, Option<(&mut Reports, &Form)>) = match role {
            Some(Role::InlineToMemory) => (own, None),
            Some(Role::ThreeD) => (in_threed, Some((&mut self.threed, &THREED))),
            Some(Role::Compute) => (in_compute, Some((&mut self.compute, &COMPUTE))),
            _ => return Ok(()),
        };
        if let Some((reports, form)) = reports {
            reports.method(run, (class, method, data), form, effects)?;
        }
        inline.method(run, (class, method, data), effects)
    }
}

impl Model for TuringGraphics {
    fn method(&mut self, run: &Run<'_>, method: Method, effects: &mut Effects) -> Result<Progress, Refusal> {
        let Method { subchannel, method: address, data } = method;
        if address == host::SET_OBJECT {
            if let Some(mme) = &mut self.mme {
                mme.stream_goes_on()?;
            }
            self.bind(method)?;
            return Ok(Progress::Done);
        }
        let bound = self.bound(subchannel);
        match self.front(run, (bound, subchannel), (address, data), Sender::Stream)? {
            Front::Pass(data) => self.execute(run, bound, (address, data), effects),
            Front::Done => Ok(Progress::Done),
            Front::Macro => {
                let progress = self.go_on(run, effects);
                self.abandon_macro(&progress);
                progress
            }
        }
    }

    fn resume(&mut self, run: &Run<'_>, effects: &mut Effects) -> Result<Progress, Refusal> {
        // Grids and macros take long, and a macro may have launched the grid.
        let mut progress = self.grids.resume(run, effects);
        if progress == Ok(Progress::Done) {
            progress = self.go_on(run, effects);
        }
        self.abandon_macro(&progress);
        progress
    }

    fn save(&self) -> Vec<u8> {
        let words = self.bound.iter().map(|bound| u32::from(bound.class)).chain(self.notifier);
        let words = words.chain(self.threed.save()).chain(self.compute.save());
        let words = words.chain(self.inline.iter().flat_map(InlineToMemory::save)).chain(self.grids.save());
        words.flat_map(u32::to_le_bytes).collect()
    }

    fn load(&mut self, image: &[u8]) {
        let mut words = image.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        for bound in &mut self.bound {
            let [low, high, _, _] = words.next().unwrap_or(0).to_le_bytes();
            *bound = Bound::new(u16::from_le_bytes([low, high]));
        }
        for word in &mut self.notifier {
            *word = words.next().unwrap_or(0);
        }
        self.threed.load(&mut words);
        self.compute.load(&mut words);
        for inline in &mut self.inline {
            inline.load(&mut words);
        }
        self.grids.load(&mut words);
        self.mme = None;
    }

    fn setup(&self) -> Option<Range<usize>> {
        let word = |word: usize| (BEFORE_COMPUTE + word) * 4;
        Some(word(compute::SETUP.start)..word(compute::SETUP.end))
    }

    fn take_out(&mut self) -> Option<Box<dyn Any + Send>> {
        let kept = Kept { grid: self.grids.take_out(), mme: self.mme.take() };
        (kept.grid.is_some() || kept.mme.is_some()).then(|| Box::new(kept) as Box<dyn Any + Send>)
    }

    fn put_back(&mut self, kept: Box<dyn Any + Send>) {
        let Ok(kept) = kept.downcast::<Kept>() else { return };
        if let Some(grid) = kept.grid {
            self.grids.put_back(grid);
        }
        self.mme = kept.mme;
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
