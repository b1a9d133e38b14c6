//! The accesses of a guest to its GPU's BARs, as a trace of the device's process has them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Whose access it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Bar0,
    Bar1,
    Bar2,
}

/// One access to a BAR, as `gpuvmk trace dump` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    pub nanos: u64,
    pub place: Place,
    pub write: bool,
    pub offset: u64,
}

impl Access {
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (seconds, fraction) = words.next()?.split_once('.')?;
        let nanos = seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction.parse::<u64>().ok()?;
        let write = words.next()?.starts_with('W');
        let place = match words.next()? {
            "BAR0" => Place::Bar0,
            "BAR1" => Place::Bar1,
            // PCI counts halves of 64-bit BARs.
            "BAR3" => Place::Bar2,
            _ => return None,
        };
        let offset = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        Some(Self { nanos, place, write, offset })
    }
}

/// What a trace says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// The guest did something.
    Access(Access),
    /// The mediator changed so many runs of pages in a shadow page table.
    Runs(u64),
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        Access::parse(line).map(Self::Access).or_else(|| runs(line).map(Self::Runs))
    }
}

/// `40.5 shadow space 0: 3 runs mapped, 1 unmapped`.
fn runs(line: &str) -> Option<u64> {
    let (_, counts) = line.split_once(" shadow space ")?.1.split_once(": ")?;
    let (mapped, unmapped) = counts.split_once(" runs mapped, ")?;
    Some(mapped.parse::<u64>().ok()? + unmapped.strip_suffix(" unmapped")?.parse::<u64>().ok()?)
}

/// Hands each entry of `trace` to `take`. What was lost while it was recorded is an error: counts would be
/// wrong.
pub fn each(gpuvmk: &Path, trace: &Path, mut take: impl FnMut(Entry)) -> Result<()> {
    let mut child = Command::new(gpuvmk)
        .args(["trace", "dump"])
        .arg(trace)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("Cannot start {}", gpuvmk.display()))?;
    let text = child.stdout.take().context("'gpuvmk trace dump' prints nowhere")?;
    let mut lost = None;
    for line in BufReader::new(text).lines() {
        let line = line.context("Cannot read the trace")?;
        if let Some(entry) = Entry::parse(&line) {
            take(entry);
        } else if line.split_whitespace().nth(1) == Some("lost") {
            lost = Some(line);
        }
    }
    let status = child.wait().context("Cannot wait for 'gpuvmk trace dump'")?;
    ensure!(status.success(), "'gpuvmk trace dump' failed: {status}");
    match lost {
        Some(line) => bail!("The trace is not whole: {}", line.trim()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_dump_are_accesses_and_changes_of_shadow_tables() {
        let line = "    31.000000007 W4 BAR0   0x00100cbc 0x80000001 NV_PFB_PRI_MMU_INVALIDATE";
        let access = Access { nanos: 31_000_000_007, place: Place::Bar0, write: true, offset: 0x10_0cbc };
        assert_eq!(Entry::parse(line), Some(Entry::Access(access)));
        let line = "    40.561903557 shadow space 0: 3 runs mapped, 2 unmapped";
        assert_eq!(Entry::parse(line), Some(Entry::Runs(5)));
        assert_eq!(Entry::parse("    29.957213692 reset"), None);
        assert_eq!(Entry::parse("    1.0 R4 CONFIG 0x00000000 0x233010de"), None);
    }
}
