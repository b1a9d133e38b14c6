//! A script as a file, to be read and compared by people too: a head, then a line for each step.
//!
//! ```text
//! gpuvmk-init 1
//! boot_0 0x0c0000a3
//! device 0x06c0
//! vbios 0x6f2a10c4
//! units 0xffffffff
//! [graphics]
//! w 0x400500 0x00010001
//! p 0x400700 0xffffffff 0x00000000
//! ```
//!
//! `vbios` may be missing: the card's is not looked at then. `w` writes a value, `p` reads until the bits of
//! the mask have the value. A line that begins with `#` says nothing.

use std::fmt::Write as _;

use super::rules::{Rule, Section, rule};
use super::{MOST_STEPS, Script, Step};
use gpuvmk_chip::registers::Reg;
use gpuvmk_ordered::OrderedMap;

/// The first line; the number changes when old programs would misread the file.
const MAGIC: &str = "gpuvmk-init 1";
/// The trace's head.
const HEAD: [&str; 4] = ["boot_0", "device", "units", VBIOS];
/// The key of the head that a file may lack.
const VBIOS: &str = "vbios";
/// The last register.
const LAST: u32 = 0xff_fffc;

/// Why a file is no script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct BadScript {
    /// Line number, from 1.
    pub line: usize,
    /// The text that is wrong, and what is allowed.
    pub what: String,
}

impl Script {
    /// The text of a file.
    pub fn to_text(&self) -> String {
        let Self { boot_0, device, vbios, units, sections } = self;
        let mut text = format!("{MAGIC}\nboot_0 {boot_0:#010x}\ndevice {device:#06x}\nunits {units:#010x}\n");
        // Writing to a string does not fail.
        if let Some(crc) = vbios {
            let _ = writeln!(text, "{VBIOS} {crc:#010x}");
        }
        for (section, steps) in sections {
            let _ = writeln!(text, "[{section}]");
            for step in steps {
                let _ = match step {
                    Step::Write { reg, value } => writeln!(text, "w {:#08x} {value:#010x}", reg.0),
                    Step::Wait { reg, mask, value } => {
                        writeln!(text, "p {:#08x} {mask:#010x} {value:#010x}", reg.0)
                    }
                };
            }
        }
        text
    }

    /// Parses the text of a file. A step is accepted only in the section where the rules put it, so a file
    /// cannot hold a step with an address of memory.
    ///
    /// # Errors
    /// The first line that is not as it should be.
    pub fn parse(text: &str) -> Result<Self, BadScript> {
        let mut script = Self::default();
        let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.starts_with('#') && !line.is_empty());
        let first = lines.next();
        if first.map(|(line, _)| line) != Some(MAGIC) {
            return Err(BadScript { line: 1, what: format!("the file does not begin with `{MAGIC}`") });
        }
        let mut open = None;
        let mut head = OrderedMap::new();
        for (text, line) in lines {
            let bad = |what: String| BadScript { line, what };
            let words: Vec<_> = text.split_whitespace().collect();
            match (words.as_slice(), open) {
                ([name, value], None) if HEAD.contains(name) => {
                    let value = number(value).map_err(bad)?;
                    if head.insert(*name, value).is_some() {
                        return Err(bad(format!("{name} is there twice")));
                    }
                }
                ([name], _) if name.starts_with('[') => {
                    let section = section(name).map_err(bad)?;
                    if script.sections.insert(section, Vec::new()).is_some() {
                        return Err(bad(format!("{name} is there twice")));
                    }
                    open = Some(section);
                }
                (words, Some(section)) => {
                    let step = step(words).map_err(bad)?;
                    let (Step::Write { reg, .. } | Step::Wait { reg, .. }) = step;
                    if !belongs(reg.0, section) {
                        let what = format!("register {:#08x} does not belong to [{section}]", reg.0);
                        return Err(bad(what));
                    }
                    if line > MOST_STEPS {
                        return Err(bad(format!("more than {MOST_STEPS} lines")));
                    }
                    script.sections.entry(section).or_default().push(step);
                }
                _ => {
                    let allowed = HEAD.join(", ");
                    return Err(bad(format!("`{text}`; allowed here: {allowed} with a number, or [PART]")));
                }
            }
        }
        let said = |name: &str| {
            let missing = || BadScript { line: 1, what: format!("{name} is missing before the first part") };
            head.get(name).copied().ok_or_else(missing)
        };
        (script.boot_0, script.units) = (said("boot_0")?, said("units")?);
        script.vbios = head.get(VBIOS).copied();
        let device = said("device")?;
        let too_large = || BadScript { line: 1, what: format!("device {device:#x} is more than 0xffff") };
        script.device = u16::try_from(device).map_err(|_| too_large())?;
        Ok(script)
    }
}

fn section(name: &str) -> Result<Section, String> {
    let found = Section::ALL.into_iter().find(|section| name == format!("[{section}]"));
    let names = Section::ALL.map(Section::name);
    found.ok_or_else(|| format!("there is no part {name}; there are {}", names.join(", ")))
}

/// True if the rules put a register into this part.
fn belongs(offset: u32, section: Section) -> bool {
    match rule(offset) {
        Rule::Keep(own) => own == section,
        Rule::Graphics => matches!(section, Section::Graphics | Section::Golden),
        Rule::Skip(_) => false,
    }
}

fn step(words: &[&str]) -> Result<Step, String> {
    let reg = |word| match number(word)? {
        offset if offset <= LAST && offset % 4 == 0 => Ok(Reg(offset)),
        offset => Err(format!("{offset:#x} is no register: a multiple of 4 up to {LAST:#x}")),
    };
    match words {
        ["w", place, value] => Ok(Step::Write { reg: reg(place)?, value: number(value)? }),
        ["p", place, mask, value] => {
            Ok(Step::Wait { reg: reg(place)?, mask: number(mask)?, value: number(value)? })
        }
        _ => Err(format!("`{}`; allowed: `w REGISTER VALUE`, `p REGISTER MASK VALUE`", words.join(" "))),
    }
}

fn number(word: &str) -> Result<u32, String> {
    let digits = word.strip_prefix("0x").ok_or_else(|| format!("`{word}` is no number such as 0x10"))?;
    u32::from_str_radix(digits, 16).map_err(|_| format!("`{word}` is no number of 32 bits such as 0x10"))
}
