//! Takes a GF100 from reset to work, in the order in which its units depend on each other.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use super::bus::Bus;
use super::channels::{self, Channels};
use super::contexts::Contexts;
use super::events::Interrupts;
use super::host_backed::{self, HostBackedVram};
use super::idle::IdleCounters;
use super::memory::HostMemory;
use super::reach::{self, Reach};
use super::space::PAGE_SHIFTS;
use super::window::{Bar1, WINDOW_SIZE};
use super::{RegisterDriver, Vram, script};
use crate::init_script::{Script, Section};
use crate::{GpuError, GpuInfo, ScrubMode};
use gpuvmk_chip::Chip;
use gpuvmk_chip::addr::{HostVram, Iova, PAGE_SIZE};
use gpuvmk_chip::gf100::engines::ENGINES;
use gpuvmk_chip::gf100::mmu::VA_BITS;
use gpuvmk_chip::gf100::regs::pfb::{NV_PFB_PRI_MMU_CTRL, NV_PFBP_FBPA_CSTATUS, NV_PTOP_FBP_COUNT};
use gpuvmk_chip::gf100::regs::pfifo::{
    NV_PFIFO_ENABLE, NV_PFIFO_INTR_0, NV_PFIFO_INTR_EN_0, NV_PFIFO_INTR_ENGINE_EN, NV_PPBDMA_INTR_0,
    NV_PPBDMA_INTR_EN_0,
};
use gpuvmk_chip::gf100::regs::pmc::{
    NV_PMC_BOOT_0, NV_PMC_ENABLE, NV_PMC_ENABLE_PBDMA, NV_PMC_INTR_EN_0, NV_PMC_INTR_MSK_0,
};
use gpuvmk_chip::gf100::{self, BOOT_0};
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::mapping::{Access, FilePiece, Mapping};
use gpuvmk_pci::{PciFunction, Region, header};

/// NV_PMC_ENABLE bit of PFIFO.
const PFIFO: u32 = NV_PMC_ENABLE::PFIFO.mask();
/// NV_PMC_ENABLE bit of the PMU, whose counters measure how long engines work.
const PMU: u32 = NV_PMC_ENABLE::PMU.mask();
/// NV_PFIFO_INTR_EN_0: everything but the end of a runlist commit, which is polled.
const FIFO_INTERRUPTS: u32 = !NV_PFIFO_INTR_EN_0::RUNLIST.mask();

/// Configuration space: command register with memory space, bus master, and INTx off.
const COMMAND: u64 = 0x04;
const COMMAND_VALUE: u16 = 0x0406;
/// Control word of the MSI capability: log2 of the messages that are enabled, and whether any is.
const MSI_MESSAGES: u16 = 0x70;
const MSI_ENABLE: u16 = 1;

/// Smallest granule of partitions that is tried.
const SMALLEST_GRANULE: u64 = 1 << 20;
/// First bus address for tenants' memory. Low addresses stay free, so that a truncated address never reaches
/// memory.
const FIRST_IOVA: Iova = Iova(1 << 32);

impl RegisterDriver {
    /// Takes over a GPU that shares its VRAM with processes (a software GPU), and brings it up.
    ///
    /// # Errors
    /// The chip is unknown, too small, or did not answer as it should.
    pub fn new(function: Arc<dyn PciFunction>) -> Result<Self, GpuError> {
        bring_up(function, Vram::Shared, None)
    }

    /// Takes over a card, which shares nothing of what its BARs show, and brings it up. `script` is what a
    /// stock driver was seen to do to such a card, if that is known.
    ///
    /// # Errors
    /// As [`Self::new`], or the host's memory cannot be given to it for DMA, or the script is another card's,
    /// or a register does not become what it became then.
    pub fn on_card(function: Arc<dyn PciFunction>, script: Option<Arc<Script>>) -> Result<Self, GpuError> {
        bring_up(function, Vram::Private, script)
    }
}

