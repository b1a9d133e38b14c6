//! Channels that a driver marks as its kernel's: no hardware has them. Their commands are carried out here,
//! on the guest's memory, when the driver rings for them.
//!
//! They are carried out in short pieces ([`BUDGET`]), one channel after the other. Who holds GSP looks at the
//! clock between two pieces, and sees to it that what is [left](KernelWork) goes on: a driver may not keep
//! GSP, or the processor that rings, for as long as it likes. Such a channel may be told to wait for another
//! one, or for a processor. So each that waits is looked at again when one has done something.
//!
//! Their USERD may be in system memory.

mod state;

pub use state::{KernelChannelsState, OwnState};

use crate::model::channel::{Begun, Channels, inside};
use crate::model::objects::{Id, Objects};
use crate::model::robust_channel::{RobustChannelError, copy_error};
use crate::model::token::Token;
use gpuvmk_backend::{FlushScope, GspBackend};
use gpuvmk_chip::addr::{GpuVa, PAGE_SIZE};
use gpuvmk_chip::channel_event::{FaultUnit, HostError, MmuFault, StopCause};
use gpuvmk_chip::gh100::userd::{USERD_GP_GET, USERD_GP_PUT};
use gpuvmk_chip::gmmu::Gmmu;
use gpuvmk_chip::{Engine, EngineSet, FaultReason, PhysicalAddress};
use gpuvmk_fifo_virt::{
    Budget, Invalidation, KernelChannel, KernelMemory, NotGuests, Outcome, Refusal, Target,
};
use gpuvmk_mmio_trap::PhysicalMemory;
use gpuvmk_mmio_trap::aperture::gmmu::{GmmuRoot, GmmuTables};
use gpuvmk_mmio_trap::aperture::{Mapping, Translation};
use gpuvmk_ordered::OrderedMap;

/// How much a piece of work is at most, of all channels together: less than a millisecond. What takes longest
/// for its steps are lines of a byte that are far apart, and invalidations of page tables that have changed.
const BUDGET: Budget = Budget { steps: 1 << 10, bytes: 1 << 18 };

/// Such channels that there may be. A driver has some ten.
const MOST: usize = 128;

/// Pages whose translations are kept until the next invalidation, at most; a power of two.
const KEPT: usize = 16;

/// A channel of the driver's kernel.
#[derive(Debug)]
struct Own {
    /// Its object, and the handle of its address space: where its page tables are may change.
    id: Id,
    space: u32,
    userd: PhysicalAddress,
    engine: Engine,
    ring: (GpuVa, u8),
    channel: KernelChannel,
    /// It was told something that is not done.
    goes_on: bool,
}

/// All channels of the driver's kernel.
#[derive(Debug, Default)]
pub(super) struct KernelChannels {
    all: OrderedMap<Token, Own>,
    /// The one that was carried out last: others come before it.
    last: Option<Token>,
    left: KernelWork,
}

/// What channels of the driver's kernel have left to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelWork {
    /// Nothing that could be done now.
    #[default]
    Nothing,
    /// They wait for what somebody else writes.
    Waits,
    /// More.
    More,
}

/// What came of a doorbell.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Engines whose work asked for a notification.
    pub(super) notified: EngineSet,
    /// Channels that go no further.
    pub(super) refused: Vec<(Token, Engine, Refusal)>,
}

impl KernelChannels {
    /// True while there may be one more.
    pub(super) fn has_room(&self) -> bool {
        self.all.len() < MOST
    }

    /// True while there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A channel begins, at the start of its ring.
    pub(super) fn begin(&mut self, token: Token, begun: Begun) {
        let Begun { id, space, userd, engine, ring } = begun;
        let channel = KernelChannel::new(ring.0, ring.1);
        self.all.insert(token, Own { id, space, userd, engine, ring, channel, goes_on: false });
    }

    /// A channel is gone.
    pub(super) fn end(&mut self, token: Token) {
        self.all.remove(&token);
    }

    /// All are gone.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.left = KernelWork::Nothing;
    }

    /// A channel was told something. False: it is none that is carried out here.
    pub(super) fn ring(&mut self, token: Token) -> bool {
        let Some(own) = self.all.get_mut(&token) else { return false };
        own.goes_on = true;
        self.left = KernelWork::More;
        true
    }

    /// What is left to do.
    pub(super) const fn left(&self) -> KernelWork {
        self.left
    }

    /// Goes on with all that was told, for a piece of work. `now` is the time for stamps.
    pub(super) fn run(
        &mut self,
        (objects, channels): (&Objects, &Channels),
        (back, format): (&dyn GspBackend, Gmmu),
        now: u64,
    ) -> Done {
        let (mut done, mut budget) = (Done::default(), BUDGET);
        loop {
            let (mut works, mut waits) = (false, false);
            for token in self.turns() {
                if budget.is_spent() {
                    self.left = KernelWork::More;
                    return done;
                }
                let Some(own) = self.all.get_mut(&token).filter(|_| channels.may_run(token)) else {
                    continue;
                };
                let Some(directory) = objects.directory_of_channel(own.id, own.space) else { continue };
                let tables = GmmuTables { format, root: GmmuRoot::Root(directory) };
                let before = budget;
                let mut memory = Memory { back, objects, tables, now, notified: false, kept: [None; KEPT] };
                let outcome = own.run(&mut memory, &mut budget);
                if memory.notified {
                    done.notified |= own.engine.into();
                }
                own.goes_on = match outcome {
                    Ok(outcome) => outcome != Outcome::Idle,
                    Err(refusal) => {
                        done.refused.push((token, own.engine, refusal));
                        false
                    }
                };
                works |= budget != before;
                waits |= own.goes_on;
                // Looking whether a wait is over is work as well.
                budget.steps = budget.steps.saturating_sub(1);
                self.last = Some(token);
            }
            if !works {
                self.left = if waits { KernelWork::Waits } else { KernelWork::Nothing };
                return done;
            }
        }
    }

    /// The channels that were told something, from the one behind the last that was carried out.
    fn turns(&self) -> Vec<Token> {
        let behind = |token: &Token| self.last.is_none_or(|last| *token > last);
        let going = || self.all.iter().filter(|(_, own)| own.goes_on).map(|(token, _)| *token);
        going().filter(behind).chain(going().filter(|token| !behind(token))).collect()
    }
}

