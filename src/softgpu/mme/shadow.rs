//! What methods were sent last: scratch words, which classes share, and a shadow RAM for each class.

use SET_MME_SHADOW_RAM_CONTROL::MODE;
use gpuvmk_chip::gh100::methods::macros::{
    SCRATCHES, SET_MME_SHADOW_RAM_CONTROL, SET_MME_SHADOW_SCRATCH, Shadow,
};

/// Methods of a class.
const METHODS: usize = 0x1000;

/// The words. RAMs that nothing was written to have none.
#[derive(Clone, Debug)]
pub(super) struct ShadowRam {
    scratch: [u32; SCRATCHES as usize],
    classes: [Vec<u32>; 3],
    mode: u32,
}

impl Default for ShadowRam {
    fn default() -> Self {
        Self { scratch: [0; SCRATCHES as usize], classes: Default::default(), mode: MODE::METHOD_TRACK }
    }
}

/// Which scratch word a method is, if it is one.
fn scratch(method: u16) -> Option<usize> {
    let index = usize::from(method.checked_sub(SET_MME_SHADOW_SCRATCH)? / 4);
    (index < usize::from(SCRATCHES)).then_some(index)
}

impl ShadowRam {
    fn class(&mut self, class: Shadow) -> &mut Vec<u32> {
        let [threed, compute, twod] = &mut self.classes;
        match class {
            Shadow::ThreeD => threed,
            Shadow::Compute => compute,
            Shadow::TwoD => twod,
        }
    }

    /// Sets what becomes of methods.
    pub(super) fn set_mode(&mut self, data: u32) {
        self.mode = MODE.get(data);
    }

    /// Keeps what a scratch word is sent. False if the method is none.
    pub(super) fn set_scratch(&mut self, method: u16, data: u32) -> bool {
        let word = scratch(method).and_then(|index| self.scratch.get_mut(index));
        let Some(word) = word else { return false };
        *word = data;
        true
    }

    /// What a method is executed with: what it was sent, or what was kept. Nothing is filtered.
    pub(super) fn pass(&mut self, class: Shadow, method: u16, data: u32) -> u32 {
        if self.mode == MODE::METHOD_PASSTHROUGH {
            return data;
        }
        let replays = self.mode == MODE::METHOD_REPLAY;
        let words = self.class(class);
        if words.is_empty() {
            words.resize(METHODS, 0);
        }
        let Some(word) = words.get_mut(usize::from(method / 4)) else { return data };
        if !replays {
            *word = data;
        }
        *word
    }

    /// What STATE reads.
    pub(super) fn read(&mut self, class: Shadow, method: u16) -> u32 {
        if let Some(index) = scratch(method) {
            return self.scratch.get(index).copied().unwrap_or(0);
        }
        self.class(class).get(usize::from(method / 4)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_share_scratch_words_alone() {
        let mut ram = ShadowRam::default();
        assert!(ram.set_scratch(SET_MME_SHADOW_SCRATCH + 4 * 255, 7));
        assert!(!ram.set_scratch(SET_MME_SHADOW_SCRATCH + 4 * 256, 7));
        assert_eq!(ram.pass(Shadow::ThreeD, 0x1c00, 9), 9);
        for (class, kept) in [(Shadow::ThreeD, 9), (Shadow::Compute, 0), (Shadow::TwoD, 0)] {
            assert_eq!((ram.read(class, 0x37fc), ram.read(class, 0x1c00)), (7, kept), "{class:?}");
        }
    }

    #[test]
    fn modes_keep_and_replay() {
        let mut ram = ShadowRam::default();
        ram.pass(Shadow::TwoD, 0x200, 1);
        ram.set_mode(MODE::METHOD_PASSTHROUGH);
        assert_eq!((ram.pass(Shadow::TwoD, 0x200, 2), ram.read(Shadow::TwoD, 0x200)), (2, 1));
        ram.set_mode(MODE::METHOD_REPLAY);
        assert_eq!((ram.pass(Shadow::TwoD, 0x200, 3), ram.read(Shadow::TwoD, 0x200)), (1, 1));
        ram.set_mode(MODE::METHOD_TRACK_WITH_FILTER);
        assert_eq!((ram.pass(Shadow::TwoD, 0x200, 4), ram.read(Shadow::TwoD, 0x200)), (4, 4));
    }
}
