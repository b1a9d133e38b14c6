//! What libraries ask the system once and then remember: asked here, while that is still allowed.

/// Has everything asked that is known to be.
pub(super) fn libraries() {
    // rustix: where the kernel's page with the clock lies.
    let _ = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The C library's allocator: how many threads' heaps there may be, and, when such a heap first shrinks, whether
    // memory is overcommitted. The thread has ended when this returns; where there is none, nothing is asked.
    let _ =
        std::thread::Builder::new().name("warm-up".to_owned()).spawn(shrink_heap).map(|thread| thread.join());
}

/// Fills a heap with blocks that are too small for mappings of their own, and empties it.
fn shrink_heap() {
    const BLOCK: usize = 64 << 10;
    const BLOCKS: usize = 64;
    let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; BLOCK]).collect();
    std::hint::black_box(&blocks);
}
