//! One line: an access, or something else.

use std::io::Write as _;

use super::loss;

/// An access in the form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub write: bool,
    pub width: u8,
    pub micros: u64,
    pub map: i64,
    pub address: u64,
    pub value: u64,
    pub pc: u64,
    pub pid: i64,
}

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Access(Access),
    /// So many events are missing here.
    Lost(u64),
    /// Anything else that the kernel writes.
    Other,
}

const OTHERS: [&str; 7] = ["VERSION", "PCIDEV", "MAP", "UNMAP", "UNKNOWN", "MARK", "LSPCI"];

impl Line {
    /// Understands a line, without its end; the error says what is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(count) = loss::lost(text) {
            return Ok(Self::Lost(count));
        }
        let keyword = text.split(' ').next().unwrap_or_default();
        match keyword {
            "R" | "W" => {
                let access =
                    Access::parse(text).ok_or("an access that the kernel does not write like this")?;
                let mut again = Vec::with_capacity(text.len());
                access.print(&mut again);
                let same = again.strip_suffix(b"\n") == Some(text.as_bytes());
                if same {
                    Ok(Self::Access(access))
                } else {
                    Err("an access that the kernel does not write like this")
                }
            }
            known if OTHERS.contains(&known) => Ok(Self::Other),
            // The head of ftrace's file `trace`, and where a processor's buffer begins in it.
            comment if comment.starts_with('#') => Ok(Self::Other),
            _ => Err("a line of unknown kind"),
        }
    }
}

impl Access {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let write = words.next()? == "W";
        let width = words.next()?.parse().ok().filter(|width| (1..=8).contains(width))?;
        let (seconds, micros) = words.next()?.split_once('.')?;
        let seconds: u64 = seconds.parse().ok()?;
        let micros: u64 = micros.parse().ok().filter(|micros| *micros < 1_000_000)?;
        // Nanoseconds must fit as well.
        let micros = seconds.checked_mul(1_000_000)?.checked_add(micros).filter(|t| *t <= u64::MAX / 1000)?;
        let map = words.next()?.parse().ok()?;
        let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let (address, value, pc) = (hex()?, hex()?, hex()?);
        let pid = words.next()?.parse().ok()?;
        words.next().is_none().then_some(Self { write, width, micros, map, address, value, pc, pid })
    }

    /// Adds the line, with its end.
    pub(super) fn print(&self, to: &mut Vec<u8>) {
        let Self { write, width, micros, map, address, value, pc, pid } = self;
        let (letter, seconds, micros) =
            (if *write { 'W' } else { 'R' }, micros / 1_000_000, micros % 1_000_000);
        // Writing to memory cannot fail.
        let _ = writeln!(
            to,
            "{letter} {width} {seconds}.{micros:06} {map} {address:#x} {value:#x} {pc:#x} {pid}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_understood_and_print_as_they_were() {
        let text = "W 4 1268.104857 3 0xf5002140 0x11 0xffffffffc09a1b2c 0";
        let Ok(Line::Access(access)) = Line::parse(text) else { panic!("no access") };
        let mut again = Vec::new();
        access.print(&mut again);

        assert_eq!((access.write, access.width, access.map), (true, 4, 3));
        assert_eq!((access.micros, access.address), (1_268_104_857, 0xf500_2140));
        assert_eq!(again, format!("{text}\n").into_bytes());
        for other in
            ["MARK 1.000000 Lost 3 events.", "# tracer: mmiotrace", "#", "##### CPU 2 buffer started ####"]
        {
            assert_eq!(Line::parse(other), Ok(Line::Other), "{other}");
        }
        assert_eq!(Line::parse("CPU:1 [LOST 3 EVENTS]"), Ok(Line::Lost(3)));
    }

    #[test]
    fn what_would_not_print_as_it_was_is_refused() {
        for text in [
            "R 4 1.5 1 0x0 0x0 0x0 0",
            "R 4 1.000000 1 0X0 0x0 0x0 0",
            "R 4 1.000000 1 0x00 0x0 0x0 0",
            "R 16 1.000000 1 0x0 0x0 0x0 0",
            "R 4 1.000000 1 0x0 0x0 0x0",
            "R 4 1.000000 1 0x0 0x0 0x0 0 more",
            "R  4 1.000000 1 0x0 0x0 0x0 0",
            "READ 4",
            "",
        ] {
            assert!(Line::parse(text).is_err(), "{text}");
        }
    }
}
