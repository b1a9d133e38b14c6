//! From a file's text to its settings.

use std::path::{Path, PathBuf};

use super::mistake::{ConfigError, Mistake};
use super::reader::TableReader;

/// Largest configuration file that is read.
const MAX_FILE_SIZE: u64 = 1 << 20;

/// True if a text that may be wrong in many ways names a key.
pub(super) fn has(text: &str, key: &str) -> bool {
    toml::de::DeTable::parse_recoverable(text).0.get_ref().contains_key(key)
}

/// The text of a file of at most [`MAX_FILE_SIZE`] bytes.
pub(super) fn read_file(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_FILE_SIZE {
        return Err(ConfigError::TooLarge { path: path.to_owned(), size, limit: MAX_FILE_SIZE });
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

/// Parses `text` with `read`; relative paths in it are taken from the folder of `path`.
pub(super) fn parse<T>(
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
