//! Sessions' output, for all formats and encodings.

use std::time::Duration;

use proptest::prelude::*;

use super::decoder::{Bytes, FORMATS, Format, Screen};
use crate::frame::Frame;
use crate::mode::Size;
use crate::rfb::NoInput;
use crate::rfb::session::{OUTPUT_MAX, Session};
use crate::source::Picture;
use crate::tiles::{Rectangle, Tiles};
use crate::watch::FRAME_TIME;

/// Pictures one after another, as a watch makes them.
#[derive(Default)]
pub(super) struct Pictures {
    tiles: Tiles,
    number: u64,
}

impl Pictures {
    pub(super) fn next(&mut self, frame: Frame) -> Picture {
        self.number += 1;
        self.tiles.update(&frame, self.number);
        Picture { frame, tiles: self.tiles.clone(), number: self.number }
    }
}

/// A frame that has something of all that ZRLE can say, by its seed.
pub(super) fn frame(size: Size, seed: u32) -> Frame {
    let mut frame = Frame::black(size).unwrap();
    let colour = |number: u32| number.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 8;
    for y in 0..size.height() {
        for (x, pixel) in (0..).zip(frame.line_mut(y)) {
            let (column, line) = (x / 64 + u32::from(y) / 64 * 7 + seed, u32::from(y));
            *pixel = colour(match column % 8 {
                0 => 0,
                1 => (x + line) % 2,
                2 => (x / 3 + line) % 4,
                3 => x * line % 13,
                4 => line,
                5 => line / 9,
                6 => x * 3 + line * 1000,
                _ => (x / 20 + line / 20) % 16,
            });
        }
    }
    frame
}

/// A viewer without sockets. It takes bytes in pieces.
pub(super) struct Viewer {
    pub(super) session: Session,
    pub(super) screen: Screen,
    now: Duration,
    /// Bytes that it takes at a time.
    piece: usize,
}

impl Viewer {
    /// A viewer that has greeted.
    pub(super) fn new(picture: &Picture, format: Format, encodings: &[i32], piece: usize) -> Self {
        let mut session = Session::new("a name");
        session.receive(b"RFB 003.008\n\x01\x01", &NoInput).unwrap();
        session.fill(picture, Duration::ZERO);
        let mut bytes = Bytes(session.output());
        assert_eq!(bytes.take(12), b"RFB 003.008\n");
        assert_eq!(bytes.take(6), [1, 1, 0, 0, 0, 0]);
        let size = Size::new(bytes.two(), bytes.two());
        assert_eq!(bytes.take(16), &FORMATS[0].message()[4..]);
        let length = usize::try_from(bytes.four()).unwrap();
        assert_eq!(bytes.take(length), b"a name");
        assert!(bytes.0.is_empty());
        session.sent(session.output().len(), Duration::ZERO);
        session.receive(&format.message(), &NoInput).unwrap();
        let mut message = vec![2, 0];
        message.extend(u16::try_from(encodings.len()).unwrap().to_be_bytes());
        message.extend(encodings.iter().flat_map(|encoding| encoding.to_be_bytes()));
        session.receive(&message, &NoInput).unwrap();
        let mut screen = Screen::new(size);
        screen.format = format;
        Self { session, screen, now: Duration::ZERO, piece }
    }

    pub(super) fn request(&mut self, incremental: bool, area: Rectangle) {
        let mut message = vec![3, u8::from(incremental)];
        for part in [area.x, area.y, area.width, area.height] {
            message.extend(part.to_be_bytes());
        }
        self.session.receive(&message, &NoInput).unwrap();
    }

    /// The rectangles of the next update; nothing if there is none. Time goes on by a picture's.
    pub(super) fn update(&mut self, picture: &Picture) -> Option<Vec<Rectangle>> {
        self.now += FRAME_TIME;
        let mut bytes = Vec::new();
        loop {
            self.session.fill(picture, self.now);
            let output = self.session.output();
            // The limit, and the largest rectangle.
            assert!(output.len() < OUTPUT_MAX + 64 * 4 * usize::from(picture.frame.size().width()) + 100);
            let piece = self.piece.min(output.len());
            if piece == 0 {
                break;
            }
            bytes.extend_from_slice(&output[..piece]);
            self.session.sent(piece, self.now);
        }
        let mut bytes = Bytes(&bytes);
        if bytes.0.is_empty() {
            return None;
        }
        assert_eq!(bytes.byte(), 0, "an update");
        let found = self.screen.update(&mut bytes);
        assert!(bytes.0.is_empty());
        Some(found)
    }
}

#[test]
fn pictures_arrive_in_every_format_and_encoding() {
    let size = Size::new(200, 150);
    for format in FORMATS {
        for encodings in [&[][..], &[0], &[16, 0], &[0, 16], &[7, 16, -223, -239]] {
            let mut pictures = Pictures::default();
            let picture = pictures.next(frame(size, 1));
            let mut viewer = Viewer::new(&picture, format, encodings, 10_000);
            viewer.request(false, Rectangle::all(size));
            viewer.update(&picture).unwrap();
            assert!(viewer.screen.shows(&picture.frame), "{format:?} {encodings:?}");
            for seed in 2..5 {
                let picture = pictures.next(frame(size, seed));
                viewer.request(true, Rectangle::all(size));
                viewer.update(&picture).unwrap();
                assert!(viewer.screen.shows(&picture.frame), "{format:?} {encodings:?}");
            }
            let found = viewer.screen.encodings;
            let zrle = encodings.starts_with(&[16]) || encodings.starts_with(&[7]);
            assert_eq!(found.contains_key(&16), zrle, "{encodings:?} {found:?}");
        }
    }
}

