//! The context image of a channel on an engine. The channel's instance block points at it.
//!
//! The pointer is a virtual address of the channel's own space, or a physical one. Images are read and
//! written with the privileges of firmware. The graphics image has a header: word 0 counts the entries of the
//! patch list, word 1 is the list's address in units of 256 bytes, in the same memory as the image. The
//! loader writes each entry's value to its register, whatever register that is; the saver leaves the header
//! alone.

use crate::ledger::Actor;
use crate::mmu::AddressSpace;
use crate::mmu::channel_memory::ChannelMemory;
use crate::mmu::client::Client;
use crate::mmu::system::MemorySystem;
use crate::words::{halves, read_u64};
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::channel_event::{FaultUnit, MmuFault};
use gpuvmk_chip::gf100::mmu::VA_MAX;
use gpuvmk_chip::gf100::ramin::{COPY_CONTEXT_STRIDE, COPY0_CONTEXT_LO, GRAPHICS_CONTEXT_LO, aperture};
use gpuvmk_chip::{AccessKind, Aperture, Engine, FaultReason, PhysicalAddress};

/// Offset in a graphics image of an address in VRAM: that of the image which has what launches need and is
/// set up once. 0: this one has it.
pub(crate) const SETUP_POINTER: u64 = 8;

/// Largest number of patch list entries that are applied. The list's page has room for as many.
const MAX_PATCHES: u32 = 512;

/// A write that the patch list asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub(crate) register: u32,
    pub(crate) value: u32,
}

/// Offset in an instance block of the pointer to an engine's context. `None` if no chip here has that engine.
pub(crate) fn context_pointer(engine: Engine) -> Option<u64> {
    match engine {
        Engine::Graphics => Some(GRAPHICS_CONTEXT_LO),
        Engine::Copy(number) => {
            let before = COPY_CONTEXT_STRIDE.saturating_mul(number.get().into());
            Some(COPY0_CONTEXT_LO.saturating_add(before))
        }
        Engine::Nvdec(_) | Engine::Nvenc(_) | Engine::Nvjpg(_) | Engine::Ofa(_) | Engine::Sec2 => None,
    }
}

/// The kind of memory that an image lies in.
#[derive(Clone, Debug)]
enum Home {
    Virtual(AddressSpace),
    Physical(Aperture),
}

/// One engine's context image of one channel.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    engine: Engine,
    channel: Option<HostChannel>,
    home: Home,
    address: u64,
}

impl Image {
    /// The image that an instance block names for `engine`.
    pub(crate) fn of(
        system: &MemorySystem,
        engine: Engine,
        channel: Option<HostChannel>,
        block: &[u8],
    ) -> Result<Self, MmuFault> {
        // An engine without a pointer in the instance block has no context.
        let pointer = context_pointer(engine).map_or(0, |offset| read_u64(block, offset));
        let address = pointer & VA_MAX & !(PAGE_SIZE - 1);
        let [low, _] = halves(pointer);
        let home = if GRAPHICS_CONTEXT_LO::VIRTUAL.is_set(low) {
            Some(Home::Virtual(system.mmu.address_space(block)))
        } else {
            // A pointer of 0 was never written: it does not mean the first page of VRAM.
            aperture(GRAPHICS_CONTEXT_LO::TARGET.get(low)).filter(|_| pointer != 0).map(Home::Physical)
        };
        match home {
            Some(home) => Ok(Self { engine, channel, home, address }),
            None => Err(MmuFault {
                unit: FaultUnit::Engine(engine),
                address: gpuvmk_chip::addr::GpuVa(0),
                access: AccessKind::Read,
                reason: FaultReason::NoChannel,
            }),
        }
    }

    fn physical(&self, aperture: Aperture, address: u64, access: AccessKind) -> MmuFault {
        log::debug!("softgpu: {:?} context in {aperture:?} at {address:#x} is not memory", self.engine);
        MmuFault {
            unit: FaultUnit::Engine(self.engine),
            address: gpuvmk_chip::addr::GpuVa(address),
            access,
            reason: FaultReason::UnsupportedAperture,
        }
    }

    fn note(&self, system: &MemorySystem, aperture: Aperture, address: u64, size: usize) -> PhysicalAddress {
        let target = PhysicalAddress { aperture, address };
        system.ledger.check(Actor::Firmware, self.channel, target, size as u64);
        target
    }

    fn read_at(&self, system: &MemorySystem, address: u64, data: &mut [u8]) -> Result<(), MmuFault> {
        match &self.home {
            Home::Virtual(space) => self.client(system, space).read(address, data),
            Home::Physical(aperture) => {
                let target = self.note(system, *aperture, address, data.len());
                let missed = system.memory.read(target, data);
                missed.map_err(|_| self.physical(*aperture, address, AccessKind::Read))
            }
        }
    }

    fn client<'a>(&self, system: &'a MemorySystem, space: &'a AddressSpace) -> Client<'a> {
        let unit = FaultUnit::Engine(self.engine);
        Client { system, space, channel: self.channel, unit, privileged: true }
    }

    /// Reads `data.len()` bytes at `offset` of the image.
    pub(super) fn read(&self, system: &MemorySystem, offset: u64, data: &mut [u8]) -> Result<(), MmuFault> {
        self.read_at(system, self.address + offset, data)
    }

    /// Writes `data` at `offset` of the image.
    pub(super) fn write(&self, system: &MemorySystem, offset: u64, data: &[u8]) -> Result<(), MmuFault> {
        let address = self.address + offset;
        match &self.home {
            Home::Virtual(space) => self.client(system, space).write(address, data),
            Home::Physical(aperture) => {
                let target = self.note(system, *aperture, address, data.len());
                let missed = system.memory.write(target, data);
                missed.map_err(|_| self.physical(*aperture, address, AccessKind::Write))
            }
        }
    }

    /// The image that has the launch setup, if this one names another.
    pub(super) fn with_setup(&self, system: &MemorySystem) -> Result<Option<Self>, MmuFault> {
        let mut address = [0; 8];
        self.read(system, SETUP_POINTER, &mut address)?;
        let address = u64::from_le_bytes(address);
        let home = Home::Physical(Aperture::Vram);
        Ok((address != 0).then_some(Self { home, address, ..*self }))
    }

    /// The patch list of a graphics image.
    pub(super) fn patches(&self, system: &MemorySystem) -> Result<Vec<Patch>, MmuFault> {
        let mut header = [0; 8];
        self.read(system, 0, &mut header)?;
        let header = u64::from_le_bytes(header);
        let count = (header & 0xffff_ffff).min(u64::from(MAX_PATCHES));
        if count == 0 {
            return Ok(Vec::new());
        }
        let list = header >> 32 << 8;
        let mut bytes = vec![0; usize::try_from(count * 8).unwrap_or(0)];
        self.read_at(system, list, &mut bytes)?;
        let patch = |entry: &[u8; 8]| {
            let [a, b, c, d, e, f, g, h] = *entry;
            Patch { register: u32::from_le_bytes([a, b, c, d]), value: u32::from_le_bytes([e, f, g, h]) }
        };
        Ok(bytes.as_chunks().0.iter().map(patch).collect())
    }
}
