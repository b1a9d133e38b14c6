//! Operator configuration: one TOML file per VM and one per GPU, checked before anything starts.
//!
//! Every mistake of a file is reported at once, each with file, line, key, what is allowed, and the nearest
//! known key for an unknown one. docs/configuration.md documents the keys; a test parses its examples.

mod chip;
mod folder;
mod gpu;
mod hang;
mod limits;
mod mistake;
mod reader;
mod scenario;
mod value;
mod vm;
mod vm_entry;
mod vm_file;
mod whole_card;

use std::path::{Path, PathBuf};

pub use folder::files;
pub use gpu::{Backend, GpuConfig};
pub use limits::VmLimits;
pub use mistake::{ConfigError, Mistake};
pub use scenario::{load as load_scenario, of_text as scenario_of_text};
pub use vm::{TraceFile, VmConfig};
pub use vm_file::VmFile;
pub use whole_card::WholeCardConfig;

use reader::TableReader;

/// Largest configuration file that is read.
const MAX_FILE_SIZE: u64 = 1 << 20;

/// A file of either kind, for `gpuvmk check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnyConfig {
    /// A VM's file.
    Vm(VmFile),
    /// A GPU's file.
    Gpu(GpuConfig),
}

impl AnyConfig {
    /// Reads `path` as what its keys say it is: only a GPU's file has `backend`.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::of_text(path, &read_file(path)?)
    }

    /// The same for a text that is, or might be, the content of `path`.
    ///
    /// # Errors
    /// The text has mistakes.
    pub fn of_text(path: &Path, text: &str) -> Result<Self, ConfigError> {
        if has(text, "backend") {
            parse(path, text, GpuConfig::read).map(Self::Gpu)
        } else {
            VmFile::of_text(path, text).map(Self::Vm)
        }
    }
}

/// Whether a text that may be wrong in many ways names a key.
fn has(text: &str, key: &str) -> bool {
    toml::de::DeTable::parse_recoverable(text).0.get_ref().contains_key(key)
}

impl GpuConfig {
    /// Reads and checks a GPU's file.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        parse(path, &read_file(path)?, Self::read)
    }
}

fn read_file(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_FILE_SIZE {
        return Err(ConfigError::TooLarge { path: path.to_owned(), size, limit: MAX_FILE_SIZE });
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

/// Parses `text` with `read`; relative paths in it are taken from the folder of `path`.
fn parse<T>(
    path: &Path,
    text: &str,
    read: impl FnOnce(&mut TableReader<'_, '_>) -> Option<T>,
) -> Result<T, ConfigError> {
    let folder = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    let document = toml::de::DeTable::parse(text)
        .map_err(|error| ConfigError::mistakes(path, vec![Mistake::syntax(text, &error)]))?;
    let mut mistakes = Vec::new();
    let mut reader = TableReader::new(document.get_ref(), text, &folder, &mut mistakes);
    let parsed = read(&mut reader);
    reader.finish();
    match parsed {
        Some(config) if mistakes.is_empty() => Ok(config),
        _ => {
            mistakes.sort_by_key(|mistake| mistake.line);
            Err(ConfigError::mistakes(path, mistakes))
        }
    }
}

#[cfg(test)]
mod tests;
