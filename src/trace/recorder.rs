//! Takes entries from the access path without ever delaying it, and writes them on another thread.
//!
//! The ring is a number of blocks: one is being filled, the full ones wait for the writer, and those that
//! were written are used again. Where no block is left an entry is counted as lost, and the count is the next
//! entry that has room.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::block::{Block, MOST_BLOCK};
use super::event::{Access, Entry, Event};
use super::filter::Filter;
use super::header::Header;
use gpuvmk_jail::{self as jail, Role};

/// Default size of the ring between recorded code and the writer.
pub const RING: usize = 4 << 20;

/// How long entries stay in memory at the most.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

/// Takes entries of a trace. Dropping it completes the trace.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    began: Instant,
    filter: Filter,
    writer: Option<JoinHandle<()>>,
}

/// Writes what a recorder takes.
#[derive(Debug)]
pub struct TraceWriter {
    shared: Arc<Shared>,
    head: Vec<u8>,
}

#[derive(Debug)]
struct Shared {
    ring: Mutex<Ring>,
    /// A block is full, or the end has come.
    work: Condvar,
}

#[derive(Debug)]
struct Ring {
    block: Block,
    full: VecDeque<Block>,
    spare: Vec<Block>,
    /// Entries that found no room.
    lost: u64,
    /// Time of the last entry.
    last: u64,
    /// Blocks that may still be made.
    unmade: usize,
    /// Nothing more comes.
    closed: bool,
    /// Nothing more can be written.
    broken: bool,
}

impl Shared {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn push(&mut self, nanos: u64, add: impl FnOnce(&mut Block)) -> bool {
        let mut filled = false;
        self.last = nanos;
        if self.block.is_full() {
            let Some(block) = self.empty_block() else {
                self.lost += 1;
                return false;
            };
            self.full.push_back(std::mem::replace(&mut self.block, block));
            filled = true;
        }
        if self.lost > 0 {
            // Room for two: a block that is not full has room for the largest entry, and both are smaller.
            self.block.push(&Entry { nanos, event: Event::Lost { count: std::mem::take(&mut self.lost) } });
        }
        add(&mut self.block);
        filled
    }

    /// True while entries are wanted.
    const fn is_open(&self) -> bool {
        !self.broken && !self.closed
    }

    fn empty_block(&mut self) -> Option<Block> {
        self.spare.pop().or_else(|| {
            self.unmade = self.unmade.checked_sub(1)?;
            Some(Block::default())
        })
    }
}

impl Recorder {
    /// A recorder, and what writes for it on a thread of the caller's. `header` gets the time; `ring` is the
    /// memory that may wait for the writer, in bytes.
    ///
    /// # Errors
    /// The head is too long.
    pub fn new(header: Header, filter: Filter, ring: usize) -> std::io::Result<(Self, TraceWriter)> {
        let began = Instant::now();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let header = Header { unix_nanos: nanos(unix), monotonic_nanos: monotonic(), ..header };
        let head = header.encode()?;
        let ring = Ring {
            block: Block::default(),
            full: VecDeque::new(),
            spare: Vec::new(),
            lost: 0,
            last: 0,
            unmade: (ring / MOST_BLOCK).max(1),
            closed: false,
            broken: false,
        };
        let shared = Arc::new(Shared { ring: Mutex::new(ring), work: Condvar::new() });
        let writer = TraceWriter { shared: Arc::clone(&shared), head };
        Ok((Self { shared, began, filter, writer: None }, writer))
    }

    /// Starts a thread that writes to `sink`; the end of the recording waits for it. `name` is used in
    /// messages.
    ///
    /// # Errors
    /// As of [`Recorder::new`], or there is no thread to be had.
    pub fn start(
        mut sink: impl Write + Send + 'static,
        name: &str,
        header: Header,
        filter: Filter,
        ring: usize,
    ) -> std::io::Result<Self> {
        let (mut recorder, writer) = Self::new(header, filter, ring)?;
        let name = name.to_owned();
        recorder.writer = Some(std::thread::Builder::new().name("trace".to_owned()).spawn(move || {
            jail::enter(Role::Trace);
            if let Err(error) = writer.write(&mut sink, || true) {
                log::error!("The trace {name} ends early: {error}");
            }
        })?);
        Ok(recorder)
    }

    /// The conditions.
    pub const fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Adds an access that took so long. Never waits for the writer.
    pub fn access(&self, access: Access) {
        if !self.filter.wants_access(&access) {
            return;
        }
        let mut ring = self.shared.ring();
        let nanos = nanos(self.began.elapsed());
        let filled = ring.is_open() && ring.push(nanos, |block| block.access(nanos, &access));
        drop(ring);
        if filled {
            self.shared.work.notify_one();
        }
    }

    /// Adds another event. Never waits for the writer.
    pub fn event(&self, event: Event) {
        if !self.filter.wants(&event) {
            return;
        }
        let mut ring = self.shared.ring();
        let nanos = nanos(self.began.elapsed());
        let filled = ring.is_open() && ring.push(nanos, |block| block.push(&Entry { nanos, event }));
        drop(ring);
        if filled {
            self.shared.work.notify_one();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shared.ring().closed = true;
        self.shared.work.notify_one();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has nothing more to complete.
            let _ = writer.join();
        }
    }
}

