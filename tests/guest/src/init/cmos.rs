//! How often this machine has booted, kept in a byte of its CMOS memory, which a reset leaves alone.

use std::fs::File;
use std::io::{Read, Result, Seek, SeekFrom, Write};

/// Ports of the CMOS memory: the index, and the byte it selects.
const INDEX_PORT: u64 = 0x70;
const DATA_PORT: u64 = 0x71;
/// A byte that neither firmware nor kernel uses.
const BYTE: u8 = 0x7e;

/// Counts this boot; 1 for the first. Without access to the memory every boot is the first.
pub fn count_boot() -> u8 {
    let count = read().unwrap_or(0).saturating_add(1);
    let _ = write(count);
    count
}

/// Forgets the count, for the next start of the same machine.
pub fn forget() {
    let _ = write(0);
}

fn select() -> Result<File> {
    let mut ports = File::options().read(true).write(true).open("/dev/port")?;
    ports.seek(SeekFrom::Start(INDEX_PORT))?;
    ports.write_all(&[BYTE])?;
    ports.seek(SeekFrom::Start(DATA_PORT))?;
    Ok(ports)
}

fn read() -> Result<u8> {
    let mut byte = [0];
    select()?.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn write(value: u8) -> Result<()> {
    select()?.write_all(&[value])
}
