//! Code of a launch, decoded by pages at first use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use gpuvmk_isa::{Arch, Word, decode};

use crate::bindless::Bindless;
use crate::fault::Cause;
use crate::launch::Constants;
use crate::lower::{Lower, Pool};
use crate::memory::View;
use crate::op::Op;
use crate::quick::Quick;
use crate::row::Kept;

/// Bytes of code that are decoded together: 32 instructions. More would take a small kernel longer than it
/// runs.
pub(crate) const PAGE: u64 = 512;
const WORDS: usize = 128;

/// Pages that are kept: 64 MiB at most. More are decoded again.
const PAGES: usize = 4096;

/// Pages that a worker has at hand.
const NEAR: usize = 32;

/// A page of code, ready to run.
#[derive(Debug)]
pub(crate) struct Page {
    pub ops: Vec<Result<Op, Cause>>,
    /// The same instructions, those that have a form of their own.
    pub quick: Vec<Quick>,
    pub pool: Vec<Kept>,
    /// Operations with constants of buffers whose handles are in registers, with their places.
    pub bindless: Vec<(usize, Bindless)>,
}

impl Page {
    /// The operation at a place, and where its constants are, if that is to be found out first.
    #[inline(always)]
    pub fn op(&self, index: usize) -> Option<Result<(&Op, Option<&Bindless>), Cause>> {
        match self.ops.get(index)? {
            Ok(op) => Some(Ok((op, None))),
            Err(cause) => Some(match self.bindless.iter().find(|(at, _)| *at == index) {
                Some((_, found)) => Ok((&found.op, Some(found))),
                None => Err(*cause),
            }),
        }
    }
}

/// The pages of code that a worker ran last, each in its place.
#[derive(Debug, Default)]
pub(crate) struct Code([Option<(u64, Arc<Page>)>; NEAR]);

impl Code {
    /// The page at an address, which is a multiple of a page's size.
    #[inline]
    pub fn page(&mut self, address: u64, program: &Program, view: &mut dyn View) -> Result<&Page, Cause> {
        let place = &mut self.0[(address / PAGE) as usize % NEAR];
        // Taken out and put back: a reference cannot go and stay.
        let page = match place.take().filter(|(at, _)| *at == address) {
            Some((_, page)) => page,
            None => program.page(address, view)?,
        };
        Ok(&place.insert((address, page)).1)
    }
}

/// The code that a launch has reached. It stays as it was first read.
#[derive(Debug)]
pub(crate) struct Program {
    arch: Arch,
    registers: u16,
    constants: Constants,
    pages: Mutex<HashMap<u64, Arc<Page>>>,
}

impl Program {
    pub fn new(arch: Arch, registers: u16, constants: Constants) -> Self {
        Self { arch, registers, constants, pages: Mutex::default() }
    }

    pub fn constants(&self) -> &Constants {
        &self.constants
    }

    fn page(&self, address: u64, view: &mut dyn View) -> Result<Arc<Page>, Cause> {
        let pages = || self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(page) = pages().get(&address) {
            return Ok(Arc::clone(page));
        }
        let mut words = vec![0; WORDS];
        view.load(address, &mut words)?;
        let page = Arc::new(self.decode(&words));
        let mut pages = pages();
        if pages.len() >= PAGES {
            pages.clear();
        }
        pages.insert(address, Arc::clone(&page));
        Ok(page)
    }

    fn decode(&self, words: &[u32]) -> Page {
        let mut pool = Pool::default();
        let mut lower = Lower { registers: self.registers, constants: &self.constants, pool: &mut pool };
        let (mut ops, mut bindless) = (Vec::new(), Vec::new());
        for (index, words) in words.chunks_exact(4).enumerate() {
            let word = words.iter().rev().fold(0_u128, |word, next| word << 32 | u128::from(*next));
            let Ok(instruction) = decode(self.arch, Word(word)) else {
                ops.push(Err(Cause::NoInstruction(word)));
                continue;
            };
            let op = lower.instruction(&instruction);
            match (op, Lower::bindless(&instruction)) {
                (Ok(op), Some((handle, offset))) => {
                    bindless.push((index, Bindless { op, handle, offset }));
                    ops.push(Err(Cause::NotExecuted(op.opcode)));
                }
                (op, _) => ops.push(op),
            }
        }
        let of = |op: &Result<Op, Cause>| op.as_ref().map_or(Quick::NONE, |op| Quick::of(op, self.registers));
        Page { quick: ops.iter().map(of).collect(), ops, pool: pool.rows, bindless }
    }
}
