//! Instructions as they are executed.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use gpuvmk_isa::print::At;
use gpuvmk_isa::{Arch, Word, decode};
use gpuvmk_sm::Step;

/// Prints what each instruction does.
pub struct Trace<'a> {
    arch: Arch,
    start: u64,
    code: &'a [u8],
    out: io::StdoutLock<'static>,
}

/// The word at an address of code that starts at `start`.
pub fn word(code: &[u8], start: u64, pc: u64) -> Option<Word> {
    let at = usize::try_from(pc.checked_sub(start)?).ok()?;
    Some(Word::from_bytes(*code.get(at..)?.first_chunk()?))
}

/// Text of the instruction at an address.
fn text(arch: Arch, code: &[u8], start: u64, pc: u64) -> String {
    let instruction = word(code, start, pc).and_then(|word| decode(arch, word).ok());
    instruction.map_or_else(|| "??".to_owned(), |one| At(&one, pc.wrapping_sub(start)).to_string())
}

/// Values of lanes, those that are alike told once.
fn values(values: &[u32; 32], lanes: u32) -> String {
    let mut text = String::new();
    let mut before = None;
    for (lane, value) in values.iter().enumerate() {
        if lanes >> lane & 1 == 0 || before == Some(value) {
            continue;
        }
        let _ = write!(text, " {lane}:{value:x}");
        before = Some(value);
    }
    text
}

/// The lines of a step.
fn lines(arch: Arch, code: &[u8], start: u64, step: &Step<'_>) -> String {
    let [x, y, z] = step.cta;
    let mut lines = format!(
        "{x},{y},{z} warp {} {:04x} {:08x} {}\n",
        step.warp,
        step.pc.wrapping_sub(start),
        step.lanes,
        text(arch, code, start, step.pc)
    );
    for change in step.changes {
        let _ = writeln!(lines, "    {} ={}", change.register, values(&change.values, change.lanes));
    }
    for (name, lanes) in step.predicates {
        let _ = writeln!(lines, "    {name} = {lanes:08x}");
    }
    lines
}

impl<'a> Trace<'a> {
    /// Of a kernel's code at an address.
    pub fn new(arch: Arch, start: u64, code: &'a [u8]) -> Self {
        Self { arch, start, code, out: io::stdout().lock() }
    }

    /// Prints a step.
    pub fn step(&mut self, step: &Step<'_>) {
        // Where standard output takes nothing, nobody reads.
        let _ = self.out.write_all(lines(self.arch, self.code, self.start, step).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_alike_are_told_once() {
        let mut row = [5; 32];
        row[3] = 6;
        assert_eq!(values(&row, u32::MAX), " 0:5 3:6 4:5");
        assert_eq!(values(&row, 0xf0), " 4:5");
    }
}
