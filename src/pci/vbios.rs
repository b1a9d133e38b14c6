//! A VBIOS image: the expansion ROM that a driver reads to learn what the board is.
//!
//! Real images describe clocks, voltages, connectors and start-up scripts. This one says what a driver needs
//! to come up on a function whose hardware needs no programming: a PCI option ROM with a valid checksum, a
//! BIT ("BIOS information table") with the tokens 'i' (version), 'I' (start-up scripts: none) and 'P'
//! (performance: an empty memory table and a voltage table, without which a Kepler or Maxwell driver fails).
//! A device control block (DCB) says that there are no display outputs; nouveau of Linux 6.1 refuses an image
//! without one.
//!
//! Not handled: display connectors, PLL limits, memory timings, fan and thermal
//! tables, signatures.

/// Bytes of an image.
pub const VBIOS_SIZE: usize = 4096;

/// The board that an image describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardId {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Class, subclass and programming interface, as in `0x030200`.
    pub class: u32,
}

// Places of the parts. Only the first two are fixed by a specification.
const PCIR_POINTER: usize = 0x18;
const DCB_POINTER: usize = 0x36;
const PCIR: usize = 0x40;
const BIT: usize = 0x80;
const TOKEN_VERSION: usize = 0x100;
const TOKEN_INIT: usize = 0x120;
const TOKEN_PERF: usize = 0x140;
const SCRIPT_LIST: usize = 0x180;
const MEMORY_TABLE: usize = 0x190;
const VOLTAGE_TABLE: usize = 0x1b0;
const DCB: usize = 0x1d0;
/// The last byte makes the sum of all zero.
const CHECKSUM: usize = VBIOS_SIZE - 1;

/// Image size in the unit of option ROMs.
const BLOCKS: u16 = 8;
const _: () = assert!(BLOCKS as usize * 512 == VBIOS_SIZE);

/// Length of the PCI data structure.
const PCIR_LENGTH: u16 = 0x18;
const LAST_IMAGE: u8 = 0x80;

/// DCB 4.0: a header with the pointers to further tables, all absent.
const DCB_VERSION: u8 = 0x40;
const DCB_HEADER: u8 = 0x1b;
const DCB_ENTRY: u8 = 8;
const DCB_SIGNATURE: u32 = 0x4edc_bdcb;

const BIT_HEADER: u8 = 12;
const BIT_ENTRY: u8 = 6;

/// Token lengths: shorter ones are refused by drivers.
const VERSION_LENGTH: usize = 0x15;
const INIT_LENGTH: usize = 0x1c;
const PERF_LENGTH: usize = 0x38;

/// Version 0x70.xx is the line of Fermi's images.
const VERSION_MAJOR: u8 = 0x70;

/// Voltage: one entry-less table of the kind that gives a base and a step, in microvolts.
const VOLTAGE_BASE: u32 = 1_000_000;
const VOLTAGE_STEP: u16 = 6_250;

/// An image under construction; places are constants of this file.
struct Image([u8; VBIOS_SIZE]);

impl Image {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (place, byte) in self.0.iter_mut().skip(at).zip(bytes) {
            *place = *byte;
        }
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    /// A pointer to another part of the image.
    fn point16(&mut self, at: usize, target: usize) {
        let [low, high, ..] = target.to_le_bytes();
        self.put(at, &[low, high]);
    }

