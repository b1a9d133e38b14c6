//! Memory of a fake back: zero until somebody writes it.

use std::collections::BTreeMap;
use std::ops::Range;

const PAGE: usize = 0x1000;

/// Bytes at a range of addresses. Only pages that were written take memory of the process.
#[derive(Debug, Default)]
pub struct FakeMemory {
    range: Range<u64>,
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

impl FakeMemory {
    /// All of it is zero.
    pub fn new(range: Range<u64>) -> Self {
        Self { range, pages: BTreeMap::new() }
    }

    /// The addresses that there are.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Zeroes all of it.
    pub fn clear(&mut self) {
        self.pages.clear();
    }

    /// Fills `data` with what lies at `address`. False, and nothing is filled, if not all of it is there.
    #[must_use]
    pub fn read(&self, address: u64, data: &mut [u8]) -> bool {
        if !self.has(address, data.len()) {
            return false;
        }
        let (mut at, mut rest) = (address, data);
        while !rest.is_empty() {
            let (part, later) = rest.split_at_mut(rest.len().min(PAGE - offset(at)));
            match self.pages.get(&number(at)) {
                Some(page) => part.copy_from_slice(&page[offset(at)..][..part.len()]),
                None => part.fill(0),
            }
            at += part.len() as u64;
            rest = later;
        }
        true
    }

    /// Writes `data` at `address`. False, and nothing is written, if not all of it is there.
    #[must_use]
    pub fn write(&mut self, address: u64, data: &[u8]) -> bool {
        if !self.has(address, data.len()) {
            return false;
        }
        let (mut at, mut rest) = (address, data);
        while !rest.is_empty() {
            let (part, later) = rest.split_at(rest.len().min(PAGE - offset(at)));
            let page = self.pages.entry(number(at)).or_insert_with(|| Box::new([0; PAGE]));
            page[offset(at)..][..part.len()].copy_from_slice(part);
            at += part.len() as u64;
            rest = later;
        }
        true
    }

    fn has(&self, address: u64, size: usize) -> bool {
        let end = address.checked_add(size as u64);
        self.range.start <= address && end.is_some_and(|end| end <= self.range.end)
    }
}

/// The number of an address's page.
fn number(address: u64) -> u64 {
    address / PAGE as u64
}

/// The place of an address in its page.
fn offset(address: u64) -> usize {
    usize::try_from(address % PAGE as u64).unwrap()
}
