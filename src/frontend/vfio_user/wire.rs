//! The bytes of vfio-user messages: commands, flags and fixed parts, in the endianness of the host.
//!
//! Names and values follow the protocol document (QEMU, docs/interop/vfio-user.rst) and `linux/vfio.h`.
//! Everything here may hold any value: nothing has been checked yet.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version spoken here.
pub const MAJOR: u16 = 0;
/// Highest minor version spoken here.
pub const MINOR: u16 = 1;

/// Bytes of data that one read or write may carry (the protocol's default).
pub const MAX_DATA: u32 = 1 << 20;
/// Descriptors that one message may carry.
pub const MAX_FDS: usize = 16;
/// Writes that one message may carry: QEMU's client stops at 200.
pub const MAX_WRITES: u64 = 4096;

/// Command numbers.
pub mod command {
    /// Negotiation; the first message.
    pub const VERSION: u16 = 1;
    /// Client memory becomes reachable.
    pub const DMA_MAP: u16 = 2;
    /// Client memory goes.
    pub const DMA_UNMAP: u16 = 3;
    /// Information about the device.
    pub const DEVICE_GET_INFO: u16 = 4;
    /// Information about a region.
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    /// Descriptors that stand for parts of a region.
    pub const DEVICE_GET_REGION_IO_FDS: u16 = 6;
    /// Information about an interrupt type.
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    /// Interrupt set-up, masking and triggering.
    pub const DEVICE_SET_IRQS: u16 = 8;
    /// Read of a region.
    pub const REGION_READ: u16 = 9;
    /// Write to a region.
    pub const REGION_WRITE: u16 = 10;
    /// Server reads client memory.
    pub const DMA_READ: u16 = 11;
    /// Server writes client memory.
    pub const DMA_WRITE: u16 = 12;
    /// Function-level reset.
    pub const DEVICE_RESET: u16 = 13;
    /// Dirty pages (a number of older clients).
    pub const DIRTY_PAGES: u16 = 14;
    /// Many small writes.
    pub const REGION_WRITE_MULTI: u16 = 15;
    /// Optional features: migration, dirty tracking.
    pub const DEVICE_FEATURE: u16 = 16;
    /// Migration data out.
    pub const MIG_DATA_READ: u16 = 17;
    /// Migration data in.
    pub const MIG_DATA_WRITE: u16 = 18;

    /// The name of a command, for messages to people.
    pub const fn name(command: u16) -> &'static str {
        match command {
            VERSION => "VERSION",
            DMA_MAP => "DMA_MAP",
            DMA_UNMAP => "DMA_UNMAP",
            DEVICE_GET_INFO => "DEVICE_GET_INFO",
            DEVICE_GET_REGION_INFO => "DEVICE_GET_REGION_INFO",
            DEVICE_GET_REGION_IO_FDS => "DEVICE_GET_REGION_IO_FDS",
            DEVICE_GET_IRQ_INFO => "DEVICE_GET_IRQ_INFO",
            DEVICE_SET_IRQS => "DEVICE_SET_IRQS",
            REGION_READ => "REGION_READ",
            REGION_WRITE => "REGION_WRITE",
            DMA_READ => "DMA_READ",
            DMA_WRITE => "DMA_WRITE",
            DEVICE_RESET => "DEVICE_RESET",
            DIRTY_PAGES => "DIRTY_PAGES",
            REGION_WRITE_MULTI => "REGION_WRITE_MULTI",
            DEVICE_FEATURE => "DEVICE_FEATURE",
            MIG_DATA_READ => "MIG_DATA_READ",
            MIG_DATA_WRITE => "MIG_DATA_WRITE",
            _ => "unknown",
        }
    }
}

