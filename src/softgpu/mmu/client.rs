//! Accesses by virtual address, in the name of a channel: translated page by page, checked by the ledger,
//! bounded in how long they keep a TLB flush waiting.

use std::time::{Duration, Instant};

use super::channel_memory::{CHUNK, ChannelMemory, Report};
use super::near::Near;
use super::system::MemorySystem;
use super::tlb::Buffer;
use super::{AddressSpace, InUse, Place, Request};
use crate::ledger::Actor;
use crate::vram::memory::CopyMissed;
use crate::words::halves;
use gpuvmk_chip::addr::{GpuVa, HostChannel};
use gpuvmk_chip::channel_event::{FaultUnit, MmuFault};
use gpuvmk_chip::reduction::{Operand, Reduction};
use gpuvmk_chip::{AccessKind, Aperture, FaultReason};

/// Number of bytes that are zeroed before a flush may pass, as [`CHUNK`] is for copies. So many take no
/// longer than a copy of a chunk.
const CLEAR_CHUNK: u64 = 512 << 10;

/// Number of bytes that are accessed before a flush may pass, in memory of VMs' processes: its pages may take
/// long to be had.
const FOREIGN: u64 = 8 << 10;

/// Time since the beginning of such an access after which no more is begun before a flush may pass.
const LONGEST: Duration = Duration::from_micros(20);

/// A unit that accesses memory through an address space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client<'a> {
    pub(crate) system: &'a MemorySystem,
    pub(crate) space: &'a AddressSpace,
    pub(crate) channel: Option<HostChannel>,
    pub(crate) unit: FaultUnit,
    /// True for parts of an engine that are executed by its firmware.
    pub(crate) privileged: bool,
}