impl TraceWriter {
    /// Writes until the recorder is gone, or `wanted`, which is asked a few times a second and more often,
    /// says no.
    ///
    /// # Errors
    /// The sink's. Later entries are dropped.
    pub fn write(self, sink: &mut impl Write, wanted: impl FnMut() -> bool) -> std::io::Result<()> {
        let done = sink.write_all(&self.head).and_then(|()| write_all(&self.shared, sink, wanted));
        self.shared.ring().broken = true;
        done
    }
}

/// Writes blocks as they fill, and what there is now and then.
fn write_all(
    shared: &Shared,
    sink: &mut impl Write,
    mut wanted: impl FnMut() -> bool,
) -> std::io::Result<()> {
    let mut ends = false;
    loop {
        // Earlier entries are written all the same.
        ends = ends || !wanted();
        let mut ring = shared.ring();
        ring.closed |= ends;
        if ring.full.is_empty() && !ring.closed {
            let waited = shared.work.wait_timeout(ring, FLUSH_AFTER);
            ring = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut block = match ring.full.pop_front() {
            Some(block) => block,
            None if ring.block.is_empty() && ring.lost > 0 && ring.closed => {
                let (mut last, count) = (Block::default(), std::mem::take(&mut ring.lost));
                last.push(&Entry { nanos: ring.last, event: Event::Lost { count } });
                last
            }
            None if ring.block.is_empty() => {
                if ring.closed {
                    return sink.flush();
                }
                continue;
            }
            None => {
                let Some(empty) = ring.empty_block() else { continue };
                std::mem::replace(&mut ring.block, empty)
            }
        };
        drop(ring);
        sink.write_all(block.finish())?;
        block.clear();
        shared.ring().spare.push(block);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The host's CLOCK_MONOTONIC.
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::super::event::{Direction, Place};
    use super::super::reader::Reader;
    use super::*;
    use gpuvmk_pci::Region;

    /// Takes bytes only once it may.
    struct Gate {
        open: Receiver<()>,
        bytes: Vec<u8>,
        done: Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if !self.bytes.is_empty() {
                // An error means that it stays open.
                let _ = self.open.recv();
            }
            self.bytes.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            let _ = self.done.send(self.bytes.clone());
            Ok(())
        }
    }

    fn access(value: u64) -> Access {
        let place = Place::Region(Region::Bar(0));
        Access { direction: Direction::Write, place, size: 4, offset: 4 * value, value, took: 9 }
    }

    /// A recorder, what opens its sink, and what the sink got.
    fn recorder(filter: Filter, ring: usize) -> (Recorder, Sender<()>, Receiver<Vec<u8>>) {
        let ((opener, open), (done, written)) = (channel(), channel());
        let gate = Gate { open, bytes: Vec::new(), done };
        let recorder = Recorder::start(gate, "test", Header::default(), filter, ring).unwrap();
        (recorder, opener, written)
    }

    fn entries(bytes: &[u8]) -> Vec<Entry> {
        Reader::new(bytes).unwrap().map(|entry| entry.unwrap()).collect()
    }

    #[test]
    fn everything_is_in_order_and_in_time() {
        let (recorder, opener, written) = recorder(Filter::default(), RING);
        drop(opener);
        (0..50_000).for_each(|value| recorder.access(access(value)));
        recorder.event(Event::Reset);
        drop(recorder);

        let entries = entries(&written.recv().unwrap());
        assert_eq!(entries.len(), 50_001);
        assert!(entries.is_sorted_by_key(|entry| entry.nanos));
        for (value, entry) in (0..50_000).zip(&entries) {
            assert_eq!(entry.event, Event::Access(access(value)));
        }
    }

    #[test]
    fn full_ring_loses_and_counts_and_nobody_waits() {
        let (recorder, opener, written) = recorder(Filter::default(), MOST_BLOCK);
        // Nothing is written until all have come.
        (0..100_000).for_each(|value| recorder.access(access(value)));
        drop(opener);
        drop(recorder);

        let (mut lost, mut kept, mut last) = (0, 0, None);
        for entry in entries(&written.recv().unwrap()) {
            match entry.event {
                Event::Lost { count } => lost += count,
                Event::Access(access) => {
                    assert!(last.is_none_or(|last| access.value > last));
                    last = Some(access.value);
                    kept += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(lost > 0 && kept > 0);
        assert_eq!(lost + kept, 100_000);
    }

    #[test]
    fn what_is_not_wanted_is_not_written() {
        let filter = Filter::parse(["range=0x10-0x1f", "op=write"], None).unwrap();
        let (recorder, opener, written) = recorder(filter, RING);
        drop(opener);
        (0..100).for_each(|value| recorder.access(access(value)));
        recorder.event(Event::Reset);
        drop(recorder);

        assert_eq!(entries(&written.recv().unwrap()).len(), 4);
    }
}
