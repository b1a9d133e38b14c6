//! Instance memory as memory that a front end's client maps for good: the first part of BAR3, and PRAMIN. A
//! guest's loads and stores of it cost no message then.
//!
//! Such a client (QEMU's vfio-user) learns only once which file a region is. So BAR3's mapping cannot follow
//! the guest's tables: the memory follows instead. A page of VRAM that a window shows has its home in that
//! file, at the offset where the window shows it. Three mechanisms ensure that:
//!
//! * this process reaches it there by its address in VRAM, because that page of the file is mapped over its
//!   place in [`Window`](super::memory::Window): no reader knows of homes;
//! * engines reach it there as system memory ([`PagePlacement::split`]); the file is announced as memory for
//!   DMA at [`WINDOW_GPA`], where no guest has memory, when the first engine is to reach a page of it;
//! * pages move when the guest invalidates BAR3's tables or moves PRAMIN ([`PagePlacement::apply`],
//!   [`PagePlacement::move_pramin`]), before that access ends. Until then the guest sees what was there
//!   before, as through a TLB. (QEMU waits for the end of every write once a region is mapped.)
//!
//! An engine may store to a page while it moves: what it stored after the page was copied is carried over
//! when all engines have the new address.
//!
//! Limits. Only the first [`BAR3_MAPPED`] bytes of BAR3 are such memory, the rest is trapped. A page of VRAM
//! can have one home: where BAR3 shows it twice, the second place is an echo ([`echoes`]), and in PRAMIN
//! there is other memory where BAR3 shows a page too. System memory and addresses beyond VRAM are not shown.
//! Hardware reads a channel's USERD at its address in VRAM. So while it does, a window has a copy, which is
//! stored to VRAM when a channel is made there. Read-only entries can be written through BAR3. Before its
//! driver gives BAR3 tables, BAR3 shows separate memory, not VRAM. Parts of a window that show nothing read
//! as their last content, and keep stores.

mod echoes;
mod moves;
mod places;
mod surroundings;
mod tables;
mod words;

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use rustix::fs::{FallocateFlags, fallocate};

use self::echoes::Echoes;
use self::places::{Part, Places};
pub use self::surroundings::{Engines, Requests, Surroundings};
pub use self::tables::Tables;
use super::error::VgpuError;
use super::memory::Window;
use gpuvmk_aggregator::link::LinkError;
use gpuvmk_aggregator::protocol::{RefusalKind, Request};
use gpuvmk_chip::addr::{Gpa, GpuVa, PAGE_SIZE};
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::SharedMemory;
use gpuvmk_pci::mapping::{Access, FilePiece, Mapping, create_memory_file};
use gpuvmk_shadow_pagetable::MapRun;

/// How a guest's accesses to instance memory get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Bar3 {
    /// Each one is a message.
    Trapped,
    /// The front end's client maps it.
    Direct,
    /// The client maps it, unless the physical GPU's VRAM is slow to read: then each is a message.
    #[default]
    WherePossible,
}

/// Bytes of BAR3 that are memory, at the beginning of the file: drivers give addresses out from the lowest
/// on, and nouveau needs some 2 MiB.
pub const BAR3_MAPPED: u64 = 16 << 20;
/// Where in the file PRAMIN is, and its bytes.
const PRAMIN: Range<u64> = BAR3_MAPPED..BAR3_MAPPED + (1 << 20);
/// Bytes of the file.
const FILE: u64 = PRAMIN.end;
/// Where the file is announced to the aggregator. Processors have at most 52 bits of physical addresses.
pub const WINDOW_GPA: u64 = 1 << 52;
/// log2 of the smallest page.
const SMALL: u8 = 12;

/// A file of zeros.
fn create_file() -> io::Result<OwnedFd> {
    create_memory_file(c"gpuvmk-instance-memory", FILE)
}

/// The memory, and which pages have their home there.
#[derive(Debug)]
pub struct PagePlacement {
    /// Another one for each client.
    file: RwLock<OwnedFd>,
    memory: Mapping,
    /// The client that was given the file is gone.
    client_gone: AtomicBool,
    /// The log has it that pages are at too many places.
    told: AtomicBool,
    echoes: Mutex<Echoes>,
    /// There are any.
    has_echoes: AtomicBool,
    state: Mutex<State>,
    /// A bit for each page of VRAM that an engine could ever reach since the last reset.
    reached: Box<[AtomicU64]>,
}

