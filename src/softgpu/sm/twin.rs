//! Twins of the room of execution: one as the compiler makes it for every processor of an architecture, one
//! for those with AVX2 and FMA. Both are made of the same source: they differ in speed alone.
//!
//! One with AVX-512 was slower: what a comparison gives for each lane was gathered bit by bit.

#![allow(unsafe_code, reason = "code for a processor's features is called where the processor was asked")]

use crate::exec::{Context, Quickly, Turn, in_page, quick_run};
use crate::fault::Cause;
use crate::program::{Code, PAGE, Page};
use crate::warp::Warp;

/// A twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin(Made);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// For every processor.
    Plain,
    /// For one with AVX2 and FMA. Only [`Twin::of_host`] makes it.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Twin {
    /// The one that runs on every processor.
    pub const PLAIN: Self = Self(Made::Plain);

    /// The fastest one that this processor runs.
    #[must_use]
    pub fn of_host() -> Self {
        #[cfg(target_arch = "x86_64")]
        if avx2::is_there() {
            return Self(Made::Avx2);
        }
        Self::PLAIN
    }

    /// All that this processor runs, the slowest one first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        if avx2::is_there() {
            return vec![Self::PLAIN, Self(Made::Avx2)];
        }
        vec![Self::PLAIN]
    }

    /// Runs a warp for `budget` instructions at most.
    ///
    /// # Errors
    /// Why it cannot go on. The group's place is that of the instruction.
    pub(crate) fn run(
        self,
        warp: &mut Warp,
        context: &mut Context<'_>,
        code: &mut Code,
        budget: u32,
    ) -> Result<Turn, Cause> {
        let mut left = [budget, warp.fairness];
        while warp.group.mask != 0 {
            let base = warp.group.pc & !(PAGE - 1);
            let page = code.page(base, context.program, context.view)?;
            if let Some(turn) = self.in_page(warp, context, page, base, &mut left)? {
                warp.fairness = left[1];
                return Ok(turn);
            }
        }
        Ok(if warp.live == 0 { Turn::Ended } else { Turn::Blocked })
    }

    /// Runs a warp while it stays in a page of code: see [`in_page`].
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub(crate) fn in_page(
        self,
        warp: &mut Warp,
        context: &mut Context<'_>,
        page: &Page,
        base: u64,
        left: &mut [u32; 2],
    ) -> Result<Option<Turn>, Cause> {
        match self.0 {
            Made::Plain => in_page(warp, context, page, base, left, plain),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has the features that both functions are made for: a twin of this kind
            // comes from `of_host` alone, which asked it.
            Made::Avx2 => unsafe { avx2::run(warp, context, page, base, left, with_avx2) },
        }
    }
}

/// The commonest instructions, for every processor.
fn plain(
    warp: &mut Warp,
    context: &mut Context<'_>,
    page: &Page,
    base: u64,
    most: u32,
) -> Result<u32, Cause> {
    quick_run(warp, context, page, base, most)
}

/// The same, with AVX2.
#[cfg(target_arch = "x86_64")]
fn with_avx2(
    warp: &mut Warp,
    context: &mut Context<'_>,
    page: &Page,
    base: u64,
    most: u32,
) -> Result<u32, Cause> {
    // SAFETY: twins that have asked the processor for these features alone are given this function.
    unsafe { avx2::quickly(warp, context, page, base, most) }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Cause, Context, Page, Quickly, Turn, Warp, in_page, quick_run};

    /// Whether the processor has the features of [`run`]. They are asked for once.
    pub(super) fn is_there() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
    }

    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn run(
        warp: &mut Warp,
        context: &mut Context<'_>,
        page: &Page,
        base: u64,
        left: &mut [u32; 2],
        quickly: Quickly,
    ) -> Result<Option<Turn>, Cause> {
        in_page(warp, context, page, base, left, quickly)
    }

    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn quickly(
        warp: &mut Warp,
        context: &mut Context<'_>,
        page: &Page,
        base: u64,
        most: u32,
    ) -> Result<u32, Cause> {
        quick_run(warp, context, page, base, most)
    }
}
