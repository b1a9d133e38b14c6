//! A channel of the guest driver's kernel, carried out command by command.
//!
//! NVIDIA's own driver marks some channels as its kernel's. What they run (page-table writes at physical
//! addresses, invalidations of translations, scrubbing) is nothing that hardware may do for a tenant. So such
//! a channel has no hardware: its commands are copied out of the guest's memory, decoded and checked, and
//! carried out by a processor on the guest's memory.
//!
//! [`KernelChannel::run`] is pure: what it reaches is a [`KernelMemory`], and how much it does is a
//! [`Budget`]. Every word is read once. A command that is not in the repertoire stops the channel with a
//! [`Refusal`]. What is waited for, and a copy that is longer than the budget, is kept for the next call.
//! Commands are done in their order, one after the other; an invalidation is told when all writes before it
//! are in memory.

mod action;
mod copy_engine;
mod decoder;
mod memory;
mod refusal;
mod state;
#[cfg(test)]
mod tests;
mod transfer;

pub use memory::{Invalidation, KernelMemory, NotGuests, Target};
pub use refusal::Refusal;
pub use state::KernelChannelState;

use action::{Acquire, Action, Combine, Launch, Release};
use decoder::{Decoded, Decoder};
use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::gh100::methods::host::segment_base;
use gpuvmk_chip::reduction::Operand;
use gpuvmk_chip::stream::{GP_ENTRY1, GPFIFO_ENTRY_SIZE, MAX_GPFIFO_ENTRIES_LOG2, Method, RingEntry, opcode};
use memory::{Access, Place};
use transfer::Progress;

/// Words that are read from a segment at once.
const CHUNK: usize = 64;

/// Steps of what a command does: a wait, a launch. It translates addresses.
const ACTION: u32 = 16;
/// Steps of an invalidation, for which somebody looks through page tables.
const INVALIDATION: u32 = 1024;

/// How much a call may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// A ring entry or a word of commands is one; what a command does is some.
    pub steps: u32,
    /// Bytes of copies.
    pub bytes: u64,
}

impl Budget {
    /// Nothing more may be done.
    pub const fn is_spent(&self) -> bool {
        self.steps == 0 || self.bytes == 0
    }

    const fn spend(&mut self, steps: u32) {
        self.steps = self.steps.saturating_sub(steps);
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All that was submitted is done.
    Idle,
    /// A semaphore does not have the value yet that is waited for.
    Waits,
    /// The budget is spent.
    More,
}

/// What is under way.
#[derive(Clone, Copy, Debug)]
enum Work {
    Acquire(Acquire),
    Launch { launch: Launch, transfer: Option<Progress> },
}

/// The part of a segment that is not done.
#[derive(Clone, Debug)]
struct Segment {
    /// Where the words behind those in `words` are.
    address: u64,
    /// How many these are.
    left: u64,
    words: [u32; CHUNK],
    /// First of `words` that is not done, and the end of those that are there.
    from: usize,
    to: usize,
}

/// A channel: how far it is, and what it was told.
#[derive(Clone, Debug)]
pub struct KernelChannel {
    gpfifo: GpuVa,
    entries_log2: u8,
    /// The ring entry after the last that was read.
    get: u32,
    /// Address bits above 39 of the next segments.
    segment_base: u64,
    segment: Option<Box<Segment>>,
    decoder: Decoder,
    /// What is under way, and the method that began it.
    work: Option<(Method, Work)>,
}

impl KernelChannel {
    /// A channel that has done nothing, with a ring of so many entries; of more than drivers may have, that
    /// many.
    pub fn new(gpfifo: GpuVa, entries_log2: u8) -> Self {
        Self {
            gpfifo,
            entries_log2: entries_log2.min(MAX_GPFIFO_ENTRIES_LOG2),
            get: 0,
            segment_base: 0,
            segment: None,
            decoder: Decoder::default(),
            work: None,
        }
    }

    /// The ring entry after the last that was read (GP_GET).
    pub const fn get(&self) -> u32 {
        self.get
    }

    /// Goes on, up to the ring entry `gp_put`.
    ///
    /// # Errors
    /// The channel goes no further. What it was told before is done.
    pub fn run<M: KernelMemory>(
        &mut self,
        gp_put: u32,
        memory: &mut M,
        budget: &mut Budget,
    ) -> Result<Outcome, Refusal> {
        let entries = 1_u64 << self.entries_log2.min(MAX_GPFIFO_ENTRIES_LOG2);
        if u64::from(gp_put) >= entries {
            return Err(Refusal::Put { gp_put, entries });
        }
        let mut access = Access::new(memory);
        loop {
            if let Some((method, work)) = self.work.take() {
                if let Some((outcome, left)) = carry_out(work, &mut access, budget)? {
                    self.work = Some((method, left));
                    return Ok(outcome);
                }
                continue;
            }
            if self.segment.is_none() && self.get == gp_put {
                return Ok(Outcome::Idle);
            }
            if budget.is_spent() {
                return Ok(Outcome::More);
            }
            budget.spend(1);
            match self.word(&mut access)? {
                None => self.entry(&mut access)?,
                Some(word) => match self.decoder.word(word)? {
                    Decoded::Nothing => {}
                    Decoded::EndSegment => self.segment = None,
                    Decoded::Action(method, Action::Acquire(acquire)) => {
                        budget.spend(ACTION);
                        self.work = Some((method, Work::Acquire(acquire)));
                    }
                    Decoded::Action(method, Action::Launch(launch)) => {
                        budget.spend(ACTION);
                        let transfer = launch.transfer.map(Progress::new);
                        self.work = Some((method, Work::Launch { launch, transfer }));
                    }
                    Decoded::Action(_, Action::Invalidate(what)) => {
                        budget.spend(INVALIDATION);
                        access.memory().invalidate(what);
                    }
                },
            }
        }
    }