#[derive(Debug, Default)]
struct State {
    places: Places,
    /// Pages in which hardware reads USERDs, and how many.
    userds: OrderedMap<u64, u32>,
    /// The VRAM that PRAMIN shows; empty: none.
    pramin: Range<u64>,
    /// The file was announced to the aggregator.
    announced: bool,
}

impl PagePlacement {
    /// Memory that shows nothing, for a vGPU with `vram` bytes.
    ///
    /// # Errors
    /// The host has no memory for it.
    pub fn new(vram: u64) -> Result<Self, VgpuError> {
        let file = create_file().map_err(VgpuError::Bar3)?;
        let memory = Mapping::of_file(file.as_fd(), 0, FILE, Access::ReadWrite)?;
        let words = usize::try_from(vram.div_ceil(PAGE_SIZE).div_ceil(64)).unwrap_or(0);
        let reached = std::iter::repeat_with(AtomicU64::default).take(words).collect();
        let (file, client_gone) = (RwLock::new(file), AtomicBool::new(false));
        let told = AtomicBool::new(false);
        let (echoes, has_echoes) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self { file, memory, client_gone, told, echoes, has_echoes, state: Mutex::default(), reached })
    }

    /// BAR3's part of the file, for a front end.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn share_bar3(&self) -> io::Result<SharedMemory> {
        self.share(0..BAR3_MAPPED)
    }

    /// The memory of PRAMIN's window.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn share_pramin(&self) -> io::Result<SharedMemory> {
        self.share(PRAMIN)
    }

    fn share(&self, part: Range<u64>) -> io::Result<SharedMemory> {
        if self.client_gone.load(Ordering::Relaxed) {
            return Err(io::Error::other("instance memory for the next client could not be made"));
        }
        let fd = self.file().try_clone()?;
        Ok(SharedMemory { fd, offset: part.start, size: part.end - part.start })
    }

    fn file(&self) -> RwLockReadGuard<'_, OwnedFd> {
        self.file.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client that is gone, or a process that got the file from it, may still have it. The next reset makes
    /// another file; none is given out before.
    pub fn client_gone(&self) {
        self.client_gone.store(true, Ordering::Relaxed);
    }

    /// A page of VRAM is at one more place of BAR3 than can be. Says so once: a guest that needs it does not
    /// work.
    fn tell_of_too_many_places(&self) {
        if !self.told.swap(true, Ordering::Relaxed) {
            log::warn!(
                "Pages are at more than {} further places of BAR3, and what is behind shows other memory. A driver \
                 that needs more must have bar3 = \"trapped\"",
                echoes::MOST
            );
        }
    }

    fn echoes(&self) -> MutexGuard<'_, Echoes> {
        self.echoes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a processor stored at one of several places of a page is at the others, when this returns.
    pub fn settle(&self) {
        if self.has_echoes.load(Ordering::Acquire)
            && let Err(error) = self.echoes().settle(&self.memory)
        {
            log::error!("A page at several places of BAR3 is not alike: {error}");
        }
    }

    /// Puts another file of zeros in the place of the one at hand, of which nothing is shown.
    fn renew(&self) -> Result<(), VgpuError> {
        let fresh = create_file().map_err(VgpuError::Bar3)?;
        let piece = FilePiece { fd: fresh.as_fd(), offset: 0, size: FILE };
        self.memory.replace(0, &piece)?;
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        self.client_gone.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Withdraws the memory from the aggregator, if it was announced.
    ///
    /// # Errors
    /// The aggregator is gone.
    pub fn withdraw(&self, requests: &dyn Requests) -> Result<(), LinkError> {
        if std::mem::take(&mut self.state().announced) {
            requests.send(&Request::DmaUnmap { gpa: Gpa(WINDOW_GPA), size: FILE }, None)?;
        }
        Ok(())
    }

    /// A new aggregator knows nothing of the file.
    pub fn forget_announcement(&self) {
        self.state().announced = false;
    }

    /// Everything as after power-on: all of VRAM has its home in VRAM, whatever was in it, and the memory is
    /// zero.
    pub fn reset(&self, window: &Window) {
        self.echoes().clear();
        self.has_echoes.store(false, Ordering::Release);
        let mut state = self.state();
        for (page, _) in state.places.homes() {
            if let Err(error) = window.uncover(page, PAGE_SIZE) {
                log::error!("VRAM at {page:#x} is not what it was before a window showed it: {error}");
            }
        }
        *state = State::default();
        self.reached.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        if self.client_gone.load(Ordering::Relaxed) {
            match self.renew() {
                Ok(()) => return,
                Err(error) => log::error!("The next client cannot map instance memory: {error}"),
            }
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&*self.file(), how, 0, FILE).is_err()
            && let Err(error) = self.memory.fill(0, FILE, 0)
        {
            log::error!("Instance memory is not zeroed: {error}");
        }
    }

    /// Engines may reach a range of VRAM from now on.
    fn reach(&self, vram: Range<u64>) {
        for (word, bits) in words(vram) {
            if let Some(word) = self.reached.get(word) {
                word.fetch_or(bits, Ordering::Relaxed);
            }
        }
    }

    /// True if an engine could reach a page of a range since the last reset.
    fn is_reached(&self, vram: Range<u64>) -> bool {
        words(vram).any(|(word, bits)| {
            self.reached.get(word).is_some_and(|word| word.load(Ordering::Relaxed) & bits != 0)
        })
    }

    /// Adds what engines need to reach what a guest's tables map: a run of VRAM in parts, by where its pages
    /// have their home.
    ///
    /// # Errors
    /// The memory could not be announced to the aggregator.
    pub fn split(
        &self,
        run: MapRun,
        requests: &dyn Requests,
        add: &mut dyn FnMut(MapRun),
    ) -> Result<(), LinkError> {
        if run.target.aperture != Aperture::Vram {
            add(run);
            return Ok(());
        }
        let start = run.target.address;
        let vram = start..start.saturating_add(u64::from(run.pages) << run.page_shift);
        self.reach(vram.clone());
        let parts = self.state().places.parts(vram);
        if let [Part { home: None, .. }] = parts.as_slice() {
            add(run);
            return Ok(());
        }
        if parts.iter().any(|part| part.home.is_some()) {
            self.announce(requests)?;
        }
        for part in parts {
            let Part { vram, home } = part;
            let va = |at: u64| GpuVa(run.va.0.saturating_add(at.saturating_sub(start)));
            let piece = |from: u64, to: u64, page_shift: u8, target: PhysicalAddress| MapRun {
                va: va(from),
                pages: u32::try_from((to - from) >> page_shift).unwrap_or(u32::MAX),
                page_shift,
                target,
                ..run
            };
            let Some(home) = home else {
                // Large pages where they are whole, and small ones around them.
                let page = 1_u64 << run.page_shift;
                let first = start.saturating_add((vram.start - start).next_multiple_of(page)).min(vram.end);
                let last = start.saturating_add((vram.end - start) / page * page).max(first);
                let cuts =
                    [(vram.start, first, SMALL), (first, last, run.page_shift), (last, vram.end, SMALL)];
                for (from, to, shift) in cuts.into_iter().filter(|(from, to, _)| from < to) {
                    add(piece(from, to, shift, PhysicalAddress { address: from, ..run.target }));
                }
                continue;
            };
            let target = PhysicalAddress {
                aperture: Aperture::SystemCoherent,
                address: WINDOW_GPA.saturating_add(home),
            };
            add(piece(vram.start, vram.end, SMALL, target));
        }
        Ok(())
    }

    /// Tells the aggregator of the memory, once.
    fn announce(&self, requests: &dyn Requests) -> Result<(), LinkError> {
        if self.state().announced {
            return Ok(());
        }
        let file = self.file().try_clone().map_err(|error| LinkError::Refused {
            kind: RefusalKind::Exhausted,
            message: format!("No descriptor is left here: {error}"),
        })?;
        let gpa = Gpa(WINDOW_GPA);
        requests.send(&Request::DmaMap { gpa, size: FILE, offset: 0, writable: true }, Some(file))?;
        self.state().announced = true;
        Ok(())
    }
}

/// The words and bits of a bitmap of pages that a range of VRAM touches.
fn words(vram: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let (first, end) = (vram.start / PAGE_SIZE, vram.end.div_ceil(PAGE_SIZE));
    let word = |page: u64| page / 64;
    (word(first)..word(end.saturating_sub(1)).saturating_add(u64::from(first < end))).map(move |index| {
        let base = index.saturating_mul(64);
        let from = first.max(base) - base;
        let to = end.min(base.saturating_add(64)) - base;
        let upto = |bits: u64| if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        (usize::try_from(index).unwrap_or(usize::MAX), upto(to) & !upto(from))
    })
}
