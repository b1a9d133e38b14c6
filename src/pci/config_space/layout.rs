//! Register offsets and bits of a type-0 header and of the capabilities used here, in the names of the PCI
//! Local Bus and PCI Express specifications.

pub(super) const VENDOR_ID: usize = 0x00;
pub(super) const DEVICE_ID: usize = 0x02;
pub(super) const REVISION_ID: usize = 0x08;
pub(super) const CLASS_CODE: usize = 0x09;
pub(super) const CACHE_LINE_SIZE: usize = 0x0c;
pub(super) const BAR0: usize = 0x10;
pub(super) const SUBSYSTEM_VENDOR_ID: usize = 0x2c;
pub(super) const SUBSYSTEM_ID: usize = 0x2e;
pub(super) const ROM_BAR: usize = 0x30;
pub(super) const CAPABILITIES_POINTER: usize = 0x34;
pub(super) const INTERRUPT_LINE: usize = 0x3c;
pub(super) const INTERRUPT_PIN: usize = 0x3d;
/// First byte behind the header.
pub(super) const HEADER_END: usize = 0x40;

pub(super) const BAR_IO: u32 = 0x1;
pub(super) const BAR_MEMORY_64_PREFETCH: u32 = 0xc;
pub(super) const BAR_MEMORY_ADDRESS: u64 = !0xf;
pub(super) const BAR_IO_ADDRESS: u64 = !0x3;
pub(super) const ROM_ENABLE: u32 = 0x1;
pub(super) const ROM_ADDRESS: u32 = !0x7ff;

/// True for a byte of a BAR or of the ROM BAR.
pub(super) const fn is_bar_byte(position: usize) -> bool {
    (BAR0 <= position && position < BAR0 + 24) || (ROM_BAR <= position && position < ROM_BAR + 4)
}

/// Command register.
pub(super) mod command {
    pub(in super::super) const OFFSET: usize = 0x04;
    pub(in super::super) const IO: u16 = 1 << 0;
    pub(in super::super) const MEMORY: u16 = 1 << 1;
    pub(in super::super) const BUS_MASTER: u16 = 1 << 2;
    pub(in super::super) const PARITY: u16 = 1 << 6;
    pub(in super::super) const SERR: u16 = 1 << 8;
    pub(in super::super) const INTX_DISABLE: u16 = 1 << 10;
}

/// Status register.
pub(super) mod status {
    pub(in super::super) const OFFSET: usize = 0x06;
    pub(in super::super) const INTERRUPT_LOW_BYTE: u8 = 1 << 3;
    pub(in super::super) const CAPABILITIES_LIST: u16 = 1 << 4;
    /// Parity, abort and system-error bits: a written 1 clears.
    pub(in super::super) const ERRORS: u16 = 0xf900;
}

/// Power-management capability (version 3).
pub(super) mod pm {
    pub(in super::super) const ID: u8 = 0x01;
    pub(in super::super) const SIZE: usize = 8;
    pub(in super::super) const CAPABILITIES: usize = 2;
    /// Version 3, no PME from any state, D1 and D2 not supported.
    pub(in super::super) const VERSION_3: u16 = 3;
    pub(in super::super) const CONTROL: usize = 4;
    pub(in super::super) const STATE: u16 = 3;
    pub(in super::super) const NO_SOFT_RESET: u16 = 1 << 3;
}

/// Message-signalled interrupts.
pub(super) mod msi {
    pub(in super::super) const ID: u8 = 0x05;
    pub(in super::super) const SIZE: usize = 14;
    pub(in super::super) const CONTROL: usize = 2;
    pub(in super::super) const ENABLE: u16 = 1 << 0;
    pub(in super::super) const ADDRESS_64: u16 = 1 << 7;
    pub(in super::super) const ADDRESS_LOW: usize = 4;
    pub(in super::super) const ADDRESS_HIGH: usize = 8;
    pub(in super::super) const DATA: usize = 12;
}

/// Message-signalled interrupts with a table of their own in a BAR.
pub(super) mod msix {
    pub(in super::super) const ID: u8 = 0x11;
    pub(in super::super) const SIZE: usize = 12;
    pub(in super::super) const CONTROL: usize = 2;
    /// Number of vectors, less one.
    pub(in super::super) const VECTORS: u16 = 0x07ff;
    pub(in super::super) const ALL_MASKED: u16 = 1 << 14;
    pub(in super::super) const ENABLE: u16 = 1 << 15;
    pub(in super::super) const TABLE: usize = 4;
    pub(in super::super) const PENDING: usize = 8;
    /// In both: which BAR; the rest is the offset in it.
    pub(in super::super) const BAR: u32 = 0x7;
}

/// Vendor-specific capability.
pub(super) mod vendor {
    pub(in super::super) const ID: u8 = 0x09;
    /// Behind the id and the link.
    pub(in super::super) const CONTENT: usize = 2;
}

