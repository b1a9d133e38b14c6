//! What a head's picture costs: composing it, finding what changed, and making it ready for viewers. The
//! first figure of each size is that of copying a frame, to which the others are to be compared.

#![allow(clippy::expect_used, reason = "a benchmark that cannot be set up has failed")]

use std::time::Duration;

use divan::{Bencher, black_box};
use gpuvmk::display::rfb::{NoInput, Session};
use gpuvmk::display::{
    Address, Blend, Composer, Cursor, CursorFormat, CursorSide, DestinationFactor, FRAME_TIME, Format, Frame,
    Layout, Lut, LutEncoding, LutEntries, LutTable, Picture, Point, ReadBytes, ReadError, Scanout, Size,
    SourceFactor, Surface, Tiles, Window,
};

fn main() {
    divan::main();
}

/// Sizes of frames.
const SIZES: [(u16, u16); 2] = [(1280, 800), (1920, 1080)];

/// Bytes of the memory: room for the largest frame of half floats, in blocks.
const MEMORY: usize = 32 << 20;

/// What is over what is behind it, as drivers lay windows and cursors.
const OVER: Blend =
    Blend { k1: 0xff, source: SourceFactor::K1, destination: DestinationFactor::NegK1TimesSource };

/// Memory full of noise.
struct Noise(Vec<u8>);

impl Noise {
    fn new() -> Self {
        let words = (0..MEMORY as u64 / 8).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at << 21);
        Self(words.flat_map(u64::to_le_bytes).collect())
    }
}

impl ReadBytes for Noise {
    fn read(&self, address: Address, bytes: &mut [u8]) -> Result<(), ReadError> {
        let from = usize::try_from(address.offset).unwrap_or(usize::MAX);
        let found = self.0.get(from..).and_then(|rest| rest.get(..bytes.len()));
        bytes.copy_from_slice(found.ok_or(ReadError { address, length: bytes.len() })?);
        Ok(())
    }
}

fn window(size: Size, format: Format, layout: Layout) -> Window {
    let surface = Surface { format, size, layout, address: Address::default() };
    let (from, to) = (Point::default(), Point::default());
    Window { surface, from, size, to, lut: Lut::Identity, blend: OVER }
}

/// A head with a window of 32 bits in blocks of 16 GOBs.
fn blocks((width, height): (u16, u16)) -> Scanout {
    let size = Size::new(width, height);
    let layout = Layout::Blocks { height_shift: 4, across: u32::from(width) * 4 / 64 };
    Scanout { windows: vec![window(size, Format::Argb8888, layout)], ..Scanout::black(size) }
}

fn compose(bencher: Bencher, scanout: &Scanout) {
    let (memory, mut composer, mut frame) = (Noise::new(), Composer::default(), Frame::default());
    bencher.bench_local(|| {
        composer.compose(black_box(scanout), &memory, &mut frame).expect("a picture");
    });
}

#[divan::bench(args = SIZES)]
fn a_memcpy(bencher: Bencher, (width, height): (u16, u16)) {
    let bytes = usize::from(width) * usize::from(height) * 4;
    let (from, mut to) = (vec![1_u8; bytes], vec![0_u8; bytes]);
    bencher.bench_local(|| {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    });
}

#[divan::bench(args = SIZES)]
fn compose_pitch(bencher: Bencher, (width, height): (u16, u16)) {
    let size = Size::new(width, height);
    let layout = Layout::Pitch(u32::from(width) * 4);
    let scanout = Scanout { windows: vec![window(size, Format::Argb8888, layout)], ..Scanout::black(size) };
    compose(bencher, &scanout);
}

#[divan::bench(args = SIZES)]
fn compose_blocks(bencher: Bencher, size: (u16, u16)) {
    compose(bencher, &blocks(size));
}

#[divan::bench(args = SIZES)]
fn compose_cursor(bencher: Bencher, size: (u16, u16)) {
    let cursor = Cursor {
        address: Address::default(),
        format: CursorFormat::Argb8888,
        side: CursorSide::Pixels64,
        to: Point { x: 300, y: 300 },
        blend: OVER,
    };
    compose(bencher, &Scanout { cursor: Some(cursor), ..blocks(size) });
}

