//! Mistakes in a configuration file, in words that name the place and the remedy.

use std::fmt;
use std::path::{Path, PathBuf};

/// One mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Line, counted from 1.
    pub line: usize,
    /// Key with the tables around it, such as `socket.mode`; empty for a syntax error.
    pub key: String,
    /// The mistake.
    pub problem: String,
    /// The allowed values.
    pub allowed: String,
}

impl Mistake {
    /// A mistake in the TOML syntax itself.
    pub(super) fn syntax(text: &str, error: &toml::de::Error) -> Self {
        Self {
            line: error.span().map_or(1, |span| line_of(text, span.start)),
            key: String::new(),
            problem: error.message().replace('\n', "; "),
            allowed: "TOML 1.0 syntax".to_owned(),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if !self.key.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        write!(f, "{} (allowed: {})", self.problem, self.allowed)
    }
}

/// Why a configuration file was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("Cannot read the configuration file {}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is too large to be a configuration.
    #[error("{} has {size} bytes; a configuration file has at most {limit}", path.display())]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Size of the file in bytes.
        size: u64,
        /// Limit of a file's size in bytes.
        limit: u64,
    },
    /// It has mistakes.
    #[error("{}", list(path, mistakes))]
    Mistakes {
        /// Path of the file.
        path: PathBuf,
        /// All of them, by line.
        mistakes: Vec<Mistake>,
    },
}

impl ConfigError {
    pub(super) fn mistakes(path: &Path, mistakes: Vec<Mistake>) -> Self {
        Self::Mistakes { path: path.to_owned(), mistakes }
    }
}

fn list(path: &Path, mistakes: &[Mistake]) -> String {
    let lines: Vec<String> = mistakes.iter().map(|m| format!("{}: {m}", path.display())).collect();
    lines.join("\n")
}

/// The line, counted from 1, of a byte offset.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
