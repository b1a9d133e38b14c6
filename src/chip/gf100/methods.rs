//! Classes of GF100 and their methods: what a command stream can say, as data.
//!
//! Methods below 0x100 belong to the host unit (PBDMA), whatever is bound. Names follow envytools
//! (`rnndb/fifo`, `rnndb/graph`) and open-gpu-doc (`classes/host`, `classes/compute`).
//!
//! Not listed: most of the 3D and 2D state, which nothing here interprets.

use crate::methods::{find, masked, method, run};

pub use crate::methods::{ClassDef, MethodDef};

/// Methods of the host unit, of all subchannels.
pub mod host {
    use super::{MethodDef, method};

    /// Binds an object to the subchannel. Goes on to the engine.
    pub const SET_OBJECT: u16 = 0x00;
    /// Raises an error.
    pub const ILLEGAL: u16 = 0x04;
    /// Does nothing.
    pub const NOP: u16 = 0x08;
    /// Semaphore address bits 39:32.
    pub const SEMAPHORE_A: u16 = 0x10;
    /// Semaphore address bits 31:2.
    pub const SEMAPHORE_B: u16 = 0x14;
    /// Value to wait for or to write.
    pub const SEMAPHORE_C: u16 = 0x18;
    /// Acquires or releases.
    pub const SEMAPHORE_D: u16 = 0x1c;
    /// Notifies the driver without stopping the channel.
    pub const NON_STALL_INTERRUPT: u16 = 0x20;
    /// Makes writes visible in memory.
    pub const FB_FLUSH: u16 = 0x24;
    /// Operand of [`MEM_OP_B`].
    pub const MEM_OP_A: u16 = 0x28;
    /// Cache and TLB maintenance.
    pub const MEM_OP_B: u16 = 0x2c;
    /// Sets the reference count.
    pub const SET_REFERENCE: u16 = 0x50;
    /// Waits until the engine is idle.
    pub const WFI: u16 = 0x78;
    /// Checks the sum of the command stream; anything but 0 is an error.
    pub const CRC_CHECK: u16 = 0x7c;
    /// Gives the PBDMA to another channel.
    pub const YIELD: u16 = 0x80;
    /// First method that goes to the engine.
    pub const ENGINE_METHODS: u16 = 0x100;

    crate::fields! {
        /// Fields of [`SET_OBJECT`](const@SET_OBJECT). ENGINE is a number of [`super::super::engines`].
        SET_OBJECT { 20:16 ENGINE, 15:0 NVCLASS }
        /// Fields of [`SEMAPHORE_A`](const@SEMAPHORE_A).
        SEMAPHORE_A { 7:0 OFFSET_UPPER }
        /// Fields of [`SEMAPHORE_B`](const@SEMAPHORE_B).
        SEMAPHORE_B { 31:2 OFFSET_LOWER }
        /// Fields of [`SEMAPHORE_D`](const@SEMAPHORE_D).
        SEMAPHORE_D {
            /// A release writes four bytes; clear: 16 bytes with a timestamp in the upper eight.
            24:24 RELEASE_SIZE,
            3:0 OPERATION = {
                /// Wait for equality.
                ACQUIRE: 1,
                /// Write.
                RELEASE: 2,
                /// Wait until the value, as a signed distance, is reached.
                ACQ_GEQ: 4,
                /// Wait until a bit of the mask is set.
                ACQ_AND: 8,
            }
        }
    }

    pub(super) const METHODS: &[MethodDef] = &[
        method(SET_OBJECT, "SET_OBJECT"),
        method(ILLEGAL, "ILLEGAL"),
        method(NOP, "NOP"),
        method(SEMAPHORE_A, "SEMAPHORE_A"),
        method(SEMAPHORE_B, "SEMAPHORE_B"),
        method(SEMAPHORE_C, "SEMAPHORE_C"),
        method(SEMAPHORE_D, "SEMAPHORE_D"),
        method(NON_STALL_INTERRUPT, "NON_STALL_INTERRUPT"),
        method(FB_FLUSH, "FB_FLUSH"),
        method(MEM_OP_A, "MEM_OP_A"),
        method(MEM_OP_B, "MEM_OP_B"),
        method(SET_REFERENCE, "SET_REFERENCE"),
        method(WFI, "WFI"),
        method(CRC_CHECK, "CRC_CHECK"),
        method(YIELD, "YIELD"),
    ];
}

