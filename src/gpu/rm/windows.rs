//! Addresses that guests can use, and their reservations in an address space of the driver.

use super::abi::Handle;
use super::abi::classes::{MemoryParams, NV50_MEMORY_VIRTUAL};
use super::abi::flags::{OWNER, alloc, attr};
use super::device::Device;
use super::error::RmError;
use crate::GpuError;
use gpuvmk_chip::addr::{GpuVa, PAGE_SIZE};

/// First address of a space: nouveau uses what lies below the driver's default of 1 MiB.
pub(super) const BASE: u64 = 0x1000;

/// Addresses that guests can use.
pub const WINDOWS: [(u64, u64); 3] =
    [(BASE, 4 << 30), (0x1_2000_0000, 0xc0_0000_0000), (1 << 40, 1 << VA_BITS)];

/// Guests' addresses are below 2 to this.
pub const VA_BITS: u8 = 47;

/// A reservation of addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub start: u64,
    pub end: u64,
    pub object: Handle,
}

/// Reserves addresses, without page tables.
pub(super) fn reserve(device: &mut Device, space: Handle, start: u64, end: u64) -> Result<Handle, RmError> {
    let size = end.saturating_sub(start);
    let mut params = MemoryParams {
        owner: OWNER,
        // Without an alignment of our own, the driver takes that of compressed memory.
        flags: alloc::VIRTUAL | alloc::FIXED | alloc::LAZY | alloc::ALIGN,
        alignment: PAGE_SIZE,
        attr: attr::PAGE_4K,
        size,
        offset: start,
        limit: size.saturating_sub(1),
        space,
        ..Default::default()
    };
    device.client.alloc(device.device, NV50_MEMORY_VIRTUAL, &mut params)
}

pub(super) fn unmappable(va: GpuVa) -> GpuError {
    GpuError::Unmappable(format!(
        "{va} cannot be mapped: guests have [{:#x}, 4 GiB), [4.5 GiB, {:#x}) and [2^40, 2^{VA_BITS}); the rest is \
         the NVIDIA driver's",
        BASE, WINDOWS[1].1
    ))
}
