//! Loads a kernel as the Linux boot protocol says, for its 64-bit entry point.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use linux_loader::loader::bootparam::{boot_e820_entry, boot_params, setup_header};
use linux_loader::loader::{BzImage, KernelLoader};
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

use super::acpi;
use super::layout::{
    ACPI, BASE_MEMORY_END, COMMAND_LINE, COMMAND_LINE_ROOM, DESCRIPTORS, ECAM, KERNEL, LOW_MEMORY_END,
    PAGE_TABLES, RESET, RESET_VECTOR, ZERO_PAGE, memory,
};
use super::power::RESET_VALUE;

/// Why the guest cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// A file cannot be read.
    #[error("Cannot read {}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// It is no kernel, or does not fit.
    #[error("{} is not a kernel that can be booted (a bzImage, such as Debian's /boot/vmlinuz-*): {why}", path.display())]
    Kernel {
        /// Path of the file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// The initramfs does not fit.
    #[error("{} has {size} bytes, and there is room for {room}: give the guest more --memory", path.display())]
    Initrd {
        /// Path of the file.
        path: PathBuf,
        /// Size in bytes.
        size: u64,
        /// Bytes that are left.
        room: u64,
    },
    /// The command line is too long, or has a zero in it.
    #[error("The kernel's command line has {size} bytes: at most {limit} are possible, and no zero")]
    CommandLine {
        /// Size in bytes.
        size: usize,
        /// Limit in bytes.
        limit: u64,
    },
    /// Guest memory cannot be written: an error of this program.
    #[error("The guest's memory has no {0}")]
    Memory(&'static str),
}

/// A file that the guest starts from: opened once, and read from its beginning at each start.
#[derive(Debug)]
pub struct BootFile {
    path: PathBuf,
    file: File,
}

impl BootFile {
    /// Opens the file.
    ///
    /// # Errors
    /// [`BootError::File`].
    pub fn open(path: &Path) -> Result<Self, BootError> {
        let path = path.to_owned();
        match File::open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(BootError::File { path, source }),
        }
    }

    /// The file at its beginning. Only one reader at a time: they share the place.
    fn rewound(&self) -> Result<File, BootError> {
        let rewound = || -> io::Result<File> {
            let mut file = self.file.try_clone()?;
            file.seek(SeekFrom::Start(0))?;
            Ok(file)
        };
        rewound().map_err(|source| self.unreadable(source))
    }

    fn unreadable(&self, source: io::Error) -> BootError {
        BootError::File { path: self.path.clone(), source }
    }
}

/// The files to boot.
#[derive(Clone, Debug)]
pub(super) struct Image<'a> {
    pub(super) kernel: &'a BootFile,
    pub(super) initrd: Option<&'a BootFile>,
    pub(super) command_line: &'a str,
    pub(super) memory: u64,
    pub(super) processors: u8,
}

/// The kernel can be entered in 64-bit mode (`XLF_KERNEL_64`).
const KERNEL_64: u16 = 1 << 0;
/// The entry point for that, from where the kernel was loaded.
const ENTRY_64: u64 = 0x200;
/// `type_of_loader`: a loader without an assigned number.
const OTHER_LOADER: u8 = 0xff;
/// The largest address of an initramfs that every kernel takes.
const INITRD_LAST: u64 = 0x7fff_ffff;
const PAGE: u64 = 4096;

/// `e820` types.
const USABLE: u32 = 1;
const RESERVED: u32 = 2;

/// Puts everything into memory; the address to enter.
pub(super) fn load(ram: &GuestMemoryMmap, image: &Image<'_>) -> Result<u64, BootError> {
    let (entry, mut header) = load_kernel(ram, image)?;
    let kernel_room = u64::from(header.init_size).saturating_add(entry);
    if let Some(initrd) = image.initrd {
        let (start, size) = load_initrd(ram, initrd, image.memory, kernel_room)?;
        header.ramdisk_image = start;
        header.ramdisk_size = size;
    }
    write_command_line(ram, image.command_line)?;
    header.cmd_line_ptr = u32::try_from(COMMAND_LINE).unwrap_or(0);
    header.type_of_loader = OTHER_LOADER;
    let tables = acpi::tables(image.processors);
    ram.write_slice(&tables, GuestAddress(ACPI.start))
        .map_err(|_| BootError::Memory("room for ACPI tables"))?;
    ram.write_slice(&RESETTER, GuestAddress(RESET_VECTOR))
        .map_err(|_| BootError::Memory("room for the reset vector"))?;
    let mut parameters = boot_params { hdr: header, acpi_rsdp_addr: ACPI.start, ..Default::default() };
    for (entry, place) in memory_map(image.memory).into_iter().zip(&mut parameters.e820_table) {
        *place = entry;
        parameters.e820_entries += 1;
    }
    ram.write_obj(parameters, GuestAddress(ZERO_PAGE)).map_err(|_| BootError::Memory("zero page"))?;
    write_tables(ram)?;
    Ok(entry)
}

