//! PCIDEV lines: where a function's BARs are.

use crate::event::Place;
use crate::header::{Function, FunctionRegion, FunctionRegionKind};
use gpuvmk_pci::Region;

/// NVIDIA's PCI vendor id.
const VENDOR: u16 = 0x10de;

/// Bits of a memory BAR that are no address.
const FLAGS: u64 = 15;

/// The BARs of a function on its bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Device {
    pub function: Function,
    /// Where the BARs and the ROM begin, by VFIO index.
    pub bases: [u64; 7],
}

impl Device {
    /// An NVIDIA function that a PCIDEV line describes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_prefix("PCIDEV ")?.split(' ');
        let (_, id, _) = (words.next()?, words.next()?, words.next()?);
        let vendor = u16::from_str_radix(id.get(..4)?, 16).ok().filter(|vendor| *vendor == VENDOR)?;
        let device = u16::from_str_radix(id.get(4..)?, 16).ok()?;
        let mut numbers = [0; 14];
        for number in &mut numbers {
            *number = u64::from_str_radix(words.next()?, 16).ok()?;
        }
        let (starts, sizes) = numbers.split_at(7);
        let mut found = Self { function: Function { vendor, device, ..Function::default() }, bases: [0; 7] };
        let regions = found.function.regions.iter_mut().zip(&mut found.bases);
        for ((index, (region, base)), (start, size)) in regions.enumerate().zip(starts.iter().zip(sizes)) {
            let kind = match (size, start & FLAGS) {
                (0, _) => FunctionRegionKind::Absent,
                _ if index == 6 => FunctionRegionKind::Rom,
                (_, flags) if flags & 1 != 0 => FunctionRegionKind::Ports,
                (_, flags) if flags & 4 != 0 => FunctionRegionKind::Memory64,
                _ => FunctionRegionKind::Memory32,
            };
            *region = FunctionRegion { size: *size, kind };
            *base = start & !FLAGS;
        }
        Some(found)
    }

    /// The line, with its end.
    pub(super) fn print(&self) -> String {
        let Function { vendor, device, regions } = &self.function;
        let mut text = format!("PCIDEV 0100 {vendor:04x}{device:04x} 0");
        for (region, base) in regions.iter().zip(self.bases) {
            let flags = match region.kind {
                FunctionRegionKind::Absent | FunctionRegionKind::Memory32 | FunctionRegionKind::Rom => 0,
                FunctionRegionKind::Memory64 => 0xc,
                FunctionRegionKind::Ports => 1,
            };
            text.push_str(&format!(" {:x}", if region.size == 0 { 0 } else { base | flags }));
        }
        for region in regions {
            text.push_str(&format!(" {:x}", region.size));
        }
        text.push_str(" nouveau\n");
        text
    }

    /// The region at an address, and the offset in it.
    pub(super) fn place(&self, address: u64) -> Option<(Place, u64)> {
        let regions = self.function.regions.iter().zip(self.bases).enumerate();
        let found = regions.filter(|(_, (region, _))| region.kind != FunctionRegionKind::Ports).find_map(
            |(index, (region, base))| {
                let offset = address.checked_sub(base).filter(|offset| *offset < region.size)?;
                Some((Region::from_index(u32::try_from(index).ok()?)?, offset))
            },
        );
        found.map(|(region, offset)| (Place::Region(region), offset))
    }

    /// True if two of its regions overlap.
    pub(super) fn overlaps(&self) -> bool {
        let regions = self.function.regions.iter().zip(self.bases);
        let ranges: Vec<_> = regions
            .filter(|(region, _)| region.size > 0)
            .map(|(region, base)| (base, base.saturating_add(region.size)))
            .collect();
        let meets = |(begin, end): &(u64, u64)| {
            ranges.iter().filter(|(other, other_end)| begin < other_end && other < end).count() > 1
        };
        ranges.iter().any(meets)
    }

    /// The address of an offset in a place.
    pub(super) fn address(&self, place: Place, offset: u64) -> u64 {
        match place {
            Place::Physical => offset,
            Place::Region(region) => {
                let base = self.bases.get(region.index() as usize).copied().unwrap_or(0);
                base.wrapping_add(offset)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GTX1070: &str = "PCIDEV 0100 10de1b81 10 f6000000 e000000c 0 f000000c 0 e001 f7000000 1000000 10000000 0 2000000 0 80 80000 nouveau";

    #[test]
    fn bars_of_an_nvidia_function_are_found() {
        let device = Device::parse(GTX1070).unwrap();

        assert_eq!((device.function.vendor, device.function.device), (0x10de, 0x1b81));
        assert_eq!(device.place(0xf600_2140), Some((Place::Region(Region::Bar(0)), 0x2140)));
        assert_eq!(device.place(0xf1ff_ffff), Some((Place::Region(Region::Bar(3)), 0x1ff_ffff)));
        assert_eq!(device.place(0xf200_0000), None);
        assert_eq!(device.address(Place::Region(Region::Bar(1)), 0x20), 0xe000_0020);
        assert_eq!(Device::parse(&GTX1070.replace("10de", "1002")), None);
        assert_eq!(Device::parse("PCIDEV 0100 10de1b81 10 f6000000"), None);
    }

    #[test]
    fn what_is_printed_is_understood() {
        let device = Device::parse(GTX1070).unwrap();

        assert_eq!(Device::parse(device.print().trim_end()), Some(device));
    }
}
