//! Options of the programs that `gpuvmk` becomes for some of its commands.
//!
//! `gpuvmk` has them for its help and its completions, and hands them on as words; the program that does the
//! work has them to know what is wanted. Values that only that program understands are of a type of its own:
//! for the other one they are strings.

use std::error::Error;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum as _;

/// What an option's value may be.
pub trait Value:
    FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Display + Send + Sync + 'static
{
}

impl<T> Value for T where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Display + Send + Sync + 'static
{
}

/// Whose driver guests have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum GuestDriver {
    /// Linux's.
    Nouveau,
    /// NVIDIA's own, from Debian's packages.
    Nvidia,
}

/// Options of `gpuvmk demo`, which `gpuvmk-lab demo` carries out. `C` is a chip, `K` a kernel.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct DemoOptions<C: Value, K: Value> {
    /// How many guests share the GPU.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub vms: u32,
    /// Whose driver guests have; NVIDIA's own is fetched from Debian's non-free packages.
    #[arg(long, value_enum, default_value_t = GuestDriver::Nouveau)]
    pub driver: GuestDriver,
    /// The chip that guests see, such as gf100, ad104 or gh100; `gpuvmk types` has all [default: gf100; gh100
    /// with NVIDIA's driver].
    #[arg(long, value_name = "CHIP")]
    pub chip: Option<C>,
    /// The guests' kernel: 6.1, 6.12, 7.2 or newest [default: the oldest that is usual with the chip].
    #[arg(long, value_name = "SERIES")]
    pub kernel: Option<K>,
    /// Also have Mesa's Vulkan driver list, open, fill and copy in each guest.
    #[arg(long)]
    pub vulkan: bool,
    /// Give each guest a head, and compare what its monitor shows with what its kernel and its programs show;
    /// the picture of its console stays.
    #[arg(long)]
    pub display: bool,
    /// Print one JSON object as the last line.
    #[arg(long)]
    pub json: bool,
    /// Keep the configuration files and logs also when all went well.
    #[arg(long)]
    pub keep: bool,
}

impl<C: Value, K: Value> DemoOptions<C, K> {
    /// The words of a command line that give these options.
    pub fn words(&self) -> Vec<String> {
        let Self { vms, driver, chip, kernel, vulkan, display, json, keep } = self;
        let mut words = vec!["--vms".to_owned(), vms.to_string()];
        if let Some(driver) = driver.to_possible_value() {
            words.push(format!("--driver={}", driver.get_name()));
        }
        words.extend(chip.as_ref().map(|chip| format!("--chip={chip}")));
        words.extend(kernel.as_ref().map(|kernel| format!("--kernel={kernel}")));
        words.extend(flags([
            (*vulkan, "--vulkan"),
            (*display, "--display"),
            (*json, "--json"),
            (*keep, "--keep"),
        ]));
        words
    }
}

/// Options of `gpuvmk gpu bench`, which `gpuvmk-gpu-bench` carries out. `A` is a PCI address.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct BenchOptions<A: Value> {
    /// PCI address of the GPU; without it, the only one.
    #[arg(long, value_name = "ADDRESS")]
    pub gpu: Option<A>,
    /// User to become before the GPU is opened; root must name one.
    #[arg(long)]
    pub uid: Option<u32>,
    /// Also rehearse the driver: a tenant's life, with every effect checked.
    #[arg(long)]
    pub rehearse: bool,
    /// Also look for what contexts of different clients find of each other's: shared memory, context buffers
    /// (reads only).
    #[arg(long)]
    pub residue: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl<A: Value> BenchOptions<A> {
    /// The words of a command line that give these options.
    pub fn words(&self) -> Vec<String> {
        let Self { gpu, uid, rehearse, residue, json } = self;
        let mut words = Vec::new();
        words.extend(gpu.as_ref().map(|gpu| format!("--gpu={gpu}")));
        words.extend(uid.map(|uid| format!("--uid={uid}")));
        words.extend(flags([(*rehearse, "--rehearse"), (*residue, "--residue"), (*json, "--json")]));
        words
    }
}

/// Commands of `gpuvmk shader`, which `gpuvmk-shader` carries out.
#[derive(Clone, Debug, PartialEq, Eq, clap::Subcommand)]
pub enum ShaderCommand {
    /// Print machine code as text, in the dialect of NVIDIA's disassembler.
    #[command(
        after_help = "Examples:\n  gpuvmk shader disasm kernels.cubin --kernel add\n  gpuvmk shader disasm code.bin --arch 90"
    )]
    Disasm {
        /// A cubin, or raw machine code.
        file: PathBuf,
        /// The code's version, such as 75 or 90; a cubin says it itself.
        #[arg(long, value_name = "NUMBER")]
        arch: Option<u16>,
        /// Only this kernel of a cubin.
        #[arg(long, value_name = "NAME")]
        kernel: Option<String>,
    },
    /// Run a kernel on a software GPU in this process.
    ///
    /// Arguments are values (u32:5, i32:-1, u64:7, i64:-7, f32:0.5, f64:0.5) or buffers (file:PATH,
    /// zero:BYTES, new:BYTES); a buffer ends with >PATH where it is to be written to a file afterwards.
    #[command(
        after_help = "Example:\n  gpuvmk shader run add.cubin --kernel add --grid 16 --block 256 --arg file:a.bin --arg file:b.bin --arg 'zero:16384>c.bin' --arg u32:4096"
    )]
    Run(RunOptions),
}

