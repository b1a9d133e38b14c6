//! What is wrong with a program though it may give right results.

mod scoreboards;
mod shared;

use std::collections::BTreeMap;

use gpuvmk_isa::print::At;
use gpuvmk_isa::{Arch, decode};
use gpuvmk_sm::Step;

use super::trace::word;
use gpuvmk_shader::memory::Areas;
use scoreboards::Scoreboards;
use shared::Shared;

/// Looks for mistakes.
pub struct Checks<'a> {
    arch: Arch,
    start: u64,
    code: &'a [u8],
    areas: &'a Areas,
    shared: Shared,
    scoreboards: Scoreboards,
    /// What was found, once for each instruction, and how often.
    found: BTreeMap<(u64, String), u64>,
}

impl<'a> Checks<'a> {
    /// Of a kernel's code at an address.
    pub fn new(arch: Arch, start: u64, code: &'a [u8], areas: &'a Areas) -> Self {
        // Code was fetched before anybody looks.
        areas.take_unwritten();
        Self {
            arch,
            start,
            code,
            areas,
            shared: Shared::default(),
            scoreboards: Scoreboards::default(),
            found: BTreeMap::new(),
        }
    }

    fn note(&mut self, pc: u64, what: &str) {
        *self.found.entry((pc, what.to_owned())).or_default() += 1;
    }

    /// Looks at a step.
    pub fn step(&mut self, step: &Step<'_>) {
        if !self.areas.take_unwritten().is_empty() {
            self.note(step.pc, "reads memory that was never written");
        }
        if let Some(what) = self.shared.step(step) {
            self.note(step.pc, what);
        }
        let instruction = word(self.code, self.start, step.pc)
            .and_then(|word| Some((decode(self.arch, word).ok()?, word.control())));
        if let Some((instruction, control)) = instruction {
            for register in self.scoreboards.step(step, &instruction, control) {
                self.note(step.pc, &format!("uses {register} without waiting for its scoreboard"));
            }
        }
    }

    /// Lines that say what was found, by address.
    pub fn found(&self) -> Vec<String> {
        let line = |((pc, what), times): (&(u64, String), &u64)| {
            let offset = pc.wrapping_sub(self.start);
            let instruction = word(self.code, self.start, *pc).and_then(|word| decode(self.arch, word).ok());
            let text = instruction.map(|one| At(&one, offset).to_string()).unwrap_or_default();
            format!("{offset:04x} {text}: {what} ({times} times)")
        };
        self.found.iter().map(line).collect()
    }
}
