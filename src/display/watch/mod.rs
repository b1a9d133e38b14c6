//! The thread that composes a head's picture while somebody looks.
//!
//! It composes at most 30 times a second: guests write to memory without saying so, and a window that shows
//! other memory (a flip) is only the moment at which it is worth most. When nothing has changed for half a
//! second and nothing was flipped, it looks 10 times a second. Nobody looks: it waits, and gives its memory
//! back after ten seconds.

mod counts;
mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::compose::{Composed, Composer};
use super::frame::Frame;
use super::mode::Size;
use super::scanout::{ReadBytes, Scanout};
use super::source::{FrameSource, Looking, Picture, Wake};
use super::tiles::Tiles;
pub use counts::WatchCounts;
use state::{Order, Shared};

/// Shortest time from one picture to the next.
pub const FRAME_TIME: Duration = Duration::from_nanos(1_000_000_000 / 30);

/// The same while nothing changes.
const QUIET_TIME: Duration = Duration::from_millis(100);

/// Pictures without a change after which a head is quiet.
const QUIET_PICTURES: u32 = 15;

/// How long memory is kept for somebody who looks again.
const KEEP: Duration = Duration::from_secs(10);

/// What is seen, in black, where a head shows nothing, or more than a frame may have.
const NOTHING: Size = Size::new(640, 480);

/// A head whose picture is composed. It is asked from the composing thread only.
pub trait Head: ReadBytes + Send + Sync {
    /// What it shows now. A head that is off shows black.
    fn scanout(&self) -> Scanout;
}

/// The composing thread of a head. It ends when this goes.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(head: Arc<dyn Head>) -> io::Result<Self> {
        Self::start_with(head, || {})
    }

    /// The same; the thread begins with `begin`, as where it gives rights up.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start_with(head: Arc<dyn Head>, begin: fn()) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("display-compose".to_owned()).spawn(move || {
            begin();
            Painter::new(of_thread, head).run();
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The head shows something else from now on. Costs next to nothing while nobody looks.
    pub fn flipped(&self) {
        if self.is_watched() {
            self.shared.lock().flipped = true;
            self.shared.wake.notify_one();
        }
    }

    /// Whether somebody looks now.
    pub fn is_watched(&self) -> bool {
        self.shared.lookers() > 0
    }

    /// A picture that is composed from now on; none if that takes longer than `within`.
    pub fn picture(&self, within: Duration) -> Option<Arc<Picture>> {
        let looker = Looker::new(&self.shared, Arc::new(|| {}));
        let until = Instant::now() + within;
        let mut state = self.shared.lock();
        loop {
            if let Some(picture) = state.latest_since(looker.round) {
                return Some(picture);
            }
            let left = until.checked_duration_since(Instant::now())?;
            state = self.shared.wait_composed(state, left);
        }
    }

    /// What composing came to so far.
    pub fn counts(&self) -> &WatchCounts {
        &self.shared.counts
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl FrameSource for Watch {
    fn look(&self, wake: Wake) -> Box<dyn Looking> {
        Box::new(Looker::new(&self.shared, wake))
    }
}

/// Somebody who looks.
struct Looker {
    shared: Arc<Shared>,
    /// By which its wake is found again.
    id: u64,
    /// Rounds of composing that had begun when it came.
    round: u64,
}

impl Looker {
    fn new(shared: &Arc<Shared>, wake: Wake) -> Self {
        let (id, round) = shared.add(wake);
        Self { shared: Arc::clone(shared), id, round }
    }
}

impl Looking for Looker {
    fn latest(&self) -> Option<Arc<Picture>> {
        self.shared.lock().latest_since(self.round)
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        self.shared.remove(self.id);
    }
}

/// What the thread works with.
struct Painter {
    shared: Arc<Shared>,
    head: Arc<dyn Head>,
    composer: Composer,
    tiles: Tiles,
    /// A frame that nobody sees.
    spare: Frame,
    /// Pictures so far.
    number: u64,
    /// Pictures without a change.
    quiet: u32,
    /// When the last round began.
    began: Option<Instant>,
}

impl Painter {
    fn new(shared: Arc<Shared>, head: Arc<dyn Head>) -> Self {
        let (composer, tiles, spare) = (Composer::default(), Tiles::default(), Frame::default());
        Self { shared, head, composer, tiles, spare, number: 0, quiet: 0, began: None }
    }

    fn run(&mut self) {
        loop {
            let due = |flipped: bool, quiet: u32| {
                let apart = if flipped || quiet < QUIET_PICTURES { FRAME_TIME } else { QUIET_TIME };
                self.began.map(|began| began + apart)
            };
            match self.shared.next_order(self.quiet, due, KEEP) {
                Order::Compose { flipped } => {
                    self.quiet = if flipped { 0 } else { self.quiet };
                    self.round();
                }
                Order::Forget => {
                    (self.composer, self.tiles) = (Composer::default(), Tiles::default());
                    self.spare = Frame::default();
                }
                Order::Stop => return,
            }
        }
    }

    /// Composes a picture, and shows it if it differs.
    fn round(&mut self) {
        let begun = Instant::now();
        self.began = Some(begun);
        let counts = &self.shared.counts;
        let scanout = self.head.scanout();
        match self.composer.compose(&scanout, &*self.head, &mut self.spare) {
            Ok(Composed { unread }) => counts.unread.add(unread.into()),
            Err(_) => {
                counts.too_large.one();
                self.spare = Frame::default();
            }
        }
        if self.spare.pixels().is_empty() {
            // It is small enough to be a frame.
            let _ = self.spare.reset(NOTHING);
        }
        let number = self.number + 1;
        let changed = self.tiles.update(&self.spare, number);
        counts.composed.one();
        let picture = changed.then(|| {
            counts.changed.one();
            self.number = number;
            let frame = std::mem::take(&mut self.spare);
            Arc::new(Picture { frame, tiles: self.tiles.clone(), number })
        });
        self.quiet = if changed { 0 } else { self.quiet.saturating_add(1) };
        counts.nanoseconds.add(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let (before, wakes) = self.shared.composed(picture);
        // The frame of the picture before is used again if nobody has it any more.
        if let Some(before) = before.and_then(Arc::into_inner) {
            self.spare = before.frame;
        }
        wakes.iter().for_each(|wake| wake());
    }
}