#[test]
fn changes_come_once_and_alone() {
    let size = Size::new(300, 200);
    let mut pictures = Pictures::default();
    let mut frame = frame(size, 9);
    let first = pictures.next(frame.clone());
    let mut viewer = Viewer::new(&first, FORMATS[0], &[16], 1000);
    // The first request that asks for changes gets all.
    viewer.request(true, Rectangle::all(size));
    let area: u32 = viewer
        .update(&first)
        .unwrap()
        .iter()
        .map(|part| u32::from(part.width) * u32::from(part.height))
        .sum();
    assert_eq!(area, size.pixels());
    viewer.request(true, Rectangle::all(size));
    assert_eq!(viewer.update(&first), None);
    assert!(viewer.session.wants_picture());
    frame.line_mut(70)[100] = 0x0012_3456;
    let second = pictures.next(frame.clone());
    assert_eq!(viewer.update(&second), Some(vec![Rectangle { x: 64, y: 64, width: 64, height: 64 }]));
    assert!(viewer.screen.shows(&frame));
    assert!(!viewer.session.wants_picture());
    assert_eq!(viewer.update(&second), None);
    // An area that is asked for comes whole, and nothing of what changed elsewhere is lost.
    frame.line_mut(199)[299] = 1;
    let third = pictures.next(frame.clone());
    let part = Rectangle { x: 3, y: 5, width: 10, height: 100 };
    viewer.request(false, part);
    let strips = [Rectangle { height: 64, ..part }, Rectangle { y: 69, height: 36, ..part }];
    assert_eq!(viewer.update(&third), Some(strips.to_vec()));
    assert!(!viewer.screen.shows(&frame));
    viewer.request(true, part);
    assert_eq!(viewer.update(&third), Some(vec![Rectangle { x: 256, y: 192, width: 44, height: 8 }]));
    assert!(viewer.screen.shows(&frame));
}

#[test]
fn other_size_is_told_or_filled_up() {
    let sizes = [Size::new(100, 80), Size::new(70, 120), Size::new(200, 20)];
    for desktop_size in [true, false] {
        let mut pictures = Pictures::default();
        let first = pictures.next(frame(sizes[0], 1));
        let encodings: &[i32] = if desktop_size { &[16, -223] } else { &[16] };
        let mut viewer = Viewer::new(&first, FORMATS[0], encodings, 1000);
        viewer.request(false, Rectangle::all(sizes[0]));
        viewer.update(&first).unwrap();
        for size in [sizes[1], sizes[2], sizes[0]] {
            let picture = pictures.next(frame(size, 5));
            viewer.request(true, Rectangle::all(viewer.screen.size));
            let found = viewer.update(&picture).unwrap();
            if desktop_size {
                assert_eq!(found, [Rectangle::all(size)]);
                viewer.request(true, Rectangle::all(size));
                viewer.update(&picture).unwrap();
            }
            assert_eq!(viewer.screen.size, if desktop_size { size } else { sizes[0] });
            assert!(viewer.screen.shows(&picture.frame), "{size} {desktop_size}");
            viewer.request(true, Rectangle::all(viewer.screen.size));
            assert_eq!(viewer.update(&picture), None);
        }
    }
}

#[test]
fn areas_outside_the_screen_are_nothing() {
    let size = Size::new(50, 40);
    let picture = Pictures::default().next(frame(size, 1));
    let mut viewer = Viewer::new(&picture, FORMATS[0], &[], 1000);
    let outside = Rectangle { x: 50, y: 0, width: u16::MAX, height: u16::MAX };
    viewer.request(false, outside);
    assert_eq!(viewer.update(&picture), Some(vec![]));
    viewer.request(false, outside);
    viewer.request(false, Rectangle { x: 49, y: 39, width: u16::MAX, height: 1 });
    assert_eq!(viewer.update(&picture), Some(vec![Rectangle { x: 49, y: 0, width: 1, height: 40 }]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn any_pictures_arrive(
        (width, height) in (1_u16..150, 1_u16..150),
        changes in prop::collection::vec(
            prop::collection::vec((any::<u16>(), any::<u16>(), 1_u16..90, prop::sample::select(vec![0, 1, 7, 0xff_ffff])), 1..20),
            1..4),
        format in prop::sample::select(&FORMATS[..]),
        zrle: bool,
        piece in 1_usize..5000,
    ) {
        let size = Size::new(width, height);
        let mut frame = Frame::black(size).unwrap();
        let mut pictures = Pictures::default();
        let first = pictures.next(frame.clone());
        let mut viewer = Viewer::new(&first, format, if zrle { &[16] } else { &[] }, piece);
        viewer.request(true, Rectangle::all(size));
        viewer.update(&first).unwrap();
        for picture in changes {
            for (x, y, length, colour) in picture {
                let from = usize::from(x % width);
                let line = frame.line_mut(y % height);
                let end = line.len().min(from + usize::from(length));
                line[from..end].fill(colour);
            }
            let picture = pictures.next(frame.clone());
            viewer.request(true, Rectangle::all(size));
            viewer.update(&picture);
            prop_assert!(viewer.screen.shows(&frame));
        }
    }
}
