//! The VBIOS of chips without FSP: as much as a driver needs to find FWSEC in it, and FWSEC in place of
//! NVIDIA's.
//!
//! Three images, one after the other. The first is for the PC, with the table of tables (BIT): token `p`
//! points to the table of firmware. nova-core wants that table and the firmware in images of type 0xe0, of
//! which it wants two: the table is in the first, FWSEC in the second. Pointers count from the start of the
//! ROM, as long as no other image lies between.
//!
//! Source: nouveau `nvkm/subdev/bios/{image,pcir,bit,pmu}.c`, `gsp/fwsec.c`; nova-core `vbios.rs`. Nothing in
//! it is NVIDIA's: a line of text stands in for FWSEC's code, as nothing runs it.

use gpuvmk_chip::gsp::fwsec::{
    Command, DmemMapper, ENGINE_GSP, FWSEC_PROD, INTERFACE_DMEM_MAPPER, Interface, InterfaceHeader,
    MAPPER_SIGNATURE, SIGNATURE_SIZE, UCODE_DESC_HEADER, UCODE_ID, UcodeDescV2, UcodeDescV3,
};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::super::hal::Descriptor;

/// Bytes that images are counted in.
const BLOCK: usize = 512;
/// Where an image's PCI data structure is.
const PCIR: usize = 0x40;
/// Where BIT is in the first image, and what its tokens point to: the version, and the address of the table.
const BIT: usize = 0x80;
const VERSION: usize = 0x100;
const TABLE_ADDRESS: usize = 0x108;
/// Where the table of firmware is in the second image.
const TABLE: usize = 0x80;
/// Where FWSEC's descriptor is in the third image.
const DESCRIPTOR: usize = 0x60;

/// Text in place of code, for readers of the ROM.
const NOTE: &[u8] = b"gpuvmk: stands in for FWSEC; the virtual GPU plays the firmware itself\n";

/// Types of images.
const PC_AT: u8 = 0x00;
const FWSEC: u8 = 0xe0;

/// Bytes of FWSEC's code and data, multiples of the 256 that are loaded at once.
const IMEM: usize = 0x100;
const DMEM: usize = 0x300;
/// Where a signature goes in its data.
const PKC_DATA: usize = 0x10;
/// Where the list of interfaces is in its data.
pub const INTERFACES: usize = 0x1a0;
/// What the list leads to.
const MAPPER: usize = 0x1b0;
const COMMAND: usize = 0x200;

const _: () = assert!(PKC_DATA + SIGNATURE_SIZE <= INTERFACES && COMMAND + size_of::<Command>() <= DMEM);

/// The VBIOS of a card with this PCI device id.
pub fn build(device_id: u16, descriptor: Descriptor) -> Vec<u8> {
    let fwsec = fwsec(descriptor);
    let size = (DESCRIPTOR + fwsec.len()).next_multiple_of(BLOCK);
    let mut first = image(BLOCK, device_id, PC_AT, false);
    let mut second = image(BLOCK, device_id, FWSEC, false);
    let mut third = image(size, device_id, FWSEC, true);
    let (second_start, third_start) = (first.len(), first.len() + second.len());
    bit(&mut first, second_start + TABLE);
    // Version 1, bytes of this and of an entry, entries; then type, target and address.
    put(&mut second, TABLE, &[1, 6, 6, 1]);
    put(&mut second, TABLE + 6, &[FWSEC_PROD, 0]);
    put(&mut second, TABLE + 8, &word(third_start + DESCRIPTOR));
    put(&mut third, DESCRIPTOR, &fwsec);
    let sum = first.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    put(&mut first, BLOCK - 1, &[sum.wrapping_neg()]);
    [first, second, third].concat()
}

/// An image of that many bytes, with its headers.
fn image(size: usize, device_id: u16, kind: u8, last: bool) -> Vec<u8> {
    let [device_low, device_high] = device_id.to_le_bytes();
    let [blocks_low, blocks_high, ..] = word(size / BLOCK);
    let mut image = vec![0; size];
    put(&mut image, 0, &[0x55, 0xaa, blocks_low]);
    put(&mut image, 0x18, &word(PCIR));
    put(&mut image, PCIR, b"PCIR\xde\x10");
    put(&mut image, PCIR + 6, &[device_low, device_high]);
    // Bytes of this structure, its revision, and the class: a 3D controller.
    put(&mut image, PCIR + 0xa, &[0x18, 0, 3, 0, 2, 3]);
    put(&mut image, PCIR + 0x10, &[blocks_low, blocks_high]);
    put(&mut image, PCIR + 0x14, &[kind, if last { 0x80 } else { 0 }]);
    image
}