/// Brings the GPU up, with a script's steps for its board and its engines.
fn bring_up(
    function: Arc<dyn PciFunction>,
    kind: Vram,
    script: Option<Arc<Script>>,
) -> Result<RegisterDriver, GpuError> {
    let bus = Bus::new(Arc::clone(&function));
    let boot = bus.read(NV_PMC_BOOT_0)?;
    let (chipset, known) = (NV_PMC_BOOT_0::CHIPSET.get(boot), NV_PMC_BOOT_0::CHIPSET.get(BOOT_0));
    if chipset != known {
        return Err(GpuError::Invalid(format!(
            "chip {chipset:#05x} (NV_PMC_BOOT_0 {boot:#010x}); this driver knows {} ({known:#05x})",
            gf100::NAME,
        )));
    }
    enable_pci(&bus)?;
    if let Some(script) = &script {
        script::check(&bus, script)?;
    }
    bus.write(NV_PMC_INTR_EN_0, 0)?;
    let units = ENGINES.iter().fold(PFIFO | PMU, |bits, ids| bits | ids.enable.mask());
    // Ours are reset; what else the board needs stays on.
    let others = script.as_ref().map_or(0, |script| script.units & !units);
    bus.write(NV_PMC_ENABLE, others)?;
    bus.write(NV_PMC_ENABLE, others | units)?;
    script::play(&bus, script.as_deref(), Section::Board)?;
    bus.write(NV_PMC_INTR_MSK_0, u32::MAX)?;
    bus.write(NV_PFB_PRI_MMU_CTRL, 0)?;

    let vram = vram_size(&bus)?;
    let share = host_share(vram);
    let in_vram = || HostMemory::new(Bus::new(Arc::clone(&function)), share);
    let (mut memory, mut lent) = match kind {
        Vram::Shared => (in_vram(), None),
        Vram::Private => (HostMemory::in_ram(Arc::clone(&function), share)?, Some(in_vram())),
    };
    let sink = lent.as_mut().unwrap_or(&mut memory).take(PAGE_SIZE, PAGE_SIZE)?;
    let mut bar1 = Bar1::new(&bus, &mut memory, sink)?;
    let granule = match kind {
        Vram::Shared => shared_granule(&bus, &mut bar1, &memory, vram)?,
        Vram::Private => host_backed::GRANULE,
    };
    let host = share.next_multiple_of(granule);
    let end = match kind {
        Vram::Shared => vram,
        Vram::Private => vram / granule * granule,
    };
    if host >= end {
        return Err(GpuError::Invalid(format!("{vram:#x} bytes of VRAM leave nothing for tenants")));
    }
    let host_backed = match kind {
        Vram::Shared => {
            map_host_memory(&bus, &mut bar1, &mut memory, host)?;
            None
        }
        Vram::Private => {
            let teller = reach::threads(function)?;
            Some(HostBackedVram::new(Reach::new(teller), host, end))
        }
    };

    let interrupts = Interrupts::new(&bus)?;
    start_fifo(&bus)?;
    let contexts = Contexts::new(&bus, &mut memory, script)?;
    let channels = Channels::new(&mut memory)?;
    let mut driver = RegisterDriver {
        engine_resets: 0,
        idle: IdleCounters::start(&bus)?,
        info: GpuInfo {
            chip: Chip::GF100,
            classes: Chip::GF100.classes.for_tenants(),
            tenant_vram: HostVram(host),
            tenant_vram_size: end.saturating_sub(host),
            partition_granule: granule,
            channels: channels::USABLE,
            engines: channels::all_engines(),
            userd_granule: PAGE_SIZE,
            slow_vram_reads: false,
            texture_clusters: None,
            va_bits: u8::try_from(VA_BITS).unwrap_or(u8::MAX),
            page_shifts: PAGE_SHIFTS.to_vec(),
            system_bits: u8::try_from(VA_BITS).unwrap_or(u8::MAX),
            first_iova: host_backed.as_ref().map_or(FIRST_IOVA, HostBackedVram::first_iova_behind),
            spaces: u32::try_from(super::MAX_SPACES).unwrap_or(u32::MAX),
            table_memory: memory.free_bytes() / 4 * 3,
            // Tenants' VRAM is the host's memory on a card.
            scrub: if host_backed.is_some() { ScrubMode::HostMemory } else { ScrubMode::Files },
            // Whose VRAM is a file is no card: only a thread's state goes from one context to the next (6 to
            // 7 us). On a card it is not measured; what it is taken for matters little (docs/scheduling.md).
            switch_time: Duration::from_micros(if host_backed.is_some() { 150 } else { 10 }),
            shortest_turn: Duration::ZERO,
            // The kernel's VFIO waits for a card; a software GPU is this process's own.
            close_when_lost: host_backed.is_some(),
        },
        bus,
        memory,
        bar1,
        host_backed,
        lent,
        contexts,
        channels,
        interrupts,
        kept: Vec::new(),
        spaces: OrderedMap::new(),
        next_space: 0,
    };
    driver.interrupts.poll_soon(false)?;
    driver.bus.write(NV_PMC_INTR_EN_0, NV_PMC_INTR_EN_0::HARDWARE.mask())?;
    Ok(driver)
}

