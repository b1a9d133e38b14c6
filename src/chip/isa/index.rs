//! Rows by code, one index for each version.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::arch::Arch;
use crate::codec::Codec;
use crate::decode::field_mask;
use crate::row::{Form, Row};
use crate::table::rows;
use crate::word::{Code, Word};

/// A row in one form, with the bits that it accounts for.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) row: &'static Row,
    pub(crate) form: &'static Form,
    /// Bits that have a meaning.
    pub(crate) mask: u128,
    /// Bits with one legal value, and that value.
    pub(crate) fixed_mask: u128,
    pub(crate) fixed: u128,
}

type Index = HashMap<u16, Vec<Entry>>;

static INDEX: LazyLock<[Index; 7]> = LazyLock::new(|| Arch::ALL.map(index));

fn index(arch: Arch) -> Index {
    let mut index = Index::new();
    for row in rows().filter(|row| row.since <= arch && arch <= row.until) {
        for form in row.forms.iter().filter(|form| form.arch.0 <= arch && arch <= form.arch.1) {
            index.entry(row.code | form.code).or_default().push(entry(arch, row, form));
        }
    }
    index
}

fn entry(arch: Arch, row: &'static Row, form: &'static Form) -> Entry {
    let codec = Codec { arch, form };
    let fields = row.fields.iter().map(field_mask);
    let slots = row.slots.iter().map(|slot| codec.mask(slot));
    let fixed_mask = row.fixed.iter().map(|(bits, _)| bits.mask()).fold(0, |all, mask| all | mask);
    let fixed = row.fixed.iter().fold(Word(0), |word, (bits, value)| word.with(*bits, *value)).0;
    let mask = fields.chain(slots).fold(Word::COMMON | fixed_mask, |all, mask| all | mask);
    Entry { row, form, mask, fixed_mask, fixed }
}

/// The rows that may account for words of a code.
pub(crate) fn entries(arch: Arch, code: Code) -> &'static [Entry] {
    INDEX[arch.index()].get(&code.0).map_or(&[], Vec::as_slice)
}

/// Every code of a version.
#[must_use]
pub fn codes(arch: Arch) -> Vec<Code> {
    let mut codes: Vec<_> = INDEX[arch.index()].keys().copied().map(Code).collect();
    codes.sort_unstable_by_key(|code| code.0);
    codes
}
