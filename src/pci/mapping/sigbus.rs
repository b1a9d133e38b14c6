//! Containment of SIGBUS: missing memory of another process must not end this one.
//!
//! The kernel raises SIGBUS where it has no page for an access to a mapped file. The handler looks the
//! address up among the guarded mappings, and the access continues, on zeros. Where depends on why:
//!
//! * The file ends before the page (its owner has shrunk it): the mapping is *cut* there, since the pages
//!   behind it are gone too. Accesses that begin later do not reach memory from the cut on: they read zeros
//!   and write nothing ([`Guard::present`]), so that who shrinks a file cannot have this process get memory
//!   in its place. For accesses under way, zeros replace the next pages. The owner loses its own data and
//!   nothing else.
//! * The page lies inside the file but is missing: the file system is full, no huge page is left, or the
//!   memory hardware lost it. The owner did not cause that, so that page alone is replaced, and the mapping
//!   is *marked*: its owner must not go on computing on zeros (see
//!   [`Mapping::lost_pages`](super::Mapping::lost_pages)).
//!
//! Either way a mapping is cut a bounded number of times, so that no pattern of accesses uses up the kernel's
//! number of mappings; and [`Mapping::restore_file`](super::Mapping::restore_file) shows the file again. Any
//! other SIGBUS goes to the handler that was there before.

#![allow(unsafe_code, reason = "a signal handler has no safe form")]

use super::error::MapError;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Guarded mappings in this process. Mappings are per file (see [`crate::dma`]), so a VM needs few; a
/// process that serves many VMs must hold each to its share. Below the kernel's own limit of 65530.
pub const MAX_GUARDED: usize = 40960;

/// Pages of a mapping that are replaced one by one; with the next one, all from there on.
const SINGLE_PAGES: usize = 8;

/// Bytes behind a cut that zeros replace, for accesses that are under way: the kernel takes what it replaces
/// out of its tables, with a lock that holds up all threads that map something.
const SPAN: usize = 1 << 20;

/// Cuts of a mapping that replace no more than that; the next one replaces all from there on, so that many
/// cuts leave few mappings behind.
const SPANS: u32 = 8;

/// Pages that are replaced one by one in all mappings together: each costs the kernel two more mappings of
/// the 65530 that a process may have.
const ALL_SINGLE_PAGES: usize = 4096;

/// One guarded range; free while `start` is 0. A fresh one is all zeros, so that the table of them takes no
/// room in the program's file.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    page: AtomicUsize,
    /// The complement of the file's descriptor, which is negative; 0 where the file's size means nothing.
    file: AtomicI32,
    /// Offset in the file of the first byte.
    offset: AtomicU64,
    /// Pages inside the file that could not be had.
    lost: AtomicU32,
    /// The first of them; 0 is none.
    single: [AtomicUsize; SINGLE_PAGES],
    /// From here on there are zeros; 0 is nowhere.
    cut: AtomicUsize,
    /// Cuts so far.
    cuts: AtomicU32,
}

impl Slot {
    const fn free() -> Self {
        Self {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            page: AtomicUsize::new(0),
            file: AtomicI32::new(0),
            offset: AtomicU64::new(0),
            lost: AtomicU32::new(0),
            single: [const { AtomicUsize::new(0) }; SINGLE_PAGES],
            cut: AtomicUsize::new(0),
            cuts: AtomicU32::new(0),
        }
    }
}

static SLOTS: [Slot; MAX_GUARDED] = [const { Slot::free() }; MAX_GUARDED];

/// One more than the highest slot that was ever in use: the handler looks no further.
static USED_SLOTS: AtomicUsize = AtomicUsize::new(0);

/// Free slots below [`USED_SLOTS`].
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Replacements so far.
static CONTAINED: AtomicU64 = AtomicU64::new(0);

/// Pages inside files that could not be had, so far.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Pages that are replaced one by one now.
static SINGLES: AtomicUsize = AtomicUsize::new(0);

/// The handler of SIGBUS before us (the standard library's stack-overflow check).
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Times that memory vanished from under a mapping of this process, and was replaced by zeros.
pub fn contained() -> u64 {
    CONTAINED.load(Ordering::Relaxed)
}

/// Pages of mapped files, of whomever, that could not be had so far: a full file system, no huge pages,
/// broken memory.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Keeps one mapping guarded while it lives.
#[derive(Debug)]
pub(super) struct Guard {
    slot: usize,
}

