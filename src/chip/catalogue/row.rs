//! A row of the catalogue.

use super::ChipClasses;
use crate::StorageKinds;

/// What is known about a chip.
#[derive(Debug)]
pub struct ChipRow {
    /// Name as users write it.
    pub name: &'static str,
    /// The generation that it belongs to.
    pub family: Family,
    /// Value of NV_PMC_BOOT_0, by which drivers know the chip.
    pub boot_0: u32,
    /// PCI device id of an ordinary card. Drivers derive the marketing name from it.
    pub device_id: u16,
    /// What its driver programs.
    pub face: Face,
    /// How a channel's subchannels get their engines.
    pub subchannels: Subchannels,
    /// Numbers of its classes.
    pub classes: ChipClasses,
    /// Storage kinds of pages.
    pub kinds: &'static StorageKinds,
    /// VRAM of a vGPU in bytes: least and most.
    pub vram: (u64, u64),
    /// VRAM of a software GPU in bytes, the host's own share included: least and most.
    pub software_vram: (u64, u64),
    /// Most channels of a vGPU.
    pub channels: u16,
    /// Whether a stock guest passed the tests with it (docs/guests.md); a new row says false until one did.
    pub tried: bool,
}

/// A generation of chips, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// GF1xx.
    Fermi,
    /// TU1xx.
    Turing,
    /// GA1xx but GA100.
    Ampere,
    /// GH1xx.
    Hopper,
    /// AD1xx.
    Ada,
    /// GB2xx.
    Blackwell,
}

impl Family {
    /// NVIDIA's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fermi => "Fermi",
            Self::Turing => "Turing",
            Self::Ampere => "Ampere",
            Self::Hopper => "Hopper",
            Self::Ada => "Ada",
            Self::Blackwell => "Blackwell",
        }
    }
}

/// What a chip's driver programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Face {
    /// Registers of all units.
    Registers,
    /// The GPU's firmware, GSP, by messages, and a few registers.
    Gsp,
}

impl Face {
    /// A word for documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Registers => "registers",
            Self::Gsp => "GSP",
        }
    }
}

/// How a channel's subchannels get their engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subchannels {
    /// The class that SET_OBJECT names says which engine it is.
    ByClass,
    /// The channel's runlist says which engine each subchannel is.
    ByRunlist,
}
