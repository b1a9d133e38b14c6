//! How what GSP keeps is written down: a header with version, length and checksum, then numbers in a row,
//! little end first.
//!
//! The checksum tells memory that was lost from memory that was kept. It is no protection: the guest can
//! compute it, so whatever passes it is checked again, each object as an allocation.

use crate::model::error::SavedError;

/// `GPUVMKSR`.
const MAGIC: u64 = u64::from_le_bytes(*b"GPUVMKSR");
/// Changes with what follows the header.
pub(in crate::model) const VERSION: u32 = 3;
/// Magic, version, 0, length and checksum of what follows.
pub(super) const HEADER: usize = 32;

/// Writes.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    /// All of it, behind its header.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut whole = Vec::with_capacity(HEADER.saturating_add(self.0.len()));
        whole.extend(MAGIC.to_le_bytes());
        whole.extend(VERSION.to_le_bytes());
        whole.extend(0u32.to_le_bytes());
        // CAST: widening.
        whole.extend((self.0.len() as u64).to_le_bytes());
        whole.extend(checksum(&self.0).to_le_bytes());
        whole.extend(self.0);
        whole
    }
}

/// What a header says: length and checksum of what follows.
pub(super) fn header(raw: &[u8; HEADER]) -> Result<(u64, u64), SavedError> {
    let mut reader = Reader(raw);
    let (magic, version, _) = (reader.u64()?, reader.u32()?, reader.u32()?);
    if magic != MAGIC {
        return Err(SavedError::NoState);
    }
    if version != VERSION {
        return Err(SavedError::Version(version));
    }
    Ok((reader.u64()?, reader.u64()?))
}

/// FNV-1a.
pub(super) fn checksum(data: &[u8]) -> u64 {
    data.iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Reads.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    fn take<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], SavedError> {
        let (value, rest) = self.0.split_first_chunk().ok_or(SavedError::Short)?;
        self.0 = rest;
        Ok(*value)
    }

    pub(super) fn u8(&mut self) -> Result<u8, SavedError> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, SavedError> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, SavedError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, SavedError> {
        self.take().map(u64::from_le_bytes)
    }

    /// True when there is nothing left.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