impl Own {
    fn run(&mut self, memory: &mut Memory<'_>, budget: &mut Budget) -> Result<Outcome, Refusal> {
        let place = |offset| inside(self.userd, offset);
        let mut raw = [0; 4];
        let kind = gpuvmk_chip::AccessKind::Read;
        let refused = Refusal::Physical { address: place(USERD_GP_PUT), kind };
        memory.read(place(USERD_GP_PUT), &mut raw).map_err(|NotGuests| refused)?;
        let outcome = self.channel.run(u32::from_le_bytes(raw), memory, budget);
        // It was there a moment ago.
        let _ = memory.write(place(USERD_GP_GET), &self.channel.get().to_le_bytes());
        outcome
    }
}

/// The guest's memory, seen by one channel.
struct Memory<'a> {
    back: &'a dyn GspBackend,
    objects: &'a Objects,
    tables: GmmuTables<Gmmu>,
    now: u64,
    notified: bool,
    /// Translations of pages, by the last bits of their numbers.
    kept: [Option<(u64, Mapping)>; KEPT],
}

impl PhysicalMemory for &Memory<'_> {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> bool {
        self.back.read_memory(address, data).is_ok()
    }

    fn read_tables(&self, address: PhysicalAddress, data: &mut [u8]) -> bool {
        self.back.read_tables(address, data).is_ok()
    }

    fn write(&self, address: PhysicalAddress, data: &[u8]) -> bool {
        self.back.write_memory(address, data).is_ok()
    }
}

impl KernelMemory for Memory<'_> {
    fn translate(&mut self, va: GpuVa) -> Option<Target> {
        let (page, inside) = (va.0 / PAGE_SIZE, va.0 % PAGE_SIZE);
        let slot = usize::try_from(page % KEPT as u64).unwrap_or(0);
        let known = self.kept.get(slot).copied().flatten().filter(|(of, _)| *of == page);
        let mapping = match known {
            Some((_, mapping)) => mapping,
            None => self.tables.walk(va.0.saturating_sub(inside), &&*self).found.ok()?,
        };
        if let Some(place) = self.kept.get_mut(slot) {
            *place = Some((page, mapping));
        }
        let Mapping { target, read_only } = mapping;
        let address = PhysicalAddress { address: target.address.checked_add(inside)?, ..target };
        Some(Target { address, bytes: PAGE_SIZE.saturating_sub(inside), read_only })
    }

    fn read(&mut self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NotGuests> {
        self.back.read_memory(address, data).map_err(|_| NotGuests)
    }

    fn write(&mut self, address: PhysicalAddress, data: &[u8]) -> Result<(), NotGuests> {
        self.back.write_memory(address, data).map_err(|_| NotGuests)
    }

    fn invalidate(&mut self, what: Invalidation) {
        self.kept = [None; KEPT];
        // Of a range, too, the back compares all tables: it looks at what has changed alone.
        let flush = |page_directory| self.back.flush_tlb(FlushScope { page_directory, hub_only: false });
        match what.directory {
            Some(directory) => flush(directory),
            None => self.objects.directories().into_iter().for_each(flush),
        }
    }

    fn notify(&mut self) {
        self.notified = true;
    }

    fn now(&mut self) -> u64 {
        self.now
    }
}

/// How the driver is told that a channel of its kernel goes no further.
pub(super) fn error(engine: Engine, refusal: Refusal) -> RobustChannelError {
    match refusal {
        Refusal::Virtual { va, kind } => StopCause::Fault(MmuFault {
            unit: FaultUnit::Engine(engine),
            address: va,
            access: kind,
            reason: FaultReason::PageNotPresent,
        })
        .into(),
        Refusal::Copy { .. } | Refusal::Physical { .. } | Refusal::Address(_) => {
            RobustChannelError::plain(engine, copy_error(engine))
        }
        Refusal::Put { .. }
        | Refusal::Entry(_)
        | Refusal::Header(_)
        | Refusal::Class(_)
        | Refusal::Method(_) => {
            let error = HostError { pbdma: 0, status: 0, method: 0, data: 0 };
            RobustChannelError { engine, ..StopCause::Host(error).into() }
        }
    }
}
