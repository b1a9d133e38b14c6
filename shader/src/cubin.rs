//! Cubins: ELF files with machine code of one version, as NVIDIA's compiler makes them.
//!
//! What lies where was seen in files of nvcc 13: the version in the header's flags, code in `.text.KERNEL`,
//! constants in `.nv.constantN`, and what a launch has to know as attributes in `.nv.info`.

mod banks;
mod variables;

use std::collections::HashMap;
use std::sync::Arc;

pub use banks::Placed;

use gpuvmk_isa::Arch;
use object::read::elf::{ElfFile64, FileHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SectionFlags};
use variables::Variables;

/// The ELF machine of NVIDIA's GPUs.
const EM_CUDA: u16 = 190;

/// The ABI in the header's identification of files whose flags have the version above bit 8. Older ones have
/// it below.
const NEW_ABI: u8 = 0x41;

/// Attributes of `.nv.info` that are used here.
mod attribute {
    pub const PARAMETER_BANK: u8 = 0x0a;
    pub const FRAME_SIZE: u8 = 0x11;
    pub const LEAST_STACK: u8 = 0x12;
    pub const PARAMETER: u8 = 0x17;
    pub const REGISTERS: u8 = 0x2f;
    pub const BARRIERS: u8 = 0x4c;
}

/// The form of an attribute whose value is a byte, and of one whose value has its own length.
const BYTE: u8 = 2;
const SIZED: u8 = 4;

/// Where older files have the barriers of a kernel: in its section's flags.
const BARRIERS_SHIFT: u32 = 20;
const BARRIERS_MASK: u64 = 0x7f;

/// Why a file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum CubinError {
    /// No ELF file.
    #[error("it is no ELF file: {0}")]
    NotElf(#[from] object::Error),
    /// Another machine's.
    #[error("it is an ELF file for machine {0}, not for NVIDIA's GPUs ({EM_CUDA})")]
    Machine(u16),
    /// A version that is not known here.
    #[error("its machine code is of SM {0}; those that are known are 75, 80, 86, 89, 90, 100 and 120")]
    Version(u32),
    /// No kernel of that name.
    #[error("it has no kernel {wanted:?}; it has {have}")]
    NoKernel {
        /// The name.
        wanted: String,
        /// The names that there are.
        have: String,
    },
    /// A kernel that cannot be run as it lies.
    #[error("{0} has to be linked first: it has relocations")]
    Relocations(String),
    /// Variables that are too large.
    #[error("it has {0} bytes of variables in global memory; {most} at most are placed", most = variables::MOST)]
    Variables(u64),
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Offset from the first one.
    pub offset: u16,
    /// Bytes.
    pub size: u32,
}

/// A kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its machine code.
    pub code: Vec<u8>,
    /// Registers of a thread.
    pub registers: u16,
    /// Bytes of shared memory that it names itself.
    pub shared: u32,
    /// Bytes of a thread's stack.
    pub stack: u32,
    /// Barriers of a block.
    pub barriers: u8,
    /// Where parameters begin in constant bank 0.
    pub parameters_at: u16,
    /// Parameters, in their order.
    pub parameters: Vec<Parameter>,
    /// Its code has places that a linker fills.
    pub has_relocations: bool,
    /// Constant banks, by number.
    pub constants: Vec<(usize, Vec<u8>)>,
    /// Variables in global memory, of all kernels of the file.
    pub variables: Arc<Vec<u8>>,
    /// Places in constant banks that hold addresses of variables.
    pub links: Vec<Link>,
}

/// A place in a constant bank that a driver fills with the address of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The bank.
    pub bank: usize,
    /// The place, in bytes.
    pub at: usize,
    /// The variable's offset in [`Kernel::variables`].
    pub to: u64,
}

/// A cubin.
#[derive(Debug)]
pub struct Cubin {
    /// The version of its machine code.
    pub arch: Arch,
    /// Its kernels, in the file's order.
    pub kernels: Vec<Kernel>,
}

