//! Pages of VRAM on their way into the windows' memory and out of it.

use std::os::fd::AsFd;

use super::echoes::Echoes;
use super::places::Place;
use super::surroundings::Surroundings;
use super::tables::{Changes, vram_of};
use super::words::{buffer, changed_words};
use super::{PRAMIN, PagePlacement};
use crate::status::FailSafe;
use gpuvmk_chip::addr::{GuestVram, PAGE_SIZE};
use gpuvmk_pci::mapping::{FilePiece, MapError, MemoryError};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Bytes that move at a time.
const STEP: u64 = 256 << 10;

/// Consecutive pages of a window that show consecutive pages of VRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    offset: u64,
    vram: u64,
    size: u64,
}

impl Run {
    const fn page(offset: u64, vram: u64) -> Self {
        Self { offset, vram, size: PAGE_SIZE }
    }

    const fn vram(&self) -> Range<u64> {
        self.vram..self.vram.saturating_add(self.size)
    }

    const fn pages(&self) -> u64 {
        self.size / PAGE_SIZE
    }

    /// Offsets and addresses of its pages.
    fn each(self) -> impl Iterator<Item = (u64, u64)> {
        let step = usize::try_from(PAGE_SIZE).unwrap_or(usize::MAX);
        let place = move |at: u64| (self.offset.saturating_add(at), self.vram.saturating_add(at));
        (0..self.size).step_by(step).map(place)
    }
}

/// Pages as runs of at most [`STEP`] bytes.
fn runs(pages: impl IntoIterator<Item = (u64, u64)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (offset, vram) in pages {
        match runs.last_mut() {
            Some(run)
                if run.size < STEP && run.offset + run.size == offset && run.vram + run.size == vram =>
            {
                run.size += PAGE_SIZE;
            }
            _ => runs.push(Run::page(offset, vram)),
        }
    }
    runs
}

impl PagePlacement {
    /// Moves pages to where BAR3 shows them from now on, or home.
    ///
    /// # Errors
    /// The vGPU must go into fail-safe state.
    pub fn apply(&self, changes: &Changes, around: &Surroundings<'_>) -> Result<(), FailSafe> {
        if !changes.is_empty() {
            around.meters.flushes.admit();
        }
        for (offset, size) in &changes.hidden {
            self.hide_bar3(*offset, *size, around)?;
        }
        for shown in &changes.shown {
            self.hide_bar3(shown.offset, shown.size, around)?;
            match vram_of(shown) {
                Some(vram) => {
                    self.take_from_pramin(vram..vram.saturating_add(shown.size), around)?;
                    self.show(Run { offset: shown.offset, vram, size: shown.size }, around)?;
                }
                None => around.counters.bar3_pages_not_shown.add(shown.size / PAGE_SIZE),
            }
        }
        Ok(())
    }

    /// Hardware reads a channel's USERD at its address in VRAM from now on, and finds there what the guest
    /// stored.
    ///
    /// # Errors
    /// The vGPU must go into fail-safe state.
    pub fn begin_userd(
        &self,
        userd: GuestVram,
        size: u64,
        around: &Surroundings<'_>,
    ) -> Result<(), FailSafe> {
        let page = userd.0 / PAGE_SIZE * PAGE_SIZE;
        let known = {
            let mut state = self.state();
            let users = state.userds.entry(page).or_default();
            *users = users.saturating_add(1);
            state.places.of_vram(page)
        };
        match known {
            None => Ok(()),
            Some(Place { offset, is_copy: true }) => {
                let mut content = buffer(size);
                let stored = self
                    .memory
                    .read(offset.saturating_add(userd.0 - page), &mut content)
                    .and_then(|()| around.window.write(userd.0, &content));
                stored.map_err(lost)
            }
            Some(Place { offset, is_copy: false }) => {
                self.move_out(Run::page(offset, page), around)?;
                self.state().places.insert(page, Place { offset, is_copy: true });
                Ok(())
            }
        }
    }

    /// Hardware does not read a USERD any more.
    ///
    /// # Errors
    /// The vGPU must go into fail-safe state.
    pub fn end_userd(&self, userd: GuestVram, around: &Surroundings<'_>) -> Result<(), FailSafe> {
        let page = userd.0 / PAGE_SIZE * PAGE_SIZE;
        let known = {
            let mut state = self.state();
            match state.userds.get_mut(&page) {
                Some(users) if *users > 1 => {
                    *users -= 1;
                    return Ok(());
                }
                Some(_) => state.userds.remove(&page),
                None => return Ok(()),
            };
            state.places.of_vram(page).filter(|place| place.is_copy)
        };
        match known {
            Some(Place { offset, .. }) => self.move_in(Run::page(offset, page), around),
            None => Ok(()),
        }
    }

