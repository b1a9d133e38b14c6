//! A vGPU with all that its guest has, and a neighbour on each side of it.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuvmk::addr::{Gpa, TenantId};
use gpuvmk::aggregator::link::{AggregatorLink, Grant};
use gpuvmk::aggregator::protocol::Request;
use gpuvmk::chip::Chip;
use gpuvmk::pci::mapping::{Access, FilePiece, Mapping, create_memory_file};
use gpuvmk::pci::{DmaBacking, DmaMapping, InterruptSink, PciFunction, PlainMemory, Region, SharedMemory};
use gpuvmk::vgpu::{Bar3, Vgpu, VgpuConfig};

use crate::gsp_queues::Ram;
use crate::host::Host;

/// Bytes of a partition.
pub(super) const VRAM: u64 = 16 << 20;
/// Bus address and bytes of the guest's system memory.
pub(super) const BASE: u64 = 1 << 32;
pub(super) const RAM_BYTES: u64 = 0x10_0000;

/// Bytes that PRAMIN shows.
const PRAMIN: u64 = 1 << 20;

/// What neighbours have in their memory.
const SECRET: [u8; 0x1000] = [0x5e; 0x1000];

/// Somebody else, who does nothing and keeps what it has.
struct Neighbour {
    tenant: TenantId,
    vram: Mapping,
    ram: Mapping,
}

/// Counts interrupts.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl InterruptSink for Counter {
    fn set_intx(&self, _: bool) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn fire_msi(&self, _: u16) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn message_sent(&self, _vector: u16) {}
}

/// The world of a guest.
pub(super) struct World {
    pub(super) host: Arc<Host>,
    place: Place,
    tenant: TenantId,
    pub(super) vgpu: Vgpu,
    vram: Mapping,
    /// What a front end maps of BAR0 and BAR3 for its guest to store to.
    windows: Vec<Mapping>,
    pub(super) ram: Mapping,
    ram_file: OwnedFd,
}

/// The partition's memory, which is zero at its ends: the rest costs too much to look at.
fn window(grant: &Grant) -> Mapping {
    let pieces: Vec<_> = grant
        .window
        .iter()
        .map(|piece| FilePiece { fd: piece.fd.as_fd(), offset: piece.offset, size: piece.size })
        .collect();
    let mapping = Mapping::contiguous(&pieces, Access::ReadWrite).expect("a mapping");
    for at in [0, 0x1000, 0x4_0000, 0x20_0000, VRAM - 0x1000] {
        let mut page = [1; 0x1000];
        mapping.read(at, &mut page).expect("inside the memory");
        assert!(page.iter().all(|byte| *byte == 0), "something of a former tenant is at {at:#x}");
    }
    mapping
}

/// The memory that the vGPU's windows are for good, and that engines could reach.
fn windows(vgpu: &Vgpu) -> Vec<Mapping> {
    let plain = |region| vgpu.direct_map().and_then(|map| map.plain_memory(region).expect("a descriptor"));
    // A page of BAR0 that can only be read is none.
    let shown = [Region::Bar(0), Region::Bar(3)].map(plain).into_iter().flatten();
    let shown = shown.filter(|plain| plain.memory.size >= PRAMIN);
    let map = |plain: PlainMemory| {
        let SharedMemory { fd, offset, size } = plain.memory;
        Mapping::of_file(fd.as_fd(), offset, size, Access::ReadWrite).expect("a mapping")
    };
    shown.map(map).collect()
}

fn memory(size: u64) -> (OwnedFd, Mapping) {
    let file = create_memory_file(c"ram", size).expect("a memory file");
    let mapping = Mapping::of_file(file.as_fd(), 0, size, Access::ReadWrite).expect("a mapping");
    (file, mapping)
}

fn neighbour(host: &Arc<Host>, name: &str) -> Neighbour {
    let (link, grant) = host.join(name, VRAM);
    let vram = window(&grant);
    let (file, ram) = memory(0x1000);
    for (mapping, at) in [(&vram, 0), (&vram, VRAM - 0x1000), (&ram, 0)] {
        mapping.write(at, &SECRET).expect("inside the memory");
    }
    let map = Request::DmaMap { gpa: Gpa(0), size: 0x1000, offset: 0, writable: true };
    link.request(&map, Some(file)).expect("memory to map");
    Neighbour { tenant: link.tenant(), vram, ram }
}

/// Inputs that one GPU serves: bringing a GF100 up takes longer than most inputs do.
const INPUTS: u32 = 64;