impl Client<'_> {
    fn fault(&self, va: u64, access: AccessKind, reason: FaultReason) -> MmuFault {
        let address = GpuVa(va & self.system.mmu.va_max());
        MmuFault { unit: self.unit, address, access, reason }
    }

    fn translate(&self, in_use: &InUse<'_>, va: u64, access: AccessKind) -> Result<Place, MmuFault> {
        self.translate_near(in_use, None, va, access)
    }

    #[inline]
    fn translate_near(
        &self,
        in_use: &InUse<'_>,
        near: Option<&mut Near>,
        va: u64,
        access: AccessKind,
    ) -> Result<Place, MmuFault> {
        let buffer = match self.unit {
            FaultUnit::Engine(_) => Buffer::Engines,
            FaultUnit::Host | FaultUnit::Bar1 | FaultUnit::Bar3 => Buffer::Hub,
        };
        let request = Request { buffer, access, privileged: self.privileged };
        let system = self.system;
        system
            .mmu
            .translate(in_use, (&system.memory, near), self.space, va, request)
            .map_err(|reason| self.fault(va, access, reason))
    }

    fn read_by(&self, mut near: Option<&mut Near>, va: u64, data: &mut [u8]) -> Result<(), MmuFault> {
        let mut va = va;
        let mut rest = data;
        while !rest.is_empty() {
            let in_use = self.space.in_use();
            let place = self.translate_near(&in_use, near.as_deref_mut(), va, AccessKind::Read)?;
            let size = place.run.min(rest.len() as u64).min(CHUNK);
            let (now, later) = std::mem::take(&mut rest).split_at_mut(to_index(size));
            self.note(place, size);
            let missed = self.system.memory.read(place.target, now);
            missed.map_err(|_| self.fault(va, AccessKind::Read, FaultReason::UnsupportedAperture))?;
            rest = later;
            va = va.saturating_add(size);
        }
        Ok(())
    }

    fn write_by(&self, mut near: Option<&mut Near>, va: u64, data: &[u8]) -> Result<(), MmuFault> {
        let mut va = va;
        let mut rest = data;
        while !rest.is_empty() {
            let in_use = self.space.in_use();
            let place = self.translate_near(&in_use, near.as_deref_mut(), va, AccessKind::Write)?;
            let size = place.run.min(rest.len() as u64).min(CHUNK);
            let (now, later) = rest.split_at(to_index(size));
            self.note(place, size);
            let missed = self.system.memory.write(place.target, now);
            missed.map_err(|_| self.fault(va, AccessKind::Write, FaultReason::UnsupportedAperture))?;
            rest = later;
            va = va.saturating_add(size);
        }
        Ok(())
    }

    fn note(&self, place: Place, size: u64) {
        let actor = if self.privileged { Actor::Firmware } else { Actor::Work };
        self.system.ledger.check(actor, self.channel, place.target, size);
    }

    pub(crate) fn read_u32(&self, va: u64) -> Result<u32, MmuFault> {
        let mut bytes = [0; 4];
        self.read(va, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub(crate) fn read_u64(&self, va: u64) -> Result<u64, MmuFault> {
        let mut bytes = [0; 8];
        self.read(va, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) fn write_u32(&self, va: u64, value: u32) -> Result<(), MmuFault> {
        self.write(va, &value.to_le_bytes())
    }

    pub(crate) fn write_u64(&self, va: u64, value: u64) -> Result<(), MmuFault> {
        self.write(va, &value.to_le_bytes())
    }
}

impl ChannelMemory for Client<'_> {
    fn read(&self, va: u64, data: &mut [u8]) -> Result<(), MmuFault> {
        self.read_by(None, va, data)
    }

    fn write(&self, va: u64, data: &[u8]) -> Result<(), MmuFault> {
        self.write_by(None, va, data)
    }

    fn load(&self, near: &mut Near, va: u64, data: &mut [u8]) -> Result<(), MmuFault> {
        self.read_by(Some(near), va, data)
    }

    fn store(&self, near: &mut Near, va: u64, data: &[u8]) -> Result<(), MmuFault> {
        self.write_by(Some(near), va, data)
    }

    fn copy(&self, from: u64, to: u64, size: u64) -> Result<(), MmuFault> {
        let mut done = 0;
        while done < size {
            // The MMU is released after each chunk.
            let in_use = self.space.in_use();
            let end = size.min(done + CHUNK);
            let began = Instant::now();
            while done < end && began.elapsed() < LONGEST {
                let source_va = from.saturating_add(done);
                let target_va = to.saturating_add(done);
                let source = self.translate(&in_use, source_va, AccessKind::Read)?;
                let target = self.translate(&in_use, target_va, AccessKind::Write)?;
                let mut bytes = source.run.min(target.run).min(end - done);
                if source.target.aperture != Aperture::Vram || target.target.aperture != Aperture::Vram {
                    bytes = bytes.min(FOREIGN);
                }
                self.note(source, bytes);
                self.note(target, bytes);
                self.system.memory.copy(source.target, target.target, bytes).map_err(|missed| {
                    let (va, access) = match missed {
                        CopyMissed::Source => (source_va, AccessKind::Read),
                        CopyMissed::Target => (target_va, AccessKind::Write),
                    };
                    self.fault(va, access, FaultReason::UnsupportedAperture)
                })?;
                done += bytes;
            }
        }
        Ok(())
    }

    fn clear(&self, va: u64, size: u64) -> Result<(), MmuFault> {
        let mut done = 0;
        while done < size {
            let at = va.saturating_add(done);
            let left = (size - done).min(CLEAR_CHUNK);
            let in_use = self.space.in_use();
            let Place { target, run } = self.translate(&in_use, at, AccessKind::Write)?;
            let mut bytes = run.min(left);
            // Pages that lie behind each other are zeroed together.
            while bytes < left
                && let Ok(next) = self.translate(&in_use, at.saturating_add(bytes), AccessKind::Write)
                && next.target.aperture == target.aperture
                && Some(next.target.address) == target.address.checked_add(bytes)
            {
                bytes = bytes.saturating_add(next.run).min(left);
            }
            self.note(Place { target, run: bytes }, bytes);
            let missed = self.system.memory.clear(target, bytes);
            missed.map_err(|_| self.fault(at, AccessKind::Write, FaultReason::UnsupportedAperture))?;
            done += bytes;
        }
        Ok(())
    }

    fn prepare_to_fill(&self, va: u64, size: u64) {
        let mut done = 0;
        while done < size {
            let in_use = self.space.in_use();
            let Ok(place) = self.translate(&in_use, va.saturating_add(done), AccessKind::Write) else {
                return;
            };
            let bytes = place.run.min(size - done).min(CHUNK);
            if place.target.aperture == Aperture::Vram {
                self.system.memory.vram.memory.prepare_to_fill(place.target.address, bytes);
            }
            done += bytes.max(1);
        }
    }

    fn write_report(&self, va: u64, value: u64, report: Report) -> Result<(), MmuFault> {
        let [low, high] = halves(value);
        match report {
            Report::Word => self.write_u32(va, low),
            Report::DoubleWord => self.write_u64(va, value),
            Report::FourWords => {
                self.write_time(va)?;
                self.write_u32(va.saturating_add(4), high)?;
                self.write_u32(va, low)
            }
        }
    }

    fn write_time(&self, va: u64) -> Result<(), MmuFault> {
        self.write_u64(va.saturating_add(8), self.system.clock.timestamp())
    }

    fn reduce(
        &self,
        va: u64,
        reduction: Reduction,
        operand: Operand,
        signed: bool,
        by: u64,
    ) -> Result<(), MmuFault> {
        match operand {
            Operand::Word => {
                let combine = |value: u32| {
                    let [low, _] = halves(reduction.apply(operand, signed, value.into(), by));
                    Some(low)
                };
                self.update_u32(va, &mut { combine }).map(drop)
            }
            Operand::DoubleWord => {
                let combine = |value| Some(reduction.apply(operand, signed, value, by));
                self.update_u64(va, &mut { combine }).map(drop)
            }
        }
    }

    fn update_u32(&self, va: u64, change: &mut dyn FnMut(u32) -> Option<u32>) -> Result<u32, MmuFault> {
        let in_use = self.space.in_use();
        let place = self.translate(&in_use, va, AccessKind::Write)?;
        self.note(place, size_of::<u32>() as u64);
        let missed = self.system.memory.update_u32(place.target, change);
        missed.map_err(|_| self.fault(va, AccessKind::Write, FaultReason::UnsupportedAperture))
    }

    fn update_u64(&self, va: u64, change: &mut dyn FnMut(u64) -> Option<u64>) -> Result<u64, MmuFault> {
        let in_use = self.space.in_use();
        let place = self.translate(&in_use, va, AccessKind::Write)?;
        self.note(place, size_of::<u64>() as u64);
        let missed = self.system.memory.update_u64(place.target, change);
        missed.map_err(|_| self.fault(va, AccessKind::Write, FaultReason::UnsupportedAperture))
    }
}

/// CAST: pieces of a slice are no longer than the slice.
fn to_index(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
