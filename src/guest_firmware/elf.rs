//! ELF files of sections only: no program headers, no symbols, little-endian.
//!
//! The file is header, section headers, contents; section 0 is the null section and section 1 the name table,
//! as in the images that nouveau expects. Sizes here are those of a few small constants, far below 32 bits.

/// Section types and flags of the ELF specification.
const SHT_PROGBITS: u32 = 1;
const SHT_STRTAB: u32 = 3;
const SHF_STRINGS: u32 = 0x20;
/// MASKPROC, MASKOS, OS_NONCONFORMING and ALLOC: the flags that nouveau wants of every section of an FMC
/// image.
pub(super) const FMC_FLAGS: u32 = 0xfff0_0102;

/// Alignment of a section's contents in the file, in bytes.
const ALIGNMENT: usize = 16;

/// The width of the file's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Elf32,
    Elf64,
}

impl Class {
    /// Sizes of the file header and of one section header.
    fn header_sizes(self) -> (usize, usize) {
        match self {
            Self::Elf32 => (52, 40),
            Self::Elf64 => (64, 64),
        }
    }
}

/// One section with contents.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) contents: Vec<u8>,
}

/// The file of these sections; `flags` are those of each, and `checksums` puts each one's CRC into `sh_info`.
pub(super) fn file(class: Class, flags: u32, checksums: bool, sections: &[Section]) -> Vec<u8> {
    let mut names = b"\0.shstrtab\0".to_vec();
    let mut name_offsets = Vec::new();
    for section in sections {
        name_offsets.push(names.len());
        names.extend_from_slice(section.name.as_bytes());
        names.push(0);
    }
    let (file_header, section_header) = class.header_sizes();
    let count = sections.len() + 2;
    let mut offset = (file_header + count * section_header).next_multiple_of(ALIGNMENT);
    let mut headers = Output::new(class);
    let mut contents: Vec<u8> = vec![0; offset - (file_header + count * section_header)];
    headers.bytes.resize(section_header, 0);

    let table = std::iter::once((1, SHT_STRTAB, SHF_STRINGS, 0, names.as_slice()));
    let bodies = sections.iter().zip(name_offsets).map(|(section, name)| {
        let info = if checksums { crc32(&section.contents) } else { 0 };
        (name, SHT_PROGBITS, flags, info, section.contents.as_slice())
    });
    for (name, kind, flags, info, body) in table.chain(bodies) {
        headers.section(name, kind, flags, info, offset, body.len());
        let end = offset + body.len();
        offset = end.next_multiple_of(ALIGNMENT);
        contents.extend_from_slice(body);
        contents.resize(contents.len() + offset - end, 0);
    }

    let mut file = Output::new(class);
    file.header(file_header, section_header, count);
    [file.bytes, headers.bytes, contents].concat()
}

/// Bytes with fields of the class's width appended.
struct Output {
    class: Class,
    bytes: Vec<u8>,
}

impl Output {
    fn new(class: Class) -> Self {
        Self { class, bytes: Vec::new() }
    }

    fn half(&mut self, value: usize) {
        self.bytes.extend(value.to_le_bytes().into_iter().take(2));
    }

    fn word(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    /// An address, offset or size.
    fn wide(&mut self, value: usize) {
        let width = match self.class {
            Class::Elf32 => 4,
            Class::Elf64 => 8,
        };
        self.bytes.extend((value as u64).to_le_bytes().into_iter().take(width));
    }

    fn header(&mut self, own_size: usize, section_header: usize, sections: usize) {
        let class = match self.class {
            Class::Elf32 => 1,
            Class::Elf64 => 2,
        };
        self.bytes.extend([0x7f, b'E', b'L', b'F', class, 1, 1]);
        self.bytes.resize(16, 0);
        // No type, no machine, version 1, no entry point, no program headers.
        self.half(0);
        self.half(0);
        self.word(1);
        self.wide(0);
        self.wide(0);
        self.wide(own_size);
        self.word(0);
        for value in [own_size, 0, 0, section_header, sections, 1] {
            self.half(value);
        }
    }

    fn section(&mut self, name: usize, kind: u32, flags: u32, info: u32, offset: usize, size: usize) {
        self.bytes.extend((name as u64).to_le_bytes().into_iter().take(4));
        self.word(kind);
        self.wide(flags as usize);
        self.wide(0);
        self.wide(offset);
        self.wide(size);
        self.word(0);
        self.word(info);
        self.wide(1);
        self.wide(0);
    }
}

/// The CRC of zlib and Ethernet.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}
