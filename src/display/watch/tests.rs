//! The composing thread, with a head of 16 by 16 pixels.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use super::*;
use crate::scanout::{Address, Blend, Format, Layout, Lut, Point, ReadError, Surface, Window};

/// A head whose pixels are the bytes that a test writes.
struct Small {
    bytes: Mutex<Vec<u8>>,
    size: Mutex<Size>,
    /// How often it was asked what it shows.
    asked: AtomicU64,
}

impl Small {
    fn new() -> Arc<Self> {
        let (bytes, size) = (Mutex::new(vec![0; 4 * 16 * 16]), Mutex::new(Size::new(16, 16)));
        Arc::new(Self { bytes, size, asked: AtomicU64::new(0) })
    }

    fn write(&self, byte: u8) {
        self.bytes.lock().unwrap()[0] = byte;
    }
}

impl ReadBytes for Small {
    fn read(&self, address: Address, bytes: &mut [u8]) -> Result<(), ReadError> {
        let from = usize::try_from(address.offset).unwrap();
        let all = self.bytes.lock().unwrap();
        let found = all.get(from..from + bytes.len());
        bytes.copy_from_slice(found.ok_or(ReadError { address, length: bytes.len() })?);
        Ok(())
    }
}

impl Head for Small {
    fn scanout(&self) -> Scanout {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let size = *self.size.lock().unwrap();
        let surface = Surface {
            format: Format::Xrgb8888,
            size: Size::new(16, 16),
            layout: Layout::Pitch(64),
            address: Address::default(),
        };
        let window = Window {
            surface,
            from: Point::default(),
            size: surface.size,
            to: Point::default(),
            lut: Lut::Identity,
            blend: Blend::OPAQUE,
        };
        Scanout { windows: vec![window], ..Scanout::black(size) }
    }
}

/// Longer than any test takes on a machine that is busy with others.
const LONG: Duration = Duration::from_secs(60);

/// A wake that sends, and what it sent.
fn wake() -> (Wake, mpsc::Receiver<()>) {
    let (sender, receiver) = mpsc::channel();
    (Arc::new(move || sender.send(()).unwrap_or_default()), receiver)
}

#[test]
fn unwatched_head_is_not_asked() {
    let head = Small::new();
    let watch = Watch::start(head.clone()).unwrap();
    watch.flipped();
    std::thread::sleep(FRAME_TIME * 5);
    assert_eq!(head.asked.load(Ordering::SeqCst), 0);
    assert!(!watch.is_watched());
    assert!(watch.picture(LONG).is_some());
    // A round that had begun may end; no further one begins.
    std::thread::sleep(FRAME_TIME * 2);
    let asked = head.asked.load(Ordering::SeqCst);
    std::thread::sleep(FRAME_TIME * 5);
    assert_eq!(head.asked.load(Ordering::SeqCst), asked);
}

#[test]
fn picture_is_of_what_was_written_before_it_was_asked_for() {
    let head = Small::new();
    let watch = Watch::start(head.clone()).unwrap();
    for byte in [1_u8, 2, 2, 3] {
        head.write(byte);
        let picture = watch.picture(LONG).unwrap();
        assert_eq!(picture.frame.line(0)[0], byte.into());
    }
    let numbers: Vec<_> = (0..2).map(|_| watch.picture(LONG).unwrap().number).collect();
    assert_eq!(numbers, [3, 3], "what does not change is the same picture");
    assert_eq!(watch.counts().changed.get(), 3);
    assert!(watch.picture(Duration::ZERO).is_none());
}

#[test]
fn who_looks_is_woken_for_the_first_picture_and_for_changes_only() {
    let head = Small::new();
    let watch = Watch::start(head.clone()).unwrap();
    let (first_wake, first) = wake();
    let one = watch.look(first_wake);
    first.recv_timeout(LONG).unwrap();
    assert_eq!(one.latest().unwrap().number, 1);
    // A second one is told of the picture that is there, the first one is not.
    let (second_wake, second) = wake();
    let other = watch.look(second_wake);
    second.recv_timeout(LONG).unwrap();
    assert_eq!(other.latest().unwrap().number, 1);
    assert!(first.try_recv().is_err());
    head.write(7);
    first.recv_timeout(LONG).unwrap();
    assert_eq!(one.latest().unwrap().frame.line(0)[0], 7);
    drop(one);
    drop(other);
    assert!(!watch.is_watched());
}

#[test]
fn flips_do_not_make_it_faster_than_30_pictures_a_second() {
    let head = Small::new();
    let watch = Watch::start(head.clone()).unwrap();
    let (wake, woken) = wake();
    let _looking = watch.look(wake);
    let begun = Instant::now();
    for byte in 1..=10 {
        head.write(byte);
        watch.flipped();
        woken.recv_timeout(LONG).unwrap();
        watch.flipped();
    }
    // The first one comes at once.
    assert!(begun.elapsed() >= FRAME_TIME * 8, "{:?}", begun.elapsed());
}

#[test]
fn head_without_a_picture_is_black() {
    let head = Small::new();
    let watch = Watch::start(head.clone()).unwrap();
    for size in [Size::new(0, 0), Size::new(u16::MAX, 5)] {
        *head.size.lock().unwrap() = size;
        let picture = watch.picture(LONG).unwrap();
        assert_eq!(picture.frame, Frame::black(NOTHING).unwrap());
    }
    assert!(watch.counts().too_large.get() > 0);
}

#[test]
fn thread_ends_while_somebody_looks() {
    let watch = Watch::start(Small::new()).unwrap();
    let looking = watch.look(Arc::new(|| {}));
    drop(watch);
    drop(looking);
}
