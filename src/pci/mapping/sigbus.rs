//! Containment of SIGBUS: a file that shrinks while it is mapped here must not end the process.
//!
//! An access behind the end of a mapped file raises SIGBUS. The handler looks the address up among the
//! guarded mappings; if it lies in one, zeros replace the mapping from that page on (the file ended before
//! it, so nothing behind it is there either), the event is counted, and the access goes on. So a hostile owner
//! of the file loses its own data and nothing else; and since a mapping is only ever cut once more nearer to
//! its start, no pattern of accesses uses up the kernel's number of mappings. A page that the memory
//! hardware lost is replaced alone. Any other SIGBUS goes to the handler that was there before.
//!
//! Not handled: bringing pages back when the file grows again. The mapping stays cut from the file there. A
//! file system that cannot allocate a page (full tmpfs, no huge pages left) looks like a file that ended.

#![allow(unsafe_code, reason = "a signal handler has no safe form")]

use super::MapError;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Guarded mappings in this process. Mappings are per file (see [`crate::pci::dma`]), so a VM needs few; a
/// process that serves many VMs must hold each to its share. Below the kernel's own limit of 65530.
pub const MAX_GUARDED: usize = 40960;

/// One guarded range; free while `start` is 0.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    page: AtomicUsize,
}

static SLOTS: [Slot; MAX_GUARDED] =
    [const { Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), page: AtomicUsize::new(0) } };
        MAX_GUARDED];

/// One more than the highest slot that was ever in use: the handler looks no further.
static USED_SLOTS: AtomicUsize = AtomicUsize::new(0);

/// Free slots below [`USED_SLOTS`].
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Replacements so far.
static CONTAINED: AtomicU64 = AtomicU64::new(0);

/// What handled SIGBUS before us (the standard library's stack-overflow check).
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Times that memory vanished from under a mapping of this process, and was replaced by zeros.
pub fn contained() -> u64 {
    CONTAINED.load(Ordering::Relaxed)
}

/// Keeps one mapping guarded while it lives.
#[derive(Debug)]
pub(super) struct Guard {
    slot: usize,
}

/// Guards `[start, start + size)`, mapped in pages of `page` bytes.
pub(super) fn guard(start: usize, size: usize, page: usize) -> Result<Guard, MapError> {
    install().map_err(|source| MapError::System { step: "Installing the SIGBUS handler", source })?;
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let index = free.pop().unwrap_or_else(|| USED_SLOTS.load(Ordering::Relaxed));
    let slot = SLOTS.get(index).ok_or(MapError::TooMany(MAX_GUARDED))?;
    slot.page.store(page, Ordering::Relaxed);
    slot.end.store(start.saturating_add(size), Ordering::Relaxed);
    slot.start.store(start, Ordering::Release);
    USED_SLOTS.fetch_max(index + 1, Ordering::Release);
    Ok(Guard { slot: index })
}

impl Drop for Guard {
    fn drop(&mut self) {
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

/// Async-signal-safe: atomics, `mmap`, and on the way out `sigaction`; no lock, no allocation.
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
    let page_alone = info_copy.si_code == libc::BUS_MCEERR_AR;
    let contained = is_fault && find(address).is_some_and(|range| replace(address, range, page_alone));
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
}

fn find(address: usize) -> Option<Range> {
    let used = USED_SLOTS.load(Ordering::Acquire).min(MAX_GUARDED);
    SLOTS.iter().take(used).find_map(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        let range =
            Range { start, end: slot.end.load(Ordering::Relaxed), page: slot.page.load(Ordering::Relaxed) };
        (start != 0 && (start..range.end).contains(&address)).then_some(range)
    })
}

/// Puts zeros where the page of `address` was, and, but for a single lost page, behind it.
fn replace(address: usize, range: Range, page_alone: bool) -> bool {
    CONTAINED.fetch_add(1, Ordering::Relaxed);
    let start = (address - address % range.page.max(1)).max(range.start);
    let end = if page_alone { start.saturating_add(range.page).min(range.end) } else { range.end };
    // Where the kernel refuses another cut, none is needed: the whole mapping goes.
    map_zeros(start, end) || map_zeros(range.start, range.end)
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

/// Gives a signal that is not ours to whoever handled it before, or to the default action.
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
