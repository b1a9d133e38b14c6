//! The ROM, read as nouveau and nova-core read it.

use super::*;
use zerocopy::FromBytes;

fn u16_at(rom: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(rom[at..at + 2].try_into().unwrap()))
}

fn u32_at(rom: &[u8], at: usize) -> usize {
    u32::from_le_bytes(rom[at..at + 4].try_into().unwrap()) as usize
}

/// Start, bytes and type of each image, up to the last one.
fn images(rom: &[u8]) -> Vec<(usize, usize, u8)> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        assert_eq!(rom[at..at + 2], [0x55, 0xaa]);
        let pcir = at + u16_at(rom, at + 0x18);
        assert_eq!(&rom[pcir..pcir + 6], b"PCIR\xde\x10");
        assert_eq!(u16_at(rom, pcir + 0xa), 0x18);
        let size = u16_at(rom, pcir + 0x10) * 512;
        found.push((at, size, rom[pcir + 0x14]));
        at += size;
        if rom[pcir + 0x15] & 0x80 != 0 {
            assert_eq!(at, rom.len());
            return found;
        }
    }
}

/// What token `p` of BIT points to.
fn table_pointer(rom: &[u8]) -> usize {
    let bit = rom.windows(6).position(|window| window == b"\xff\xb8BIT\0").unwrap();
    let (header, size, count) = (rom[bit + 8], rom[bit + 9], rom[bit + 10]);
    let token = (0..usize::from(count))
        .map(|index| bit + usize::from(header) + index * usize::from(size))
        .find(|at| rom[*at] == b'p' && rom[at + 1] == 2 && rom[at + 2] >= 4)
        .unwrap();
    u32_at(rom, u16_at(rom, token + 4))
}

#[test]
fn pc_image_comes_first_and_two_of_fwsec_follow() {
    for descriptor in [Descriptor::V2, Descriptor::V3] {
        let rom = build(0x2786, descriptor);
        let found = images(&rom);
        assert_eq!(found.iter().map(|(_, _, kind)| *kind).collect::<Vec<_>>(), [0, 0xe0, 0xe0]);
        assert_eq!(u16_at(&rom, 0x46), 0x2786);
        let sum = rom[..found[0].1].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        assert_eq!(sum, 0);
        // nouveau reads 4 KiB from the start of the last image on, four bytes at a time.
        assert!(rom.len() <= found[2].0 + 0x1000);
    }
}

#[test]
fn both_drivers_find_the_descriptor() {
    for (descriptor, version) in [(Descriptor::V2, 2), (Descriptor::V3, 3)] {
        let rom = build(0x1f08, descriptor);
        let found = images(&rom);
        let [(_, first, _), (second_at, second, _), (third_at, ..)] = found[..] else { panic!("{found:?}") };
        // nouveau: what lies behind the first image counts from the first one of type 0xe0.
        let nouveau = |pointer: usize| pointer - first + second_at;
        let table = nouveau(table_pointer(&rom));
        assert_eq!(rom[table..table + 4], [1, 6, 6, 1]);
        assert_eq!(rom[table + 6], 0x85);
        let at = nouveau(u32_at(&rom, table + 8));
        // nova-core: it counts from the end of the first image, and must be in the second one of that type.
        let nova = u32_at(&rom, table + 8) - first;
        assert!(nova >= second);
        assert_eq!(at, third_at + nova - second);
        assert_eq!(u32_at(&rom, at) & 0xff01, version << 8 | 1);
    }
}

#[test]
fn sizes_of_the_descriptor_lead_to_the_mapper() {
    for descriptor in [Descriptor::V2, Descriptor::V3] {
        let rom = build(0x1f08, descriptor);
        let third = images(&rom)[2].0;
        let desc = &rom[third + DESCRIPTOR..];
        let body = &desc[u32_at(desc, 0) >> 16..];
        let (dmem, interfaces) = match descriptor {
            Descriptor::V2 => {
                let (desc, _) = UcodeDescV2::read_from_prefix(desc).unwrap();
                (desc.dmem_offset, desc.interface_offset)
            }
            Descriptor::V3 => {
                let (desc, _) = UcodeDescV3::read_from_prefix(desc).unwrap();
                assert_eq!((desc.engine_id_mask.get(), desc.signature_versions.get()), (0x400, 1));
                (desc.imem_load_size, desc.interface_offset)
            }
        };
        let data = &body[dmem.get() as usize..][..DMEM];
        let list = interfaces.get() as usize;
        assert_eq!(data[list..list + 4], [1, 4, 8, 1]);
        let mapper = &data[u32_at(data, list + 8)..];
        assert_eq!(&mapper[..4], b"PAMD");
        assert!(u32_at(mapper, 8) + 44 <= DMEM);
    }
}