/// Methods that every graphics class has.
pub mod graphics {
    use super::{MethodDef, method, run};

    /// Does nothing.
    pub const NOP: u16 = 0x100;
    /// Notifier address bits 39:32.
    pub const NOTIFY_ADDRESS_HIGH: u16 = 0x104;
    /// Notifier address bits 31:0.
    pub const NOTIFY_ADDRESS_LOW: u16 = 0x108;
    /// Writes the notifier; 1 also notifies the driver.
    pub const NOTIFY: u16 = 0x10c;

    crate::fields! {
        /// Fields of [`NOTIFY_ADDRESS_HIGH`](const@NOTIFY_ADDRESS_HIGH).
        NOTIFY_ADDRESS_HIGH { 7:0 OFFSET_UPPER }
        /// Fields of [`NOTIFY`](const@NOTIFY).
        NOTIFY { 0:0 AWAKEN }
    }

    pub(super) const METHODS: &[MethodDef] = &[
        method(NOP, "NOP"),
        method(NOTIFY_ADDRESS_HIGH, "NOTIFY_ADDRESS_HIGH"),
        method(NOTIFY_ADDRESS_LOW, "NOTIFY_ADDRESS_LOW"),
        method(NOTIFY, "NOTIFY"),
        method(0x110, "SERIALIZE"),
        method(0x114, "MACRO_CODE_POS"),
        method(0x118, "MACRO_CODE_DATA"),
        method(0x11c, "MACRO_ENTRY_POS"),
        method(0x120, "MACRO_ENTRY_DATA"),
        method(0x130, "COND_MASTER_ADDRESS_HIGH"),
        method(0x134, "COND_MASTER_ADDRESS_LOW"),
        method(0x138, "COND_MASTER_MODE"),
        method(0x140, "PM_TRIGGER"),
        run(0x3400, 0x80, "SCRATCH"),
    ];
}

/// Class 9039: copies memory, linear or in blocks, or from the command stream.
pub mod m2mf {
    use super::{MethodDef, method, run};

    /// Number of the class.
    pub const CLASS: u16 = crate::nv::classes::FERMI_MEMORY_TO_MEMORY_FORMAT_A.method_class();
    /// Block shape of the source.
    pub const TILING_MODE_IN: u16 = 0x204;
    /// Block shape of the target.
    pub const TILING_MODE_OUT: u16 = 0x220;
    /// Target address bits 39:32.
    pub const OFFSET_OUT_HIGH: u16 = 0x238;
    /// Target address bits 31:0.
    pub const OFFSET_OUT_LOW: u16 = 0x23c;
    /// Starts the copy.
    pub const EXEC: u16 = 0x300;
    /// Data for an EXEC from the command stream.
    pub const DATA: u16 = 0x304;
    /// Source address bits 39:32.
    pub const OFFSET_IN_HIGH: u16 = 0x30c;
    /// Source address bits 31:0.
    pub const OFFSET_IN_LOW: u16 = 0x310;
    /// Bytes from a source line to the next, signed.
    pub const PITCH_IN: u16 = 0x314;
    /// Bytes from a target line to the next, signed.
    pub const PITCH_OUT: u16 = 0x318;
    /// Number of bytes of a line.
    pub const LINE_LENGTH_IN: u16 = 0x31c;
    /// Number of lines.
    pub const LINE_COUNT: u16 = 0x320;
    /// Query address bits 39:32.
    pub const QUERY_ADDRESS_HIGH: u16 = 0x32c;
    /// Query address bits 31:0.
    pub const QUERY_ADDRESS_LOW: u16 = 0x330;
    /// Value that a query writes.
    pub const QUERY_SEQUENCE: u16 = 0x334;
    /// First source byte in a line of blocks.
    pub const TILING_POSITION_IN_X: u16 = 0x344;
    /// First target byte in a line of blocks.
    pub const TILING_POSITION_OUT_X: u16 = 0x34c;

