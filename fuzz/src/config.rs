//! Configuration files: any text is a configuration or a list of mistakes that can be told.

use std::error::Error as _;
use std::path::Path;

use gpuvmk::config::AnyConfig;
use gpuvmk::host::size::parse_size;
use gpuvmk::host::size::show_size;

use crate::log_sink;

/// Reads `data` as a configuration file.
pub fn run(data: &[u8]) {
    log_sink::install();
    let Ok(text) = std::str::from_utf8(data) else { return };
    match AnyConfig::of_text(Path::new("/etc/gpuvmk/any.toml"), text) {
        Ok(config) => drop(format!("{config:?}")),
        Err(error) => {
            let told = error.to_string();
            assert!(!told.is_empty(), "a mistake without words");
            drop(error.source().map(ToString::to_string));
        }
    }
    if let Some(size) = parse_size(text) {
        let shown = show_size(size);
        assert_eq!(parse_size(&shown), Some(size), "{shown} is not read back as what it shows");
    }
}
