//! Channels of the driver's kernel, whose commands GSP carries out: for a moment when the driver rings, and
//! then by themselves.

use super::{Core, Processor};
use crate::gsp_face::hal::Token;
use crate::gsp_face::later::GoesOn;
use crate::gsp_face::locked;
use gpuvmk_backend::GspBackend;
use gpuvmk_gsp::KernelWork;

/// How long GSP is kept for them at a time, in nanoseconds: who rings waits so long, and so does who wants
/// something else of GSP.
const MOMENT: u64 = 2_000_000;
/// Pieces of work in that time at most, where no clock ticks.
const PIECES: u32 = 1024;

impl<B: GspBackend> Core<B> {
    /// A doorbell for a channel of the driver's kernel, which GSP carries out. False: there is no such
    /// channel.
    pub fn kernel_doorbell(&self, back: &B, token: Token) -> bool {
        {
            let mut processor = locked(&self.processor);
            let others_work = self.works_later(&processor);
            if !processor.gsp.kernel_doorbell((token.runlist, token.chid)) {
                return false;
            }
            if others_work {
                // Its turn comes; whoever rings without a pause is not kept for each of them.
                return true;
            }
            self.kernel_work(back, &mut processor);
            self.later.tell(processor.gsp.kernel_left());
            self.finish(back, &mut processor);
        }
        self.deliver();
        true
    }

    /// After messages, which may let such channels run: the same as at a doorbell.
    pub(super) fn kernel_work_of_messages(&self, back: &B, processor: &mut Processor<B>) {
        if !self.works_later(processor) {
            self.kernel_work(back, processor);
            self.later.tell(processor.gsp.kernel_left());
        }
    }

    /// Whether work is left that goes on by itself.
    fn works_later(&self, processor: &Processor<B>) -> bool {
        processor.gsp.kernel_left() == KernelWork::More && self.later.runs()
    }

    /// Whether a driver has such channels.
    pub fn has_kernel_channels(&self) -> bool {
        locked(&self.processor).gsp.has_kernel_channels()
    }

    /// What such channels have left goes on by itself.
    pub fn go_on_later(&self) {
        self.later.tell(locked(&self.processor).gsp.kernel_left());
    }

    /// Carries out what such channels were told, for a moment.
    fn kernel_work(&self, back: &B, processor: &mut Processor<B>) {
        let begun = self.face.now();
        let mut now = begun;
        for _ in 0..PIECES {
            let effects = processor.gsp.kernel_work(back, now);
            self.apply(back, &effects);
            now = self.face.now();
            if processor.gsp.kernel_left() != KernelWork::More || now.saturating_sub(begun) >= MOMENT {
                break;
            }
        }
    }
}

impl<B: GspBackend> GoesOn for Core<B> {
    fn go_on(&self) -> KernelWork {
        let left = {
            let mut processor = locked(&self.processor);
            // Dropped before GSP is let go, see `deliver`.
            let Some(back) = processor.back.upgrade() else { return KernelWork::Nothing };
            if processor.gsp.kernel_left() != KernelWork::Nothing {
                self.kernel_work(&back, &mut processor);
                self.finish(&back, &mut processor);
            }
            processor.gsp.kernel_left()
        };
        self.deliver();
        left
    }
}