    fn byte_sum(&self) -> u8 {
        self.0.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte))
    }

    /// PCI option ROM header and data structure.
    fn option_rom(&mut self, board: BoardId) {
        self.put(0, &[0x55, 0xaa]);
        let [blocks, _] = BLOCKS.to_le_bytes();
        self.put(2, &[blocks]);
        self.point16(PCIR_POINTER, PCIR);
        self.put(PCIR, b"PCIR");
        self.put16(PCIR + 0x04, board.vendor);
        self.put16(PCIR + 0x06, board.device);
        self.put16(PCIR + 0x0a, PCIR_LENGTH);
        let [interface, subclass, class, _] = board.class.to_le_bytes();
        self.put(PCIR + 0x0d, &[interface, subclass, class]);
        self.put16(PCIR + 0x10, BLOCKS);
        self.put(PCIR + 0x15, &[LAST_IMAGE]);
    }

    /// The table of tokens.
    fn bit(&mut self) {
        const TOKENS: [(u8, u8, usize, usize); 3] = [
            (b'i', 2, VERSION_LENGTH, TOKEN_VERSION),
            (b'I', 1, INIT_LENGTH, TOKEN_INIT),
            (b'P', 2, PERF_LENGTH, TOKEN_PERF),
        ];
        self.put(BIT, b"\xff\xb8BIT\0");
        self.put(BIT + 6, &[0x00, 0x01, BIT_HEADER, BIT_ENTRY]);
        let mut at = BIT + usize::from(BIT_HEADER);
        let mut count = 0u8;
        for (id, version, length, target) in TOKENS {
            self.put(at, &[id, version]);
            self.point16(at + 2, length);
            self.point16(at + 4, target);
            at += usize::from(BIT_ENTRY);
            count += 1;
        }
        self.put(BIT + 10, &[count]);
        let sum =
            self.0.iter().skip(BIT).take(usize::from(BIT_HEADER)).fold(0u8, |sum, b| sum.wrapping_add(*b));
        self.put(BIT + 11, &[sum.wrapping_neg()]);
    }

    /// A device control block without entries: no outputs.
    fn device_control_block(&mut self) {
        self.point16(DCB_POINTER, DCB);
        self.put(DCB, &[DCB_VERSION, DCB_HEADER, 0, DCB_ENTRY]);
        self.put32(DCB + 6, DCB_SIGNATURE);
    }

    fn tokens(&mut self) {
        self.put(TOKEN_VERSION + 3, &[VERSION_MAJOR]);
        self.point16(TOKEN_INIT, SCRIPT_LIST);
        let [low, high, ..] = MEMORY_TABLE.to_le_bytes();
        self.put32(TOKEN_PERF + 0x04, u32::from_le_bytes([low, high, 0, 0]));
        let [low, high, ..] = VOLTAGE_TABLE.to_le_bytes();
        self.put32(TOKEN_PERF + 0x0c, u32::from_le_bytes([low, high, 0, 0]));
        // Memory configurations: version, header length, and no entries.
        self.put(MEMORY_TABLE, &[0x11, 0x15]);
        // Voltage: version and header length; base and step; no mask of GPIO lines.
        self.put(VOLTAGE_TABLE, &[0x40, 0x12]);
        self.put32(VOLTAGE_TABLE + 0x04, VOLTAGE_BASE);
        self.put16(VOLTAGE_TABLE + 0x08, VOLTAGE_STEP);
    }
}

