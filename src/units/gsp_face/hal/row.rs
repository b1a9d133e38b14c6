//! A row of the table.

use super::doorbell::Doorbell;
use super::interrupts::InterruptTree;
use super::invalidation::Invalidation;
use super::memory::{Pramin, VramSize};
use super::processor::GspProcessor;
use gpuvmk_chip::register_index::RegisterIndex;
use gpuvmk_chip::registers::Reg;
use gpuvmk_gsp::hal::GspHal;
use gpuvmk_mmio_trap::aperture::gmmu::Gmmu;

/// A generation of GSP chips, or one chip where it differs from its kin.
#[derive(Debug)]
pub struct Hal {
    /// The chip's name, for messages and as the root of a saved state's places.
    pub name: &'static str,
    /// Reset values and policies of all registers. The first page of BAR0 is made of them.
    pub registers: fn() -> &'static RegisterIndex,
    /// What it is to the PCI bus.
    pub pci: Pci,
    /// How a driver gets GSP to run.
    pub boot: Boot,
    /// GSP's own registers.
    pub processor: GspProcessor,
    /// Registers of the interrupt tree.
    pub interrupts: InterruptTree,
    /// The chip, for its GSP. It tells the driver of the vectors of the tree that the units raise.
    pub gsp: &'static GspHal,
    /// How a driver says that a channel has new work.
    pub doorbell: Doorbell,
    /// Where entries of page tables have the page of the doorbell, among the function's registers.
    pub user_page: u64,
    /// The moving window to VRAM.
    pub pramin: Pramin,
    /// How a driver drops translations.
    pub invalidation: Invalidation,
    /// The format of page tables.
    pub mmu: Gmmu,
    /// The time.
    pub timer: Timer,
    /// Where a driver reads how much VRAM there is.
    pub vram: VramSize,
}

/// What a chip is to the PCI bus.
#[derive(Clone, Copy, Debug)]
pub struct Pci {
    /// Device id of an ordinary card. Drivers identify the chip by its registers.
    pub device_id: u16,
    /// Revision.
    pub revision: u8,
    /// Subsystem id of that card, with NVIDIA's vendor id.
    pub subsystem: u16,
    /// Bytes of BAR0, the registers.
    pub bar0_size: u64,
    /// Bytes of BAR1, the window for data.
    pub bar1_size: u64,
    /// Bytes of BAR3, which NVIDIA calls BAR2: the window for instance memory.
    pub bar3_size: u64,
    /// Generation of the link: 5 for 32 GT/s.
    pub link_speed: u8,
    /// Where capabilities lie.
    pub capabilities: PciCapabilities,
}

/// Where capabilities lie in configuration space. NVIDIA's own driver goes there without looking.
#[derive(Clone, Copy, Debug)]
pub struct PciCapabilities {
    /// Power management, the first of the chain.
    pub power: u8,
    /// Messages.
    pub msi: u8,
    /// PCI Express.
    pub pcie: u8,
    /// BAR1's size, where there is such a capability.
    pub bar1_size: Option<u16>,
    /// Error reporting, where there is such a capability.
    pub errors: Option<u16>,
}

/// How a driver gets GSP to run. A variant is one boot flow, with what differs within it.
#[derive(Clone, Copy, Debug)]
pub enum Boot {
    /// By a message to FSP, from Hopper on.
    Fsp(FspBoot),
    /// By firmware that the driver starts on the falcons of GSP and of SEC2, from Turing to Ada.
    Falcons(FalconBoot),
}

/// A boot by falcons. Their registers are the same on all chips that boot so, but Turing lacks some.
#[derive(Clone, Copy, Debug)]
pub struct FalconBoot {
    /// How the VBIOS describes FWSEC. By that a driver loads it.
    pub fwsec: Descriptor,
}

/// Version of FWSEC's descriptor in the VBIOS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// A bootloader goes into the falcon by its ports, and loads FWSEC from memory.
    V2,
    /// FWSEC goes into the falcon by DMA.
    V3,
}

/// A boot by FSP. Its registers are the same on all chips that have one.
#[derive(Clone, Copy, Debug)]
pub struct FspBoot {
    /// Version of the message that boots GSP.
    pub message_version: u16,
}

/// The registers that show PTIMER.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    /// Low word.
    pub low: Reg,
    /// High word.
    pub high: Reg,
    /// Low word on the page that user mode maps, where it cannot be set.
    pub user_low: Reg,
    /// High word there.
    pub user_high: Reg,
}
