//! The `[limits]` section of a VM's file: what its guest may cost the host. They bound a guest that attacks
//! or is broken; honest guests do not meet them.

use super::reader::TableReader;
use super::value;

/// The most objects that a driver can be given: some 50 MB of the device backend's memory.
const MAX_OBJECTS: u64 = 1 << 18;

/// The most pieces of memory that QEMU's client lets a server ask for.
const MAX_RANGES: u64 = 65_535;

/// Limits of a VM. Rates are per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmLimits {
    /// Host memory for page tables, in bytes; `None`: what goes with the VM's share of VRAM, which is the
    /// most in any case.
    pub page_tables: Option<u64>,
    /// Pages mapped in all address spaces.
    pub mappings: u64,
    /// Guest page tables that are followed; `None`: what suits the chip.
    pub guest_tables: Option<u32>,
    /// Pages of one address space that point outside the guest's memory.
    pub bad_pages: u32,
    /// Number of TLB flushes.
    pub flushes: u32,
    /// Requests to the aggregator.
    pub requests: u32,
    /// Number of doorbells.
    pub doorbells: u32,
    /// Interrupts to the guest.
    pub interrupts: u32,
    /// Lines in the device backend's log.
    pub log_lines: u32,
    /// Share of the aggregator's thread, in percent.
    pub thread_time: u8,
    /// Pieces that guest memory may be announced in, after those that follow each other were joined.
    pub memory_ranges: u32,
    /// Objects of a GH100's driver.
    pub objects: u32,
    /// Objects of one client of that driver, which is a program or the kernel.
    pub client_objects: u32,
}

impl Default for VmLimits {
    fn default() -> Self {
        Self {
            page_tables: None,
            mappings: 1 << 26,
            guest_tables: None,
            bad_pages: 1 << 16,
            flushes: 50_000,
            requests: 100_000,
            doorbells: 200_000,
            interrupts: 50_000,
            log_lines: 20,
            thread_time: 100,
            memory_ranges: 4096,
            objects: 16_384,
            client_objects: 4096,
        }
    }
}

impl VmLimits {
    pub(super) fn read(reader: &mut TableReader<'_, '_>) -> Option<Self> {
        let default = Self::default();
        let allowed = "a multiple of \"4K\" from \"64K\" to \"64G\"";
        let page_tables = reader.defaulted("page_tables", None, allowed, |v| {
            value::size(v, 64 << 10, 64 << 30, 4 << 10).map(Some)
        });
        let mappings = number(reader, "mappings", default.mappings, 1 << 12, 1 << 36);
        let guest_tables = reader.defaulted("guest_tables", None, "a whole number from 64 to 1048576", |v| {
            value::integer(v, 64, 1 << 20).map(Some)
        });
        let bad_pages = number(reader, "bad_pages", default.bad_pages.into(), 0, 1 << 30);
        let flushes = number(reader, "flushes", default.flushes.into(), 100, 1_000_000);
        let requests = number(reader, "requests", default.requests.into(), 1000, 1_000_000);
        let doorbells = number(reader, "doorbells", default.doorbells.into(), 1000, 200_000);
        let interrupts = number(reader, "interrupts", default.interrupts.into(), 1000, 1_000_000);
        let log_lines = number(reader, "log_lines", default.log_lines.into(), 1, 10_000);
        let thread_time = number(reader, "thread_time", default.thread_time.into(), 1, 100);
        let objects = number(reader, "objects", default.objects.into(), 64, MAX_OBJECTS);
        let client_objects = number(reader, "client_objects", default.client_objects.into(), 16, MAX_OBJECTS);
        let memory_ranges = number(reader, "memory_ranges", default.memory_ranges.into(), 16, MAX_RANGES);
        let small = |value: u64| u32::try_from(value).ok();
        Some(Self {
            page_tables: page_tables?,
            mappings: mappings?,
            guest_tables: match guest_tables? {
                Some(tables) => Some(small(tables)?),
                None => None,
            },
            bad_pages: small(bad_pages?)?,
            flushes: small(flushes?)?,
            requests: small(requests?)?,
            doorbells: small(doorbells?)?,
            interrupts: small(interrupts?)?,
            log_lines: small(log_lines?)?,
            thread_time: u8::try_from(thread_time?).ok()?,
            memory_ranges: small(memory_ranges?)?,
            objects: small(objects?)?,
            client_objects: small(client_objects?)?,
        })
    }
}

fn number(
    reader: &mut TableReader<'_, '_>,
    key: &'static str,
    default: u64,
    low: u64,
    high: u64,
) -> Option<u64> {
    let allowed = format!("a whole number from {low} to {high}");
    reader.defaulted(key, default, &allowed, |v| value::integer(v, low, high))
}
