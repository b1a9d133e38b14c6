//! The memory that windows show, for front ends that map it, and the watcher of changes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gpuvmk_backend::Backend;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_mmio_trap::aperture::Run;
use gpuvmk_pci::{Backing, DirectWindow, Region, RegionWatcher};

/// The front end's watcher, called when a window shows other memory. No lock is held during a call.
#[derive(Default)]
pub struct Watcher {
    connected: Mutex<Option<Arc<dyn RegionWatcher>>>,
    hidden: AtomicBool,
}

/// While it lives, windows show nothing to those who map.
#[must_use]
pub struct Hidden<'a>(&'a Watcher);

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        self.0.hidden.store(false, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").field("connected", &self.get().is_some()).finish()
    }
}

impl Watcher {
    fn get(&self) -> Option<Arc<dyn RegionWatcher>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connects or disconnects it.
    pub fn connect(&self, watcher: Option<Arc<dyn RegionWatcher>>) {
        *self.connected.lock().unwrap_or_else(PoisonError::into_inner) = watcher;
    }

    /// Takes everything away that is mapped, before its memory goes: nothing is shown until the guard is
    /// dropped.
    pub fn hide(&self) -> Hidden<'_> {
        // Before the watcher is called: a later look finds nothing.
        self.hidden.store(true, Ordering::SeqCst);
        self.replaced();
        Hidden(self)
    }

    /// True while windows must show nothing.
    pub fn is_hiding(&self) -> bool {
        self.hidden.load(Ordering::SeqCst)
    }

    /// A BAR may show something else.
    pub fn changed(&self, bar: u8) {
        if let Some(watcher) = self.get() {
            watcher.changed(Region::Bar(bar));
        }
    }

    /// Other writes than before may be late.
    pub fn coalescable_writes_changed(&self) {
        if let Some(watcher) = self.get() {
            watcher.coalescable_writes_changed();
        }
    }

    /// All of them may, in other files.
    pub fn replaced(&self) {
        if let Some(watcher) = self.get() {
            watcher.replaced();
        }
    }
}

/// Tells `visit` where the memory of a window's runs is. Stores between the offsets `trapped` do more than
/// store.
pub fn show_runs<B: Backend + ?Sized>(
    backend: &B,
    runs: &[Run],
    trapped: &Range<u64>,
    visit: &mut dyn FnMut(DirectWindow<'_>),
) {
    for part in runs.iter().flat_map(|run| apart(*run, trapped)) {
        let Run { offset, size, target, read_only } = part;
        let is_trapped = trapped.contains(&offset);
        let writable = !read_only && !is_trapped;
        match target.aperture {
            Aperture::Vram => backend.show_vram(target.address, size, &mut |piece| {
                let at = piece.start - target.address;
                let backing = Backing::File { fd: piece.fd, offset: piece.offset };
                visit(DirectWindow { offset: offset + at, size: piece.size, writable, backing });
            }),
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                visit(DirectWindow { offset, size, writable, backing: Backing::Bus(target.address) });
            }
        }
    }
}

/// The part of a moving window in `[offset, offset + size)` of its region, where the window is at `window`
/// and shows memory from `start` on.
pub fn moving_run(window: &Range<u64>, start: PhysicalAddress, offset: u64, size: u64) -> Option<Run> {
    let (from, to) = (window.start.max(offset), window.end.min(offset.saturating_add(size)));
    let address = start.address.checked_add(from.checked_sub(window.start)?)?;
    let size = to.checked_sub(from).filter(|size| *size > 0 && address.checked_add(*size).is_some())?;
    Some(Run { offset: from, size, target: PhysicalAddress { address, ..start }, read_only: false })
}

/// A run in up to three parts: before, inside and behind the offsets `at`.
fn apart(run: Run, at: &Range<u64>) -> impl Iterator<Item = Run> {
    let end = run.offset + run.size;
    let edges = [run.offset, at.start.clamp(run.offset, end), at.end.clamp(run.offset, end), end];
    let parts = [(edges[0], edges[1]), (edges[1], edges[2]), (edges[2], edges[3])];
    parts.into_iter().filter(|(from, to)| from < to).map(move |(from, to)| {
        let address = run.target.address + (from - run.offset);
        let target = PhysicalAddress { address, ..run.target };
        Run { offset: from, size: to - from, target, ..run }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_window_is_a_run_where_it_meets_what_is_asked_for() {
        let vram = |address| PhysicalAddress { aperture: Aperture::Vram, address };
        let run = |offset, size, start| {
            moving_run(&(0x7000..0x8000), vram(start), offset, size)
                .map(|run| (run.offset, run.size, run.target.address))
        };
        assert_eq!(run(0x6000, 0x4000, 0x30_0000), Some((0x7000, 0x1000, 0x30_0000)));
        assert_eq!(run(0x7800, 0x100, 0x30_0000), Some((0x7800, 0x100, 0x30_0800)));
        for (offset, size) in [(0, 0x7000), (0x8000, 0x1000), (0x7000, 0)] {
            assert_eq!(run(offset, size, 0), None);
        }
        assert_eq!(run(0x7000, 0x1000, u64::MAX - 0xfff), None, "it would end behind the last address");
    }

    #[test]
    fn runs_are_cut_where_stores_begin_to_do_more() {
        let target = PhysicalAddress { aperture: Aperture::Vram, address: 0x10_0000 };
        let run = Run { offset: 0x4000, size: 0x4000, target, read_only: false };
        let parts = |at: Range<u64>| -> Vec<_> {
            apart(run, &at).map(|part| (part.offset, part.size, part.target.address)).collect()
        };
        assert_eq!(parts(0..0), [(0x4000, 0x4000, 0x10_0000)]);
        assert_eq!(parts(0x8000..0x9000), [(0x4000, 0x4000, 0x10_0000)]);
        assert_eq!(parts(0..0x9000), [(0x4000, 0x4000, 0x10_0000)]);
        assert_eq!(
            parts(0x5000..0x6000),
            [(0x4000, 0x1000, 0x10_0000), (0x5000, 0x1000, 0x10_1000), (0x6000, 0x2000, 0x10_2000)]
        );
        assert_eq!(parts(0x7000..0x9000), [(0x4000, 0x3000, 0x10_0000), (0x7000, 0x1000, 0x10_3000)]);
    }
}
