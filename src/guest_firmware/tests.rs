//! The files, read as nouveau of Linux 7.2 reads them.

use super::*;

fn contents(name: &str) -> Vec<u8> {
    let wanted = format!("nvidia/gh100/gsp/{name}-570.144.bin");
    gh100().into_iter().find(|file| file.path == wanted).unwrap().contents
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()))
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
}

fn text_at(bytes: &[u8], at: usize) -> &str {
    let end = bytes[at..].iter().position(|&byte| byte == 0).unwrap();
    std::str::from_utf8(&bytes[at..at + end]).unwrap()
}

/// A section as the driver's loops see it.
#[derive(Debug)]
struct Seen {
    name: String,
    kind: usize,
    flags: usize,
    offset: usize,
    size: usize,
    info: usize,
}

fn sections32(file: &[u8]) -> Vec<Seen> {
    let (table, names_index) = (u32_at(file, 32), u16_at(file, 50));
    let names = u32_at(file, table + names_index * 40 + 16);
    (1..u16_at(file, 48))
        .map(|index| table + index * 40)
        .map(|at| Seen {
            name: text_at(file, names + u32_at(file, at)).to_owned(),
            kind: u32_at(file, at + 4),
            flags: u32_at(file, at + 8),
            offset: u32_at(file, at + 16),
            size: u32_at(file, at + 20),
            info: u32_at(file, at + 28),
        })
        .collect()
}

fn section64(file: &[u8], wanted: &str) -> (usize, usize) {
    let (table, count, names_index) = (u64_at(file, 0x28), u16_at(file, 0x3c), u16_at(file, 0x3e));
    let names = u64_at(file, table + names_index * 64 + 0x18);
    (0..count)
        .map(|index| table + index * 64)
        .find(|&at| text_at(file, names + u32_at(file, at)) == wanted)
        .map(|at| (u64_at(file, at + 0x18), u64_at(file, at + 0x20)))
        .unwrap()
}

#[test]
fn fmc_begins_with_the_one_header_that_nouveau_takes() {
    let expected: [u8; 52] = [
        0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
        52, 0, 0, 0, 0, 0, 0, 0, 52, 0, 0, 0, 0, 0, 40, 0, 6, 0, 1, 0,
    ];
    assert_eq!(contents("fmc")[..52], expected);
}

#[test]
fn fmc_sections_pass_nouveaus_validation() {
    let file = contents("fmc");
    let sections = sections32(&file);
    let first_byte = 52 + 6 * 40;
    for (index, section) in sections.iter().enumerate() {
        let (kind, flags) = if index == 0 { (3, 0x20) } else { (1, 0xfff0_0102) };
        assert_eq!((section.kind, section.flags), (kind, flags), "{section:?}");
        assert!(section.offset >= first_byte && section.offset + section.size <= file.len(), "{section:?}");
        if section.info != 0 {
            let body = &file[section.offset..section.offset + section.size];
            assert_eq!(section.info, elf::crc32(body) as usize, "{section:?}");
        }
    }
    let sizes: Vec<_> = sections.iter().map(|section| (section.name.as_str(), section.size)).collect();
    assert_eq!(
        sizes[1..],
        [("hash", 48), ("signature", 384), ("publickey", 384), ("image", 4096)],
        "the sizes are those of a Hopper's chain of trust"
    );
}

#[test]
fn checksum_is_zlibs() {
    assert_eq!(elf::crc32(b"123456789"), 0xcbf4_3926);
}

#[test]
fn bootloader_header_leads_to_descriptor_and_data() {
    let file = contents("bootloader");
    let (header, data, size) = (u32_at(&file, 12), u32_at(&file, 16), u32_at(&file, 20));
    assert_eq!(u32_at(&file, 0), 0x10de);
    assert_eq!(u32_at(&file, 8), file.len());
    assert_eq!(header + 0x54, data, "the descriptor lies between the header and the data");
    assert_eq!(data + size, file.len());
    let offsets = [0x20, 0x28, 0x30].map(|at| u32_at(&file, header + at));
    assert!(offsets.iter().all(|&offset| offset < size), "manifest, data and code lie in the image");
}

#[test]
fn gsp_has_a_page_of_image_and_the_chips_signature() {
    let file = contents("gsp");
    for name in [".fwimage", ".fwsignature_gh100"] {
        let (offset, size) = section64(&file, name);
        assert!(size >= 4096, "{name}: the driver makes one table entry for each page");
        assert!(offset + size <= file.len(), "{name} lies in the file");
    }
}

#[test]
fn files_are_written_where_a_kernel_looks_below_its_firmware_folder() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(&gh100(), folder.path()).unwrap();
    let names: Vec<_> = written.iter().map(|path| path.strip_prefix(folder.path()).unwrap()).collect();
    assert_eq!(names.len(), 3);
    for (name, file) in names.iter().zip(gh100()) {
        assert_eq!(name.to_str().unwrap(), file.path);
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), file.contents);
    }
}

#[test]
fn folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("nvidia"), "a file").unwrap();
    let error = write(&gh100(), folder.path()).unwrap_err();
    assert!(error.to_string().contains("gsp-570.144.bin"), "{error}");
}
