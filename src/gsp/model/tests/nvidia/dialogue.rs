//! What NVIDIA's open kernel modules said to the firmware, in a file a version: a boot with `nvidia-smi`, an
//! unload, and a boot with a CUDA program that copies and ends.
//!
//! 550.163.01 was recorded on 25 November 2026 in a guest with Debian's module and libcuda on a virtual GH100
//! whose GSP was a stand-in; of its channels, where USERD is and whose they are comes from the recorder's
//! notes. 535.261.03 was recorded on 28 November 2026 in one with Debian 12's, on the virtual GSP as it is.
//! Of each message there are the numbers, and the bytes that are not zero, in words of 32 bits from the
//! first to the last that is not zero; of the longest only the first 160 bytes. Nothing that the firmware
//! answered is in it. The registry's keys are left out. Handles of the firmware's own objects are
//! `internal`.
//!
//! ```text
//! boot
//! rpc NUMBER BYTES WORDS
//! control CLIENT OBJECT NUMBER BYTES WORDS
//! alloc CLIENT PARENT OBJECT CLASS BYTES WORDS
//! dup CLIENT PARENT OBJECT SOURCE_CLIENT SOURCE
//! free CLIENT OBJECT
//! ```

use crate::model::tests::driver::{R535_261, R550, Version};

/// What a version's driver said, and what is special about it.
pub struct Recording {
    pub version: &'static Version,
    text: &'static str,
    /// How many boots, other messages, controls, allocations, duplicates and objects that go there are.
    counts: [usize; 6],
    /// Lengths of its structures as its own headers have them, by number of the control or class.
    sizes: &'static [(u32, usize)],
    /// Controls that the firmware does not know, and the driver does without.
    pub unknown: &'static [u32],
}

/// Sizes that both versions have.
const SIZES: [(u32, usize); 8] = [
    (0, 108),
    (0x2080, 4),
    (0x90f1, 48),
    (0xc86f, 360),
    (0xc36f, 360),
    (0x2080_1112, 3212),
    (0x2080_0a5c, 2068),
    (0x2080_012b, 560),
];

pub static RECORDINGS: [Recording; 2] = [
    Recording {
        version: &R550,
        text: include_str!("550.163.01.txt"),
        counts: [2, 2 * 4 + 2 * 2 + 2 + 2, 91 + 206, 43 + 138, 25, 43 + 163],
        sizes: &[(0x2080_0a32, 1664), (0x2080_0a2a, 3584), (0x2080_0a36, 88), (0x2080_2a0b, 136)],
        unknown: &[],
    },
    Recording {
        version: &R535_261,
        text: include_str!("535.261.03.txt"),
        counts: [2, 2 * 4 + 2 * 2 + 2 + 2, 288, 166, 25, 191],
        sizes: &[(0x2080_0a32, 1600), (0x2080_0a2a, 3392), (0x2080_0a36, 92), (0x2080_2a0b, 68)],
        unknown: &[0x2080_8161],
    },
];

/// Something that the driver did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It begins anew.
    Boot,
    /// Another message.
    Rpc { function: u32, body: Vec<u8> },
    /// A control of an object, its client first; none: the firmware's own subdevice.
    Control { to: Option<[u32; 2]>, number: u32, parameters: Vec<u8> },
    /// A new object: its client, its parent and itself.
    Alloc { names: [u32; 3], class: u32, parameters: Vec<u8> },
    /// An object, by client and name, that is to be known by client, parent and name as well.
    Duplicate { names: [u32; 3], source: [u32; 2] },
    /// An object that goes, its client first.
    Free([u32; 2]),
}

impl Recording {
    /// The recording of 550.163.01.
    pub fn of_550() -> &'static Self {
        let [of_550, _] = &RECORDINGS;
        of_550
    }

    /// The recording of 535.261.03.
    pub fn of_535() -> &'static Self {
        let [_, of_535] = &RECORDINGS;
        of_535
    }

    /// All of it, in order.
    pub fn steps(&self) -> Vec<Step> {
        self.text.lines().map(step).collect()
    }
}

fn step(line: &str) -> Step {
    let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut words = Words(rest.split_whitespace());
    match what {
        "boot" => Step::Boot,
        "rpc" => Step::Rpc { function: words.decimal(), body: words.bytes() },
        "control" => {
            let to = match rest.strip_prefix("internal ") {
                Some(rest) => {
                    words = Words(rest.split_whitespace());
                    None
                }
                None => Some([words.hex(), words.hex()]),
            };
            Step::Control { to, number: words.hex(), parameters: words.bytes() }
        }
        "alloc" => Step::Alloc {
            names: [words.hex(), words.hex(), words.hex()],
            class: words.hex(),
            parameters: words.bytes(),
        },
        "dup" => Step::Duplicate {
            names: [words.hex(), words.hex(), words.hex()],
            source: [words.hex(), words.hex()],
        },
        "free" => Step::Free([words.hex(), words.hex()]),
        _ => panic!("{line}"),
    }
}

struct Words<'a>(std::str::SplitWhitespace<'a>);

impl Words<'_> {
    fn hex(&mut self) -> u32 {
        u32::from_str_radix(self.0.next().unwrap(), 16).unwrap()
    }

    fn decimal(&mut self) -> u32 {
        self.0.next().unwrap().parse().unwrap()
    }

    /// How many bytes there are, and those that are not zero.
    fn bytes(&mut self) -> Vec<u8> {
        let size = self.decimal() as usize;
        let word = |word| u32::from_str_radix(word, 16).unwrap().to_le_bytes();
        let mut bytes: Vec<_> = self.0.by_ref().flat_map(word).collect();
        assert!(bytes.len() < size + 4, "{} bytes of {size}", bytes.len());
        bytes.resize(size, 0);
        bytes
    }
}

#[test]
fn all_of_it_is_read() {
    for recording in &RECORDINGS {
        let steps = recording.steps();
        let count = |which: fn(&Step) -> bool| steps.iter().filter(|step| which(step)).count();
        let counts = [
            count(|step| matches!(step, Step::Boot)),
            count(|step| matches!(step, Step::Rpc { .. })),
            count(|step| matches!(step, Step::Control { .. })),
            count(|step| matches!(step, Step::Alloc { .. })),
            count(|step| matches!(step, Step::Duplicate { .. })),
            count(|step| matches!(step, Step::Free(_))),
        ];
        assert_eq!(counts, recording.counts, "{}", recording.version.name);
    }
}

/// The sizes that its own headers give these structures.
#[test]
fn structures_are_as_long_as_in_its_headers() {
    for recording in &RECORDINGS {
        let version = recording.version;
        for step in recording.steps() {
            let (size, wanted) = match &step {
                Step::Alloc { class: number, parameters, .. } | Step::Control { number, parameters, .. } => {
                    let known = SIZES.iter().chain(recording.sizes).find(|(known, _)| known == number);
                    let Some((_, size)) = known else { continue };
                    (parameters.len(), *size)
                }
                Step::Rpc { function: 65, body } => (body.len(), version.static_info),
                Step::Rpc { function: 72, body } => (body.len(), version.system_info),
                _ => continue,
            };
            assert_eq!(size, wanted, "{}: {step:?}", version.name);
        }
    }
}
