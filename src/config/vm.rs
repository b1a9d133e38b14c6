//! A VM's file: what its vGPU is, and where QEMU and the aggregator are met.

use std::path::PathBuf;

use super::reader::TableReader;
use super::value::{self, NAME_ALLOWED, SocketSpec};

/// The chips that a vGPU can present.
pub(super) const CHIPS: &[(&str, &str)] = &[("GF100", "GF100")];

pub(super) const CHIP_ALLOWED: &str = "\"GF100\"";

/// Smallest and largest VRAM, and what it must be a multiple of. A stock driver needs about 16 MiB for its own
/// tables and buffers; GF100 addresses 40 bits but no card had more than 6 GiB.
pub(super) const VRAM_MIN: u64 = 32 << 20;
pub(super) const VRAM_MAX: u64 = 6 << 30;
pub(super) const VRAM_GRANULE: u64 = 16 << 20;

/// A VM's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmConfig {
    /// Name of the VM.
    pub name: String,
    /// Socket of the aggregator that owns the GPU.
    pub gpu: PathBuf,
    /// Chip that the guest sees.
    pub chip: String,
    /// VRAM in bytes.
    pub vram: u64,
    /// Channels.
    pub channels: u16,
    /// Share of the GPU relative to other VMs.
    pub weight: u32,
    /// Socket that QEMU connects to; the command line may give it instead.
    pub socket: Option<SocketSpec>,
    /// File for the MMIO trace.
    pub trace: Option<PathBuf>,
}

impl VmConfig {
    pub(super) fn read(reader: &mut TableReader<'_, '_>) -> Option<Self> {
        let name = reader.required("name", NAME_ALLOWED, value::name);
        let gpu = value::socket_path(reader, "gpu");
        let chip = reader.defaulted("chip", "GF100", CHIP_ALLOWED, |v| value::word(v, CHIPS));
        let vram = reader.required("vram", "a multiple of \"16M\" from \"32M\" to \"6G\"", |v| {
            value::size(v, VRAM_MIN, VRAM_MAX, VRAM_GRANULE)
        });
        let channels =
            reader.defaulted("channels", 32, "a whole number from 2 to 128", |v| value::integer(v, 2, 128));
        let weight = reader
            .defaulted("weight", 100, "a whole number from 1 to 10000", |v| value::integer(v, 1, 10_000));
        let has_socket = reader.has("socket");
        let socket = reader.table("socket", value::socket);
        let trace = reader.table("trace", |trace| {
            let path = trace.required("path", "the path of a file to write", value::string)?;
            Some(trace.path(&path))
        });
        if has_socket && socket.is_none() {
            return None;
        }
        Some(Self {
            name: name?,
            gpu: gpu?,
            chip: chip?.to_owned(),
            vram: vram?,
            channels: u16::try_from(channels?).ok()?,
            weight: u32::try_from(weight?).ok()?,
            socket,
            trace,
        })
    }
}