    /// The next word of the segment; none where a ring entry comes next.
    fn word<M: KernelMemory>(&mut self, access: &mut Access<'_, M>) -> Result<Option<u32>, Refusal> {
        let Some(segment) = &mut self.segment else { return Ok(None) };
        if segment.from == segment.to {
            let count = usize::try_from(segment.left).map_or(CHUNK, |left| left.min(CHUNK));
            let mut raw = [[0; 4]; CHUNK];
            let raw = raw.get_mut(..count).unwrap_or_default();
            access.read(Place::Virtual(GpuVa(segment.address)), raw.as_flattened_mut())?;
            for (word, raw) in segment.words.iter_mut().zip(raw.iter()) {
                *word = u32::from_le_bytes(*raw);
            }
            let bytes = (count as u64).saturating_mul(4);
            segment.address = segment.address.saturating_add(bytes);
            segment.left = segment.left.saturating_sub(count as u64);
            (segment.from, segment.to) = (0, count);
        }
        let word = segment.words.get(segment.from).copied();
        segment.from = segment.from.saturating_add(1);
        if segment.from >= segment.to && segment.left == 0 {
            self.segment = None;
        }
        Ok(word)
    }

    /// The next ring entry.
    fn entry<M: KernelMemory>(&mut self, access: &mut Access<'_, M>) -> Result<(), Refusal> {
        let offset = u64::from(self.get).saturating_mul(GPFIFO_ENTRY_SIZE);
        let place = GpuVa(self.gpfifo.checked_add(offset).ok_or(Refusal::Address(self.gpfifo.0))?.0);
        let mut raw = [0; 8];
        access.read(Place::Virtual(place), &mut raw)?;
        let raw = u64::from_le_bytes(raw);
        self.get = self.get.wrapping_add(1) & (1_u32 << self.entries_log2).wrapping_sub(1);
        match RingEntry::decode(raw) {
            RingEntry::Segment { address, words } => {
                let address = self.segment_base | address;
                let segment = Segment { address, left: words, words: [0; CHUNK], from: 0, to: 0 };
                self.segment = Some(Box::new(segment));
            }
            RingEntry::Control(raw) => match segment_base(raw) {
                Some(base) => self.segment_base = base,
                None if opcode(raw) == GP_ENTRY1::OPCODE::NOP => {}
                None => return Err(Refusal::Entry(raw)),
            },
        }
        Ok(())
    }
}

/// Goes on with what is under way. What is left, and why, if anything is.
fn carry_out<M: KernelMemory>(
    work: Work,
    access: &mut Access<'_, M>,
    budget: &mut Budget,
) -> Result<Option<(Outcome, Work)>, Refusal> {
    match work {
        Work::Acquire(acquire) => {
            let value = load(acquire.address, acquire.width, access)?;
            Ok((!acquire.is_met_by(value)).then_some((Outcome::Waits, work)))
        }
        Work::Launch { launch, mut transfer } => {
            if let Some(progress) = &mut transfer {
                while !progress.is_done() {
                    if budget.is_spent() {
                        return Ok(Some((Outcome::More, Work::Launch { launch, transfer })));
                    }
                    let bytes = progress.piece(access)?;
                    budget.bytes = budget.bytes.saturating_sub(bytes);
                }
            }
            if let Some(release) = launch.release {
                write_semaphore(release, access)?;
            }
            if launch.notify {
                access.memory().notify();
            }
            Ok(None)
        }
    }
}

fn load<M: KernelMemory>(va: GpuVa, width: Operand, access: &mut Access<'_, M>) -> Result<u64, Refusal> {
    let mut raw = [0; 8];
    let part = raw.get_mut(..width.bytes()).unwrap_or_default();
    access.read(Place::Virtual(va), part)?;
    Ok(u64::from_le_bytes(raw))
}

/// The time is there before the value, which is what somebody waits for.
fn write_semaphore<M: KernelMemory>(release: Release, access: &mut Access<'_, M>) -> Result<(), Refusal> {
    let Release { address, payload, width, stamped, reduction } = release;
    let value = match reduction {
        None => payload,
        Some(Combine { by, signed }) => by.apply(width, signed, load(address, width, access)?, payload),
    };
    if stamped {
        let time = access.memory().now();
        access.write(Place::Virtual(address).moved(8)?, &time.to_le_bytes())?;
    }
    // With a time behind it, the upper half of a value of 32 bits is 0.
    let size = if stamped { 8 } else { width.bytes() };
    let raw = (value & width.mask()).to_le_bytes();
    access.write(Place::Virtual(address), raw.get(..size).unwrap_or_default())
}