    crate::fields! {
        /// Fields of [`TILING_MODE_IN`](const@TILING_MODE_IN) and [`TILING_MODE_OUT`]: log2 of a block's
        /// depth and height.
        TILING_MODE_IN { 10:8 DEPTH, 6:4 HEIGHT }
        /// Fields of [`OFFSET_IN_HIGH`](const@OFFSET_IN_HIGH) and of the other addresses' upper words.
        OFFSET_IN_HIGH { 7:0 OFFSET_UPPER }
        /// Fields of [`EXEC`](const@EXEC).
        EXEC {
            /// The query writes four bytes instead of 16.
            20:20 QUERY_SHORT,
            /// Anything but 0 notifies the driver afterwards.
            17:16 INTERRUPT,
            13:12 QUERY = {
                /// The query is written afterwards.
                WRITE: 2,
            },
            /// The target has a pitch; clear: it is made of blocks.
            8:8 LINEAR_OUT,
            /// The source has a pitch; clear: it is made of blocks.
            4:4 LINEAR_IN,
            /// The data comes from the command stream.
            0:0 PUSH
        }
    }

    pub(super) const METHODS: &[MethodDef] = &[
        run(TILING_MODE_IN, 5, "TILING_IN"),
        run(TILING_MODE_OUT, 5, "TILING_OUT"),
        method(OFFSET_OUT_HIGH, "OFFSET_OUT_HIGH"),
        method(OFFSET_OUT_LOW, "OFFSET_OUT_LOW"),
        run(0x240, 15, "UNK0240"),
        run(0x27c, 0x20, "FIRMWARE"),
        method(0x2fc, "UNK02FC"),
        method(EXEC, "EXEC"),
        method(DATA, "DATA"),
        method(0x308, "UNK0308"),
        method(OFFSET_IN_HIGH, "OFFSET_IN_HIGH"),
        method(OFFSET_IN_LOW, "OFFSET_IN_LOW"),
        method(PITCH_IN, "PITCH_IN"),
        method(PITCH_OUT, "PITCH_OUT"),
        method(LINE_LENGTH_IN, "LINE_LENGTH_IN"),
        method(LINE_COUNT, "LINE_COUNT"),
        method(QUERY_ADDRESS_HIGH, "QUERY_ADDRESS_HIGH"),
        method(QUERY_ADDRESS_LOW, "QUERY_ADDRESS_LOW"),
        method(QUERY_SEQUENCE, "QUERY_SEQUENCE"),
        method(0x338, "COND_ADDRESS_HIGH"),
        method(0x33c, "COND_ADDRESS_LOW"),
        method(0x340, "COND_MODE"),
        run(TILING_POSITION_IN_X, 2, "TILING_POSITION_IN"),
        run(TILING_POSITION_OUT_X, 2, "TILING_POSITION_OUT"),
    ];
}

/// Queries of the 3D and compute classes.
pub mod query {
    use super::{MethodDef, method};

    /// Address bits 39:32.
    pub const ADDRESS_HIGH: u16 = 0x1b00;
    /// Address bits 31:0.
    pub const ADDRESS_LOW: u16 = 0x1b04;
    /// Value to write.
    pub const SEQUENCE: u16 = 0x1b08;
    /// Writes the report.
    pub const GET: u16 = 0x1b0c;

    crate::fields! {
        /// Fields of [`ADDRESS_HIGH`](const@ADDRESS_HIGH).
        ADDRESS_HIGH { 7:0 OFFSET_UPPER }
        /// Fields of [`GET`](const@GET).
        GET {
            /// Four bytes instead of 16 with a timestamp.
            28:28 SHORT,
            /// The counter to report; 0 is the sequence itself.
            27:23 SELECT,
            /// Notifies the driver too.
            20:20 INTERRUPT,
            1:0 MODE = {
                /// Waits instead of writing.
                SYNC: 1,
            }
        }
    }

    pub(super) const METHODS: &[MethodDef] = &[
        method(ADDRESS_HIGH, "QUERY_ADDRESS_HIGH"),
        method(ADDRESS_LOW, "QUERY_ADDRESS_LOW"),
        method(SEQUENCE, "QUERY_SEQUENCE"),
        method(GET, "QUERY_GET"),
    ];
}

/// Classes 90b5 and 90b8: the copy engines, as the falcon firmware of nouveau defines them
/// (`nvkm/engine/ce/fuc/com.fuc`).
pub mod pcopy {
    use super::{MethodDef, masked, method};

