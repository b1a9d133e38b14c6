//! Who uses the function's head: the driver by registers, the thread that begins frames, and whoever looks.

use std::sync::Weak;

use super::super::frames::Blanks;
use super::super::memory::VramMemory;
use super::Core;
use crate::display::HeadMemory;
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::registers::Reg;
use gpuvmk_display::{Address, ReadBytes, ReadError, Scanout, Size};
use gpuvmk_mmio_trap::access::Word;

impl<B: GspBackend> Core<B> {
    /// What the head shows now; none: it is not lit, or the function has none.
    pub fn scanout(&self, back: &B) -> Option<Scanout> {
        self.head.as_ref()?.lock().scanout(&VramMemory(back))
    }

    /// Plugs in a monitor that prefers a size, or none, and tells the driver. Nothing happens where there is
    /// no head.
    pub fn replug(&self, size: Option<(u16, u16)>) {
        let Some(head) = &self.head else { return };
        match head.plug(size.map(|(width, height)| Size::new(width, height))) {
            Ok(true) => {
                match head.monitor() {
                    Some(mode) => log::info!("The monitor prefers {mode} now"),
                    None => log::info!("The monitor is unplugged"),
                }
                self.face.counters_changed.note();
                self.deliver();
            }
            Ok(false) => {}
            Err(error) => log::warn!("The monitor stays as it is: {error}"),
        }
    }

    /// Reads a register of the display engine; none: it is not of it, or the function has no head.
    pub fn read_head(&self, reg: Reg) -> Option<u32> {
        let head = self.head.as_ref()?;
        head.lock().read(reg, self.face.now())
    }

    /// Writes a register of the display engine; none: it is not of it, or the function has no head. True:
    /// frames are waited for.
    pub fn write_head(&self, back: &B, reg: Reg, word: Word) -> Option<bool> {
        let head = self.head.as_ref()?;
        let now = self.face.now();
        let (interrupts, due, is_news) = {
            let mut display = head.lock();
            let before = display.counters();
            let interrupts = display.write(reg, word, &VramMemory(back), now)?;
            let after = display.counters();
            let is_news = (before.channels_stopped, before.handles_refused)
                != (after.channels_stopped, after.handles_refused);
            (interrupts, display.due(now), is_news)
        };
        head.frames.tell(due);
        if interrupts {
            self.face.lock().display_event();
        }
        if is_news {
            self.face.counters_changed.note();
        }
        Some(due.is_some())
    }
}

/// A function's head, for somebody who looks. It keeps neither the function nor its back.
pub struct HeadView<B> {
    core: Weak<Core<B>>,
    back: Weak<B>,
}

impl<B> HeadView<B> {
    /// The head of that function.
    pub const fn new(core: Weak<Core<B>>, back: Weak<B>) -> Self {
        Self { core, back }
    }
}

impl<B: GspBackend> ReadBytes for HeadView<B> {
    fn read(&self, address: Address, bytes: &mut [u8]) -> Result<(), ReadError> {
        let gone = ReadError { address, length: bytes.len() };
        let back = self.back.upgrade().ok_or(gone)?;
        HeadMemory(&VramMemory(&*back)).read(address, bytes)
    }
}

impl<B: GspBackend> gpuvmk_display::Head for HeadView<B> {
    fn scanout(&self) -> Scanout {
        let core = self.core.upgrade();
        let shown = core.zip(self.back.upgrade()).and_then(|(core, back)| core.scanout(&back));
        shown.unwrap_or_else(|| Scanout::black(Size::new(0, 0)))
    }
}

impl<B: GspBackend> Blanks for Core<B> {
    fn blank(&self) -> Option<u64> {
        let head = self.head.as_ref()?;
        let back = head.back()?;
        let now = self.face.now();
        let (interrupts, due) = {
            let mut display = head.lock();
            (display.blank(&VramMemory(&*back), now), display.due(now))
        };
        if interrupts {
            self.face.lock().display_event();
        }
        due
    }
}
