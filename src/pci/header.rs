//! The configuration header of a function as a bus reads it, for front ends.

use super::{PciFunction, Region};

/// Command register.
pub const COMMAND: u64 = 0x04;
/// First base address register; the others follow.
pub const BAR0: u64 = 0x10;
/// [`COMMAND`]: I/O BARs decode.
pub const COMMAND_IO: u16 = 1 << 0;
/// [`COMMAND`]: memory BARs decode.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// Capability id of MSI.
pub const MSI: u8 = 0x05;
/// Capability id of MSI-X.
pub const MSIX: u8 = 0x11;

const STATUS: u64 = 0x06;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const FIRST_CAPABILITY: u64 = 0x34;
const INTERRUPT_PIN: u64 = 0x3d;
/// Capabilities lie behind the header.
const HEADER_END: u8 = 0x40;
/// No chain of capabilities has more links than there is room for.
const MOST_CAPABILITIES: usize = 48;

/// A byte; 0 where the function does not answer.
pub fn byte(function: &dyn PciFunction, offset: u64) -> u8 {
    let mut data = [0];
    function.read(Region::Config, offset, &mut data).map_or(0, |()| data[0])
}

/// A little-endian word of 16 bits; 0 where the function does not answer.
pub fn word(function: &dyn PciFunction, offset: u64) -> u16 {
    let mut data = [0; 2];
    function.read(Region::Config, offset, &mut data).map_or(0, |()| u16::from_le_bytes(data))
}

/// A little-endian word of 32 bits; 0 where the function does not answer.
pub fn dword(function: &dyn PciFunction, offset: u64) -> u32 {
    let mut data = [0; 4];
    function.read(Region::Config, offset, &mut data).map_or(0, |()| u32::from_le_bytes(data))
}

/// True when the function has an INTx line.
pub fn has_line(function: &dyn PciFunction) -> bool {
    byte(function, INTERRUPT_PIN) != 0
}

/// Where a capability lies.
pub fn capability(function: &dyn PciFunction, id: u8) -> Option<u64> {
    if word(function, STATUS) & STATUS_CAPABILITIES == 0 {
        return None;
    }
    let mut at = byte(function, FIRST_CAPABILITY) & !3;
    for _ in 0..MOST_CAPABILITIES {
        if at < HEADER_END {
            break;
        }
        if byte(function, at.into()) == id {
            return Some(at.into());
        }
        at = byte(function, u64::from(at) + 1) & !3;
    }
    None
}

/// Vectors that the MSI capability offers: a power of two up to 32, or 0.
pub fn msi_vectors(function: &dyn PciFunction) -> u32 {
    // Multiple message capable: bits 3:1 of the message control register.
    capability(function, MSI).map_or(0, |at| 1 << (byte(function, at + 2) >> 1 & 7).min(5))
}

/// What an MSI-X capability says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsiX {
    /// Number of vectors, 1 to 2048.
    pub vectors: u16,
    /// The region with the table.
    pub region: Region,
    /// Where in it the table begins: 16 bytes for each vector.
    pub table: u64,
    /// Messages are sent, masked ones later.
    pub enabled: bool,
    /// All vectors are masked.
    pub all_masked: bool,
}

/// Bytes of a vector's entry in an MSI-X table.
pub const MSIX_ENTRY: u64 = 16;

/// The function's MSI-X capability.
pub fn msix(function: &dyn PciFunction) -> Option<MsiX> {
    let at = capability(function, MSIX)?;
    let (control, table) = (word(function, at + 2), dword(function, at + 4));
    let bar = u8::try_from(table & 7).ok().filter(|bar| *bar < 6)?;
    Some(MsiX {
        vectors: (control & 0x7ff) + 1,
        region: Region::Bar(bar),
        table: u64::from(table & !7),
        enabled: control >> 15 & 1 != 0,
        all_masked: control >> 14 & 1 != 0,
    })
}

/// The message of a vector of an MSI-X table; `None` while it is masked.
pub fn msix_message(function: &dyn PciFunction, table: &MsiX, vector: u16) -> Option<Message> {
    let at = table.table.checked_add(MSIX_ENTRY * u64::from(vector))?;
    // An access to a BAR has 8 bytes at most.
    let half = |at: u64| {
        let mut half = [0; 8];
        function.read(table.region, at, &mut half).ok().map(|()| u64::from_le_bytes(half))
    };
    let (address, rest) = (half(at)?, half(at + 8)?);
    let masked = rest >> 32 & 1 != 0;
    // Local APICs take 16 bits of data.
    (!masked).then_some(Message { address, data: u16::try_from(rest & 0xffff).unwrap_or(0) })
}

/// Where an MSI capability sends its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Bus address of the access.
    pub address: u64,
    /// What is written there; vector n adds n.
    pub data: u16,
}

/// The message that the driver has set up, while messages are enabled.
pub fn message(function: &dyn PciFunction) -> Option<Message> {
    const ENABLED: u16 = 1 << 0;
    const WIDE: u16 = 1 << 7;
    let at = capability(function, MSI)?;
    let control = word(function, at + 2);
    if control & ENABLED == 0 {
        return None;
    }
    let low = u64::from(dword(function, at + 4));
    let (high, data) = if control & WIDE == 0 {
        (0, word(function, at + 8))
    } else {
        (u64::from(dword(function, at + 8)), word(function, at + 12))
    };
    Some(Message { address: high << 32 | low, data })
}
