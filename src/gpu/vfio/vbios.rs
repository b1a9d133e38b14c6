//! The VBIOS of a real card: the images in its expansion ROM, checked before they are used.
//!
//! Cards that show no expansion ROM (its BAR was never given room, or it is switched off) have it in the
//! window NV_PROM of BAR0 too.
//!
//! Sources: PCI Firmware Specification 3.0, 5.1 (option ROM header, PCI data structure, chains of images);
//! envytools `docs/bios` and nouveau `nvkm/subdev/bios/version.c` (the BIT table, and the version in its
//! token 'i').

use gpuvmk_chip::gf100::regs::pci::NV_XVE_ROM_CTRL;
use gpuvmk_chip::gf100::regs::windows::NV_PROM;
use gpuvmk_pci::{AccessError, PciFunction, Region};

use super::sysfs::NVIDIA;

/// The largest ROM that is read; NVIDIA's have 64 KiB to 1 MiB.
pub const MOST: usize = 4 << 20;
/// Images in a chain: a BIOS, an EFI driver, and a few of NVIDIA's own.
const MOST_IMAGES: usize = 16;
/// Bytes that are read at once, and first of all: a read of the window costs a microsecond for each four.
const PIECE: usize = 4096;
/// Bytes of the window.
const WINDOW: usize = 1 << 20;
/// NV_XVE_ROM_CTRL: the window shows a copy in RAM, which there may not be.
const ROM_SHADOW: u32 = NV_XVE_ROM_CTRL::ROM_SHADOW.mask();
/// Unit of an image's length.
const BLOCK: usize = 512;

const SIGNATURE: [u8; 2] = [0x55, 0xaa];
const PCIR_POINTER: usize = 0x18;
const PCIR_LENGTH: usize = 0x10;
const PCIR_INDICATOR: usize = 0x15;
const LAST_IMAGE: u8 = 0x80;
const BIT: &[u8] = b"\xff\xb8BIT\0";
const BIT_ENTRY_SIZE: usize = 9;
const BIT_ENTRIES: usize = 10;
const BIT_HEADER: usize = 12;