/// The table of tables.
fn bit(image: &mut [u8], table: usize) {
    // Version 1.00, 12 bytes of this, 6 of each of two tokens.
    put(image, BIT, b"\xff\xb8BIT\0\x00\x01\x0c\x06\x02");
    let token = |name, size, place| {
        let [low, high, ..] = word(place);
        [name, 2, size, 0, low, high]
    };
    put(image, BIT + 12, &token(b'i', 8, VERSION));
    put(image, BIT + 18, &token(b'p', 4, TABLE_ADDRESS));
    // 95.04.00.00.00, from the end.
    put(image, VERSION, &[0, 0, 4, 0x95, 0]);
    put(image, TABLE_ADDRESS, &word(table));
}

/// FWSEC: descriptor, signatures, code, data.
fn fwsec(descriptor: Descriptor) -> Vec<u8> {
    let head = |version: u32, size: usize| {
        UCODE_DESC_HEADER::SIZE.of(narrow(size))
            | UCODE_DESC_HEADER::VERSION.of(version)
            | UCODE_DESC_HEADER::VERSION_AVAILABLE.mask()
    };
    let le = |value: usize| U32::new(narrow(value));
    let (image, zero) = (le(IMEM + DMEM), U32::ZERO);
    let start = match descriptor {
        Descriptor::V2 => UcodeDescV2 {
            header: head(2, size_of::<UcodeDescV2>()).into(),
            stored_size: image,
            uncompressed_size: image,
            virtual_entry: zero,
            interface_offset: le(INTERFACES),
            imem_phys_base: zero,
            imem_load_size: le(IMEM),
            imem_virt_base: zero,
            imem_sec_base: zero,
            imem_sec_size: le(IMEM),
            dmem_offset: le(IMEM),
            dmem_phys_base: zero,
            dmem_load_size: le(DMEM),
            alt_imem_load_size: le(IMEM),
            alt_dmem_load_size: le(DMEM),
        }
        .as_bytes()
        .to_vec(),
        Descriptor::V3 => {
            let desc = UcodeDescV3 {
                header: head(3, size_of::<UcodeDescV3>() + SIGNATURE_SIZE).into(),
                stored_size: image,
                pkc_data_offset: le(PKC_DATA),
                interface_offset: le(INTERFACES),
                imem_phys_base: zero,
                imem_load_size: le(IMEM),
                imem_virt_base: zero,
                dmem_phys_base: zero,
                dmem_load_size: le(DMEM),
                engine_id_mask: ENGINE_GSP.into(),
                ucode_id: UCODE_ID,
                signature_count: 1,
                // The fuse of this firmware is 0.
                signature_versions: 1.into(),
                reserved: 0.into(),
            };
            [desc.as_bytes(), &[0; SIGNATURE_SIZE]].concat()
        }
    };
    let mut code = vec![0; IMEM];
    put(&mut code, 0, NOTE);
    [start, code, data()].concat()
}

/// FWSEC's data: the list of interfaces, and what it leads to.
fn data() -> Vec<u8> {
    let le = |value: usize| U32::new(narrow(value));
    let interface = Interface { id: INTERFACE_DMEM_MAPPER.into(), dmem_base: le(MAPPER) };
    // Both are of a few bytes.
    let header = InterfaceHeader { version: 1, header_size: 4, entry_size: 8, entries: 1 };
    let mapper = DmemMapper {
        signature: MAPPER_SIGNATURE,
        version: 3.into(),
        size: 0x40.into(),
        cmd_in_buffer_offset: le(COMMAND),
        cmd_in_buffer_size: le(size_of::<Command>()),
        unused: [U32::ZERO; 7],
        init_cmd: U32::ZERO,
        rest: [U32::ZERO; 4],
    };
    let mut data = vec![0; DMEM];
    put(&mut data, INTERFACES, header.as_bytes());
    put(&mut data, INTERFACES + size_of::<InterfaceHeader>(), interface.as_bytes());
    put(&mut data, MAPPER, mapper.as_bytes());
    data
}

/// Writes bytes; those behind the end are dropped.
fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    for (place, byte) in image.iter_mut().skip(at).zip(bytes) {
        *place = *byte;
    }
}

/// Offsets in a ROM of some KiB.
fn narrow(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn word(value: usize) -> [u8; 4] {
    narrow(value).to_le_bytes()
}

#[cfg(test)]
mod tests;