    /// Copy engine 0.
    pub const CLASS_COPY0: u16 = crate::nv::classes::FERMI_DMA.method_class();
    /// Copy engine 1 (FERMI_DECOMPRESS).
    pub const CLASS_COPY1: u16 = crate::nv::classes::FERMI_DECOMPRESS.method_class();

    /// Does nothing.
    pub const NOP: u16 = 0x100;
    /// Does nothing that software can see.
    pub const PM_TRIGGER: u16 = 0x140;
    /// Block shape of the source: log2 of width, height and depth over a GOB, four bits each.
    pub const SRC_TILE_MODE: u16 = 0x200;
    /// Block shape of the target.
    pub const DST_TILE_MODE: u16 = 0x220;
    /// Starts the copy.
    pub const EXEC: u16 = 0x300;
    /// Makes writes visible in memory.
    pub const WRCACHE_FLUSH: u16 = 0x304;
    /// Source address bits 39:32.
    pub const SRC_ADDRESS_HIGH: u16 = 0x30c;
    /// Source address bits 31:0.
    pub const SRC_ADDRESS_LOW: u16 = 0x310;
    /// Target address bits 39:32.
    pub const DST_ADDRESS_HIGH: u16 = 0x314;
    /// Target address bits 31:0.
    pub const DST_ADDRESS_LOW: u16 = 0x318;
    /// Bytes from a source line to the next.
    pub const SRC_PITCH: u16 = 0x31c;
    /// Bytes from a target line to the next.
    pub const DST_PITCH: u16 = 0x320;
    /// Number of bytes of a line.
    pub const X_COUNT: u16 = 0x324;
    /// Number of lines.
    pub const Y_COUNT: u16 = 0x328;
    /// Query address bits 39:32.
    pub const QUERY_ADDRESS_HIGH: u16 = 0x338;
    /// Query address bits 31:0.
    pub const QUERY_ADDRESS_LOW: u16 = 0x33c;
    /// Value that a query writes.
    pub const QUERY_COUNTER: u16 = 0x340;

    crate::fields! {
        /// Fields of [`SRC_TILE_MODE`](const@SRC_TILE_MODE) and [`DST_TILE_MODE`] that this GPU has: shapes
        /// up to 128 GOBs.
        SRC_TILE_MODE { 10:8 DEPTH, 6:4 HEIGHT }
        /// Fields of [`EXEC`](const@EXEC).
        EXEC {
            /// The query writes four bytes instead of 16.
            13:13 QUERY_SHORT,
            /// The query is written afterwards.
            12:12 QUERY,
            /// The target has a pitch; clear: it is made of blocks.
            8:8 DST_LINEAR,
            /// The source has a pitch; clear: it is made of blocks.
            4:4 SRC_LINEAR,
            /// Components are swizzled.
            0:0 FORMAT
        }
    }

    /// Methods that are stored, in the order of the firmware's context, with the bits that it allows.
    pub const STATE: &[MethodDef] = &[
        masked(SRC_TILE_MODE, 0xfff, "SRC_TILE_MODE"),
        masked(0x204, 0x7ffff, "SRC_XSIZE"),
        masked(0x208, 0x1fff, "SRC_YSIZE"),
        masked(0x20c, 0x7ff, "SRC_ZSIZE"),
        masked(0x210, 0xfff, "SRC_ZOFF"),
        masked(0x214, 0x7ffff, "SRC_XOFF"),
        masked(0x218, 0x1fff, "SRC_YOFF"),
        masked(DST_TILE_MODE, 0xfff, "DST_TILE_MODE"),
        masked(0x224, 0x7ffff, "DST_XSIZE"),
        masked(0x228, 0x1fff, "DST_YSIZE"),
        masked(0x22c, 0x7ff, "DST_ZSIZE"),
        masked(0x230, 0xfff, "DST_ZOFF"),
        masked(0x234, 0x7ffff, "DST_XOFF"),
        masked(0x238, 0x1fff, "DST_YOFF"),
        masked(SRC_ADDRESS_HIGH, 0xff, "SRC_ADDRESS_HIGH"),
        method(SRC_ADDRESS_LOW, "SRC_ADDRESS_LOW"),
        masked(DST_ADDRESS_HIGH, 0xff, "DST_ADDRESS_HIGH"),
        method(DST_ADDRESS_LOW, "DST_ADDRESS_LOW"),
        masked(SRC_PITCH, 0x7ffff, "SRC_PITCH"),
        masked(DST_PITCH, 0x7ffff, "DST_PITCH"),
        masked(X_COUNT, 0xffff, "X_COUNT"),
        masked(Y_COUNT, 0x1fff, "Y_COUNT"),
        masked(0x32c, 0x0333_ffff, "FORMAT"),
        method(0x330, "SWIZZLE_CONST0"),
        method(0x334, "SWIZZLE_CONST1"),
        masked(QUERY_ADDRESS_HIGH, 0xff, "QUERY_ADDRESS_HIGH"),
        method(QUERY_ADDRESS_LOW, "QUERY_ADDRESS_LOW"),
        method(QUERY_COUNTER, "QUERY_COUNTER"),
    ];
}

