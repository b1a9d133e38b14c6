//! A VM that may be admitted, as the operator configured it.

use gpuvmk_host::socket_path::SocketSpec;
use gpuvmk_scheduler::share::Share;

/// Channels of a VM whose file does not say.
pub const DEFAULT_CHANNELS: u16 = 32;

/// One VM that may come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmEntry {
    /// Name of the VM.
    pub name: String,
    /// Whose device back end may be it, by name or number.
    pub user: Option<String>,
    /// Its own socket, if it has one: a peer that connects there is this VM, and no other peer is.
    pub socket: Option<SocketSpec>,
    /// Most VRAM, in bytes.
    pub vram: u64,
    /// Limit of channels.
    pub channels: u16,
    /// Its part of the GPU's time.
    pub share: Share,
    /// Limits of its cost for the aggregator.
    pub limits: EntryLimits,
    /// Line of the section, for the error message if the user does not exist.
    pub line: usize,
}

/// Limits of a VM's cost for the aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryLimits {
    /// Host memory for page tables, in bytes.
    pub page_tables: u64,
    /// Pages mapped in all address spaces.
    pub mappings: u64,
    /// Doorbells a second.
    pub doorbells: u32,
    /// Share of the aggregator's thread, in percent.
    pub thread_time: u8,
    /// Pieces that its memory may be announced in.
    pub memory_ranges: u32,
}

impl Default for EntryLimits {
    fn default() -> Self {
        Self {
            page_tables: u64::MAX,
            mappings: u64::MAX,
            doorbells: u32::MAX,
            thread_time: 100,
            memory_ranges: 65_535,
        }
    }
}
