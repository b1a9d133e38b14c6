//! Options of the programs that `gpuvmk` becomes for some of its commands.
//!
//! `gpuvmk` has them for its help and its completions, and hands them on as words; the program that does the
//! work has them to know what is wanted. Values that only that program understands are of a type of its own:
//! for the other one they are strings.

use std::error::Error;
use std::fmt::Display;
use std::str::FromStr;

/// What an option's value may be.
pub trait Value:
    FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Display + Send + Sync + 'static
{
}

impl<T> Value for T where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Display + Send + Sync + 'static
{
}

/// Options of `gpuvmk demo`, which `gpuvmk-lab demo` carries out. `C` is a chip, `K` a kernel.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct DemoOptions<C: Value, K: Value> {
    /// How many guests share the GPU.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub vms: u32,
    /// The chip that guests see, such as gf100, ad104 or gh100; `gpuvmk types` has all.
    #[arg(long, value_name = "CHIP", default_value = "gf100")]
    pub chip: C,
    /// The guests' kernel: 6.1, 6.12, 7.2 or newest [default: the oldest that is usual with the chip].
    #[arg(long, value_name = "SERIES")]
    pub kernel: Option<K>,
    /// Also have Mesa's Vulkan driver list, open, fill and copy in each guest.
    #[arg(long)]
    pub vulkan: bool,
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
        let Self { vms, chip, kernel, vulkan, json, keep } = self;
        let mut words = vec!["--vms".to_owned(), vms.to_string(), format!("--chip={chip}")];
        words.extend(kernel.as_ref().map(|kernel| format!("--kernel={kernel}")));
        words.extend(flags([(*vulkan, "--vulkan"), (*json, "--json"), (*keep, "--keep")]));
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

/// The names of those that are set.
fn flags<const N: usize>(flags: [(bool, &str); N]) -> impl Iterator<Item = String> {
    flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    /// What a program makes of these words.
    fn read<T: Args + FromArgMatches>(words: &[String]) -> T {
        let command = T::augment_args(Command::new("program").no_binary_name(true));
        T::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    #[test]
    fn options_of_the_demonstration_are_read_as_they_were_handed_on() {
        for (kernel, json, keep) in [(None, false, true), (Some("7.2".to_owned()), true, false)] {
            let options = DemoOptions { vms: 3, chip: "gh100".to_owned(), kernel, vulkan: json, json, keep };
            assert_eq!(read::<DemoOptions<String, String>>(&options.words()), options);
        }
        let usual: DemoOptions<String, String> = read(&[]);
        assert_eq!((usual.vms, usual.chip.as_str()), (2, "gf100"));
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
}
