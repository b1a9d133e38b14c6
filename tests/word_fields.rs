//! Fields of registers, of methods and of words in memory are taken from `src/chip`: rooms that work on such
//! words have no masks and shifts of their own.
//!
//! Four forms are looked for, line by line: a constant of 32 bits made by a shift of a number (`1 << 28`), a
//! number in hexadecimal that masks (`value & 0x7f`), a shift by a number that a number masks (`value >> 16 &
//! 7`), and a constant of 32 bits that is a number and masks (`value & CHIPSET`). Numbers of 64 bits are
//! addresses and sizes, which nothing here is about: `0xffff_ffff` takes the low word of one.
//!
//! Not looked at: what is built for tests only, and files whose words are somebody else's.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

/// Rooms that work on words of hardware.
const ROOMS: [&str; 7] = ["fifo_virt", "gpu", "gsp", "mmio_trap", "softgpu", "units", "vgpu"];

/// Words that are not hardware's: flags of NVIDIA's driver, and of Linux's VFIO.
const OTHERS: [&str; 2] = ["gpu/rm/", "gpu/vfio/reset.rs"];

/// The low word of 64 bits.
const LOW_WORD: &str = "0xffff_ffff";

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Files below a folder, by their path in `src`.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A file's lines without comments, up to its tests.
fn production(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim_end());
    let lines: Vec<_> = lines.collect();
    let tests = lines.windows(2).position(|pair| {
        pair.first() == Some(&"#[cfg(test)]")
            && pair.last().is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
    });
    lines.into_iter().take(tests.unwrap_or(usize::MAX)).collect()
}

fn starts_with_digit(text: &str) -> bool {
    text.trim_start().starts_with(|first: char| first.is_ascii_digit())
}

fn ends_with_digit(text: &str) -> bool {
    let token = text.trim_end().rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
    token.is_some_and(starts_with_digit)
}

/// What stands behind each `operator` of a line, with what stands before it.
fn around<'a>(line: &'a str, operator: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    line.match_indices(operator).map(move |(at, _)| (&line[..at], &line[at + operator.len()..]))
}

/// Name and value of a constant of 32 bits.
fn constant(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once("const ")?.1.split_once(": u32 = ")?;
    Some((name, value))
}

/// What masks: behind `&`, without `!` and a parenthesis.
fn masks(line: &str) -> impl Iterator<Item = &str> {
    around(line, " & ").map(|(_, mask)| mask.trim_start_matches(['!', '(']))
}

/// `const X: u32 = 1 << 28;`
fn is_shifted_constant(line: &str) -> bool {
    constant(line).is_some_and(|(_, value)| {
        around(value, " << ").any(|(before, after)| ends_with_digit(before) && starts_with_digit(after))
    })
}

/// `value & 0x7f`
fn masks_with_a_number(line: &str) -> bool {
    masks(line).any(|mask| mask.starts_with("0x") && !mask.starts_with(LOW_WORD))
}

/// `value >> 16 & 7`
fn takes_a_field(line: &str) -> bool {
    around(line, " >> ").any(|(_, after)| {
        let shift = after.trim_start_matches(|c: char| c.is_ascii_digit());
        let mask = shift.trim_start_matches(')').strip_prefix(" & ");
        shift.len() < after.len() && mask.is_some_and(starts_with_digit)
    })
}

/// The constants of 32 bits that are numbers.
fn numbers<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let constants = lines.iter().filter_map(|line| constant(line));
    let is_number = |value: &str| {
        let digits = value.trim_end_matches(';');
        starts_with_digit(digits) && digits.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    constants.filter(|(_, value)| is_number(value)).map(|(name, _)| name).collect()
}

fn masks_with_a_constant(line: &str, numbers: &[&str]) -> bool {
    masks(line).any(|mask| {
        let end = mask.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(mask.len());
        numbers.contains(&&mask[..end])
    })
}

/// The lines of a file that have a field of their own.
fn by_hand(text: &str) -> Vec<&str> {
    let lines = production(text);
    let numbers = numbers(&lines);
    let is_by_hand = |line: &&str| {
        is_shifted_constant(line)
            || masks_with_a_number(line)
            || takes_a_field(line)
            || masks_with_a_constant(line, &numbers)
    };
    lines.iter().copied().filter(is_by_hand).collect()
}

#[test]
fn words_of_hardware_have_their_fields_in_chip() {
    let mut found = Vec::new();
    for room in ROOMS {
        files(&source().join(room), &mut found);
    }
    assert!(found.len() > 100, "the rooms are there");
    let mut wrong = Vec::new();
    for path in found {
        let name = path.strip_prefix(source()).unwrap().to_str().unwrap();
        let is_test = name.split('/').any(|part| part == "tests" || part == "tests.rs");
        if is_test || OTHERS.iter().any(|other| name.starts_with(other)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        wrong.extend(by_hand(&text).into_iter().map(|line| format!("src/{name}: {line}")));
    }
    assert!(wrong.is_empty(), "declare the field in src/chip:\n{}", wrong.join("\n"));
}

#[test]
fn each_form_is_seen_and_what_is_none_is_not() {
    for line in [
        "const BUSY: u32 = 1 << 28;",
        "pub(super) const BOTH: u32 = A | 3 << 5;",
        "let channel = status & 0x7f;",
        "self.enable = word & !0x70;",
        "let low = value & (0x3f << shift);",
        "let engine = (value >> 16) & 0x1f;",
        "let subchannel = address >> 16 & 7;",
        "const CHIPSET: u32 = 0x1ff0_0000;\nif boot & CHIPSET != known {",
        "const SYSTEM: u32 = 2;\nlet in_memory = pdb & !SYSTEM;",
    ] {
        assert_eq!(by_hand(line).len(), 1, "{line}");
    }
    for line in [
        "const SIZE: u64 = 1 << 20;",
        "const BUSY: u32 = NV_PFIFO_ENGINE_STATUS::BUSY.mask();",
        "const MOST: u32 = 1 << (VA_BITS - PAGE_SHIFT);",
        "let low = value & 0xffff_ffff;",
        "let page = address >> 12;",
        "// const BUSY: u32 = 1 << 28;",
        "const CHANNELS: u32 = 128;\nlet all = engines & mask;",
        "#[cfg(test)]\nmod tests {\nlet channel = status & 0x7f;",
    ] {
        assert_eq!(by_hand(line), Vec::<&str>::new(), "{line}");
    }
}
