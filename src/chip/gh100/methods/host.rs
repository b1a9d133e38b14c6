//! Class c86f, HOPPER_CHANNEL_GPFIFO_A: what the host unit executes itself, whatever the subchannel.
//!
//! Hopper's header lists only the newest of these; the others are Volta's (`clc36f.h`), which nouveau uses.

use super::{MethodDef, masked, method};

/// Checks that the subchannel's engine has the class in bits 15:0. Goes on to the engine.
pub const SET_OBJECT: u16 = 0x00;
/// Raises an error.
pub const ILLEGAL: u16 = 0x04;
/// Does nothing.
pub const NOP: u16 = 0x08;
/// Old form of semaphores, as on Fermi: address bits 39:32. Mesa's NVK writes its timestamps by it.
pub const SEMAPHORE_A: u16 = 0x10;
/// Old form: address bits 31:2.
pub const SEMAPHORE_B: u16 = 0x14;
/// Old form: value to compare or to write.
pub const SEMAPHORE_C: u16 = 0x18;
/// Old form: acquires, releases or reduces.
pub const SEMAPHORE_D: u16 = 0x1c;
/// Notifies the driver without stopping the channel.
pub const NON_STALL_INTERRUPT: u16 = 0x20;
/// Makes writes visible in memory.
pub const FB_FLUSH: u16 = 0x24;
/// Operand of [`MEM_OP_D`].
pub const MEM_OP_A: u16 = 0x28;
/// Operand of [`MEM_OP_D`].
pub const MEM_OP_B: u16 = 0x2c;
/// Operand of [`MEM_OP_D`].
pub const MEM_OP_C: u16 = 0x30;
/// Memory barrier, cache or TLB maintenance.
pub const MEM_OP_D: u16 = 0x34;
/// Sets the reference count.
pub const SET_REFERENCE: u16 = 0x50;
/// Semaphore address bits 31:2.
pub const SEM_ADDR_LO: u16 = 0x5c;
/// Semaphore address bits 56:32.
pub const SEM_ADDR_HI: u16 = 0x60;
/// Value to compare or to write, low word.
pub const SEM_PAYLOAD_LO: u16 = 0x64;
/// High word of the same.
pub const SEM_PAYLOAD_HI: u16 = 0x68;
/// Acquires, releases or reduces.
pub const SEM_EXECUTE: u16 = 0x6c;
/// Waits until the engine is idle.
pub const WFI: u16 = 0x78;
/// Checks the sum of the command stream; anything but 0 is an error.
pub const CRC_CHECK: u16 = 0x7c;
/// Gives the PBDMA to another channel.
pub const YIELD: u16 = 0x80;
/// Lets a channel that faulted run again; for privileged channels.
pub const CLEAR_FAULTED: u16 = 0x84;
/// First method that goes to the engine.
pub const ENGINE_METHODS: u16 = 0x100;

/// MEM_OP_D bits 31:27.
pub mod mem_op {
    /// Where the operation is.
    pub const SHIFT: u32 = 27;
    /// MEMBAR.
    pub const MEMBAR: u32 = 0x05;
    /// L2_PEERMEM_INVALIDATE.
    pub const L2_PEERMEM_INVALIDATE: u32 = 0x0d;
    /// L2_SYSMEM_INVALIDATE.
    pub const L2_SYSMEM_INVALIDATE: u32 = 0x0e;
    /// L2_CLEAN_COMPTAGS.
    pub const L2_CLEAN_COMPTAGS: u32 = 0x0f;
    /// L2_FLUSH_DIRTY.
    pub const L2_FLUSH_DIRTY: u32 = 0x10;
    /// L2_WAIT_FOR_SYS_PENDING_READS.
    pub const L2_WAIT_FOR_SYS_PENDING_READS: u32 = 0x15;
}

/// SEM_EXECUTE.
pub mod sem {
    /// OPERATION, bits 2:0.
    pub const OPERATION: u32 = 7;
    /// Wait for equality.
    pub const ACQUIRE: u32 = 0;
    /// Write.
    pub const RELEASE: u32 = 1;
    /// Wait until the value is at least the payload, unsigned.
    pub const ACQ_STRICT_GEQ: u32 = 2;
    /// Wait until the value minus the payload is not negative.
    pub const ACQ_CIRC_GEQ: u32 = 3;
    /// Wait until value and payload share a set bit.
    pub const ACQ_AND: u32 = 4;
    /// Wait until value and payload share a clear bit.
    pub const ACQ_NOR: u32 = 5;
    /// Read, combine and write.
    pub const REDUCTION: u32 = 6;
    /// PAYLOAD_SIZE: 64 bits.
    pub const PAYLOAD_64BIT: u32 = 1 << 24;
    /// RELEASE_TIMESTAMP: the time follows in the upper half of 16 bytes.
    pub const RELEASE_TIMESTAMP: u32 = 1 << 25;
    /// REDUCTION: which, bits 30:27.
    pub const REDUCTION_SHIFT: u32 = 27;
    /// REDUCTION_FORMAT: unsigned.
    pub const REDUCTION_UNSIGNED: u32 = 1 << 31;
}

