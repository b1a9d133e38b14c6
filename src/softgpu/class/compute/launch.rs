//! From a QMD in memory to a grid that may run: what the compute work distributor reads, checks and keeps.

use gpuvmk_chip::compute::{ComputeClass, OverLimit};
use gpuvmk_chip::qmd::layout::Layout;
use gpuvmk_chip::qmd::{Act, Asked, Grid, MAX_WORDS, Qmd, Reserved};

pub(super) use crate::engine::model::GR_EXCEPTION;
use crate::engine::model::{Refusal, Run};

/// Words in which every version has its number.
const HEAD_WORDS: usize = 64;

/// Why a QMD is not launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Unfit {
    #[error("it has none of the versions that its class takes")]
    Version,
    #[error("blocks of its version have no dependence counter")]
    NoCounter,
    #[error(transparent)]
    Reserved(#[from] Reserved),
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    #[error("it has code of SM {has:#04x}, and its class runs SM {runs}")]
    Code { has: u8, runs: u8 },
}

/// SASS_VERSION of an SM: 75 is written 0x75. Blackwell's have three digits, and 0xa0 to 0xc0.
fn sass_version(sm: u8) -> u8 {
    ((sm / 10) << 4) | (sm % 10)
}

fn examine(class: &ComputeClass, qmd: &Qmd, layout: &Layout) -> Result<Grid, Unfit> {
    let grid = Grid::of(qmd, layout)?;
    if matches!(grid.asked, Asked::Grid | Asked::Together) {
        class.check(&grid)?;
        let has = grid.sass_version;
        // Code of the same generation runs on each of its SMs; drivers may also leave it open.
        if has != 0 && has >> 4 != sass_version(class.sm) >> 4 {
            return Err(Unfit::Code { has, runs: class.sm });
        }
    }
    Ok(grid)
}

/// A QMD in memory, and what is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Its virtual address.
    pub(super) qmd: u64,
    pub(super) act: Act,
}

/// A QMD as it was read.
pub(super) struct Block<'a> {
    class: &'a ComputeClass,
    va: u64,
    words: Qmd,
    layout: &'static Layout,
}

impl<'a> Block<'a> {
    /// Reads the QMD at `va`.
    pub(super) fn read(run: &Run<'_>, class: &'a ComputeClass, va: u64) -> Result<Self, Refusal> {
        let mut bytes = [0; MAX_WORDS * 4];
        let (head, rest) = bytes.split_at_mut(HEAD_WORDS * 4);
        run.memory.read(va, head)?;
        let words = |bytes: &[u8]| {
            let mut words = [0; MAX_WORDS];
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u32::from_le_bytes(*bytes);
            }
            Qmd::from(words)
        };
        let layout = words(head).layout(class.layouts).ok_or_else(|| refused(class, va, Unfit::Version))?;
        // A shorter block may end where memory does.
        if layout.words > HEAD_WORDS {
            run.memory.read(va.saturating_add(HEAD_WORDS as u64 * 4), rest)?;
        }
        Ok(Self { class, va, words: words(&bytes), layout })
    }

    /// What it describes.
    pub(super) fn grid(&self) -> Result<Grid, Refusal> {
        examine(self.class, &self.words, self.layout).map_err(|unfit| refused(self.class, self.va, unfit))
    }

    /// Keeps in the block what keeps it from running after this. Returns whether it runs now.
    pub(super) fn act(&self, run: &Run<'_>, act: Act) -> Result<bool, Refusal> {
        let Some(fields) = &self.layout.turn else {
            return match act {
                Act::Copy | Act::Schedule => Ok(true),
                Act::CountDown | Act::CountUp => Err(refused(self.class, self.va, Unfit::NoCounter)),
            };
        };
        let turn = self.words.kept(fields).after(act, self.words.asked(fields));
        let kept = self.words.clone().keeping(fields, turn);
        let words = self.words.words().iter().zip(kept.words()).enumerate();
        for (index, (_, word)) in words.filter(|(_, (before, word))| before != word) {
            run.memory.write(self.va.saturating_add(index as u64 * 4), &word.to_le_bytes())?;
        }
        Ok(act != Act::CountUp && turn.has_come())
    }
}

fn refused(class: &ComputeClass, va: u64, unfit: Unfit) -> Refusal {
    log::debug!("softgpu: {} is given the QMD at {va:#x}, but {unfit}", class.class.name);
    Refusal::Robust(GR_EXCEPTION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::compute;
    use gpuvmk_chip::qmd::layout::{V2_2, V4_0, V5_0};

    fn ordinary(layout: &Layout) -> Qmd {
        let mut qmd = Qmd::new(layout).with(layout.registers, 16);
        for field in layout.grid.into_iter().chain(layout.block) {
            qmd = qmd.with(field, 1);
        }
        qmd
    }

    fn examine(class: &ComputeClass, qmd: &Qmd) -> Result<Grid, Unfit> {
        super::examine(class, qmd, qmd.layout(class.layouts).ok_or(Unfit::Version)?)
    }

    fn class(sm: u8) -> &'static ComputeClass {
        compute::ALL.iter().find(|row| row.sm == sm).unwrap()
    }

    #[test]
    fn a_class_takes_its_own_versions_alone() {
        assert!(examine(class(90), &ordinary(&V4_0)).is_ok());
        assert!(examine(class(75), &ordinary(&V2_2)).is_ok());
        assert_eq!(examine(class(75), &ordinary(&V4_0)), Err(Unfit::Version));
        assert_eq!(examine(class(90), &ordinary(&V5_0)), Err(Unfit::Version));
        assert_eq!(examine(class(90), &Qmd::default()), Err(Unfit::Version));
    }

    #[test]
    fn code_of_another_generation_is_refused() {
        let with = |version| ordinary(&V4_0).with(V4_0.sass_version, version);
        assert!(examine(class(90), &with(0x90)).is_ok());
        assert_eq!(examine(class(90), &with(0x86)), Err(Unfit::Code { has: 0x86, runs: 90 }));
    }

    #[test]
    fn what_exceeds_an_sm_is_refused() {
        let [width, ..] = V4_0.block;
        let much = ordinary(&V4_0).with(width, 2000);
        assert!(matches!(examine(class(90), &much), Err(Unfit::OverLimit(_))));
    }
}