/// Whether a file begins as ELF files do.
pub fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Attributes of a section, those whose value is a byte or has a length of its own.
fn attributes(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    while let [form, attribute, low, high, rest @ ..] = bytes {
        let size = usize::from(u16::from_le_bytes([*low, *high]));
        if *form != SIZED {
            if *form == BYTE {
                found.push((*attribute, std::slice::from_ref(low)));
            }
            bytes = rest;
            continue;
        }
        let Some((value, behind)) = rest.split_at_checked(size) else { break };
        found.push((*attribute, value));
        bytes = behind;
    }
    found
}

impl Cubin {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`CubinError`].
    pub fn read(bytes: &[u8]) -> Result<Self, CubinError> {
        let file: ElfFile64<'_, Endianness> = ElfFile64::parse(bytes)?;
        let (header, endian) = (file.elf_header(), file.endian());
        let machine = header.e_machine(endian);
        if machine != EM_CUDA {
            return Err(CubinError::Machine(machine));
        }
        let flags = header.e_flags(endian);
        let is_new = header.e_ident().os_abi == NEW_ABI;
        let number = if is_new { flags >> 8 & 0xff } else { flags & 0xff };
        let arch = u16::try_from(number).ok().and_then(Arch::from_number);
        let arch = arch.ok_or(CubinError::Version(number))?;
        let mut kernels: Vec<Kernel> = Vec::new();
        for section in file.sections() {
            if let Some(name) = section.name()?.strip_prefix(".text.") {
                let (name, code) = (name.to_owned(), section.data()?.to_vec());
                let barriers = if is_new { 0 } else { barriers_of(section.flags()) };
                kernels.push(Kernel { name, code, barriers, ..Kernel::default() });
            }
        }
        let variables = Variables::of(&file)?;
        let names: HashMap<usize, &str> =
            file.symbols().filter_map(|symbol| Some((symbol.index().0, symbol.name().ok()?))).collect();
        for section in file.sections() {
            let name = section.name()?;
            let of = |prefix: &str| {
                let kernel = name.strip_prefix(prefix)?;
                kernels.iter().position(|one| one.name == kernel)
            };
            if name == ".nv.info" {
                about_all(section.data()?, &names, &mut kernels);
            } else if let Some(index) = of(".nv.info.") {
                about_one(section.data()?, &mut kernels[index]);
            } else if let Some(index) = of(".nv.shared.") {
                kernels[index].shared = u32::try_from(section.size()).unwrap_or(u32::MAX);
            } else if let Some(index) = of(".rel.text.").or_else(|| of(".rela.text.")) {
                kernels[index].has_relocations |= section.size() > 0;
            } else if let Some(rest) = name.strip_prefix(".nv.constant") {
                let (number, of) = rest.split_once('.').unwrap_or((rest, ""));
                let Ok(number) = number.parse() else { continue };
                let links = variables.links(&file, &section, number);
                for kernel in kernels.iter_mut().filter(|kernel| of.is_empty() || kernel.name == of) {
                    kernel.constants.push((number, section.data()?.to_vec()));
                    match &links {
                        Some(links) => kernel.links.extend(links),
                        None => kernel.has_relocations = true,
                    }
                }
            }
        }
        let bytes = Arc::new(variables.into_bytes());
        for kernel in &mut kernels {
            kernel.parameters.sort_by_key(|parameter| parameter.offset);
            kernel.variables = Arc::clone(&bytes);
        }
        Ok(Self { arch, kernels })
    }

    /// A kernel.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn find(&self, name: &str) -> Result<&Kernel, CubinError> {
        let found = self.kernels.iter().find(|kernel| kernel.name == name);
        found.ok_or_else(|| CubinError::NoKernel {
            wanted: name.to_owned(),
            have: self.kernels.iter().map(|kernel| kernel.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// A kernel that can be run as it lies in the file.
    ///
    /// # Errors
    /// There is none of that name, or it needs what only a driver's linker does.
    pub fn kernel(&self, name: &str) -> Result<&Kernel, CubinError> {
        let kernel = self.find(name)?;
        if kernel.has_relocations { Err(CubinError::Relocations(kernel.name.clone())) } else { Ok(kernel) }
    }
}

/// What an older file says of a kernel's barriers.
fn barriers_of(flags: SectionFlags) -> u8 {
    let SectionFlags::Elf { sh_flags } = flags else { return 0 };
    u8::try_from(sh_flags >> BARRIERS_SHIFT & BARRIERS_MASK).unwrap_or(0)
}

/// `.nv.info`: of each symbol its registers and its stack.
fn about_all(bytes: &[u8], names: &HashMap<usize, &str>, kernels: &mut [Kernel]) {
    for (attribute, value) in attributes(bytes) {
        let (Some(symbol), Some(number)) = (word(value, 0), word(value, 4)) else { continue };
        let name = usize::try_from(symbol).ok().and_then(|symbol| names.get(&symbol));
        let Some(kernel) = kernels.iter_mut().find(|kernel| name == Some(&kernel.name.as_str())) else {
            continue;
        };
        match attribute {
            attribute::REGISTERS => kernel.registers = u16::try_from(number).unwrap_or(u16::MAX),
            attribute::FRAME_SIZE | attribute::LEAST_STACK => kernel.stack = kernel.stack.max(number),
            _ => {}
        }
    }
}

/// `.nv.info.KERNEL`: where its parameters are.
fn about_one(bytes: &[u8], kernel: &mut Kernel) {
    for (attribute, value) in attributes(bytes) {
        match attribute {
            attribute::BARRIERS => kernel.barriers = value.first().copied().unwrap_or(0),
            attribute::PARAMETER_BANK => kernel.parameters_at = half(value, 4).unwrap_or(0),
            attribute::PARAMETER => {
                if let (Some(offset), Some(size)) = (half(value, 6), word(value, 8)) {
                    kernel.parameters.push(Parameter { offset, size: size >> 18 });
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNELS: &[u8] = include_bytes!("../tests/kernels.cubin");

    #[test]
    fn kernels_of_a_file_with_what_their_launches_need() {
        let cubin = Cubin::read(KERNELS).unwrap();
        assert_eq!(cubin.arch, Arch::Sm90);
        let names: Vec<_> = cubin.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["empty", "product", "mixed"]);
        let product = cubin.kernel("product").unwrap();
        assert_eq!((product.registers, product.shared, product.stack), (54, 9216, 0));
        assert_eq!((product.parameters_at, product.barriers), (0x210, 1));
        let sizes: Vec<_> = product.parameters.iter().map(|one| (one.offset, one.size)).collect();
        assert_eq!(sizes, [(0, 8), (8, 8), (16, 8), (24, 4)]);
        assert_eq!(product.code.len(), 6528);
        assert_eq!(product.constants, [(0, vec![0; 556])]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = Cubin::read(KERNELS).unwrap().kernel("none").unwrap_err().to_string();
        assert_eq!(error, "it has no kernel \"none\"; it has empty, product, mixed");
        let changed = |at: usize, byte: u8| {
            let mut bytes = KERNELS.to_vec();
            bytes[at] = byte;
            Cubin::read(&bytes).unwrap_err().to_string()
        };
        assert!(changed(0x12, 62).contains("machine 62"), "{}", changed(0x12, 62));
        assert!(changed(0x31, 0x46).contains("SM 70"), "{}", changed(0x31, 0x46));
        assert!(changed(0, 0).contains("no ELF file"), "{}", changed(0, 0));
        assert!(Cubin::read(&KERNELS[..2000]).is_err());
    }

    #[test]
    fn damaged_files_are_no_harm() {
        for at in 0..KERNELS.len() {
            let mut bytes = KERNELS.to_vec();
            bytes[at] ^= 0xff;
            let _ = Cubin::read(&bytes);
        }
    }
}