/// Why a ROM is refused.
#[derive(Debug, thiserror::Error)]
pub enum BadVbios {
    /// It cannot be read.
    #[error("its ROM cannot be read")]
    Access(#[from] AccessError),
    /// The card shows no ROM.
    #[error("the card shows no ROM: give its VBIOS as a file")]
    Absent,
    /// It is none.
    #[error("it does not begin with 55 aa, as option ROMs do, but with {0:02x?}")]
    NoRom(Vec<u8>),
    /// An image's header is wrong.
    #[error("the image at {at:#x} {what}")]
    Image {
        /// Where in the ROM.
        at: usize,
        /// What was meant, in words.
        what: &'static str,
    },
    /// The image is another card's.
    #[error("it is the VBIOS of PCI device {found}, and the card is {wanted}")]
    OtherCard {
        /// The card that it is of.
        found: String,
        /// The card that it should be of.
        wanted: String,
    },
}

/// A ROM that is as it should be.
#[derive(Clone, PartialEq, Eq)]
pub struct Vbios {
    bytes: Vec<u8>,
    device: u16,
    images: usize,
    version: Option<String>,
}

impl std::fmt::Debug for Vbios {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vbios")
            .field("device", &self.device)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Vbios {
    /// Reads a card's.
    ///
    /// # Errors
    /// There is none, or a broken one.
    pub fn of_card(card: &dyn PciFunction) -> Result<Self, BadVbios> {
        let size = card.regions().get(Region::Rom.index() as usize).map_or(0, |region| region.size);
        let size = usize::try_from(size).unwrap_or(MOST).min(MOST);
        match Self::from_region(card, Region::Rom, 0, size) {
            Err(BadVbios::Absent) => Self::from_window(card),
            found => found,
        }
    }

    /// Reads the window, in which another view of the ROM is switched off meanwhile.
    fn from_window(card: &dyn PciFunction) -> Result<Self, BadVbios> {
        let bar = Region::Bar(0);
        let control = u64::from(NV_XVE_ROM_CTRL.0);
        let mut word = [0; 4];
        card.read(bar, control, &mut word)?;
        let shown = u32::from_le_bytes(word) & !ROM_SHADOW;
        card.write(bar, control, &shown.to_le_bytes())?;
        let found = Self::from_region(card, bar, NV_PROM.at(0).0.into(), WINDOW);
        card.write(bar, control, &word)?;
        found
    }

    /// Reads as much as the images say that they have, of `size` bytes at most.
    fn from_region(
        card: &dyn PciFunction,
        region: Region,
        start: u64,
        size: usize,
    ) -> Result<Self, BadVbios> {
        let mut bytes = Vec::new();
        let mut wanted = PIECE.min(size);
        loop {
            while bytes.len() < wanted {
                let mut piece = vec![0xff; PIECE.min(size.saturating_sub(bytes.len()))];
                card.read(region, start.saturating_add(bytes.len() as u64), &mut piece)?;
                bytes.extend(piece);
            }
            // A ROM that is switched off reads as ones, or as zeros.
            if bytes.iter().all(|byte| matches!(byte, 0xff | 0)) {
                return Err(BadVbios::Absent);
            }
            match Self::parse(&bytes) {
                // More of it may be there.
                Err(BadVbios::Image { .. }) if wanted < size => wanted = wanted.saturating_mul(2).min(size),
                found => return found,
            }
        }
    }

    /// Looks at a ROM's bytes, of which those behind the last image are left out.
    ///
    /// # Errors
    /// See [`BadVbios`].
    pub fn parse(rom: &[u8]) -> Result<Self, BadVbios> {
        if !rom.starts_with(&SIGNATURE) {
            return Err(BadVbios::NoRom(rom.iter().take(2).copied().collect()));
        }
        let (mut at, mut images, mut device) = (0, 0, 0);
        loop {
            let start = at;
            let bad = |what| BadVbios::Image { at: start, what };
            let image = rom.get(at..).unwrap_or_default();
            let pcir = usize::from(word(image, PCIR_POINTER).ok_or_else(|| bad("is cut off"))?);
            let data = image.get(pcir..).filter(|data| data.starts_with(b"PCIR"));
            let data = data.ok_or_else(|| bad("has no PCI data structure where its header says"))?;
            let cut = || bad("has a PCI data structure that is cut off");
            let (vendor, number) = (word(data, 4).ok_or_else(cut)?, word(data, 6).ok_or_else(cut)?);
            let length = usize::from(word(data, PCIR_LENGTH).ok_or_else(cut)?).saturating_mul(BLOCK);
            let last = data.get(PCIR_INDICATOR).ok_or_else(cut)? & LAST_IMAGE != 0;
            let whole = image.get(..length).filter(|whole| !whole.is_empty());
            let whole = whole.ok_or_else(|| bad("says that it is longer than the ROM, or empty"))?;
            if images == 0 {
                if vendor != NVIDIA {
                    return Err(bad("is not NVIDIA's"));
                }
                // Only the first image, which firmware runs, has to have it.
                if whole.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) != 0 {
                    return Err(bad("has a wrong checksum: its bytes do not add up to 0"));
                }
                device = number;
            }
            images += 1;
            at = at.saturating_add(length);
            if last {
                break;
            }
            if images == MOST_IMAGES {
                return Err(bad("is followed by more images than a ROM has"));
            }
        }
        let bytes = rom.get(..at).unwrap_or(rom).to_vec();
        Ok(Self { version: version(&bytes), bytes, device, images })
    }

    /// An error unless it is that of a PCI device of NVIDIA's.
    ///
    /// # Errors
    /// It is another one's.
    pub fn check_device(&self, device: u16) -> Result<(), BadVbios> {
        let shown = |device: u16| format!("{NVIDIA:04x}:{device:04x}");
        let other = || BadVbios::OtherCard { found: shown(self.device), wanted: shown(device) };
        if self.device == device { Ok(()) } else { Err(other()) }
    }

