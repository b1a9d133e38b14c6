//! What the display engine finds in memory, and what it writes there.
//!
//! Instance memory begins with a table of names (RAMHT): a handle and a word that says whose it is and where
//! the object lies. An object says what memory a handle stands for.

crate::fields! {
    /// The second word of a name.
    NV_UDISP_HASH_CONTEXT {
        31:25 CHN,
        /// In 16 bytes.
        24:13 INSTANCE,
    }
    /// The first word of an object.
    NV_DMA {
        20:20 KIND = { PITCH: 0, BLOCKLINEAR: 1 },
        6:6 PAGE_SIZE = { SMALL: 0, BIG: 1 },
        2:2 ACCESS = { READ_ONLY: 0, READ_AND_WRITE: 1 },
        1:0 TARGET_NODE = { PHYSICAL_NVM: 1, PHYSICAL_PCI: 2, PHYSICAL_PCI_COHERENT: 3 },
    }
    /// The first word of a notification.
    NV_DISP_NOTIFIER {
        31:30 STATUS = { NOT_BEGUN: 0, BEGUN: 1, FINISHED: 2 },
        7:0 PRESENT_COUNT,
    }
}

/// Bytes of instance memory, at least and at most.
pub const INSTANCE_BYTES: (u64, u64) = (0x2000, 0x1_0000);
/// Bytes of the table of names.
pub const NAMES_BYTES: usize = 0x2000;
/// Bytes of an object that mean something: flags, start and limit in 256 bytes.
pub const OBJECT_BYTES: usize = 20;
/// Bytes of a notification: a word with its status, one that counts, and the time in nanoseconds.
pub const NOTIFICATION_BYTES: usize = 16;