    /// PRAMIN shows VRAM from `start` on; `None`: something else.
    ///
    /// # Errors
    /// The vGPU must go into fail-safe state.
    pub fn move_pramin(&self, start: Option<u64>, around: &Surroundings<'_>) -> Result<(), FailSafe> {
        around.meters.flushes.admit();
        let limit = around.window.size();
        let size = PRAMIN.end - PRAMIN.start;
        let vram = start.map_or(0..0, |start| start.min(limit)..start.saturating_add(size).min(limit));
        self.state().pramin = 0..0;
        self.hide(PRAMIN.start, size, around)?;
        self.state().pramin = vram.clone();
        self.show_in_pramin(vram, around)
    }

    /// The part of a range that PRAMIN looks at.
    fn in_pramin(&self, vram: &Range<u64>) -> Option<Run> {
        let looked_at = self.state().pramin.clone();
        let (start, end) = (vram.start.max(looked_at.start), vram.end.min(looked_at.end));
        let offset = PRAMIN.start.saturating_add(start.saturating_sub(looked_at.start));
        (start < end).then(|| Run { offset, vram: start, size: end - start })
    }

    /// Pages of a range that PRAMIN looks at, and BAR3 does not, get their homes there.
    fn show_in_pramin(&self, vram: Range<u64>, around: &Surroundings<'_>) -> Result<(), FailSafe> {
        self.in_pramin(&vram).map_or(Ok(()), |run| self.show(run, around))
    }

    /// Makes `[offset, offset + size)` of BAR3 show nothing. Pages of PRAMIN's window are shown there again.
    fn hide_bar3(&self, offset: u64, size: u64, around: &Surroundings<'_>) -> Result<(), FailSafe> {
        for (_, page) in self.hide(offset, size, around)? {
            self.show_in_pramin(page..page.saturating_add(PAGE_SIZE), around)?;
        }
        Ok(())
    }

    /// Has `[offset, offset + size)` show nothing. Returns what was shown.
    fn hide(&self, offset: u64, size: u64, around: &Surroundings<'_>) -> Result<Vec<(u64, u64)>, FailSafe> {
        let range = offset..offset.saturating_add(size);
        self.change_echoes(|echoes| echoes.withdraw(&self.memory, range.clone()))?;
        let mut state = self.state();
        let shown = state.places.shown_in(range);
        let is_copy = |page: u64| state.places.of_vram(page).is_some_and(|place| place.is_copy);
        let (copies, homes): (Vec<_>, Vec<_>) = shown.iter().copied().partition(|(_, page)| is_copy(*page));
        copies.into_iter().for_each(|(_, page)| state.places.remove(page));
        drop(state);
        self.change_echoes(|echoes| {
            shown.iter().try_for_each(|(_, page)| echoes.bring_home(&self.memory, *page))
        })?;
        runs(homes).into_iter().try_for_each(|run| self.move_out(run, around))?;
        for (_, page) in &shown {
            if let Some(heir) = self.change_echoes(|echoes| Ok(echoes.take_heir(*page)))? {
                self.show(Run::page(heir, *page), around)?;
            }
        }
        Ok(shown)
    }

    /// Changes the echoes, if there are any.
    fn change_echoes<T: Default>(
        &self,
        change: impl FnOnce(&mut Echoes) -> Result<T, MemoryError>,
    ) -> Result<T, FailSafe> {
        if !self.has_echoes.load(Ordering::Acquire) {
            return Ok(T::default());
        }
        let mut echoes = self.echoes();
        let done = change(&mut echoes).map_err(lost);
        self.has_echoes.store(!echoes.is_empty(), Ordering::Release);
        done
    }

    /// Shows a page whose home is at `home` at another place of BAR3 too.
    fn echo(&self, offset: u64, page: u64, home: u64, around: &Surroundings<'_>) -> Result<(), FailSafe> {
        let mut echoes = self.echoes();
        if echoes.add(&self.memory, offset, (page, home)).map_err(lost)? {
            self.has_echoes.store(true, Ordering::Release);
        } else {
            around.counters.bar3_pages_not_shown.one();
            self.tell_of_too_many_places();
        }
        Ok(())
    }

