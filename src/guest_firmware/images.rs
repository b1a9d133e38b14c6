//! The three images: sizes and fields as the driver reads them, contents a line of text and zeros.

use super::elf::{self, Class, FMC_FLAGS, Section};

/// Text for readers of the file.
const NOTE: &[u8] = b"gpuvmk: stands in for GSP firmware; the virtual GPU plays the firmware itself\n";

/// A page: nouveau describes the GSP image to the chip page by page, so that it needs at least one.
const PAGE: usize = 4096;
/// Sizes that nouveau wants of a Hopper's chain of trust (`gh100_fsp`, nvkm/subdev/fsp/gh100.c).
const HASH: usize = 48;
const PUBLIC_KEY: usize = 384;
const SIGNATURE: usize = 384;

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
pub(super) fn fmc() -> Vec<u8> {
    let sections = [
        Section { name: "hash", contents: vec![0; HASH] },
        Section { name: "signature", contents: vec![0; SIGNATURE] },
        Section { name: "publickey", contents: vec![0; PUBLIC_KEY] },
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