/// PCI Express capability (version 2).
pub(super) mod pcie {
    pub(in super::super) const ID: u8 = 0x10;
    pub(in super::super) const SIZE: usize = 0x3c;
    pub(in super::super) const CAPABILITIES: usize = 2;
    /// Version 2, PCI Express endpoint.
    pub(in super::super) const VERSION_2_ENDPOINT: u16 = 2;
    pub(in super::super) const DEVICE_CAPABILITIES: usize = 4;
    /// Maximum payload 256 bytes, extended tags, role-based error reporting.
    pub(in super::super) const DEVICE_CAPABILITIES_VALUE: u32 = 1 | 1 << 5 | 1 << 15;
    pub(in super::super) const FLR_CAPABLE: u32 = 1 << 28;
    pub(in super::super) const DEVICE_CONTROL: usize = 8;
    /// Error reporting enables, relaxed ordering, payload, extended tag, no snoop, read request size.
    pub(in super::super) const DEVICE_CONTROL_WRITABLE: u16 = 0x79ff;
    /// Relaxed ordering, no snoop, read requests of 512 bytes.
    pub(in super::super) const DEVICE_CONTROL_RESET: u16 = 0x2810;
    /// Bit 15 of the register, in its high byte.
    pub(in super::super) const INITIATE_FLR_HIGH_BYTE: u8 = 1 << 7;
    pub(in super::super) const DEVICE_STATUS: usize = 10;
    pub(in super::super) const DEVICE_STATUS_ERRORS: u16 = 0x000f;
    pub(in super::super) const LINK_CAPABILITIES: usize = 0x0c;
    /// ASPM L0s and L1.
    pub(in super::super) const LINK_ASPM: u32 = 3 << 10;
    pub(in super::super) const LINK_CONTROL: usize = 0x10;
    /// ASPM control, read completion boundary, common clock, extended synch.
    pub(in super::super) const LINK_CONTROL_WRITABLE: u16 = 0x00cb;
    pub(in super::super) const LINK_STATUS: usize = 0x12;
    /// Reference clock of the slot.
    pub(in super::super) const LINK_SLOT_CLOCK: u16 = 1 << 12;
    pub(in super::super) const DEVICE_CONTROL_2: usize = 0x28;
    /// Completion timeout value and disable.
    pub(in super::super) const DEVICE_CONTROL_2_WRITABLE: u16 = 0x001f;
    pub(in super::super) const LINK_CAPABILITIES_2: usize = 0x2c;
    pub(in super::super) const LINK_CONTROL_2: usize = 0x30;
    pub(in super::super) const LINK_CONTROL_2_WRITABLE: u16 = 0x000f;
}

/// Header of an extended capability: its id, version and the offset of the next one.
pub(super) mod extended {
    pub(in super::super) const HEADER: usize = 4;
    pub(in super::super) const VERSION_SHIFT: u32 = 16;
    pub(in super::super) const NEXT_SHIFT: u32 = 20;
}

/// Resizable BAR.
pub(super) mod resizable {
    pub(in super::super) const ID: u16 = 0x15;
    pub(in super::super) const VERSION: u32 = 1;
    pub(in super::super) const SIZE: usize = 12;
    /// Sizes that there are: bit 4 is 1 MiB.
    pub(in super::super) const CAPABILITY: usize = 4;
    pub(in super::super) const CONTROL: usize = 8;
    pub(in super::super) const ONE_BAR: u32 = 1 << 5;
    /// log2 of the size that is chosen, in MiB.
    pub(in super::super) const SIZE_SHIFT: u32 = 8;

    /// A size as the control register has it, if the capability register can tell it.
    pub(in super::super) fn size(bytes: u64) -> Option<u32> {
        let log2 = bytes.checked_ilog2().filter(|_| bytes.is_power_of_two())?;
        log2.checked_sub(20).filter(|size| *size < 28)
    }

    /// The capability register with that size alone.
    pub(in super::super) const fn only(size: u32) -> u32 {
        1 << (size + 4)
    }
}

/// Advanced error reporting (version 2, without prefixes of packets).
pub(super) mod errors {
    pub(in super::super) const ID: u16 = 0x01;
    pub(in super::super) const VERSION: u32 = 2;
    pub(in super::super) const SIZE: usize = 0x48;
    pub(in super::super) const UNCORRECTABLE_STATUS: usize = 4;
    pub(in super::super) const UNCORRECTABLE_MASK: usize = 8;
    pub(in super::super) const UNCORRECTABLE_SEVERITY: usize = 0x0c;
    /// Data link, poisoned packet, flow control, timeout, abort, unexpected completion, overflow, malformed
    /// packet, unsupported request.
    pub(in super::super) const UNCORRECTABLE: u32 = 0x0017_f010;
    /// Data link, flow control, overflow, malformed packet.
    pub(in super::super) const SEVERITY_RESET: u32 = 0x0006_2010;
    pub(in super::super) const CORRECTABLE_STATUS: usize = 0x10;
    pub(in super::super) const CORRECTABLE_MASK: usize = 0x14;
    /// Receiver, bad packets of both layers, replays, what is advisory.
    pub(in super::super) const CORRECTABLE: u32 = 0x31c1;
    /// What is advisory.
    pub(in super::super) const CORRECTABLE_MASK_RESET: u32 = 0x2000;
}
