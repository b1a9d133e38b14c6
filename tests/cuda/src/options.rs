//! The program's options, as `name=value` words.

use anyhow::{Context, Result, bail};

use crate::checks;

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The program's name in the report.
    pub name: String,
    /// Which of the GPUs that the driver lists.
    pub gpu: u16,
    /// Names of checks, in the order in which they run.
    pub checks: Vec<&'static str>,
}

impl Options {
    /// Reads the words.
    pub fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self { name: "cuda".into(), gpu: 0, checks: checks::group("all")? };
        for word in words {
            let (name, value) = word.split_once('=').with_context(|| format!("'{word}' is no name=value"))?;
            match name {
                "name" => value.clone_into(&mut options.name),
                "gpu" => options.gpu = value.parse().with_context(|| format!("'{value}' is no number"))?,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn checks_are_named_one_by_one_or_all() {
        assert_eq!(parse(&["gpu=1", "checks=copy,copy"]).unwrap().checks, ["copy", "copy"]);
        assert!(parse(&[]).unwrap().checks.contains(&"copy"));
    }

    #[test]
    fn unknown_check_and_option_are_refused_by_name() {
        assert!(format!("{:#}", parse(&["checks=nothing"]).unwrap_err()).contains("nothing"));
        assert!(format!("{:#}", parse(&["colour=red"]).unwrap_err()).contains("colour"));
    }
}
