//! Registers that every falcon microcontroller has, as offsets from the falcon's base. The units that contain
//! falcons (PMU, PCE0, PCE1, FECS, GPCCS) list them at their absolute places.

/// Interrupts to raise.
pub const INTR_SET: u32 = 0x000;
/// Interrupts to clear.
pub const INTR_CLEAR: u32 = 0x004;
/// Interrupts pending.
pub const INTR: u32 = 0x008;
/// Interrupts to enable.
pub const INTR_EN_SET: u32 = 0x010;
/// Interrupts to disable.
pub const INTR_EN_CLEAR: u32 = 0x014;
/// Interrupts enabled.
pub const INTR_EN: u32 = 0x018;
/// Where each interrupt goes.
pub const INTR_DISPATCH: u32 = 0x01c;
/// Which FIFO and context-switch requests the falcon takes.
pub const ACCESS_EN: u32 = 0x048;
/// Busy parts of the falcon.
pub const IDLE_STATE: u32 = 0x04c;
/// Instance block of the channel that the falcon serves.
pub const CHANNEL_CURRENT: u32 = 0x050;
/// Which copy engine this falcon drives.
pub const UNIT_INDEX: u32 = 0x084;
/// Start, halt and reset of the core.
pub const CPU_CONTROL: u32 = 0x100;
/// Entry point of the code.
pub const ENTRY: u32 = 0x104;
/// Sizes of code and data memory.
pub const HW_CONFIG: u32 = 0x108;
/// Scrubbing and DMA state.
pub const DMA_CONTROL: u32 = 0x10c;
/// Core version.
pub const HW_CONFIG_2: u32 = 0x12c;
/// Code memory: position of the upload port (bits 23:2), auto-increment on write (24) and on read (25).
pub const CODE_INDEX: u32 = 0x180;
/// Code memory: word at the position.
pub const CODE_DATA: u32 = 0x184;
/// Code memory: virtual page of the 256 bytes at the position.
pub const CODE_TAG: u32 = 0x188;
/// Data memory: position of the upload port, in the same form.
pub const DATA_INDEX: u32 = 0x1c0;
/// Data memory: word at the position.
pub const DATA_DATA: u32 = 0x1c4;

/// CPU_CONTROL: start the core.
pub const START: u32 = 1 << 1;
/// CPU_CONTROL: the core is halted.
pub const HALTED: u32 = 1 << 4;
/// INDEX: advance after a write.
pub const INCREMENT_ON_WRITE: u32 = 1 << 24;
/// INDEX: advance after a read.
pub const INCREMENT_ON_READ: u32 = 1 << 25;
