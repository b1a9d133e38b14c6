//! Operator configuration: one TOML file per VM and one per GPU, checked before anything starts.
//!
//! Every mistake of a file is reported at once, each with file, line, key, what is allowed, and the nearest
//! known key for an unknown one. docs/configuration.md documents the keys; a test parses its examples.

mod chip;
mod devices;
mod display;
mod file;
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

use std::path::Path;

pub use devices::{Devices, Forward, Protocol, Share, usual_mac};
pub use folder::files;
pub use gpu::{Backend, GpuConfig};
pub use limits::VmLimits;
pub use mistake::{ConfigError, Mistake};
pub use scenario::{load as load_scenario, of_text as scenario_of_text};
pub use vm::{TraceFile, VmConfig};
pub use vm_file::VmFile;
pub use whole_card::WholeCardConfig;

use file::{has, parse, read_file};

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

impl GpuConfig {
    /// Reads and checks a GPU's file.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        parse(path, &read_file(path)?, Self::read)
    }
}

#[cfg(test)]
mod tests;