/// Class 902d: two-dimensional drawing.
pub const CLASS_2D: u16 = crate::nv::classes::FERMI_TWOD_A.method_class();
/// Class 9097: three-dimensional drawing.
pub const CLASS_3D: u16 = crate::nv::classes::FERMI_A.method_class();
/// Class 90c0: compute.
pub const CLASS_COMPUTE: u16 = crate::nv::classes::FERMI_COMPUTE_A.method_class();
/// Class 906e: executed by the driver.
pub const CLASS_SOFTWARE: u16 = 0x906e;
/// Class 906f: the channel itself.
pub const CLASS_HOST: u16 = crate::nv::classes::FERMI_CHANNEL_GPFIFO.method_class();

/// The classes, in ascending order.
pub const CLASSES: &[ClassDef] = &[
    ClassDef { class: CLASS_2D, name: "GF100_2D", methods: &[] },
    ClassDef { class: m2mf::CLASS, name: "GF100_M2MF", methods: m2mf::METHODS },
    ClassDef { class: CLASS_SOFTWARE, name: "GF100_SW", methods: &[] },
    ClassDef { class: CLASS_HOST, name: "GF100_CHANNEL_GPFIFO", methods: host::METHODS },
    ClassDef { class: CLASS_3D, name: "GF100_3D", methods: query::METHODS },
    ClassDef { class: pcopy::CLASS_COPY0, name: "FERMI_DMA", methods: pcopy::STATE },
    ClassDef { class: pcopy::CLASS_COPY1, name: "FERMI_DECOMPRESS", methods: pcopy::STATE },
    ClassDef { class: CLASS_COMPUTE, name: "GF100_COMPUTE", methods: query::METHODS },
];

/// The class with this number.
pub fn class(number: u16) -> Option<&'static ClassDef> {
    CLASSES.iter().find(|class| class.class == number)
}

/// What a method of an object of class `number` is, by the tables.
pub fn lookup(number: u16, method: u16) -> Option<&'static MethodDef> {
    if method < host::ENGINE_METHODS {
        return find(host::METHODS, method);
    }
    let graphics = matches!(number, CLASS_2D | m2mf::CLASS | CLASS_3D | CLASS_COMPUTE);
    let common = if graphics { find(graphics::METHODS, method) } else { None };
    common.or_else(|| find(class(number)?.methods, method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_do_not_overlap() {
        let tables = [host::METHODS, graphics::METHODS, m2mf::METHODS, query::METHODS, pcopy::STATE];
        for table in tables {
            for pair in table.windows(2) {
                assert!(pair[0].method + 4 * pair[0].count <= pair[1].method, "{pair:?}");
            }
        }
        assert!(CLASSES.is_sorted_by_key(|class| class.class));
    }

    #[test]
    fn methods_are_found_by_class() {
        assert_eq!(lookup(m2mf::CLASS, 0x300).map(|def| def.name), Some("EXEC"));
        assert_eq!(lookup(m2mf::CLASS, 0x214).map(|def| def.name), Some("TILING_IN"));
        assert_eq!(lookup(m2mf::CLASS, 0x218), None);
        assert_eq!(lookup(CLASS_3D, 0x10c).map(|def| def.name), Some("NOTIFY"));
        assert_eq!(lookup(pcopy::CLASS_COPY0, 0x10c), None);
        assert_eq!(lookup(CLASS_COMPUTE, 0x1c).map(|def| def.name), Some("SEMAPHORE_D"));
    }
}