/// A GPU with the neighbours, and room for a guest between them.
struct Place {
    host: Arc<Host>,
    neighbours: [Neighbour; 2],
    chip: Chip,
    /// Inputs that it is still good for.
    left: u32,
}

thread_local! {
    static SPARE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

impl Place {
    fn new(chip: Chip) -> Self {
        let host = Host::new(chip, 64 << 20);
        let before = neighbour(&host, "before");
        let (between, _) = host.join("between", VRAM);
        let after = neighbour(&host, "after");
        host.leave(between.tenant());
        Self { host, neighbours: [before, after], chip, left: INPUTS }
    }
}

impl World {
    pub(super) fn new(chip: Chip, bar3: Bar3) -> Self {
        let spare = SPARE.take().filter(|place| place.chip == chip && place.left > 0);
        let place = spare.unwrap_or_else(|| Place::new(chip));
        let host = Arc::clone(&place.host);
        let (link, grant) = host.join("guest", VRAM);
        let tenant = link.tenant();
        let vram = window(&grant);
        let mut config = VgpuConfig::of(chip).expect("a face");
        config.mediator.bar3 = bar3;
        let vgpu = Vgpu::new(link, grant, config).expect("a vGPU");
        vgpu.connect_interrupts(Some(Arc::<Counter>::default()));
        let (ram_file, ram) = memory(RAM_BYTES);
        let windows = windows(&vgpu);
        let world = Self { host, place, tenant, vgpu, vram, windows, ram, ram_file };
        world.map_ram(BASE, RAM_BYTES);
        world
    }

    /// The guest leaves; the next input finds the GPU as if it had not been there.
    pub(super) fn end(self) {
        let Self { host, mut place, tenant, vgpu, .. } = self;
        drop(vgpu);
        host.leave(tenant);
        place.left = place.left.saturating_sub(1);
        SPARE.set(Some(place));
    }

    /// Stores to VRAM, and to windows that are mapped, where tables that [`super::Driver::prepare`] makes
    /// show it; false if it does not fit.
    pub(super) fn store(&self, address: u64, bytes: &[u8]) -> bool {
        for window in &self.windows {
            // It may be beyond what is mapped.
            let _ = window.write(address % PRAMIN, bytes);
            let _ = window.write(address, bytes);
        }
        self.vram.write(address, bytes).is_ok()
    }

    /// After a reset BAR3 shows nothing, and PRAMIN the beginning of VRAM.
    pub(super) fn check_windows(&self) {
        for window in &self.windows {
            let is_pramin = window.size() == PRAMIN;
            for at in (0..window.size()).step_by(0x1_0000) {
                let shown = if is_pramin { self.vram.read_u64(at) } else { Ok(0) };
                assert_eq!(window.read_u64(at), shown, "of a window at {at:#x}");
            }
        }
    }

    /// Maps the guest's memory somewhere; refused where something is.
    pub(super) fn map_ram(&self, iova: u64, size: u64) {
        let fd = self.ram_file.try_clone().expect("a descriptor");
        let backing = Some(DmaBacking { fd, offset: 0 });
        if let Err(error) = self.vgpu.dma_map(DmaMapping { iova, size, writable: true, backing, owner: None })
        {
            assert!(!error.to_string().is_empty());
        }
    }

    pub(super) fn read_u32(&self, register: u32) -> u32 {
        let mut word = [0; 4];
        self.vgpu.read(Region::Bar(0), register.into(), &mut word).expect("a register");
        u32::from_le_bytes(word)
    }

    pub(super) fn write_u32(&self, register: u32, value: u32) {
        self.vgpu.write(Region::Bar(0), register.into(), &value.to_le_bytes()).expect("a register");
    }

    /// Nobody reached anybody else's memory.
    pub(super) fn check(&self) {
        let [before, after] = &self.place.neighbours;
        let tenants = [before.tenant, self.tenant, after.tenant];
        assert_eq!(self.host.foreign_accesses(&tenants), 0, "an engine left its tenant's memory");
        for Neighbour { vram, ram, .. } in &self.place.neighbours {
            for (mapping, at) in [(vram, 0), (vram, VRAM - 0x1000), (ram, 0)] {
                let mut found = [0; SECRET.len()];
                mapping.read(at, &mut found).expect("inside the memory");
                assert!(found == SECRET, "a neighbour's memory was changed");
            }
        }
    }
}

impl Ram for World {
    fn put(&self, offset: u64, data: &[u8]) {
        // What does not fit is not written.
        let _ = self.ram.write(offset, data);
    }

    fn get(&self, offset: u64, data: &mut [u8]) {
        let _ = self.ram.read(offset, data);
    }
}
