//! The images: sizes and fields as the driver reads them, contents a line of text and zeros.

use super::chips::FmcSizes;
use super::elf::{self, Class, FMC_FLAGS, Section};

/// Text for readers of the file.
const NOTE: &[u8] = b"gpuvmk: stands in for GSP firmware; the virtual GPU plays the firmware itself\n";

/// A page: nouveau describes the GSP image to the chip page by page, so that it needs at least one.
const PAGE: usize = 4096;
/// `nvfw_bin_hdr` (include/nvfw/fw.h) and `RM_RISCV_UCODE_DESC` (rm/r535/nvrm/gsp.h).
const BIN_HEADER: u32 = 0x18;
const DESCRIPTOR: u32 = 0x54;
const BIN_MAGIC: u32 = 0x10de;
/// The descriptor's word that the driver shows to the chip; this and the offsets (0) may have any value.
const APP_VERSION: u32 = 0x1c / 4;

fn image(size: usize) -> Vec<u8> {
    let mut bytes = NOTE.to_vec();
    bytes.resize(size, 0);
    bytes
}

/// The FSP's image with hash, signature and key. Its checksums are right, its signature is not one.
pub(super) fn fmc(sizes: FmcSizes) -> Vec<u8> {
    let sections = [
        Section { name: "hash", contents: vec![0; sizes.hash] },
        Section { name: "signature", contents: vec![0; sizes.signature] },
        Section { name: "publickey", contents: vec![0; sizes.public_key] },
        Section { name: "image", contents: image(PAGE) },
    ];
    elf::file(Class::Elf32, FMC_FLAGS, true, &sections)
}

/// The GSP's own bootloader.
pub(super) fn bootloader() -> Vec<u8> {
    let data_offset = BIN_HEADER + DESCRIPTOR;
    let data_size = u32::try_from(PAGE).unwrap_or(u32::MAX);
    let header = [BIN_MAGIC, 1, data_offset + data_size, BIN_HEADER, data_offset, data_size];
    let descriptor = (0..DESCRIPTOR / 4).map(|word| u32::from(word == APP_VERSION));
    let words = header.into_iter().chain(descriptor).flat_map(u32::to_le_bytes);
    words.chain(image(PAGE)).collect()
}

/// GSP-RM; `signature` is the name of the section with the chip family's signature.
pub(super) fn gsp(signature: &'static str) -> Vec<u8> {
    let sections = [
        Section { name: ".fwimage", contents: image(PAGE) },
        Section { name: signature, contents: vec![0; PAGE] },
    ];
    elf::file(Class::Elf64, 0, false, &sections)
}

/// GSP-RM as NVIDIA's own driver of this version takes it: one file for several families of chips.
pub(super) fn driver_gsp(version: &str, signatures: &[&'static str]) -> Vec<u8> {
    let mut text = version.as_bytes().to_vec();
    text.push(0);
    let mut sections = vec![
        Section { name: ".fwimage", contents: image(PAGE) },
        Section { name: ".fwversion", contents: text },
    ];
    sections.extend(signatures.iter().map(|name| Section { name, contents: vec![0; PAGE] }));
    elf::file(Class::Elf64, 0, false, &sections)
}

/// A block of a falcon's memory: code and data are loaded by whole ones.
const BLOCK: usize = 256;
/// Bytes of a signature that is patched into the booter's data, and where it goes there.
const SIGNATURE: usize = 384;
const SIGNATURE_PLACE: usize = 0x10;

/// The firmware for SEC2 that loads GSP, or unloads it: `nvfw_hs_header_v2` and `nvfw_hs_load_header_v2`
/// (include/nvfw/hs.h), a signature, two blocks of code, two of data.
pub(super) fn booter() -> Vec<u8> {
    const HEADER: usize = 0x18;
    // Words that the header points to: where the signature goes and which one it is, three of metadata, how
    // many.
    const VALUES: usize = 0x40;
    const LOAD_HEADER: usize = 0x58;
    const SIGNATURES: usize = 0x100;
    const DATA: usize = 0x400;
    const { assert!(SIGNATURES + SIGNATURE <= DATA && SIGNATURE_PLACE + SIGNATURE <= 2 * BLOCK) };
    let (code, data) = (BLOCK, 2 * BLOCK);
    let size = 2 * code + data;
    let mut file = vec![0; DATA + size];
    put(&mut file, 0, &[0x10de, 1, DATA + size, HEADER, DATA, size]);
    let meta = VALUES + 8;
    let header = [SIGNATURES, SIGNATURE, VALUES, VALUES + 4, meta, 12, meta + 12, LOAD_HEADER, 9 * 4];
    put(&mut file, HEADER, &header);
    put(&mut file, VALUES, &[2 * code + SIGNATURE_PLACE, 0, 1, 1, 1, 1]);
    // Code that is not signed and data, then one application: its code.
    put(&mut file, LOAD_HEADER, &[0, code, 2 * code, data, 1, code, code, 0, 0]);
    for part in [DATA, DATA + code] {
        note(&mut file, part);
    }
    file
}

/// The bootloader of Turing's falcons, by which they load FWSEC: `nvfw_bl_desc` (include/nvfw/flcn.h) and a
/// block of code.
pub(super) fn falcon_bootloader() -> Vec<u8> {
    const HEADER: usize = 0x18;
    const DATA: usize = 0x100;
    // Its code is at the end of the address space, 0xfd blocks from the start.
    const TAG: usize = 0xfd;
    let mut file = vec![0; DATA + BLOCK];
    put(&mut file, 0, &[0x10de, 1, DATA + BLOCK, HEADER, DATA, BLOCK]);
    put(&mut file, HEADER, &[TAG, 0, 0, BLOCK, BLOCK, 0]);
    note(&mut file, DATA);
    file
}

/// Writes words into a file that has room for them.
fn put(file: &mut [u8], at: usize, words: &[usize]) {
    let bytes = words.iter().flat_map(|word| u32::try_from(*word).unwrap_or(u32::MAX).to_le_bytes());
    for (place, byte) in file.iter_mut().skip(at).zip(bytes) {
        *place = byte;
    }
}

/// Writes the text for readers.
fn note(file: &mut [u8], at: usize) {
    for (place, byte) in file.iter_mut().skip(at).zip(NOTE) {
        *place = *byte;
    }
}
