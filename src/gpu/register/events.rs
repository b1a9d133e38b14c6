//! Interrupts: the decoding of what happened, and its acknowledgement.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::bus::Bus;
use super::channels::Channels;
use super::wake::Wake;
use crate::{GpuError, GpuEvent};
use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::gf100::PBDMAS;
use gpuvmk_chip::gf100::regs::fecs::NV_PGRAPH_PRI_FECS_CURRENT_CTX;
use gpuvmk_chip::gf100::regs::pci::NV_XVE_MSI_REARM;
use gpuvmk_chip::gf100::regs::pfifo::{
    NV_PFIFO_INTR_0, NV_PFIFO_INTR_ENGINE, NV_PFIFO_INTR_ENGINE_ID, NV_PFIFO_INTR_PBDMA_ID,
    NV_PFIFO_INTR_RUNLIST, NV_PFIFO_MMU_FAULT_ID, NV_PFIFO_MMU_FAULT_INFO, NV_PFIFO_MMU_FAULT_INST,
    NV_PFIFO_MMU_FAULT_VA_HI, NV_PFIFO_MMU_FAULT_VA_LO, NV_PPBDMA_CHANNEL, NV_PPBDMA_DATA0, NV_PPBDMA_INTR_0,
    NV_PPBDMA_METHOD0,
};
use gpuvmk_chip::gf100::regs::pgraph::{
    NV_PGRAPH_GRFIFO_CONTROL, NV_PGRAPH_INTR, NV_PGRAPH_PRI_FE_OBJECT_TABLE, NV_PGRAPH_TRAPPED_ADDR,
    NV_PGRAPH_TRAPPED_DATA_LOW,
};
use gpuvmk_chip::gf100::regs::pmc::{NV_PMC_INTR, NV_PMC_INTR_EN_0};
use gpuvmk_chip::{AccessKind, Engine, FaultReason};
use gpuvmk_pci::Region;
use gpuvmk_units::backend::{FaultUnit, GraphicsError, HostError, MmuFault};

/// NV_PMC_INTR bits.
const PMC_PFIFO: u32 = NV_PMC_INTR::PFIFO.mask();
const PMC_PGRAPH: u32 = NV_PMC_INTR::PGRAPH.mask();

/// NV_PFIFO_INTR_0 bits.
const FIFO_NON_STALL: u32 = NV_PFIFO_INTR_0::NON_STALL.mask();
const FIFO_RUNLIST: u32 = NV_PFIFO_INTR_0::RUNLIST.mask();
const FIFO_PBDMA: u32 = NV_PFIFO_INTR_0::PBDMA.mask();
const FIFO_MMU_FAULT: u32 = NV_PFIFO_INTR_0::MMU_FAULT.mask();

/// How often a pending preemption is looked at; GF100 has no interrupt for its end.
const POLL_EVERY: Duration = Duration::from_micros(200);

/// Rounds of decoding in one call: an interrupt that does not go away must not hold the caller.
const MAX_ROUNDS: usize = 64;

/// What makes the owner look.
pub(super) struct Interrupts {
    wake: Wake,
}

impl Interrupts {
    /// Connects to the function's interrupts.
    pub(super) fn new(bus: &Bus) -> Result<Self, GpuError> {
        let wake = Wake::new()?;
        bus.function().connect_interrupts(Some(wake.sink()?));
        Ok(Self { wake })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.fd()
    }

    /// Makes the descriptor readable again soon, or no longer.
    pub(super) fn poll_soon(&mut self, wanted: bool) -> Result<(), GpuError> {
        self.wake.look_every(wanted.then_some(POLL_EVERY))
    }

    /// Makes the descriptor readable now: there are events that nobody has taken.
    pub(super) fn look_again(&self) {
        self.wake.now();
    }

    /// Decodes and acknowledges everything that is pending.
    pub(super) fn take(&mut self, bus: &Bus, channels: &mut Channels, events: &mut Vec<GpuEvent>) {
        self.wake.clear();
        if self.decode(bus, channels, events).is_err() {
            events.push(GpuEvent::Lost);
        }
    }

    fn decode(&self, bus: &Bus, channels: &mut Channels, events: &mut Vec<GpuEvent>) -> Result<(), GpuError> {
        bus.write(NV_PMC_INTR_EN_0, 0)?;
        bus.write_at(Region::Bar(0), u64::from(NV_XVE_MSI_REARM.0), &[0xff])?;
        for _ in 0..MAX_ROUNDS {
            let pending = bus.read(NV_PMC_INTR)? & (PMC_PFIFO | PMC_PGRAPH);
            if pending == 0 {
                break;
            }
            if pending & PMC_PFIFO != 0 {
                fifo(bus, channels, events)?;
            }
            if pending & PMC_PGRAPH != 0 {
                graphics(bus, channels, events)?;
            }
        }
        bus.write(NV_PMC_INTR_EN_0, 1)
    }
}

fn fifo(bus: &Bus, channels: &mut Channels, events: &mut Vec<GpuEvent>) -> Result<(), GpuError> {
    let pending = bus.read(NV_PFIFO_INTR_0)?;
    if pending & FIFO_NON_STALL != 0 {
        non_stall(bus, events)?;
    }
    if pending & FIFO_MMU_FAULT != 0 {
        faults(bus, channels, events)?;
    }
    if pending & FIFO_PBDMA != 0 {
        host_errors(bus, channels, events)?;
    }
    if pending & FIFO_RUNLIST != 0 {
        bus.write(NV_PFIFO_INTR_RUNLIST, u32::MAX)?;
    }
    bus.write(NV_PFIFO_INTR_0, pending)
}

