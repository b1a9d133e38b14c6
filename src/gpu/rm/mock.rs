//! A kernel module of the NVIDIA driver in memory: a tree of objects, mappings, and refusals where the real
//! one refuses.
//!
//! It plays no GPU: what channels would do is not done, so tests clear memory with [`Wiper`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "for tests alone, of this room and of others"
)]

mod controls;
mod files;
mod mappings;
mod objects;
mod state;
mod takes;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::abi::calls::{CardInfo, EventData, MapDma, UnmapDma};
use super::abi::controls::{ControlParams, DisableChannels, GroupPreempt};
use super::abi::{Handle, RmStatus};
use super::clearing::{Cleaner, Ticket};
use super::device::Device;
use super::kernel::{CallError, CpuView, Kernel, NewObject, NewPages, Node, OpenFiles};
use crate::{GpuError, Scrub};
use files::MockFiles;
use gpuvmk_chip::Chip;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_host::clock::ManualClock;
use state::MockObject;
pub use state::State;
use state::refuse;

/// A mock of the kernel module.
#[derive(Clone, Debug)]
pub struct Mock {
    state: Arc<Mutex<State>>,
    /// The clock that calls advance.
    clock: Option<Arc<ManualClock>>,
}

impl Mock {
    /// One H200 with 8 GiB free.
    pub fn new() -> Self {
        let state = State {
            cards: vec![CardInfo { valid: 1, bus: 6, gpu_id: 0x600, device: 0x2335, ..Default::default() }],
            engines: vec![1, 9, 10, 11, 12, 13, 0x22],
            architecture: 0x180,
            classes: classes_of(Chip::GH100),
            vram_free: 8 << 30,
            next_client: 0xc1d0_0001,
            ..Default::default()
        };
        Self { state: Arc::new(Mutex::new(state)), clock: None }
    }

    /// Locks its state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same module for a caller whose calls take time.
    pub fn timed(&self, clock: &Arc<ManualClock>) -> Self {
        Self { state: Arc::clone(&self.state), clock: Some(Arc::clone(clock)) }
    }

    fn take(&self, time: u64) {
        if let Some(clock) = &self.clock {
            clock.advance(time);
        }
    }

    pub fn kernel(&self) -> Arc<dyn Kernel> {
        Arc::new(self.clone())
    }
}

/// Clears nothing, and remembers what it should have.
#[derive(Debug, Default)]
pub struct Wiper {
    pub wiped: Arc<Mutex<Vec<(Handle, u64, u64)>>>,
}

impl Cleaner for Wiper {
    fn begin(
        &mut self,
        _device: &Device,
        object: Handle,
        offset: u64,
        size: u64,
    ) -> Result<Option<Ticket>, GpuError> {
        self.wiped.lock().unwrap_or_else(PoisonError::into_inner).push((object, offset, size));
        Ok(Some(Ticket(0)))
    }

    fn look(&mut self, _device: &Device, _ticket: Ticket) -> Result<Scrub, GpuError> {
        Ok(Scrub::Done)
    }

    fn objects(&self) -> Vec<Handle> {
        Vec::new()
    }
}

/// What a GPU of the chip lists, and an older class.
pub fn classes_of(chip: Chip) -> Vec<u32> {
    let own = chip.classes.for_tenants().into_iter().chain(chip.classes.usermode);
    own.map(|class| class.number).chain([0xc36f]).collect()
}

impl Kernel for Mock {
    fn open(&self, node: Node) -> io::Result<OwnedFd> {
        if self.state().closed && node != Node::Control {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // A node is one file that is opened each time anew; what is mapped here must not be.
        if let Some(node) = &self.state().node {
            return Ok(std::fs::File::open(format!("/proc/self/fd/{}", node.as_raw_fd()))?.into());
        }
        Ok(rustix::fs::memfd_create("mock-node", rustix::fs::MemfdFlags::CLOEXEC)?)
    }

    fn open_files(&self) -> io::Result<Box<dyn OpenFiles>> {
        Ok(Box::new(MockFiles::default()))
    }

    fn cards(&self) -> Result<Vec<CardInfo>, CallError> {
        Ok(self.state().cards.clone())
    }

    fn register(&self, _device: BorrowedFd<'_>) -> Result<(), CallError> {
        Ok(())
    }

    fn alloc(&self, new: NewObject, params: &mut [u8]) -> Result<Handle, CallError> {
        self.take(takes::alloc(new.class.number));
        self.state().alloc(new, params)
    }

    fn alloc_pages(&self, _device: BorrowedFd<'_>, new: NewPages<'_>) -> Result<(), CallError> {
        self.take(takes::hold(new.size));
        if let Some(file) = &self.state().punched {
            crate::scrub::punch(file, 0, PAGE_SIZE)?;
            new.memory.populate(new.offset, new.size)?;
        }
        let object = MockObject { parent: new.device, class: 0x71, range: (0, new.size) };
        self.state().objects.insert(new.object, object);
        Ok(())
    }

    fn free(&self, _client: Handle, _parent: Handle, object: Handle) -> Result<(), CallError> {
        let (class, (from, to)) =
            self.state().objects.get(&object).map_or((0, (0, 0)), |object| (object.class, object.range));
        self.take(takes::free(class, to - from));
        self.state().free(object)
    }

    fn control(
        &self,
        _client: Handle,
        object: Handle,
        command: u32,
        params: &mut [u8],
    ) -> Result<(), CallError> {
        self.take(match command {
            DisableChannels::COMMAND if params.first() == Some(&0) => takes::ENABLE,
            DisableChannels::COMMAND => takes::DISABLE,
            GroupPreempt::COMMAND => takes::PREEMPT,
            _ => takes::CONTROL,
        });
        let answer = self.state().control(object, command, params);
        if command == GroupPreempt::COMMAND && answer.is_err() {
            let patience =
                params.get(4..8).and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)));
            self.take(u64::from(patience.unwrap_or(0)) * 1000);
        }
        answer
    }

    fn map_cpu(&self, view: CpuView, file: BorrowedFd<'_>) -> Result<(), CallError> {
        if !self.state().objects.contains_key(&view.memory) {
            return refuse(RmStatus::ERR_OBJECT_NOT_FOUND);
        }
        Ok(rustix::fs::ftruncate(file, view.size).map_err(io::Error::from)?)
    }

    fn map_dma(&self, call: MapDma) -> Result<(), CallError> {
        self.take(takes::MAP);
        self.state().map(call)
    }

    fn unmap_dma(&self, call: UnmapDma) -> Result<(), CallError> {
        self.take(takes::UNMAP);
        self.state().unmap(call)
    }

    fn event_file(&self, _client: Handle) -> Result<OwnedFd, CallError> {
        Ok(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).map_err(io::Error::from)?)
    }

    fn next_event(&self, _file: BorrowedFd<'_>) -> Result<Option<(EventData, bool)>, CallError> {
        let mut state = self.state();
        let event = state.events.pop_front();
        let more = !state.events.is_empty();
        Ok(event.map(|event| (event, more)))
    }
}