fn load_kernel(ram: &GuestMemoryMmap, image: &Image<'_>) -> Result<(u64, setup_header), BootError> {
    let mut file = image.kernel.rewound()?;
    let refused = |why: String| BootError::Kernel { path: image.kernel.path.clone(), why };
    let start = Some(GuestAddress(KERNEL));
    let loaded = BzImage::load(ram, start, &mut file, start).map_err(|error| refused(error.to_string()))?;
    let header = loaded.setup_header.ok_or_else(|| refused("it has no setup header".to_owned()))?;
    let (version, flags, needed) = (header.version, header.xloadflags, header.init_size);
    if version < 0x20c || flags & KERNEL_64 == 0 {
        return Err(refused(format!("boot protocol {version:#x} without a 64-bit entry point")));
    }
    if KERNEL.saturating_add(needed.into()) > image.memory.min(LOW_MEMORY_END) {
        return Err(refused(format!("it needs {needed:#x} bytes of memory: give the guest more --memory")));
    }
    Ok((loaded.kernel_load.raw_value() + ENTRY_64, header))
}

/// As high as every kernel takes it; where it lies, and its bytes.
fn load_initrd(
    ram: &GuestMemoryMmap,
    initrd: &BootFile,
    size: u64,
    used: u64,
) -> Result<(u32, u32), BootError> {
    let mut file = initrd.rewound()?;
    let read = |source| initrd.unreadable(source);
    let bytes = file.metadata().map_err(read)?.len();
    let end = size.min(LOW_MEMORY_END).min(INITRD_LAST + 1);
    let room = end.saturating_sub(used);
    let too_large = || BootError::Initrd { path: initrd.path.clone(), size: bytes, room };
    let start = end.checked_sub(bytes).map(|start| start / PAGE * PAGE).filter(|start| *start >= used);
    let start = start.ok_or_else(too_large)?;
    let length = usize::try_from(bytes).map_err(|_| too_large())?;
    ram.read_exact_volatile_from(GuestAddress(start), &mut file, length)
        .map_err(|error| read(io::Error::other(error)))?;
    Ok((u32::try_from(start).map_err(|_| too_large())?, u32::try_from(bytes).map_err(|_| too_large())?))
}

fn write_command_line(ram: &GuestMemoryMmap, line: &str) -> Result<(), BootError> {
    let limit = COMMAND_LINE_ROOM - 1;
    if line.len() as u64 > limit || line.contains('\0') {
        return Err(BootError::CommandLine { size: line.len(), limit });
    }
    let bytes = [line.as_bytes(), &[0]].concat();
    ram.write_slice(&bytes, GuestAddress(COMMAND_LINE))
        .map_err(|_| BootError::Memory("room for a command line"))
}

