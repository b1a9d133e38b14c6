//! Class c86f, HOPPER_CHANNEL_GPFIFO_A: what the host unit executes itself, whatever the subchannel.
//!
//! Hopper's header lists only the newest of these; the others are Volta's (`clc36f.h`), which nouveau uses.

use super::{MethodDef, masked, method};
use crate::stream;

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
/// Operand of [`MEM_OP_D`](const@MEM_OP_D).
pub const MEM_OP_A: u16 = 0x28;
/// Operand of [`MEM_OP_D`](const@MEM_OP_D).
pub const MEM_OP_B: u16 = 0x2c;
/// Operand of [`MEM_OP_D`](const@MEM_OP_D).
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
/// Value to compare or to write, high word.
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

crate::fields! {
    /// Fields of [`SET_OBJECT`](const@SET_OBJECT).
    SET_OBJECT { 15:0 NVCLASS }
    /// Fields of [`SEMAPHORE_A`](const@SEMAPHORE_A).
    SEMAPHORE_A { 7:0 OFFSET_UPPER }
    /// Fields of [`SEMAPHORE_B`](const@SEMAPHORE_B).
    SEMAPHORE_B { 31:2 OFFSET_LOWER }
    /// Fields of [`SEMAPHORE_D`](const@SEMAPHORE_D).
    SEMAPHORE_D {
        /// Where SEM_EXECUTE has it, with the same meaning.
        31:31 FORMAT,
        /// The same.
        30:27 REDUCTION,
        /// Four bytes; clear: 16 with the time in the upper half.
        24:24 RELEASE_SIZE,
        4:0 OPERATION = {
            /// Wait for equality.
            ACQUIRE: 1,
            /// Write.
            RELEASE: 2,
            /// Wait until the value minus the payload is not negative.
            ACQ_GEQ: 4,
            /// Wait until value and payload share a set bit.
            ACQ_AND: 8,
            /// Read, combine and write.
            REDUCTION: 0x10,
        }
    }
    /// Fields of [`MEM_OP_A`](const@MEM_OP_A), of an invalidation of translations.
    MEM_OP_A {
        /// Address bits 31:12. The bits below the size do not count.
        31:12 TLB_INVALIDATE_TARGET_ADDR_LO,
        /// log2 of pages of 4 KiB.
        5:0 TLB_INVALIDATE_INVALIDATION_SIZE
    }
    /// Fields of [`MEM_OP_C`](const@MEM_OP_C), of an invalidation of translations.
    MEM_OP_C {
        31:12 TLB_INVALIDATE_PDB_ADDR_LO,
        11:10 TLB_INVALIDATE_PDB_APERTURE = {
            VID_MEM: 0,
            SYS_MEM_COHERENT: 2,
            SYS_MEM_NONCOHERENT: 3,
        },
        /// What becomes of accesses that faulted.
        4:2 TLB_INVALIDATE_REPLAY = {
            NONE: 0,
            START: 1,
            START_ACK_ALL: 2,
            /// This and higher values end accesses that faulted, and invalidate nothing.
            CANCEL_TARGETED: 3,
        },
        /// Every page directory's translations go; clear: one's.
        0:0 TLB_INVALIDATE_PDB
    }
    /// Fields of [`MEM_OP_D`](const@MEM_OP_D).
    MEM_OP_D {
        /// Bits 58:32 of the page directory's address.
        26:0 TLB_INVALIDATE_PDB_ADDR_HI,
        31:27 OPERATION = {
            MEMBAR: 0x05,
            MMU_TLB_INVALIDATE: 0x09,
            /// Of a range of addresses.
            MMU_TLB_INVALIDATE_TARGETED: 0x0a,
            L2_PEERMEM_INVALIDATE: 0x0d,
            L2_SYSMEM_INVALIDATE: 0x0e,
            L2_CLEAN_COMPTAGS: 0x0f,
            L2_FLUSH_DIRTY: 0x10,
            L2_WAIT_FOR_SYS_PENDING_READS: 0x15,
            ACCESS_COUNTER_CLR: 0x16,
        }
    }
    /// Fields of [`SEM_ADDR_LO`](const@SEM_ADDR_LO).
    SEM_ADDR_LO { 31:2 OFFSET }
    /// Fields of [`SEM_ADDR_HI`](const@SEM_ADDR_HI).
    SEM_ADDR_HI { 24:0 OFFSET }
    /// Fields of [`SEM_EXECUTE`](const@SEM_EXECUTE).
    SEM_EXECUTE {
        /// The reduction is unsigned; clear: signed.
        31:31 REDUCTION_FORMAT,
        /// Which reduction is carried out.
        30:27 REDUCTION,
        /// The time follows in the upper half of 16 bytes.
        25:25 RELEASE_TIMESTAMP,
        /// The value has 64 bits; clear: 32.
        24:24 PAYLOAD_SIZE,
        /// A release waits until all earlier work is done.
        20:20 RELEASE_WFI,
        2:0 OPERATION = {
            /// Wait for equality.
            ACQUIRE: 0,
            /// Write.
            RELEASE: 1,
            /// Wait until the value is at least the payload, unsigned.
            ACQ_STRICT_GEQ: 2,
            /// Wait until the value minus the payload is not negative.
            ACQ_CIRC_GEQ: 3,
            /// Wait until value and payload share a set bit.
            ACQ_AND: 4,
            /// Wait until value and payload share a clear bit.
            ACQ_NOR: 5,
            /// Read, combine and write.
            REDUCTION: 6,
        }
    }
    /// Fields of [`YIELD`](const@YIELD).
    YIELD {
        1:0 OP = {
            NOP: 0,
            /// Gives the rest of the timeslice away.
            RUNLIST_TIMESLICE: 2,
            /// Gives the PBDMA to the next channel of the group.
            TSG: 3,
        }
    }
    /// The first word of a GPFIFO entry without words that is
    /// [`SET_PB_SEGMENT_EXTENDED_BASE`](crate::stream::GP_ENTRY1::OPCODE::SET_PB_SEGMENT_EXTENDED_BASE).
    GP_ENTRY0 { 24:8 PB_EXTENDED_BASE_OPERAND }
    /// Interrupts of a PBDMA.
    NV_PPBDMA_INTR_0 {
        /// An operation, reduction or alignment that is not supported.
        25:25 SEMAPHORE,
        /// CRC_CHECK with the wrong sum.
        22:22 METHODCRC,
        /// One that the unit does not have, or not for this channel.
        21:21 METHOD,
        /// A ring entry is malformed.
        15:15 GPENTRY
    }
}

/// The address bits 56:40 that a GPFIFO entry sets for segments that follow, if it does.
pub fn segment_base(entry: u64) -> Option<u64> {
    let [a, b, c, d, ..] = entry.to_le_bytes();
    let base = GP_ENTRY0::PB_EXTENDED_BASE_OPERAND.get(u32::from_le_bytes([a, b, c, d]));
    let sets = stream::opcode(entry) == stream::GP_ENTRY1::OPCODE::SET_PB_SEGMENT_EXTENDED_BASE;
    sets.then_some(u64::from(base) << 40)
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