/// A mapping to guard.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardedRange {
    pub(super) start: usize,
    pub(super) size: usize,
    /// Bytes of a page of the file.
    pub(super) page: usize,
    /// The one file that it shows, open for as long as it is guarded, and the offset of the first byte.
    /// `None`: it is taken to end where a page is not there.
    pub(super) file: Option<(RawFd, u64)>,
}

/// Guards a mapping.
pub(super) fn guard(what: GuardedRange) -> Result<Guard, MapError> {
    install().map_err(|source| MapError::System { step: "Installing the SIGBUS handler", source })?;
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let index = free.pop().unwrap_or_else(|| USED_SLOTS.load(Ordering::Relaxed));
    let slot = SLOTS.get(index).ok_or(MapError::TooMany(MAX_GUARDED))?;
    let (file, offset) = what.file.map_or((0, 0), |(fd, offset)| (!fd, offset));
    slot.page.store(what.page, Ordering::Relaxed);
    slot.file.store(file, Ordering::Relaxed);
    slot.offset.store(offset, Ordering::Relaxed);
    slot.end.store(what.start.saturating_add(what.size), Ordering::Relaxed);
    slot.start.store(what.start, Ordering::Release);
    USED_SLOTS.fetch_max(index + 1, Ordering::Release);
    Ok(Guard { slot: index })
}

impl Guard {
    /// Pages inside the file that could not be had since it was last mended.
    pub(super) fn lost(&self) -> u32 {
        SLOTS.get(self.slot).map_or(0, |slot| slot.lost.load(Ordering::Acquire))
    }

    /// How many of the `size` bytes at an address of the mapping lie before its cut, and may be accessed.
    pub(super) fn present(&self, address: usize, size: usize) -> usize {
        match SLOTS.get(self.slot).map_or(0, |slot| slot.cut.load(Ordering::Relaxed)) {
            0 => size,
            cut => cut.saturating_sub(address).min(size),
        }
    }

    /// Takes what was replaced, as addresses: a range each.
    pub(super) fn take_replaced(&self) -> Vec<(usize, usize)> {
        let Some(slot) = SLOTS.get(self.slot) else { return Vec::new() };
        let (end, page) = (slot.end.load(Ordering::Relaxed), slot.page.load(Ordering::Relaxed));
        let cut = Some(slot.cut.swap(0, Ordering::AcqRel)).filter(|start| *start != 0);
        let singles: Vec<usize> = slot
            .single
            .iter()
            .map(|single| single.swap(0, Ordering::AcqRel))
            .filter(|start| *start != 0)
            .collect();
        SINGLES.fetch_sub(singles.len(), Ordering::Relaxed);
        slot.lost.store(0, Ordering::Release);
        slot.cuts.store(0, Ordering::Relaxed);
        let single = |start: usize| (start, start.saturating_add(page).min(end));
        singles.into_iter().map(single).chain(cut.map(|start| (start, end))).collect()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.take_replaced();
        if let Some(slot) = SLOTS.get(self.slot) {
            slot.start.store(0, Ordering::Release);
        }
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.slot);
    }
}

/// Installs the handler, once in a process.
fn install() -> io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    // The old action must be known before ours can run.
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no new action is given; `old` is writable.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut old) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let _ = PREVIOUS.set(old);
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
    new.sa_sigaction = handler as usize;
    // The standard library gives its threads an alternate stack; ONSTACK keeps its own check working.
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: `new` is complete, and the handler is async-signal-safe (see there).
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const new, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *installed = true;
    Ok(())
}

/// Async-signal-safe: atomics, `fstat`, `mmap`, and on the way out `sigaction`; no lock, no allocation.
extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let errno = errno_place();
    // SAFETY: errno is thread-local and always there.
    let saved = unsafe { *errno };
    // SAFETY: the kernel passes a valid siginfo.
    let info_copy = unsafe { *info };
    // SAFETY: SIGBUS carries an address where the kernel itself raised it; elsewhere it is not used.
    let address = unsafe { info_copy.si_addr() } as usize;
    let is_fault = info_copy.si_code > 0;
    // One that another process sent carries no address.
    let broken = info_copy.si_code == libc::BUS_MCEERR_AR;
    let contained = is_fault && find(address).is_some_and(|range| replace(address, range, broken));
    // SAFETY: as above.
    unsafe { *errno = saved };
    if !contained {
        forward(signal, info, context);
    }
}

fn errno_place() -> *mut libc::c_int {
    // SAFETY: only returns an address.
    unsafe { libc::__errno_location() }
}

/// A guarded range as the handler read it.
#[derive(Clone, Copy)]
struct Range {
    start: usize,
    end: usize,
    page: usize,
    slot: &'static Slot,
}