/// The memory that the kernel may use.
fn memory_map(size: u64) -> Vec<boot_e820_entry> {
    let entry = |addr, size, kind| boot_e820_entry { addr, size, r#type: kind };
    let mut map = vec![
        entry(0, BASE_MEMORY_END, USABLE),
        entry(ACPI.start, ACPI.end - ACPI.start, RESERVED),
        entry(ECAM.start, ECAM.end - ECAM.start, RESERVED),
    ];
    for (gpa, size) in memory(size) {
        let begin = gpa.max(KERNEL);
        map.push(entry(begin, gpa + size - begin, USABLE));
    }
    map
}

/// The code at the reset vector: `mov dx, RESET; mov al, RESET_VALUE; out dx, al`, and `hlt` for ever, in
/// 16-bit code. Linux goes there with an ACPI of the hardware-reduced kind and no EFI, and does not try the
/// reset register then (`efi_reboot_required`).
const RESETTER: [u8; 9] = {
    let [low, high] = RESET.to_le_bytes();
    [0xba, low, high, 0xb0, RESET_VALUE, 0xee, 0xf4, 0xeb, 0xfd]
};

/// Code and data segments of 64-bit mode, at the selectors that the boot protocol names, and a task.
pub(super) const GDT: [u64; 5] = [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0x008f_8b00_0000_ffff];

/// Descriptors, and page tables that show the first GiB as it is.
fn write_tables(ram: &GuestMemoryMmap) -> Result<(), BootError> {
    const PRESENT_WRITABLE: u64 = 3;
    const LARGE: u64 = 1 << 7;
    let write = |at: u64, value: u64| {
        ram.write_obj(value, GuestAddress(at)).map_err(|_| BootError::Memory("room for tables"))
    };
    for (at, descriptor) in (DESCRIPTORS..).step_by(8).zip(GDT) {
        write(at, descriptor)?;
    }
    let (pointers, directory) = (PAGE_TABLES + PAGE, PAGE_TABLES + 2 * PAGE);
    write(PAGE_TABLES, pointers | PRESENT_WRITABLE)?;
    write(pointers, directory | PRESENT_WRITABLE)?;
    (0..512u64).try_for_each(|page| write(directory + 8 * page, page << 21 | LARGE | PRESENT_WRITABLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ram(size: usize) -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), size)]).unwrap()
    }

    fn file(bytes: &[u8]) -> BootFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        BootFile::open(file.path()).unwrap()
    }

    /// A setup header of one sector and a kernel of `size` bytes that says it needs `needed`.
    fn kernel(size: usize, needed: u32, xloadflags: u16) -> Vec<u8> {
        let mut bytes = vec![0; 2 * 512 + size];
        bytes[0x1f1] = 1;
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x206..0x208].copy_from_slice(&0x20fu16.to_le_bytes());
        bytes[0x211] = 1;
        bytes[0x214..0x218].copy_from_slice(&0x10_0000u32.to_le_bytes());
        bytes[0x236..0x238].copy_from_slice(&xloadflags.to_le_bytes());
        bytes[0x260..0x264].copy_from_slice(&needed.to_le_bytes());
        bytes[1024..].fill(0x5a);
        bytes
    }

    fn image<'a>(kernel: &'a BootFile, initrd: Option<&'a BootFile>, command_line: &'a str) -> Image<'a> {
        Image { kernel, initrd, command_line, memory: 16 << 20, processors: 2 }
    }

    #[test]
    fn kernel_initrd_and_parameters_lie_where_the_protocol_says() {
        let ram = ram(16 << 20);
        let (kernel, initrd) = (file(&kernel(4096, 1 << 20, 1)), file(&[0x77; 5000]));
        let started = image(&kernel, Some(&initrd), "console=ttyS0");
        // A machine that is reset starts from the same files.
        load(&ram, &started).unwrap();
        let entry = load(&ram, &started).unwrap();
        assert_eq!(entry, 0x10_0200);
        assert_eq!(ram.read_obj::<u8>(GuestAddress(0x10_0000)).unwrap(), 0x5a);
        let parameters: boot_params = ram.read_obj(GuestAddress(ZERO_PAGE)).unwrap();
        let (image, size) = (parameters.hdr.ramdisk_image, parameters.hdr.ramdisk_size);
        assert_eq!(size, 5000);
        assert_eq!(ram.read_obj::<u8>(GuestAddress(u64::from(image) + 4999)).unwrap(), 0x77);
        let line = parameters.hdr.cmd_line_ptr;
        let mut read = [0; 14];
        ram.read_slice(&mut read, GuestAddress(line.into())).unwrap();
        assert_eq!(&read, b"console=ttyS0\0");
        assert_eq!(parameters.e820_entries, 4);
        let mut rsdp = [0; 8];
        let at = parameters.acpi_rsdp_addr;
        ram.read_slice(&mut rsdp, GuestAddress(at)).unwrap();
        assert_eq!(&rsdp, b"RSD PTR ");
        let mut vector = [0; 9];
        ram.read_slice(&mut vector, GuestAddress(0xf_fff0)).unwrap();
        assert_eq!(vector, [0xba, 0x02, 0x06, 0xb0, 0x01, 0xee, 0xf4, 0xeb, 0xfd]);
    }

    #[test]
    fn what_cannot_be_booted_is_refused_with_the_reason() {
        let ram = ram(16 << 20);
        let refused = |bytes: &[u8], initrd: Option<&[u8]>, line: &str| {
            let (kernel, initrd) = (file(bytes), initrd.map(file));
            load(&ram, &image(&kernel, initrd.as_ref(), line)).unwrap_err()
        };
        let good = kernel(4096, 1 << 20, 1);
        assert!(matches!(refused(b"\x7fELF", None, ""), BootError::Kernel { .. }));
        assert!(refused(&kernel(4096, 1 << 20, 0), None, "").to_string().contains("64-bit"));
        assert!(refused(&kernel(4096, 1 << 30, 1), None, "").to_string().contains("--memory"));
        assert!(matches!(refused(&kernel(20 << 20, 1 << 20, 1), None, ""), BootError::Kernel { .. }));
        assert!(matches!(refused(&good, Some(&vec![0; 20 << 20]), ""), BootError::Initrd { .. }));
        assert!(matches!(refused(&good, None, &"x".repeat(5000)), BootError::CommandLine { .. }));
        assert!(matches!(refused(&good, None, "a\0b"), BootError::CommandLine { .. }));
        let nowhere = Path::new("/nonexistent/vmlinuz");
        assert!(matches!(BootFile::open(nowhere), Err(BootError::File { .. })));
    }
}
