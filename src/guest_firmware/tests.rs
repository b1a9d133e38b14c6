//! The files, read as nouveau of Linux 7.2 reads them.

use super::*;

fn contents(name: &str) -> Vec<u8> {
    named(&format!("nvidia/gh100/gsp/{name}-570.144.bin"))
}

fn named(wanted: &str) -> Vec<u8> {
    all().into_iter().find(|file| file.path == wanted).unwrap_or_else(|| panic!("no {wanted}")).contents
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
    let blackwell = sections32(&named("nvidia/gb203/gsp/fmc-570.144.bin"));
    let sizes: Vec<_> = blackwell[1..4].iter().map(|section| section.size).collect();
    assert_eq!(sizes, [48, 96, 97], "the sizes are those of a Blackwell's chain of trust");
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
fn every_chip_has_its_familys_signature_and_the_versions_that_kernels_ask_for() {
    for (chip, family, versions) in [
        ("tu106", "tu10x", 2),
        ("tu116", "tu11x", 2),
        ("tu117", "tu11x", 2),
        ("ga102", "ga10x", 2),
        ("ad104", "ad10x", 2),
        ("gh100", "gh100", 1),
        ("gb203", "gb20x", 1),
    ] {
        for version in &VERSIONS[..versions] {
            let gsp = named(&format!("nvidia/{chip}/gsp/gsp-{version}.bin"));
            let (offset, size) = section64(&gsp, &format!(".fwsignature_{family}"));
            assert!(size >= 4096 && offset + size <= gsp.len());
        }
        assert_eq!(of(chip).iter().filter(|file| file.path.contains("/gsp-")).count(), versions, "{chip}");
        assert_eq!(
            of(chip).iter().any(|file| file.path.contains("acr/bl")),
            chip.starts_with("tu"),
            "{chip}"
        );
    }
    assert_eq!(of("gf100"), []);
}

#[test]
fn booters_headers_lead_to_signature_code_and_data() {
    for name in ["booter_load-570.144", "booter_unload-535.113.01", "scrubber-570.144"] {
        let file = named(&format!("nvidia/ad104/gsp/{name}.bin"));
        let (header, data, size) = (u32_at(&file, 12), u32_at(&file, 16), u32_at(&file, 20));
        assert_eq!((u32_at(&file, 0), u32_at(&file, 8), data + size), (0x10de, file.len(), file.len()));
        let word = |index: usize| u32_at(&file, header + 4 * index);
        // Three words are where the value is, not the value.
        let [place, which, count] = [2, 3, 6].map(|index| u32_at(&file, word(index)));
        assert!(which < count && word(0) + word(1) <= data && place + word(1) / count <= size);
        assert_eq!((word(5), word(4) + word(5) <= data), (12, true));
        let load = |index: usize| u32_at(&file, word(7) + 4 * index);
        let [code_at, code, data_at, data_size, apps, app_at, app] = [0, 1, 2, 3, 4, 5, 6].map(load);
        assert_eq!((apps, app_at, data_at), (1, code_at + code, app_at + app));
        assert_eq!(data_at + data_size, size);
        for size in [code, app, data_size] {
            assert!(size > 0 && size % 256 == 0, "falcons are loaded in blocks");
        }
        // The signature lies in data, not in code. Code is not zeros, which a scrubbed memory is.
        assert!(place >= data_at);
        assert!([code_at, app_at].iter().all(|at| file[data + at..][..256].iter().any(|byte| *byte != 0)));
    }
}

#[test]
fn bootloader_of_falcons_is_a_block_of_code() {
    let file = named("nvidia/tu106/acr/bl.bin");
    assert_eq!(file, named("nvidia/tu106/gsp/gen_bootloader-570.144.bin"));
    let (header, data, size) = (u32_at(&file, 12), u32_at(&file, 16), u32_at(&file, 20));
    let word = |index: usize| u32_at(&file, header + 4 * index);
    assert_eq!((word(0), word(3)), (0xfd, 256));
    assert_eq!((word(2) + word(3), data + size), (size, file.len()));
}

#[test]
fn files_of_nova_core_are_of_its_version_and_of_chips_that_it_asks_them_for() {
    let with = |part: &str| -> Vec<_> {
        all().into_iter().map(|file| file.path).filter(|path| path.contains(part)).collect()
    };
    let paths = |family: &[&str], name: &str| -> Vec<_> {
        family.iter().map(|chip| format!("nvidia/{chip}/gsp/{name}-570.144.bin")).collect()
    };
    let turing = ["tu102", "tu104", "tu106", "tu117", "tu116"];
    assert_eq!(with("gen_bootloader"), paths(&turing, "gen_bootloader"));
    assert_eq!(with("scrubber"), paths(&["ad102", "ad103", "ad104", "ad106", "ad107"], "scrubber"));
}

#[test]
fn files_are_written_where_a_kernel_looks_below_its_firmware_folder() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(&of("gh100"), folder.path()).unwrap();
    let names: Vec<_> = written.iter().map(|path| path.strip_prefix(folder.path()).unwrap()).collect();
    assert_eq!(names.len(), 3);
    for (name, file) in names.iter().zip(of("gh100")) {
        assert_eq!(name.to_str().unwrap(), file.path);
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), file.contents);
    }
}

#[test]
fn folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("nvidia"), "a file").unwrap();
    let error = write(&of("gh100"), folder.path()).unwrap_err();
    assert!(error.to_string().contains("gsp-570.144.bin"), "{error}");
}

#[test]
fn file_of_nvidias_driver_has_its_version_and_a_signature_for_each_family() {
    for version in DRIVERS {
        let file = named(&format!("nvidia/{version}/gsp_ga10x.bin"));
        let (at, size) = section64(&file, ".fwversion");
        // The driver compares text, and the size with the zero behind it.
        assert_eq!((text_at(&file, at), size), (version, version.len() + 1));
        assert!(section64(&file, ".fwimage").1 > 0);
        for family in ["ga10x", "ad10x", "gh100"] {
            let (at, size) = section64(&file, &format!(".fwsignature_{family}"));
            assert!(size > 0 && at + size <= file.len(), "{family}");
        }
        // It walks the table from its end, by the number of headers.
        assert_eq!((u16_at(&file, 0x3a), u64_at(&file, 0x28) % 8), (64, 0));
    }
}
