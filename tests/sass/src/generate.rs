//! Random programs of words that a compiler made.

use gpuvmk_isa::{Arch, Opcode, Word};

use crate::instance::{Instance, confined, templates};
use crate::program::Program;
use crate::random::Random;
use crate::windows::{Window, accesses};

/// Threads of a program.
pub const THREADS: u32 = 4096;

/// What programs are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Of which version.
    pub arch: Arch,
    /// How often each word that differs from others is there.
    pub times: u32,
    /// Instances of a program.
    pub size: usize,
    /// Names the random numbers.
    pub seed: u64,
}

/// What programs use: registers alone, memory, local memory, generic addresses.
const GROUPS: [&str; 4] = ["registers", "memory", "local", "generic"];

/// Programs by what they use.
#[must_use]
pub fn programs(words: &[Word], wanted: Wanted) -> Vec<(&'static str, Vec<Program>)> {
    let templates = templates(wanted.arch, words.iter().copied());
    let mut random = Random::new(wanted.seed);
    let mut groups = GROUPS.map(|name| (name, Vec::new()));
    for _ in 0..wanted.times {
        for template in &templates {
            let Some(word) = confined(wanted.arch, *template, &mut random) else { continue };
            let Some(instance) = Instance::of(wanted.arch, word) else { continue };
            let generic = [Opcode::Ld, Opcode::St, Opcode::Atom, Opcode::AtomCas, Opcode::Qspc];
            let group = match (instance.window, accesses(instance.opcode)) {
                _ if generic.contains(&instance.opcode) => 3,
                (Some(Window::Local), _) => 2,
                (_, true) => 1,
                _ => 0,
            };
            groups[group].1.push(word);
        }
    }
    groups
        .into_iter()
        .filter(|(_, words)| !words.is_empty())
        .map(|(name, words)| {
            let programs = words.chunks(wanted.size.max(1)).enumerate().map(|(index, words)| {
                let seed = wanted.seed << 32 | u64::try_from(index).unwrap_or(0);
                Program::of(wanted.arch, seed, THREADS, words)
            });
            (name, programs.collect())
        })
        .collect()
}