#[divan::bench(args = SIZES)]
fn compose_table(bencher: Bencher, size: (u16, u16)) {
    let (entries, encoding) = (LutEntries::Direct10, LutEncoding::Fraction);
    let table = LutTable { address: Address::default(), entries, encoding, interpolate: true };
    compose(bencher, &Scanout { lut: Lut::Table(table), ..blocks(size) });
}

#[divan::bench(args = SIZES)]
fn compose_overlay(bencher: Bencher, size: (u16, u16)) {
    let mut scanout = blocks(size);
    let over = scanout
        .windows
        .first()
        .map(|window| Window { size: Size::new(size.0 / 2, size.1 / 2), ..window.clone() });
    scanout.windows.extend(over);
    compose(bencher, &scanout);
}

#[divan::bench(args = SIZES)]
fn compose_half_floats(bencher: Bencher, (width, height): (u16, u16)) {
    let size = Size::new(width, height);
    let layout = Layout::Pitch(u32::from(width) * 8);
    let scanout =
        Scanout { windows: vec![window(size, Format::Abgr16161616F, layout)], ..Scanout::black(size) };
    compose(bencher, &scanout);
}

/// A frame of noise, or of a desktop: one colour but for a small window.
fn frame(size: (u16, u16), is_desktop: bool) -> Frame {
    let mut scanout = blocks(size);
    if let Some(window) = scanout.windows.first_mut().filter(|_| is_desktop) {
        window.size = Size::new(size.0 / 8, size.1 / 8);
    }
    scanout.background = [0x2000, 0x3000, 0x4000];
    let mut frame = Frame::default();
    Composer::default().compose(&scanout, &Noise::new(), &mut frame).expect("a picture");
    frame
}

#[divan::bench(args = SIZES)]
fn tiles(bencher: Bencher, size: (u16, u16)) {
    let (frame, mut tiles, mut number) = (frame(size, false), Tiles::default(), 0);
    bencher.bench_local(|| {
        number += 1;
        tiles.update(black_box(&frame), number)
    });
}

/// All of a picture for a viewer that takes everything at once, or lets the server wait.
fn send(bencher: Bencher, frame: Frame, encoding: i32, is_slow: bool) {
    let mut tiles = Tiles::default();
    tiles.update(&frame, 1);
    let size = frame.size();
    let picture = Picture { frame, tiles, number: 1 };
    let mut session = Session::new("bench");
    let say = |session: &mut Session, bytes: &[u8]| session.receive(bytes, &NoInput).expect("a message");
    say(&mut session, b"RFB 003.008\n\x01\x01");
    say(&mut session, &[&[2, 0, 0, 1][..], &encoding.to_be_bytes()].concat());
    session.fill(&picture, Duration::ZERO);
    session.sent(session.output().len(), Duration::ZERO);
    let sides = [size.width(), size.height()].map(u16::to_be_bytes);
    let request = [&[3, 0, 0, 0, 0, 0][..], sides.as_flattened()].concat();
    let mut now = Duration::ZERO;
    bencher.bench_local(|| {
        now += FRAME_TIME;
        say(&mut session, &request);
        loop {
            session.fill(black_box(&picture), now);
            let length = session.output().len();
            if length == 0 {
                break;
            }
            if is_slow {
                session.sent(length / 2, now);
                now += FRAME_TIME;
            }
            session.sent(session.output().len(), now);
        }
    });
}

#[divan::bench(args = SIZES)]
fn send_raw(bencher: Bencher, size: (u16, u16)) {
    send(bencher, frame(size, false), 0, false);
}

#[divan::bench(args = SIZES)]
fn send_zrle_desktop(bencher: Bencher, size: (u16, u16)) {
    send(bencher, frame(size, true), 16, false);
}

#[divan::bench(args = SIZES)]
fn send_zrle_noise_slow(bencher: Bencher, size: (u16, u16)) {
    send(bencher, frame(size, false), 16, true);
}
