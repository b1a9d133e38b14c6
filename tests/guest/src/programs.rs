//! The test programs. Each is a function from its options to its figures; an error is a failed test.

pub mod badaddr;
mod badexec;
mod badlaunch;
mod bandwidth;
mod bar1;
mod bench;
mod busy;
mod card;
mod casualty;
mod channels;
mod child;
mod compute;
mod console;
mod contend;
mod copies;
mod debian;
mod display;
pub mod evict;
mod exec;
mod fence;
mod gpuvmk;
mod hang;
mod host;
mod hotplug;
mod load;
mod mapping;
mod network;
mod nvidia;
mod nvk;
mod patterns;
mod plug;
mod probe;
mod reload;
mod residue;
pub mod session;
mod sleepers;
mod soak;
mod stage;
mod suite;
pub mod suspend;
mod takeover;
mod upload;
mod victim;

use std::str::FromStr;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

use crate::report::{self, Reports};

/// What a program found out, by name.
pub type Figures = Map<String, Value>;
type Program = fn(&Options) -> Result<Figures>;

/// Every program, by the name that the kernel command line uses.
const PROGRAMS: [(&str, Program); 43] = [
    ("probe", probe::run),
    ("copy", copies::run),
    ("fence", fence::run),
    ("channels", channels::run),
    ("sleepers", sleepers::run),
    ("evict", evict::run),
    ("badaddr", badaddr::by_host),
    ("badcopy", badaddr::by_engine),
    ("badexec", badexec::run),
    ("hang", hang::run),
    ("bar1", bar1::run),
    ("exec", exec::run),
    ("display", display::run),
    ("patterns", patterns::run),
    ("console", console::run),
    ("hotplug", hotplug::run),
    ("fill", upload::fill),
    ("i2m", upload::inline),
    ("compute", compute::run),
    ("badlaunch", badlaunch::run),
    ("nvk", nvk::run),
    ("residue", residue::run),
    ("soak", soak::run),
    ("suspend", suspend::run),
    ("reload", reload::run),
    ("plug", plug::run),
    ("bench", bench::run),
    ("suite", suite::run),
    ("bandwidth", bandwidth::run),
    ("mapping", mapping::run),
    ("busy", busy::run),
    ("attack", crate::attack::run),
    ("victim", victim::run),
    ("contend", contend::run),
    ("load", load::run),
    ("sleep", load::sleep),
    ("card", card::run),
    ("takeover", takeover::run),
    ("host", host::run),
    ("debian", debian::run),
    ("network", network::run),
    ("smi", nvidia::smi),
    ("cuda", nvidia::cuda),
];

/// Programs that concern the whole guest rather than one GPU.
pub fn runs_once(program: &str) -> bool {
    matches!(
        program,
        "reload"
            | "plug"
            | "sleep"
            | "host"
            | "card"
            | "takeover"
            | "debian"
            | "network"
            | "smi"
            | "cuda"
            | "console"
    )
}

/// A program's options, as `name=value` words.
#[derive(Debug, Clone, Default)]
pub struct Options {
    words: Vec<(String, String)>,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self> {
        let pair = |word: &String| {
            let (name, value) = word.split_once('=').with_context(|| format!("'{word}' is no name=value"))?;
            Ok((name.to_owned(), value.to_owned()))
        };
        Ok(Self { words: words.iter().map(pair).collect::<Result<_>>()? })
    }

    /// No options but the GPU.
    pub fn for_gpu(gpu: usize) -> Self {
        Self { words: vec![("gpu".into(), gpu.to_string())] }
    }

    /// An option's value, or `default`.
    pub fn get<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        match self.words.iter().find(|(found, _)| found == name) {
            None => Ok(default),
            Some((_, value)) => match value.parse() {
                Ok(value) => Ok(value),
                Err(_) => bail!("'{value}' is no value for the option {name}"),
            },
        }
    }

    /// The GPU to use.
    pub fn gpu(&self) -> Result<usize> {
        self.get("gpu", 0)
    }
}

/// Runs the program that the arguments name and prints its one line; `Ok(false)` if it failed.
pub fn run(arguments: &[String]) -> Result<bool> {
    let names = PROGRAMS.map(|(name, _)| name).join(", ");
    let Some((name, words)) = arguments.split_first() else {
        bail!("usage: PROGRAM [name=value...]; {names}")
    };
    let Some((_, program)) = PROGRAMS.iter().find(|(known, _)| known == name) else {
        let why = format!("there is no such program; there are {names}");
        Reports::to(None).send(&report::missing(name, 0, &why));
        return Ok(false);
    };
    let options = Options::parse(words)?;
    let outcome = program(&options);
    let ok = outcome.is_ok();
    Reports::to(None).send(&report::result(name, options.gpu()?, outcome));
    Ok(ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Options {
        Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn option_has_its_value_or_the_default() {
        let options = options(&["gpu=1", "secs=5"]);
        assert_eq!(options.gpu().unwrap(), 1);
        assert_eq!(options.get("secs", 9u64).unwrap(), 5);
        assert_eq!(options.get("other", 9u64).unwrap(), 9);
    }

    #[test]
    fn bad_value_and_unknown_program_are_errors() {
        assert!(options(&["secs=many"]).get("secs", 1u64).is_err());
        assert!(!run(&["nothing".to_owned()]).unwrap());
    }
}