    /// The ROM, without what is behind its last image.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Images in it.
    pub fn images(&self) -> usize {
        self.images
    }

    /// The device that its first image is for.
    pub fn device(&self) -> u16 {
        self.device
    }

    /// NVIDIA's version, as in `70.00.1a.00.02`, if the ROM has it.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// CRC-32 (IEEE) of all images: which VBIOS a card has.
    pub fn crc(&self) -> u32 {
        crc32fast::hash(&self.bytes)
    }
}

/// The version in the token 'i' of the BIT table.
fn version(rom: &[u8]) -> Option<String> {
    let bit = rom.windows(BIT.len()).position(|window| window == BIT)?;
    let table = rom.get(bit..)?;
    let (size, count) = (usize::from(*table.get(BIT_ENTRY_SIZE)?), usize::from(*table.get(BIT_ENTRIES)?));
    let entries = (0..count).filter_map(|entry| table.get(BIT_HEADER + entry * size..));
    let token = entries.into_iter().find(|entry| entry.first() == Some(&b'i'))?;
    let place = usize::from(word(token, 4)?);
    let [micro, minor, chip, major, patch] = rom.get(place..place + 5)? else { return None };
    Some(format!("{major:02x}.{chip:02x}.{minor:02x}.{micro:02x}.{patch:02x}"))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at.checked_add(1)?)?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_pci::vbios::{BoardId, build};
    use gpuvmk_softgpu::{SoftGpu, SoftGpuConfig};

    fn rom() -> Vec<u8> {
        build(BoardId { vendor: NVIDIA, device: 0x06c0, class: 0x03_02_00 }).to_vec()
    }

    #[test]
    fn what_the_software_gpu_shows_is_one() {
        let gpu = SoftGpu::new(SoftGpuConfig::default()).unwrap();
        let vbios = Vbios::of_card(gpu.as_ref()).unwrap();
        assert_eq!((vbios.device(), vbios.images(), vbios.version()), (0x06c0, 1, Some("70.00.00.00.00")));
        vbios.check_device(0x06c0).unwrap();
        let other = vbios.check_device(0x1180).unwrap_err().to_string();
        assert_eq!(other, "it is the VBIOS of PCI device 10de:06c0, and the card is 10de:1180");
    }

    #[test]
    fn what_is_behind_the_last_image_does_not_count() {
        let short = Vbios::parse(&rom()).unwrap();
        let long = Vbios::parse(&[rom(), vec![0xff; 9999]].concat()).unwrap();
        assert_eq!((short.crc(), short.bytes().len()), (long.crc(), long.bytes().len()));
    }

    #[test]
    fn further_images_belong_to_it() {
        let mut first = rom();
        // Not the last one; the checksum stays right.
        first[0x40 + PCIR_INDICATOR] = 0;
        let end = first.len() - 1;
        first[end] = first[end].wrapping_add(LAST_IMAGE);
        let both = [first.clone(), rom()].concat();
        let vbios = Vbios::parse(&both).unwrap();
        assert_eq!((vbios.images(), vbios.bytes().len()), (2, both.len()));
        assert!(Vbios::parse(&first).unwrap_err().to_string().contains("0x1000"));
    }

    #[test]
    fn broken_ones_are_refused_with_what_is_wrong() {
        let spoilt = |at: usize, value: u8| {
            let mut rom = rom();
            rom[at] = value;
            Vbios::parse(&rom).unwrap_err().to_string()
        };
        for (at, value, word) in [
            (0, 0, "55 aa"),
            (0x18, 0x99, "no PCI data structure"),
            (0x44, 0x86, "not NVIDIA's"),
            (0x50, 9, "longer than the ROM"),
            (0x200, 1, "wrong checksum"),
        ] {
            let said = spoilt(at, value);
            assert!(said.contains(word), "{word}: {said}");
        }
    }

    #[test]
    fn no_cut_of_one_is_taken_and_none_panics() {
        let rom = rom();
        for end in 0..rom.len() {
            assert!(Vbios::parse(&rom[..end]).is_err(), "{end}");
        }
    }
}