/// Bits of [`Header::flags`].
pub mod flags {
    /// Bits that hold the type.
    pub const TYPE_MASK: u32 = 0xf;
    /// Type: a command.
    pub const COMMAND: u32 = 0;
    /// Type: a reply.
    pub const REPLY: u32 = 1;
    /// The sender of this command wants no reply.
    pub const NO_REPLY: u32 = 1 << 4;
    /// Flag: the reply reports an error.
    pub const ERROR: u32 = 1 << 5;
}

/// Bits of [`DmaMap::flags`].
pub mod dma_map {
    /// The device may read.
    pub const READ: u32 = 1 << 0;
    /// The device may write.
    pub const WRITE: u32 = 1 << 1;
}

/// Bits of [`DmaUnmap::flags`], as in `linux/vfio.h`.
pub mod dma_unmap {
    /// Report dirty pages of the range.
    pub const GET_DIRTY_BITMAP: u32 = 1 << 0;
    /// Everything goes; address and size are zero.
    pub const ALL: u32 = 1 << 1;
}

/// Bits of [`DeviceInfo::flags`].
pub mod device {
    /// `DEVICE_RESET` works.
    pub const RESET: u32 = 1 << 0;
    /// It is a PCI function.
    pub const PCI: u32 = 1 << 1;
}

/// Bits of [`RegionInfo::flags`].
pub mod region {
    /// May be read.
    pub const READ: u32 = 1 << 0;
    /// May be written.
    pub const WRITE: u32 = 1 << 1;
    /// Some of it may be mapped.
    pub const MMAP: u32 = 1 << 2;
    /// Flag: capabilities follow the structure.
    pub const CAPS: u32 = 1 << 3;
    /// Capability of the parts that may be mapped.
    pub const CAP_SPARSE_MMAP: u16 = 1;
    /// Regions of a PCI function, the legacy VGA region included.
    pub const COUNT: u32 = 9;
}

/// Interrupt types and the bits of [`IrqInfo::flags`] and [`SetIrqs::flags`].
pub mod irq {
    /// Index of the INTx line.
    pub const INTX: u32 = 0;
    /// Index of the MSI vectors.
    pub const MSI: u32 = 1;
    /// Messages by a table in a BAR.
    pub const MSIX: u32 = 2;
    /// Interrupt types that are reported. The other two of `linux/vfio.h` (error, request) do not exist here,
    /// and QEMU's client warns of one that exists and has no vectors.
    pub const COUNT: u32 = 3;

    /// Info: signalled by eventfd.
    pub const INFO_EVENTFD: u32 = 1 << 0;
    /// Info: can be masked.
    pub const INFO_MASKABLE: u32 = 1 << 1;
    /// Info: masks itself when it is signalled.
    pub const INFO_AUTOMASKED: u32 = 1 << 2;
    /// Info: vectors are set up all at once.
    pub const INFO_NORESIZE: u32 = 1 << 3;

    /// Set: no data.
    pub const DATA_NONE: u32 = 1 << 0;
    /// Set: one byte for each vector.
    pub const DATA_BOOL: u32 = 1 << 1;
    /// Set: one descriptor for each vector.
    pub const DATA_EVENTFD: u32 = 1 << 2;
    /// Masks the vectors.
    pub const ACTION_MASK: u32 = 1 << 3;
    /// Unmasks the vectors.
    pub const ACTION_UNMASK: u32 = 1 << 4;
    /// Signals the vectors, or sets their eventfds.
    pub const ACTION_TRIGGER: u32 = 1 << 5;
}

/// The start of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Header {
    /// Chosen by the sender, returned in the reply.
    pub message_id: u16,
    /// Command number, in replies too.
    pub command: u16,
    /// Bytes, this header included.
    pub size: u32,
    /// Type and options.
    pub flags: u32,
    /// errno of a reply with [`flags::ERROR`].
    pub error: u32,
}

/// Bytes of a [`Header`].
pub const HEADER_SIZE: u32 = 16;

impl Header {
    /// True for a command whose sender wants no reply.
    pub const fn no_reply(&self) -> bool {
        self.flags & flags::NO_REPLY != 0
    }
}

