//! What NVIDIA's open kernel modules 550.163.01 said to the firmware, in `550.163.01.txt`: a boot with
//! `nvidia-smi`, an unload, and a boot with a CUDA program that copies and ends.
//!
//! It was recorded on 25 November 2026 in a guest with Debian's module and libcuda on a virtual GH100 whose
//! GSP was a stand-in. Of each message there are the numbers, and the bytes that are not zero, in words of 32
//! bits from the first to the last that is not zero; of the longest only the first 160 bytes. Nothing that
//! the firmware answered is in it. Of channels, where USERD is and whose they are comes from the recorder's
//! notes. The registry's keys are left out. Handles of the firmware's own objects are `internal`.
//!
//! ```text
//! boot
//! rpc NUMBER BYTES WORDS
//! control CLIENT OBJECT NUMBER BYTES WORDS
//! alloc CLIENT PARENT OBJECT CLASS BYTES WORDS
//! dup CLIENT PARENT OBJECT SOURCE_CLIENT SOURCE
//! free CLIENT OBJECT
//! ```

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

/// All of it, in order.
pub fn steps() -> Vec<Step> {
    include_str!("550.163.01.txt").lines().map(step).collect()
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
    let steps = steps();
    let count = |which: fn(&Step) -> bool| steps.iter().filter(|step| which(step)).count();
    assert_eq!(count(|step| matches!(step, Step::Boot)), 2);
    assert_eq!(count(|step| matches!(step, Step::Rpc { .. })), 2 * 4 + 2 * 2 + 2 + 2);
    assert_eq!(count(|step| matches!(step, Step::Control { .. })), 91 + 206);
    assert_eq!(count(|step| matches!(step, Step::Alloc { .. })), 43 + 138);
    assert_eq!(count(|step| matches!(step, Step::Duplicate { .. })), 25);
    assert_eq!(count(|step| matches!(step, Step::Free(_))), 43 + 163);
}

/// The sizes that its own headers give these structures.
#[test]
fn structures_are_as_long_as_in_its_headers() {
    for step in steps() {
        let (size, sizes): (_, &[usize]) = match &step {
            Step::Alloc { class: 0, parameters, .. } => (parameters.len(), &[108]),
            Step::Alloc { class: 0x2080, parameters, .. } => (parameters.len(), &[4]),
            Step::Alloc { class: 0x90f1, parameters, .. } => (parameters.len(), &[48]),
            Step::Alloc { class: 0xc86f | 0xc36f, parameters, .. } => (parameters.len(), &[360]),
            Step::Control { number: 0x2080_1112, parameters, .. } => (parameters.len(), &[3212]),
            Step::Control { number: 0x2080_0a5c, parameters, .. } => (parameters.len(), &[2068]),
            Step::Control { number: 0x90f1_0106, parameters, .. } => (parameters.len(), &[184]),
            Step::Control { number: 0x2080_012b, parameters, .. } => (parameters.len(), &[560]),
            Step::Control { number: 0x2080_0a32, parameters, .. } => (parameters.len(), &[1664]),
            Step::Rpc { function: 65, body } => (body.len(), &[2184]),
            Step::Rpc { function: 72, body } => (body.len(), &[880]),
            _ => continue,
        };
        assert!(sizes.contains(&size), "{size} bytes of {step:?}");
    }
}
