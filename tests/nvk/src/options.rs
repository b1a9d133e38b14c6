//! The program's options, as `name=value` words.

use std::num::NonZero;

use anyhow::{Context, Result, bail};
use gpuvmk_isa::Arch;

use crate::checks::{self, Extent};

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The program's name in the report.
    pub name: String,
    /// Which of the GPUs that the driver lists.
    pub gpu: usize,
    /// What the report calls the driver.
    pub driver: String,
    /// Version of the GPU's machine code, for checks that look at it.
    pub arch: Option<Arch>,
    /// How much of their work checks do.
    pub extent: Extent,
    /// Names of checks, in the order in which they run.
    pub checks: Vec<&'static str>,
}

impl Options {
    /// Reads the words.
    pub fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self {
            name: "nvk".into(),
            gpu: 0,
            driver: "unnamed".into(),
            arch: None,
            extent: Extent::default(),
            checks: checks::group("all")?,
        };
        for word in words {
            let (name, value) = word.split_once('=').with_context(|| format!("'{word}' is no name=value"))?;
            match name {
                "name" => value.clone_into(&mut options.name),
                "gpu" => options.gpu = value.parse().with_context(|| format!("'{value}' is no number"))?,
                "driver" => value.clone_into(&mut options.driver),
                "sm" => {
                    let arch = value.parse().ok().and_then(Arch::from_number);
                    options.arch = Some(arch.with_context(|| format!("There is no SM '{value}'"))?);
                }
                "times" => options.extent.times = number(value)?,
                "rounds" => options.extent.rounds = Some(number(value)?),
                "checks" => {
                    let lists: Result<Vec<_>> = value.split(',').map(checks::group).collect();
                    options.checks = lists?.concat();
                }
                _ => bail!("There is no option '{name}'"),
            }
        }
        Ok(options)
    }
}

fn number(value: &str) -> Result<u32> {
    let number = value.parse::<NonZero<u32>>();
    Ok(number.with_context(|| format!("'{value}' is no number above 0"))?.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn groups_and_single_checks_can_be_mixed() {
        let options = parse(&["gpu=1", "driver=stock", "sm=89", "checks=transfer,saxpy"]).unwrap();
        assert_eq!(options.arch, Some(Arch::Sm89));
        assert_eq!((options.gpu, options.driver.as_str()), (1, "stock"));
        assert!(options.checks.starts_with(&["fill", "copy"]) && options.checks.ends_with(&["saxpy"]));
    }

    #[test]
    fn unknown_check_machine_code_and_option_are_refused_by_name() {
        assert!(format!("{:#}", parse(&["checks=nothing"]).unwrap_err()).contains("nothing"));
        assert!(format!("{:#}", parse(&["times=0"]).unwrap_err()).contains("'0'"));
        assert!(format!("{:#}", parse(&["sm=91"]).unwrap_err()).contains("91"));
        assert!(format!("{:#}", parse(&["colour=red"]).unwrap_err()).contains("colour"));
    }
}
