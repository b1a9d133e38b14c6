//! A VM's file: what its vGPU is, and where QEMU and the aggregator are met.

use std::path::PathBuf;

use super::chip::{self, VRAM_GRANULE};
use super::limits::VmLimits;
use super::reader::TableReader;
use super::value::{self, NAME_ALLOWED, SocketSpec};
use crate::chip::Chip;
use crate::jail::Mode;

/// A VM's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmConfig {
    /// Name of the VM.
    pub name: String,
    /// Socket of the aggregator that owns the GPU.
    pub gpu: PathBuf,
    /// Chip that the guest sees.
    pub chip: Chip,
    /// VRAM in bytes.
    pub vram: u64,
    /// Channels.
    pub channels: u16,
    /// Share of the GPU relative to other VMs.
    pub weight: u32,
    /// Socket that QEMU connects to; the command line may give it instead.
    pub socket: Option<SocketSpec>,
    /// What the guest may cost the host.
    pub limits: VmLimits,
    /// File for the MMIO trace.
    pub trace: Option<PathBuf>,
    /// What the device back end gives up.
    pub jail: Mode,
}

impl VmConfig {
    pub(super) fn read(reader: &mut TableReader<'_, '_>) -> Option<Self> {
        let name = reader.required("name", NAME_ALLOWED, value::name);
        let gpu = value::socket_path(reader, "gpu");
        let chip = chip::read(reader, Chip::Gf100);
        // Where the chip is wrong, the rest is checked against what any chip allows.
        let limits = chip.map_or_else(chip::widest, chip::limits);
        let vram = reader.required("vram", &chip::vram_allowed(chip, |limits| limits.vram), |v| {
            value::size(v, limits.vram.0, limits.vram.1, VRAM_GRANULE)
        });
        let allowed = format!("a whole number from 2 to {}", limits.channels);
        let channels = reader.defaulted("channels", 32, &allowed, |v| value::integer(v, 2, limits.channels));
        let weight = reader
            .defaulted("weight", 100, "a whole number from 1 to 10000", |v| value::integer(v, 1, 10_000));
        let has_socket = reader.has("socket");
        let socket = reader.table("socket", value::socket);
        let trace = reader.table("trace", |trace| {
            let path = trace.required("path", "the path of a file to write", value::string)?;
            Some(trace.path(&path))
        });
        let has_limits = reader.has("limits");
        let limits = reader.table("limits", VmLimits::read);
        let jail = value::jail(reader);
        if (has_socket && socket.is_none()) || (has_limits && limits.is_none()) {
            return None;
        }
        Some(Self {
            name: name?,
            gpu: gpu?,
            chip: chip?,
            vram: vram?,
            channels: u16::try_from(channels?).ok()?,
            weight: u32::try_from(weight?).ok()?,
            socket,
            limits: limits.unwrap_or_default(),
            trace,
            jail: jail?,
        })
    }
}