/// Memory space, bus mastering and MSI.
fn enable_pci(bus: &Bus) -> Result<(), GpuError> {
    bus.write_at(Region::Config, COMMAND, &COMMAND_VALUE.to_le_bytes())?;
    let place = header::capability(bus.function(), header::MSI);
    let Some(place) = place else {
        return Err(GpuError::Invalid("The function has no MSI capability".to_owned()));
    };
    let control = header::word(bus.function(), place + 2);
    // One message; the front end that routes it does not need its address.
    bus.write_at(Region::Config, place + 2, &(control & !MSI_MESSAGES | MSI_ENABLE).to_le_bytes())
}

fn vram_size(bus: &Bus) -> Result<u64, GpuError> {
    let partitions = NV_PTOP_FBP_COUNT::VALUE.get(bus.read(NV_PTOP_FBP_COUNT)?);
    let mut mebibytes: u64 = 0;
    for partition in 0..partitions.min(NV_PFBP_FBPA_CSTATUS.count) {
        mebibytes = mebibytes.saturating_add(bus.read(NV_PFBP_FBPA_CSTATUS.at(partition))?.into());
    }
    Ok(mebibytes << 20)
}

/// The host's share of VRAM: a sixteenth, within bounds.
fn host_share(vram: u64) -> u64 {
    (vram / 16).next_multiple_of(16 << 20).clamp(16 << 20, 512 << 20)
}

/// The smallest unit in which this GPU shares VRAM with other processes.
fn shared_granule(bus: &Bus, bar1: &mut Bar1, memory: &HostMemory, vram: u64) -> Result<u64, GpuError> {
    let mut size = SMALLEST_GRANULE;
    while size <= WINDOW_SIZE && size.saturating_mul(2) <= vram {
        match bar1.share(bus, memory, HostVram(size), size) {
            Ok(_) => return Ok(size),
            // No unit is to blame where there is no descriptor left.
            Err(GpuError::Io(error)) if error.raw_os_error().is_some() => return Err(error.into()),
            Err(_) => {}
        }
        size = size.saturating_mul(2);
    }
    Err(GpuError::Invalid(format!(
        "The GPU shares its VRAM in no unit from {SMALLEST_GRANULE:#x} to {WINDOW_SIZE:#x} bytes"
    )))
}

/// Reaches the host's share through a mapping from now on.
fn map_host_memory(bus: &Bus, bar1: &mut Bar1, memory: &mut HostMemory, size: u64) -> Result<(), GpuError> {
    let shared = bar1.share(bus, memory, HostVram(0), size)?;
    let pieces: Vec<FilePiece<'_>> = shared
        .iter()
        .map(|piece| FilePiece { fd: piece.fd.as_fd(), offset: piece.offset, size: piece.size })
        .collect();
    let mapping = Mapping::contiguous(&pieces, Access::ReadWrite)
        .map_err(|error| GpuError::Io(std::io::Error::other(error)))?;
    memory.set_mapping(mapping);
    Ok(())
}

fn start_fifo(bus: &Bus) -> Result<(), GpuError> {
    bus.write(NV_PMC_ENABLE_PBDMA, u32::MAX)?;
    let pbdmas = bus.read(NV_PMC_ENABLE_PBDMA)?.count_ones();
    for pbdma in 0..pbdmas {
        bus.write(NV_PPBDMA_INTR_0.at(pbdma), u32::MAX)?;
        bus.write(NV_PPBDMA_INTR_EN_0.at(pbdma), u32::MAX)?;
    }
    bus.write(NV_PFIFO_ENABLE, NV_PFIFO_ENABLE::ENABLE.mask())?;
    Bar1::enable_poll_area(bus)?;
    bus.write(NV_PFIFO_INTR_0, u32::MAX)?;
    bus.write(NV_PFIFO_INTR_ENGINE_EN, NV_PFIFO_INTR_ENGINE_EN::NON_STALL.mask())?;
    bus.write(NV_PFIFO_INTR_EN_0, FIFO_INTERRUPTS)
}
