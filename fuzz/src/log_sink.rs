//! A log that formats every record and keeps none, so that a message that cannot be formatted is found too.

use std::fmt::Write as _;
use std::sync::Once;

struct Sink;

impl log::Log for Sink {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let mut text = String::new();
        // Writing to a String fails only where a Display implementation does.
        write!(text, "{}", record.args()).expect("every log message can be formatted");
    }

    fn flush(&self) {}
}

/// Makes this the process's log. Cheap to call again.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if log::set_logger(&Sink).is_ok() {
            log::set_max_level(log::LevelFilter::Debug);
        }
    });
}