fn find(address: usize) -> Option<Range> {
    let used = USED_SLOTS.load(Ordering::Acquire).min(MAX_GUARDED);
    SLOTS.iter().take(used).find_map(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        let end = slot.end.load(Ordering::Relaxed);
        let range = Range { start, end, page: slot.page.load(Ordering::Relaxed), slot };
        (start != 0 && (start..range.end).contains(&address)).then_some(range)
    })
}

impl Range {
    /// True when the file has the page at this address now. The thread that faulted holds the mapping, and so
    /// its file, alive.
    fn is_in_file(self, page: usize) -> bool {
        let file = self.slot.file.load(Ordering::Relaxed);
        if file == 0 {
            return false;
        }
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut facts: libc::stat = unsafe { std::mem::zeroed() };
        // By number: the C library's function is one of several calls, and a jail allows this one.
        // SAFETY: the descriptor is open (see above) and `facts` has the kernel's layout.
        let result = unsafe { libc::syscall(libc::SYS_fstat, !file, &raw mut facts) };
        let into = u64::try_from(page.saturating_sub(self.start)).unwrap_or(u64::MAX);
        let place = self.slot.offset.load(Ordering::Relaxed).saturating_add(into);
        // A last page that the file fills in part is one of its pages.
        result == 0 && place < u64::try_from(facts.st_size).unwrap_or(0)
    }

    /// A place to note a single page at, while there are any.
    fn note_single(self, page: usize) -> bool {
        if SINGLES.fetch_add(1, Ordering::Relaxed) < ALL_SINGLE_PAGES {
            let noted =
                self.slot.single.iter().any(|single| {
                    single.compare_exchange(0, page, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                });
            if noted {
                return true;
            }
        }
        SINGLES.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// Notes that there are zeros from an address on.
    fn note_cut(self, from: usize) {
        let lower = |cut: usize| (cut == 0 || from < cut).then_some(from);
        let _ = self.slot.cut.fetch_update(Ordering::AcqRel, Ordering::Relaxed, lower);
    }

    /// Cuts the mapping at a page; returns the end of what zeros have to replace.
    fn cut(self, from: usize) -> usize {
        self.note_cut(from);
        if self.slot.cuts.fetch_add(1, Ordering::Relaxed) >= SPANS {
            return self.end;
        }
        // SPAN and pages are powers of two.
        from.saturating_add(SPAN.max(self.page)).min(self.end)
    }
}

/// Puts zeros where the page of `address` was, and cuts the mapping there where the file has ended or too
/// many pages are missing.
fn replace(address: usize, range: Range, broken: bool) -> bool {
    CONTAINED.fetch_add(1, Ordering::Relaxed);
    let start = (address - address % range.page.max(1)).max(range.start);
    let inside = broken || range.is_in_file(start);
    let single = inside && range.note_single(start);
    let end = if single { start.saturating_add(range.page).min(range.end) } else { range.cut(start) };
    let mut replaced = map_zeros(start, end);
    if !replaced {
        // Where the kernel refuses another cut, none is needed: the whole mapping goes.
        range.note_cut(range.start);
        replaced = map_zeros(range.start, range.end);
    }
    // Last: a thread that sees the mark sees the replacement too.
    if inside {
        range.slot.lost.fetch_add(1, Ordering::Release);
        LOST.fetch_add(1, Ordering::Release);
    }
    replaced
}

fn map_zeros(start: usize, end: usize) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let place = std::ptr::with_exposed_provenance_mut::<libc::c_void>(start);
    // SAFETY: the range lies in a guarded mapping, which its owner accesses by raw copies only; the thread
    // that faulted holds it alive.
    let result = unsafe { libc::mmap(place, end - start, protection, flags, -1, 0) };
    result != libc::MAP_FAILED
}

/// Gives a signal that is not ours to the previous handler, or to the default action.
fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get();
    let handler = previous.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
    let with_info = previous.is_some_and(|action| action.sa_flags & libc::SA_SIGINFO != 0);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // An ignored fault would only repeat: the default action ends the process at the next try.
        // SAFETY: SIG_DFL is always a valid action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    } else if with_info {
        type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: the kernel kept this address as a handler with SA_SIGINFO, which has this signature.
        let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
        handler(signal, info, context);
    } else {
        type Handler = extern "C" fn(libc::c_int);
        // SAFETY: the kernel kept this address as a handler without SA_SIGINFO, which has this signature.
        let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
        handler(signal);
    }
}