/// Options of `gpuvmk shader run`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct RunOptions {
    /// A cubin.
    pub file: PathBuf,
    /// The kernel.
    #[arg(long, value_name = "NAME")]
    pub kernel: String,
    /// Blocks: width, height and depth.
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = size)]
    pub grid: [u32; 3],
    /// Threads of a block: width, height and depth.
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = size)]
    pub block: [u32; 3],
    /// Bytes of shared memory besides the kernel's own.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub shared: u32,
    /// An argument, in their order.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub arg: Vec<String>,
    /// Print each instruction with its active lanes and the registers that it changes.
    #[arg(long)]
    pub trace: bool,
    /// Look for reads of memory never written, races of warps on shared memory, and missing waits on
    /// scoreboards.
    #[arg(long)]
    pub check: bool,
}

/// One to three numbers; those left out are 1.
fn size(text: &str) -> Result<[u32; 3], String> {
    let mut size = [1; 3];
    let mut parts = text.split(',');
    for (to, part) in size.iter_mut().zip(&mut parts) {
        *to = part.parse().map_err(|_| format!("{part:?} is no number"))?;
    }
    match parts.next() {
        Some(more) => Err(format!("{more:?} is a fourth number; there are three at most")),
        None if size.contains(&0) => Err("0 is no size".to_owned()),
        None => Ok(size),
    }
}

impl ShaderCommand {
    /// The words of a command line that give this command.
    pub fn words(&self) -> Vec<OsString> {
        match self {
            Self::Disasm { file, arch, kernel } => {
                let mut words: Vec<OsString> = vec!["disasm".into()];
                words.extend(arch.map(|arch| format!("--arch={arch}").into()));
                words.extend(kernel.as_ref().map(|kernel| format!("--kernel={kernel}").into()));
                words.extend(["--".into(), file.into()]);
                words
            }
            Self::Run(options) => options.words(),
        }
    }
}

impl RunOptions {
    fn words(&self) -> Vec<OsString> {
        let Self { file, kernel, grid, block, shared, arg, trace, check } = self;
        let size = |name: &str, [x, y, z]: [u32; 3]| format!("--{name}={x},{y},{z}");
        let mut words = vec!["run".to_owned(), format!("--kernel={kernel}")];
        words.extend([size("grid", *grid), size("block", *block), format!("--shared={shared}")]);
        words.extend(arg.iter().map(|argument| format!("--arg={argument}")));
        words.extend(flags([(*trace, "--trace"), (*check, "--check")]));
        words.push("--".to_owned());
        words.into_iter().map(OsString::from).chain([file.into()]).collect()
    }
}

/// The names of those that are set.
fn flags<const N: usize>(flags: [(bool, &str); N]) -> impl Iterator<Item = String> {
    flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches, Subcommand as _};

    use super::*;

    /// What a program makes of these words.
    fn read<T: Args + FromArgMatches>(words: &[String]) -> T {
        let command = T::augment_args(Command::new("program").no_binary_name(true));
        T::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    #[test]
    fn options_of_the_demonstration_are_read_as_they_were_handed_on() {
        for (kernel, json, keep) in [(None, false, true), (Some("7.2".to_owned()), true, false)] {
            let driver = if json { GuestDriver::Nvidia } else { GuestDriver::Nouveau };
            let chip = keep.then(|| "gh100".to_owned());
            let options =
                DemoOptions { vms: 3, driver, chip, kernel, vulkan: json, display: keep, json, keep };
            assert_eq!(read::<DemoOptions<String, String>>(&options.words()), options);
        }
        let usual: DemoOptions<String, String> = read(&[]);
        assert_eq!((usual.vms, usual.driver, usual.chip), (2, GuestDriver::Nouveau, None));
    }

    #[test]
    fn options_of_measurements_are_read_as_they_were_handed_on() {
        for (gpu, uid) in [(None, None), (Some("0000:65:00.0".to_owned()), Some(65_534))] {
            for set in 0..8 {
                let [rehearse, residue, json] = [1, 2, 4].map(|flag| set & flag != 0);
                let options = BenchOptions { gpu: gpu.clone(), uid, rehearse, residue, json };
                assert_eq!(read::<BenchOptions<String>>(&options.words()), options);
            }
        }
    }

    #[test]
    fn commands_of_shaders_are_read_as_they_were_handed_on() {
        let read = |words: Vec<OsString>| {
            let command = ShaderCommand::augment_subcommands(Command::new("program").no_binary_name(true));
            ShaderCommand::from_arg_matches(&command.get_matches_from(words)).unwrap()
        };
        for (arch, kernel) in [(None, Some("add".to_owned())), (Some(90), None)] {
            let command = ShaderCommand::Disasm { file: "-odd name".into(), arch, kernel };
            assert_eq!(read(command.words()), command);
        }
        for set in [false, true] {
            let command = ShaderCommand::Run(RunOptions {
                file: "a.cubin".into(),
                kernel: "add".to_owned(),
                grid: [4, 2, 1],
                block: [256, 1, 1],
                shared: 64,
                arg: vec!["u32:5".to_owned(), "zero:64>a file".to_owned()],
                trace: set,
                check: !set,
            });
            assert_eq!(read(command.words()), command);
        }
        assert_eq!(size("3"), Ok([3, 1, 1]));
        assert_eq!(size("3,4,5"), Ok([3, 4, 5]));
        for wrong in ["", "0", "1,2,3,4", "x", "-1"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
