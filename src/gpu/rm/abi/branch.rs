//! Driver branches: which of them this interface description is right for.

use std::fmt;

/// The file that the kernel module makes when it is loaded. It says which version it is.
pub const VERSION_FILE: &str = "/proc/driver/nvidia/version";

/// A branch of the NVIDIA driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Branch {
    /// 580.x. The structures were taken from 580.142, and run on 580.159.
    R580,
}

impl Branch {
    /// All branches that can be driven.
    pub const ALL: [Self; 1] = [Self::R580];

    /// The first component of its versions.
    pub const fn number(self) -> u32 {
        match self {
            Self::R580 => 580,
        }
    }

    /// The branches as users read them.
    pub fn list() -> String {
        let names: Vec<_> = Self::ALL.iter().map(ToString::to_string).collect();
        names.join(", ")
    }

    /// The branch of a driver version such as `580.159.04`.
    pub fn of_version(version: &str) -> Option<Self> {
        let number: u32 = version.trim().split('.').next()?.parse().ok()?;
        Self::ALL.into_iter().find(|branch| branch.number() == number)
    }
}

impl fmt::Display for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

/// The version in the text of `/proc/driver/nvidia/version`.
///
/// The first line is `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build
/// ...`: the version is the first word that is made of numbers and dots.
pub fn version_of_proc_file(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_version = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    line.split_whitespace().find(is_version).map(str::to_owned)
}
