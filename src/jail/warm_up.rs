//! Queries that libraries make once and then remember: made here, while that is still allowed.

#![allow(unsafe_code, reason = "mallopt has no safe wrapper")]

/// Heaps that the C library makes for each processor, at most: as many as it does by itself.
const HEAPS: usize = 8;

/// Has everything asked that is known to be.
pub(super) fn libraries() {
    // rustix: where the kernel's page with the clock lies.
    let _ = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The C library's allocator: how many threads' heaps there may be. It asks for the number of processors
    // when there are some ten heaps, on any thread, unless a number was set.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let heaps = libc::c_int::try_from(processors.saturating_mul(HEAPS)).unwrap_or(libc::c_int::MAX);
    // SAFETY: takes plain numbers, and may be called at any time.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, heaps) };
    // When such a heap first shrinks: whether memory is overcommitted. The thread has ended when this
    // returns; where there is none, nothing is asked.
    let _ =
        std::thread::Builder::new().name("warm-up".to_owned()).spawn(shrink_heap).map(|thread| thread.join());
}

/// Fills a heap with blocks that are too small for separate mappings, and empties it.
fn shrink_heap() {
    const BLOCK: usize = 64 << 10;
    const BLOCKS: usize = 64;
    let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; BLOCK]).collect();
    std::hint::black_box(&blocks);
}
