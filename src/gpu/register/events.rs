//! Interrupts: the decoding of what happened, and its acknowledgement.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::bus::Bus;
use super::channels::Channels;
use super::contexts::TAKES_METHODS;
use super::wake::Wake;
use crate::{GpuError, GpuEvent};
use gpuvmk_chip::addr::{GpuVa, HostChannel};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, GraphicsError, HostError, MmuFault};
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
use gpuvmk_chip::gf100::{PBDMAS, engines};
use gpuvmk_chip::{AccessKind, FaultReason};
use gpuvmk_pci::Region;

/// NV_PMC_INTR bits.
const PMC_PFIFO: u32 = NV_PMC_INTR::PFIFO.mask();
const PMC_PGRAPH: u32 = NV_PMC_INTR::PGRAPH.mask();

/// NV_PFIFO_INTR_0 bits.
const FIFO_NON_STALL: u32 = NV_PFIFO_INTR_0::NON_STALL.mask();
const FIFO_RUNLIST: u32 = NV_PFIFO_INTR_0::RUNLIST.mask();
const FIFO_PBDMA: u32 = NV_PFIFO_INTR_0::PBDMA.mask();
const FIFO_MMU_FAULT: u32 = NV_PFIFO_INTR_0::MMU_FAULT.mask();

/// NV_PPBDMA_METHOD0: the method and its subchannel.
const METHOD: u32 = NV_PPBDMA_METHOD0::SUBCH.mask()
    | NV_PPBDMA_METHOD0::ADDR.mask()
    | NV_PPBDMA_METHOD0::UNK1.mask()
    | NV_PPBDMA_METHOD0::INCR.mask();

/// How often a pending preemption is looked at; GF100 has no interrupt for its end.
const POLL_EVERY: Duration = Duration::from_micros(200);

/// Rounds of decoding in one call: an interrupt that does not go away must not hold the caller.
const MAX_ROUNDS: usize = 64;

/// The descriptor that wakes the owner for interrupts.
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

    /// Makes the descriptor readable now, because events are still to be taken.
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
        bus.write(NV_PMC_INTR_EN_0, NV_PMC_INTR_EN_0::HARDWARE.mask())
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
    for number in (0..NV_PFIFO_INTR_ENGINE.count).filter(|number| engines & 1 << number != 0) {
        let register = NV_PFIFO_INTR_ENGINE.at(number);
        let bits = bus.read(register)?;
        bus.write(register, bits)?;
        let Some(engine) = engines::by_number(number) else { continue };
        events.push(GpuEvent::NonStall(engine));
    }
    Ok(())
}

fn faults(bus: &Bus, channels: &mut Channels, events: &mut Vec<GpuEvent>) -> Result<(), GpuError> {
    let units = bus.read(NV_PFIFO_MMU_FAULT_ID)?;
    for unit in (0..NV_PFIFO_MMU_FAULT_INST.count).filter(|unit| units & 1 << unit != 0) {
        let instance = NV_PFIFO_MMU_FAULT_INST::PTR.get(bus.read(NV_PFIFO_MMU_FAULT_INST.at(unit))?);
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
        let fault = MmuFault {
            unit,
            address: GpuVa(u64::from(high) << 32 | u64::from(low)),
            access: if NV_PFIFO_MMU_FAULT_INFO::WRITE.is_set(info) {
                AccessKind::Write
            } else {
                AccessKind::Read
            },
            reason: fault_reason(NV_PFIFO_MMU_FAULT_INFO::REASON.get(info)),
        };
        events.push(match channel {
            Some(channel) => GpuEvent::Stopped(ChannelStop::new(channel, fault)),
            None => GpuEvent::Fault(fault),
        });
    }
    Ok(())
}

fn fault_unit(unit: u32) -> Option<FaultUnit> {
    const BAR1: u32 = NV_PFIFO_MMU_FAULT_ID::BAR1.low();
    const BAR3: u32 = NV_PFIFO_MMU_FAULT_ID::BAR3.low();
    const HOST: u32 = NV_PFIFO_MMU_FAULT_ID::HOST.low();
    match unit {
        BAR1 => Some(FaultUnit::Bar1),
        BAR3 => Some(FaultUnit::Bar3),
        HOST => Some(FaultUnit::Host),
        _ => engines::by_fault_unit(unit).map(FaultUnit::Engine),
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
        let method = bus.read(NV_PPBDMA_METHOD0.at(unit))? & METHOD;
        let data = bus.read(NV_PPBDMA_DATA0.at(unit))?;
        let channel = NV_PPBDMA_CHANNEL::CHID.get(bus.read(NV_PPBDMA_CHANNEL.at(unit))?);
        bus.write(NV_PPBDMA_METHOD0.at(unit), 0)?;
        bus.write(NV_PPBDMA_INTR_0.at(unit), status)?;
        let Ok(channel) = u16::try_from(channel) else { continue };
        let channel = HostChannel(channel);
        if channels.check(channel).is_ok() {
            channels.enable(bus, channel, false)?;
        }
        let error = HostError { pbdma, status, method, data };
        events.push(GpuEvent::Stopped(ChannelStop::new(channel, error)));
    }
    Ok(())
}

fn graphics(bus: &Bus, channels: &mut Channels, events: &mut Vec<GpuEvent>) -> Result<(), GpuError> {
    let status = bus.read(NV_PGRAPH_INTR)?;
    let address = bus.read(NV_PGRAPH_TRAPPED_ADDR)?;
    let data = bus.read(NV_PGRAPH_TRAPPED_DATA_LOW)?;
    let subchannel = NV_PGRAPH_TRAPPED_ADDR::SUBCH.get(address);
    let class = bus.read(NV_PGRAPH_PRI_FE_OBJECT_TABLE.at(subchannel))?;
    let instance = NV_PGRAPH_PRI_FECS_CURRENT_CTX::PTR.get(bus.read(NV_PGRAPH_PRI_FECS_CURRENT_CTX)?);
    let channel = channels.by_instance(instance);
    if let Some(channel) = channel {
        channels.enable(bus, channel, false)?;
    }
    bus.write(NV_PGRAPH_INTR, status)?;
    bus.write(NV_PGRAPH_GRFIFO_CONTROL, TAKES_METHODS)?;
    let Some(channel) = channel else {
        log::warn!("PGRAPH interrupt {status:#x} without a channel of ours");
        return Ok(());
    };
    let error = GraphicsError {
        status,
        subchannel: u8::try_from(subchannel).unwrap_or(0),
        class: u16::try_from(NV_PGRAPH_PRI_FE_OBJECT_TABLE::CLASS.get(class)).unwrap_or(0),
        method: u16::try_from(address & NV_PGRAPH_TRAPPED_ADDR::MTHD.mask()).unwrap_or(0),
        data,
    };
    events.push(GpuEvent::Stopped(ChannelStop::new(channel, error)));
    Ok(())
}
