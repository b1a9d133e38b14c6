//! The words of a warp's state that BMOV moves beside convergence barriers.
//!
//! NVIDIA's code around a call of a function of its driver's (`printf`) reads them all, has the lanes that do
//! not call count as ended, and puts everything back when the function returns. NVIDIA's start of a
//! cooperative grid has all lanes run that have not ended.

use gpuvmk_isa::warp_state::{FIRST, OPT_STACK, THREAD_STATE_LAST};

/// Words that mean nothing here: they keep what is written.
const KEPT: usize = 6;

/// Words of a warp's state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Words {
    /// Lanes that count as ended, and have not.
    pub hidden: u32,
    kept: [u32; KEPT],
}

impl Words {
    /// The place of a word that is kept; none for one that is not known.
    pub fn kept(&mut self, word: u8) -> Option<&mut u32> {
        let place = match word {
            FIRST..=THREAD_STATE_LAST => usize::from(word - FIRST),
            OPT_STACK => KEPT - 1,
            _ => return None,
        };
        self.kept.get_mut(place)
    }
}