fn non_stall(bus: &Bus, events: &mut Vec<GpuEvent>) -> Result<(), GpuError> {
    let engines = bus.read(NV_PFIFO_INTR_ENGINE_ID)?;
    for number in (0..16).filter(|number| engines & 1 << number != 0) {
        let register = NV_PFIFO_INTR_ENGINE.at(number);
        let bits = bus.read(register)?;
        bus.write(register, bits)?;
        let engine = match number {
            0 => Engine::Graphics,
            4 => Engine::Copy(0),
            5 => Engine::Copy(1),
            _ => continue,
        };
        events.push(GpuEvent::NonStall(engine));
    }
    Ok(())
}

fn faults(bus: &Bus, channels: &mut Channels, events: &mut Vec<GpuEvent>) -> Result<(), GpuError> {
    let units = bus.read(NV_PFIFO_MMU_FAULT_ID)?;
    for unit in (0..32).filter(|unit| units & 1 << unit != 0) {
        let instance = bus.read(NV_PFIFO_MMU_FAULT_INST.at(unit))? & 0x0fff_ffff;
        let low = bus.read(NV_PFIFO_MMU_FAULT_VA_LO.at(unit))?;
        let high = bus.read(NV_PFIFO_MMU_FAULT_VA_HI.at(unit))?;
        let info = bus.read(NV_PFIFO_MMU_FAULT_INFO.at(unit))?;
        bus.write(NV_PFIFO_MMU_FAULT_ID, 1 << unit)?;
        let channel = channels.by_instance(instance);
        if let Some(channel) = channel {
            channels.enable(bus, channel, false)?;
        }
        let Some(unit) = fault_unit(unit) else {
            log::warn!("MMU fault of unit {unit:#x} at {high:#x}{low:08x}, which this driver does not use");
            continue;
        };
        events.push(GpuEvent::Fault(MmuFault {
            channel: channel.map(|channel| channel.0),
            unit,
            address: GpuVa(u64::from(high) << 32 | u64::from(low)),
            access: if info & 1 << 7 == 0 { AccessKind::Read } else { AccessKind::Write },
            reason: fault_reason(info & 0xf),
        }));
    }
    Ok(())
}

fn fault_unit(unit: u32) -> Option<FaultUnit> {
    match unit {
        0x00 => Some(FaultUnit::Engine(Engine::Graphics)),
        0x04 => Some(FaultUnit::Bar1),
        0x05 => Some(FaultUnit::Bar3),
        0x07 => Some(FaultUnit::Host),
        0x15 => Some(FaultUnit::Engine(Engine::Copy(0))),
        0x16 => Some(FaultUnit::Engine(Engine::Copy(1))),
        _ => None,
    }
}

fn fault_reason(code: u32) -> FaultReason {
    FaultReason::from_code(code).unwrap_or(FaultReason::PageTableNotPresent)
}

fn host_errors(bus: &Bus, channels: &mut Channels, events: &mut Vec<GpuEvent>) -> Result<(), GpuError> {
    let units = bus.read(NV_PFIFO_INTR_PBDMA_ID)?;
    for pbdma in (0..PBDMAS).filter(|pbdma| units & 1 << pbdma != 0) {
        let unit = u32::from(pbdma);
        let status = bus.read(NV_PPBDMA_INTR_0.at(unit))?;
        let method = bus.read(NV_PPBDMA_METHOD0.at(unit))? & 0x0007_3fff;
        let data = bus.read(NV_PPBDMA_DATA0.at(unit))?;
        let channel = bus.read(NV_PPBDMA_CHANNEL.at(unit))? & 0x7f;
        bus.write(NV_PPBDMA_METHOD0.at(unit), 0)?;
        bus.write(NV_PPBDMA_INTR_0.at(unit), status)?;
        let Ok(channel) = u16::try_from(channel) else { continue };
        let host = gpuvmk_chip::addr::HostChannel(channel);
        if channels.check(host).is_ok() {
            channels.enable(bus, host, false)?;
        }
        events.push(GpuEvent::HostError(HostError { channel, pbdma, status, method, data }));
    }
    Ok(())
}

fn graphics(bus: &Bus, channels: &mut Channels, events: &mut Vec<GpuEvent>) -> Result<(), GpuError> {
    let status = bus.read(NV_PGRAPH_INTR)?;
    let address = bus.read(NV_PGRAPH_TRAPPED_ADDR)?;
    let data = bus.read(NV_PGRAPH_TRAPPED_DATA_LOW)?;
    let subchannel = address >> 16 & 7;
    let class = bus.read(NV_PGRAPH_PRI_FE_OBJECT_TABLE.at(subchannel))?;
    let instance = bus.read(NV_PGRAPH_PRI_FECS_CURRENT_CTX)? & 0x0fff_ffff;
    let channel = channels.by_instance(instance);
    if let Some(channel) = channel {
        channels.enable(bus, channel, false)?;
    }
    bus.write(NV_PGRAPH_INTR, status)?;
    bus.write(NV_PGRAPH_GRFIFO_CONTROL, 0x0001_0001)?;
    let Some(channel) = channel else {
        log::warn!("PGRAPH interrupt {status:#x} without a channel of ours");
        return Ok(());
    };
    events.push(GpuEvent::GraphicsError(GraphicsError {
        channel: channel.0,
        status,
        subchannel: u8::try_from(subchannel).unwrap_or(0),
        class: u16::try_from(class & 0xffff).unwrap_or(0),
        method: u16::try_from(address & 0x3ffc).unwrap_or(0),
        data,
    }));
    Ok(())
}
