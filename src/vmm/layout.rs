//! Layout of the guest's physical address space, and the interrupt numbers.

use std::ops::Range;

/// Smallest main memory: a stock kernel with its initramfs.
pub const MIN_MEMORY: u64 = 128 << 20;
/// Largest main memory: below [`MMIO64`].
pub const MAX_MEMORY: u64 = 32 << 30;

/// Main memory below 4 GiB ends here at the latest.
pub(super) const LOW_MEMORY_END: u64 = 0xc000_0000;
/// The rest of it begins here.
pub(super) const HIGH_MEMORY: u64 = 1 << 32;

/// Boot parameters ("zero page").
pub(super) const ZERO_PAGE: u64 = 0x7000;
/// Descriptors for the kernel's first instructions.
pub(super) const DESCRIPTORS: u64 = 0x500;
/// Page tables for them.
pub(super) const PAGE_TABLES: u64 = 0x9000;
/// The kernel's command line.
pub(super) const COMMAND_LINE: u64 = 0x2_0000;
/// Room for it, with the zero at its end.
pub(super) const COMMAND_LINE_ROOM: u64 = 0x1000;
/// Memory that the kernel may use ends here; up to 1 MiB are things of a PC.
pub(super) const BASE_MEMORY_END: u64 = 0x9_fc00;
/// ACPI tables, where kernels look for them.
pub(super) const ACPI: Range<u64> = 0xe_0000..0x10_0000;
/// Where a processor of a PC begins, and where a kernel jumps to in real mode that resets its machine as one
/// did: behind the tables.
pub(super) const RESET_VECTOR: u64 = 0xf_fff0;
/// Address of the kernel.
pub(super) const KERNEL: u64 = 0x10_0000;

/// Memory BARs of 32 bits.
pub(super) const MMIO32: Range<u64> = 0xc000_0000..0xe000_0000;
/// Configuration space of bus 0 (ECAM).
pub(super) const ECAM: Range<u64> = 0xe000_0000..0xe010_0000;
/// I/O APIC, as KVM has it.
pub(super) const IO_APIC: u32 = 0xfec0_0000;
/// Address of the local APICs.
pub(super) const LOCAL_APIC: u32 = 0xfee0_0000;
/// Memory BARs of 64 bits.
pub(super) const MMIO64: Range<u64> = 0x10_0000_0000..0x20_0000_0000;

/// I/O ports of BARs.
pub(super) const PORTS: Range<u16> = 0x1000..0x2000;
/// Configuration mechanism 1.
pub(super) const CONFIG_PORTS: Range<u16> = 0xcf8..0xd00;
/// First serial port.
pub(super) const SERIAL: Range<u16> = 0x3f8..0x400;
/// Interrupt number of the console.
pub(super) const SERIAL_LINE: u32 = 4;
/// Ports of the keyboard controller.
pub(super) const KEYBOARD: Range<u16> = 0x60..0x65;
/// Sleep control, sleep status, reset.
pub(super) const POWER: Range<u16> = 0x600..0x603;
/// The last of them.
pub(super) const RESET: u16 = POWER.start + 2;

/// The pin of the I/O APIC of a PCI slot's INTA.
pub(super) const fn slot_pin(slot: u8) -> u32 {
    16 + (slot % 8) as u32
}

/// The parts of main memory: first address and bytes.
pub(super) fn memory(size: u64) -> Vec<(u64, u64)> {
    let low = size.min(LOW_MEMORY_END);
    let mut parts = vec![(0, low)];
    if size > low {
        parts.push((HIGH_MEMORY, size - low));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_around_the_hole_below_4_gib() {
        assert_eq!(memory(512 << 20), [(0, 512 << 20)]);
        assert_eq!(memory(3 << 30), [(0, 3 << 30)]);
        assert_eq!(memory(5 << 30), [(0, 3 << 30), (4 << 30, 2 << 30)]);
        let (gpa, size) = *memory(MAX_MEMORY).last().unwrap();
        assert!(gpa + size <= MMIO64.start);
    }
}
