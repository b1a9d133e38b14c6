//! The table of a function's messages (MSI-X), as its driver writes it. A front end reads it and has messages
//! sent where it says; here it is memory, but for the bits that are not the driver's.

use gpuvmk_pci::header::MSIX_ENTRY;

/// Bytes of an entry.
const ENTRY: usize = 16;
const _: () = assert!(ENTRY as u64 == MSIX_ENTRY);
/// In an entry, where its mask is, and the only bit there that is stored.
const CONTROL: usize = 12;
const MASKED: u8 = 1;

/// The table.
#[derive(Clone, Debug)]
pub(super) struct MsixTable(Vec<[u8; ENTRY]>);

impl MsixTable {
    /// Of that many messages, all masked.
    pub(super) fn new(vectors: u16) -> Self {
        let mut entry = [0; ENTRY];
        entry[CONTROL] = MASKED;
        Self(vec![entry; vectors.into()])
    }

    /// All as new.
    pub(super) fn reset(&mut self) {
        *self = Self::new(u16::try_from(self.0.len()).unwrap_or(u16::MAX));
    }

    /// Reads; what lies behind is 0.
    pub(super) fn read(&self, offset: u64, data: &mut [u8]) {
        let bytes = self.0.as_flattened();
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        data.fill(0);
        for (byte, value) in data.iter_mut().zip(bytes.iter().skip(at)) {
            *byte = *value;
        }
    }

    /// Writes; what lies behind is lost.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        for (place, byte) in self.0.as_flattened_mut().iter_mut().skip(at).zip(data) {
            *place = *byte;
        }
        for entry in &mut self.0 {
            let [.., mask, a, b, c] = entry;
            (*mask, *a, *b, *c) = (*mask & MASKED, 0, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_masked_until_the_driver_says_otherwise() {
        let mut table = MsixTable::new(2);
        let mut entry = [0; 16];
        table.read(16, &mut entry);
        assert_eq!(entry, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        table.write(16, &0xfee0_1000_u64.to_le_bytes());
        table.write(24, &[0x41, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff]);
        table.read(16, &mut entry);
        assert_eq!(entry, [0, 0x10, 0xe0, 0xfe, 0, 0, 0, 0, 0x41, 0, 0, 0, 0, 0, 0, 0]);
        table.write(30, &[0xff; 8]);
        table.write(u64::MAX, &[0xff]);
        table.read(32, &mut entry);
        assert_eq!(entry, [0; 16], "nothing is behind the last one");
        table.reset();
        table.read(16, &mut entry);
        assert_eq!(entry[12], 1);
    }
}
