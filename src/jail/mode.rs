//! How much of the jail is on.

use std::fmt;

/// How much of the jail is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A forbidden system call ends the process.
    #[default]
    Enforce,
    /// A forbidden system call is written to the kernel's log, and happens. The rest is as with `Enforce`.
    Log,
    /// There is no jail.
    Off,
}

impl Mode {
    /// The words that configuration and command line have.
    pub const WORDS: [(&'static str, Self); 3] =
        [("enforce", Self::Enforce), ("log", Self::Log), ("off", Self::Off)];

    /// Its word in configuration files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Log => "log",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::WORDS
            .into_iter()
            .find_map(|(word, mode)| (word == text).then_some(mode))
            .ok_or_else(|| format!("\"{text}\" is none of \"enforce\", \"log\" and \"off\""))
    }
}