/// The image of a board.
pub fn build(board: BoardId) -> Box<[u8; VBIOS_SIZE]> {
    let mut image = Image([0; VBIOS_SIZE]);
    image.option_rom(board);
    image.bit();
    image.tokens();
    image.device_control_block();
    let sum = image.byte_sum();
    image.put(CHECKSUM, &[sum.wrapping_neg()]);
    Box::new(image.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOARD: BoardId = BoardId { vendor: 0x10de, device: 0x06c0, class: 0x03_02_00 };

    fn word(image: &[u8], at: usize) -> u16 {
        u16::from_le_bytes([image[at], image[at + 1]])
    }

    fn dword(image: &[u8], at: usize) -> usize {
        usize::from(word(image, at)) | usize::from(word(image, at + 2)) << 16
    }

    /// The tokens as a driver finds them: by scanning for the signature.
    fn tokens(image: &[u8]) -> Vec<(u8, u8, usize, usize)> {
        let bit = image.windows(6).position(|window| window == b"\xff\xb8BIT\0").unwrap();
        let (size, count) = (usize::from(image[bit + 9]), usize::from(image[bit + 10]));
        let entry = |at: usize| {
            (image[at], image[at + 1], usize::from(word(image, at + 2)), usize::from(word(image, at + 4)))
        };
        (0..count).map(|index| entry(bit + 12 + index * size)).collect()
    }

    fn token(image: &[u8], id: u8) -> (u8, usize, usize) {
        let found = tokens(image).into_iter().find(|token| token.0 == id).unwrap();
        (found.1, found.2, found.3)
    }

    #[test]
    fn bytes_sum_to_zero_for_any_board() {
        for device in [0x0000, 0x06c0, 0x1180, 0xffff] {
            let image = build(BoardId { device, ..BOARD });

            assert_eq!(image.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)), 0, "{device:#x}");
        }
    }

    #[test]
    fn option_rom_header_names_the_board() {
        let image = build(BOARD);
        let pcir = usize::from(word(image.as_slice(), 0x18));

        assert_eq!(image[..2], [0x55, 0xaa]);
        assert_eq!(usize::from(image[2]) * 512, VBIOS_SIZE);
        assert_eq!(&image[pcir..pcir + 4], b"PCIR");
        assert_eq!((word(&*image, pcir + 4), word(&*image, pcir + 6)), (0x10de, 0x06c0));
        assert_eq!(image[pcir + 0x0d..pcir + 0x10], [0x00, 0x02, 0x03]);
        assert_eq!(usize::from(word(&*image, pcir + 0x10)) * 512, VBIOS_SIZE);
        assert_eq!(image[pcir + 0x15] & 0x80, 0x80, "last image");
    }

    #[test]
    fn bit_has_the_tokens_that_drivers_require_at_their_lengths() {
        let image = build(BOARD);

        let (version, length, at) = token(&*image, b'i');
        assert!(version == 2 && length >= 15 && image[at + 3] == 0x70);
        assert_eq!(word(&*image, at + 13), 0);
        let (version, length, at) = token(&*image, b'I');
        assert!(version == 1 && length >= 14);
        let list = usize::from(word(&*image, at));
        assert!(list != 0 && word(&*image, list) == 0, "a list of no scripts");
        let (version, length, _) = token(&*image, b'P');
        assert!(version == 2 && length >= 0x10);
    }

    #[test]
    fn performance_token_leads_to_memory_and_voltage_tables() {
        let image = build(BOARD);
        let (_, _, at) = token(&*image, b'P');
        let (memory, voltage) = (dword(&*image, at + 4), dword(&*image, at + 0xc));

        assert!(image[memory] == 0x11 && image[memory + 1] >= 0x15 && image[memory + 5] == 0);
        assert!(image[voltage] == 0x40 && image[voltage + 1] >= 0x12 && image[voltage + 3] == 0);
        assert_eq!(dword(&*image, voltage + 4), 1_000_000);
        assert_eq!(word(&*image, voltage + 8), 6_250);
        assert_eq!(image[voltage + 0x0b], 0, "no GPIO lines");
    }

    #[test]
    fn device_control_block_is_signed_and_has_no_outputs() {
        let image = build(BOARD);
        let at = usize::from(word(&*image, 0x36));

        assert_eq!(image[at..at + 4], [0x40, 0x1b, 0, 8]);
        assert_eq!(dword(&*image, at + 6), 0x4edc_bdcb);
        assert!(image[at + 10..at + 0x1b].iter().all(|byte| *byte == 0), "no further tables");
    }

    #[test]
    fn parts_do_not_overlap_and_lie_inside() {
        let image = build(BOARD);
        let mut parts: Vec<(usize, usize)> =
            tokens(&*image).iter().map(|&(_, _, length, at)| (at, length)).collect();
        parts.extend([(PCIR, usize::from(PCIR_LENGTH)), (BIT, 12 + 3 * 6), (SCRIPT_LIST, 2)]);
        parts.extend([(MEMORY_TABLE, 0x15), (VOLTAGE_TABLE, 0x12), (CHECKSUM, 1)]);
        parts.extend([(DCB_POINTER, 2), (DCB, usize::from(DCB_HEADER))]);
        parts.sort_unstable();

        assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        assert!(parts.iter().all(|&(at, length)| at + length <= VBIOS_SIZE));
    }
}