/// Negotiation: followed by JSON with a final NUL, or by nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Version {
    /// Major version: counts incompatible changes.
    pub major: u16,
    /// Minor version: counts compatible changes.
    pub minor: u16,
}

/// Client memory becomes reachable; with a descriptor if it can be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DmaMap {
    /// Bytes of this structure.
    pub argsz: u32,
    /// [`dma_map`].
    pub flags: u32,
    /// Offset in the file.
    pub offset: u64,
    /// First bus address.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Client memory goes; the reply repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DmaUnmap {
    /// Bytes that the reply may have.
    pub argsz: u32,
    /// [`dma_unmap`].
    pub flags: u32,
    /// First bus address.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Information about the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DeviceInfo {
    /// Bytes that the reply may have; in the reply, that it needs.
    pub argsz: u32,
    /// [`device`].
    pub flags: u32,
    /// Number of regions.
    pub num_regions: u32,
    /// Number of interrupt types.
    pub num_irqs: u32,
}

/// Information about a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RegionInfo {
    /// Bytes that the reply may have; in the reply, that it needs.
    pub argsz: u32,
    /// [`region`].
    pub flags: u32,
    /// VFIO index of the region.
    pub index: u32,
    /// Offset of the first capability in this structure; 0 for none.
    pub cap_offset: u32,
    /// Size in bytes.
    pub size: u64,
    /// Offset to give to `mmap`.
    pub offset: u64,
}

/// The capability that says which part of a region may be mapped, with one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SparseMmap {
    /// [`region::CAP_SPARSE_MMAP`].
    pub id: u16,
    /// Version of the structure; 1.
    pub version: u16,
    /// Offset of the next capability; 0 for none.
    pub next: u32,
    /// Number of areas; 1.
    pub nr_areas: u32,
    /// Reserved; 0.
    pub reserved: u32,
    /// Where the part begins in the region.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Information about an interrupt type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IrqInfo {
    /// Bytes that the reply may have; in the reply, that it needs.
    pub argsz: u32,
    /// [`irq`].
    pub flags: u32,
    /// VFIO index of the region.
    pub index: u32,
    /// Number of vectors.
    pub count: u32,
}

/// Interrupt set-up, masking and triggering; followed by a byte for each vector with [`irq::DATA_BOOL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SetIrqs {
    /// Bytes of this structure and its data.
    pub argsz: u32,
    /// [`irq`].
    pub flags: u32,
    /// VFIO index of the interrupt type.
    pub index: u32,
    /// The first vector.
    pub start: u32,
    /// Number of vectors.
    pub count: u32,
}

/// Read or write of a region; data follow in a read's reply and in a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RegionAccess {
    /// Offset in the region.
    pub offset: u64,
    /// VFIO index of the region.
    pub region: u32,
    /// Bytes of data.
    pub count: u32,
}

/// Many small writes; that many [`SmallWrite`]s follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct WriteMulti {
    /// Number of writes.
    pub count: u64,
}

/// One write of [`WriteMulti`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SmallWrite {
    /// The region and offset.
    pub access: RegionAccess,
    /// Data; the first `access.count` bytes count.
    pub data: [u8; 8],
}

const _: () = assert!(size_of::<Header>() == HEADER_SIZE as usize);
const _: () = assert!(size_of::<Version>() == 4);
const _: () = assert!(size_of::<DmaMap>() == 32);
const _: () = assert!(size_of::<DmaUnmap>() == 24);
const _: () = assert!(size_of::<DeviceInfo>() == 16);
const _: () = assert!(size_of::<RegionInfo>() == 32);
const _: () = assert!(size_of::<IrqInfo>() == 16);
const _: () = assert!(size_of::<SetIrqs>() == 20);
const _: () = assert!(size_of::<RegionAccess>() == 16);
const _: () = assert!(size_of::<WriteMulti>() == 8);
const _: () = assert!(size_of::<SmallWrite>() == 24);