/// SEMAPHORE_D. The reduction and its format are where SEM_EXECUTE has them.
pub mod old_sem {
    /// OPERATION, bits 4:0.
    pub const OPERATION: u32 = 0x1f;
    /// Wait for equality.
    pub const ACQUIRE: u32 = 1;
    /// Write.
    pub const RELEASE: u32 = 2;
    /// Wait until the value minus the payload is not negative.
    pub const ACQ_GEQ: u32 = 4;
    /// Wait until value and payload share a set bit.
    pub const ACQ_AND: u32 = 8;
    /// Read, combine and write.
    pub const REDUCTION: u32 = 0x10;
    /// RELEASE_SIZE: four bytes; clear: 16 with the time in the upper half.
    pub const RELEASE_4_BYTES: u32 = 1 << 24;
    /// REDUCTION and FORMAT.
    pub const REDUCTION_FIELDS: u32 = 0xf800_0000;
}

/// YIELD: known operations are 0, 2 and 3.
pub mod yield_op {
    /// Nothing.
    pub const NOP: u32 = 0;
    /// The rest of the timeslice.
    pub const RUNLIST_TIMESLICE: u32 = 2;
    /// To the next channel of the group.
    pub const TSG: u32 = 3;
}

/// GPFIFO entries without words: what they say in bits 7:0 of the second word.
pub mod control_entry {
    /// Nothing.
    pub const NOP: u64 = 0;
    /// Bits 24:8 of the first word become address bits 56:40 of the segments that follow.
    pub const SET_PB_SEGMENT_EXTENDED_BASE: u64 = 4;

    /// The operation of an entry.
    pub const fn operation(entry: u64) -> u64 {
        (entry >> 32) & 0xff
    }

    /// The address bits that [`SET_PB_SEGMENT_EXTENDED_BASE`] sets, if the entry is that.
    pub const fn segment_base(entry: u64) -> Option<u64> {
        match operation(entry) {
            SET_PB_SEGMENT_EXTENDED_BASE => Some((entry >> 8 & 0x1_ffff) << 40),
            _ => None,
        }
    }
}

/// Interrupt bits of a PBDMA, NV_PPBDMA_INTR_0.
pub mod pbdma_intr {
    /// GPENTRY: a ring entry is malformed.
    pub const GPENTRY: u32 = 1 << 15;
    /// METHOD: one that the unit does not have, or not for this channel.
    pub const METHOD: u32 = 1 << 21;
    /// METHODCRC: CRC_CHECK with the wrong sum.
    pub const METHODCRC: u32 = 1 << 22;
    /// SEMAPHORE: an operation, reduction or alignment that is not supported.
    pub const SEMAPHORE: u32 = 1 << 25;
}

pub(super) const METHODS: &[MethodDef] = &[
    method(SET_OBJECT, "SET_OBJECT"),
    method(ILLEGAL, "ILLEGAL"),
    method(NOP, "NOP"),
    masked(SEMAPHORE_A, 0xff, "SEMAPHOREA"),
    method(SEMAPHORE_B, "SEMAPHOREB"),
    method(SEMAPHORE_C, "SEMAPHOREC"),
    method(SEMAPHORE_D, "SEMAPHORED"),
    method(NON_STALL_INTERRUPT, "NON_STALL_INTERRUPT"),
    method(FB_FLUSH, "FB_FLUSH"),
    method(MEM_OP_A, "MEM_OP_A"),
    method(MEM_OP_B, "MEM_OP_B"),
    method(MEM_OP_C, "MEM_OP_C"),
    method(MEM_OP_D, "MEM_OP_D"),
    method(SET_REFERENCE, "SET_REFERENCE"),
    method(SEM_ADDR_LO, "SEM_ADDR_LO"),
    masked(SEM_ADDR_HI, 0x01ff_ffff, "SEM_ADDR_HI"),
    method(SEM_PAYLOAD_LO, "SEM_PAYLOAD_LO"),
    method(SEM_PAYLOAD_HI, "SEM_PAYLOAD_HI"),
    method(SEM_EXECUTE, "SEM_EXECUTE"),
    masked(WFI, 1, "WFI"),
    method(CRC_CHECK, "CRC_CHECK"),
    masked(YIELD, 3, "YIELD"),
    masked(CLEAR_FAULTED, 0x8000_0fff, "CLEAR_FAULTED"),
];
