//! A GPU's file: which physical GPU the aggregator owns, and where backends and operators meet it.

use std::time::Duration;

use super::reader::TableReader;
use super::value::{self, NAME_ALLOWED, SocketSpec};
use super::vm::{CHIP_ALLOWED, CHIPS, VRAM_GRANULE};

/// How the aggregator reaches the physical GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The software GPU, in the aggregator's own process.
    Soft,
}

/// How VMs share the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Everything that is ready runs; hardware's own time slices share among channels.
    Fifo,
    /// VMs take turns by weight.
    RoundRobin,
}

/// A GPU's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuConfig {
    /// Name of the GPU.
    pub name: String,
    /// How it is reached.
    pub backend: Backend,
    /// Its chip; for the software GPU, the chip that it models.
    pub chip: String,
    /// VRAM of the software GPU in bytes.
    pub vram: u64,
    /// How VMs share it.
    pub policy: PolicyKind,
    /// How long the aggregator looks for more doorbells after one, without sleeping.
    pub poll: Duration,
    /// Socket that device backends connect to.
    pub socket: SocketSpec,
    /// Socket that operators connect to.
    pub control: Option<SocketSpec>,
}

impl GpuConfig {
    pub(super) fn read(reader: &mut TableReader<'_, '_>) -> Option<Self> {
        let name = reader.required("name", NAME_ALLOWED, value::name);
        let backend = reader.required("backend", "\"soft\"", |v| value::word(v, &[("soft", Backend::Soft)]));
        let chip = reader.defaulted("chip", "GF100", CHIP_ALLOWED, |v| value::word(v, CHIPS));
        let vram = reader.defaulted("vram", 1 << 30, "a multiple of \"16M\" from \"64M\" to \"32G\"", |v| {
            value::size(v, 64 << 20, 32 << 30, VRAM_GRANULE)
        });
        let policy = reader.defaulted("policy", PolicyKind::Fifo, "\"fifo\" or \"round-robin\"", |v| {
            value::word(v, &[("fifo", PolicyKind::Fifo), ("round-robin", PolicyKind::RoundRobin)])
        });
        let poll =
            reader.defaulted("poll", default_poll(), "a whole number of microseconds from 0 to 10000", |v| {
                value::integer(v, 0, 10_000)
            });
        if !reader.has("socket") {
            reader.reject("socket", "is missing".to_owned(), "a [socket] section with `path`");
        }
        let socket = reader.table("socket", value::socket);
        let has_control = reader.has("control");
        let control = reader.table("control", value::socket);
        if has_control && control.is_none() {
            return None;
        }
        Some(Self {
            name: name?,
            backend: backend?,
            chip: chip?.to_owned(),
            vram: vram?,
            policy: policy?,
            poll: Duration::from_micros(poll?),
            socket: socket?,
            control,
        })
    }
}

/// Microseconds. Looking costs a CPU while guests submit work: only a machine with CPUs to spare does it unasked.
fn default_poll() -> u64 {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cpus >= 8 { 500 } else { 0 }
}
