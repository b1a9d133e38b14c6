//! Lines for systemd's journal: with the priority that it understands (sd-daemon(3)) and without a time,
//! which it has itself.

use std::io::Write;
use std::os::fd::AsFd;

use log::{Level, Record};

/// True if standard error is the journal's, by `JOURNAL_STREAM` (systemd.exec(5)): device and inode of the
/// stream. A process whose standard error was sent elsewhere has the variable, too.
pub fn is_there() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    is_stream(&stream, std::io::stderr())
}

fn is_stream(stream: &str, fd: impl AsFd) -> bool {
    let Some((device, inode)) = stream.split_once(':') else { return false };
    let Ok(stat) = rustix::fs::fstat(fd) else { return false };
    device.parse() == Ok(stat.st_dev) && inode.parse() == Ok(stat.st_ino)
}

/// The prefix of a line of that level.
pub const fn prefix(level: Level) -> &'static str {
    match level {
        Level::Error => "<3>",
        Level::Warn => "<4>",
        Level::Info => "<6>",
        Level::Debug | Level::Trace => "<7>",
    }
}

/// Writes a record; each of its lines has its priority.
///
/// # Errors
/// The sink's.
pub fn write(to: &mut impl Write, record: &Record<'_>) -> std::io::Result<()> {
    let text = record.args().to_string();
    let mut lines = text.lines();
    lines.try_for_each(|line| writeln!(to, "{}{line}", prefix(record.level())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_known_by_device_and_inode() {
        let file = tempfile::tempfile().unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let (device, inode) = (stat.st_dev, stat.st_ino);
        assert!(is_stream(&format!("{device}:{inode}"), &file));
        for other in [format!("{device}:{}", inode + 1), format!("{inode}"), ":".into(), String::new()] {
            assert!(!is_stream(&other, &file), "{other}");
        }
    }

    #[test]
    fn each_line_has_its_priority() {
        let mut lines = Vec::new();
        for (level, text) in [(Level::Warn, "one\ntwo"), (Level::Info, "three")] {
            write(&mut lines, &Record::builder().level(level).args(format_args!("{text}")).build()).unwrap();
        }
        assert_eq!(String::from_utf8(lines).unwrap(), "<4>one\n<4>two\n<6>three\n");
    }
}