    /// Pages of a range whose home is in PRAMIN get theirs in VRAM again, for BAR3 to show them.
    fn take_from_pramin(&self, vram: Range<u64>, around: &Surroundings<'_>) -> Result<(), FailSafe> {
        if let Some(run) = self.in_pramin(&vram) {
            self.hide(run.offset, run.size, around)?;
        }
        Ok(())
    }

    /// Has a run of a window, which shows nothing, show VRAM.
    fn show(&self, run: Run, around: &Surroundings<'_>) -> Result<(), FailSafe> {
        let mut moving = Vec::new();
        for (offset, page) in run.each() {
            let mut state = self.state();
            match (state.places.of_vram(page), state.userds.contains_key(&page)) {
                (None, false) => moving.push((offset, page)),
                (None, true) => {
                    let mut content = buffer(PAGE_SIZE);
                    let copied = around.window.read(page, &mut content);
                    copied.and_then(|()| self.memory.write(offset, &content)).map_err(lost)?;
                    state.places.insert(page, Place { offset, is_copy: true });
                }
                // In PRAMIN it is what BAR3 shows, and will be shown when BAR3 does not.
                (Some(_), _) if PRAMIN.contains(&offset) => {}
                (Some(place), _) => {
                    drop(state);
                    self.echo(offset, page, place.offset, around)?;
                }
            }
        }
        runs(moving).into_iter().try_for_each(|run| self.move_in(run, around))
    }

    /// Pages whose home is in VRAM get one in a window.
    fn move_in(&self, run: Run, around: &Surroundings<'_>) -> Result<(), FailSafe> {
        let window = around.window;
        let mut content = buffer(run.size);
        let copied = window.read(run.vram, &mut content);
        copied.and_then(|()| self.memory.write(run.offset, &content)).map_err(lost)?;
        {
            let mut state = self.state();
            for (offset, page) in run.each() {
                state.places.insert(page, Place { offset, is_copy: false });
            }
        }
        if self.is_reached(run.vram()) {
            around.engines.map_again(run.vram())?;
            let mut later = buffer(run.size);
            window.read(run.vram, &mut later).map_err(lost)?;
            for (at, was, is) in changed_words(&content, &later) {
                let at = run.offset.saturating_add(at);
                if self.memory.read_u32(at) == Ok(was) {
                    self.memory.write_u32(at, is).map_err(lost)?;
                }
            }
        }
        let file = self.file();
        let piece = FilePiece { fd: file.as_fd(), offset: run.offset, size: run.size };
        window.cover(run.vram, &piece).map_err(|error| no_maps(&error))?;
        around.counters.bar3_pages_moved.add(run.pages());
        Ok(())
    }

    /// Pages whose home is in a window get theirs in VRAM again.
    fn move_out(&self, run: Run, around: &Surroundings<'_>) -> Result<(), FailSafe> {
        let window = around.window;
        let mut content = buffer(run.size);
        self.memory.read(run.offset, &mut content).map_err(lost)?;
        window.uncover(run.vram, run.size).map_err(|error| no_maps(&error))?;
        window.write(run.vram, &content).map_err(lost)?;
        {
            let mut state = self.state();
            run.each().for_each(|(_, page)| state.places.remove(page));
        }
        if self.is_reached(run.vram()) {
            around.engines.map_again(run.vram())?;
            let mut later = buffer(run.size);
            self.memory.read(run.offset, &mut later).map_err(lost)?;
            for (at, was, is) in changed_words(&content, &later) {
                let at = run.vram.saturating_add(at);
                let mut now = [0; 4];
                window.read(at, &mut now).map_err(lost)?;
                if u32::from_le_bytes(now) == was {
                    window.write(at, &is.to_le_bytes()).map_err(lost)?;
                }
            }
        }
        around.counters.bar3_pages_moved.add(run.pages());
        Ok(())
    }
}

/// An access to memory of our own failed: its range was checked before.
fn lost(error: MemoryError) -> FailSafe {
    FailSafe::HardwareFailed(format!("instance memory or VRAM cannot be reached: {error}"))
}

/// Every run of pages that moved takes an entry of this process's table of maps.
fn no_maps(error: &MapError) -> FailSafe {
    FailSafe::QuotaExceeded(format!("pages that a window shows cannot be mapped: {error}"))
}
