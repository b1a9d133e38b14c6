//! The server and viewers that mean no good.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::client::{Client, LONG, Served, is_let_go};
use super::pictures::{Pictures, frame};
use crate::mode::Size;
use crate::rfb::session::{OUTPUT_MAX, Session};
use crate::rfb::{NoInput, Settings};
use crate::watch::FRAME_TIME;

/// A picture of 4 MiB.
const LARGE: Size = Size::new(1280, 800);

#[test]
fn viewer_that_does_not_speak_is_let_go_by_the_clock() {
    let greeting = Duration::from_millis(300);
    let served = Served::new(Settings { greeting, ..Settings::new("vm1") });
    served.show.show(frame(Size::new(64, 64), 1));
    let mut silent = served.connect();
    let mut half = served.connect();
    half.write_all(b"RFB 003.008\n\x01").unwrap();
    // One that has greeted may be silent.
    let mut viewer = served.viewer();
    assert!(is_let_go(&mut silent) && is_let_go(&mut half));
    assert_eq!(served.server.counts().too_slow.get(), 2);
    viewer.request(false);
    viewer.update();
}

#[test]
fn garbage_ends_its_own_connection_only() {
    let served = Served::new(Settings::new("vm1"));
    served.show.show(frame(Size::new(64, 64), 1));
    let mut viewer = served.viewer();
    let mut state = 1_u32;
    for number in 0..30 {
        let mut stranger = served.connect();
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0] | 8
        })
        .take(100)
        .collect();
        let greeting: &[u8] = if number % 2 == 0 { b"RFB 003.008\n\x01\x01" } else { b"" };
        // It may be gone before all is written.
        let _ = stranger.write_all(&[greeting, &bytes].concat());
        assert!(is_let_go(&mut stranger));
        viewer.request(false);
        viewer.update();
    }
    assert_eq!(served.server.counts().faults.get(), 30);
}

#[test]
fn slow_reader_costs_only_itself() {
    let stalled = Duration::from_secs(2);
    let served = Served::new(Settings { stalled, ..Settings::new("vm1") });
    served.show.show(frame(LARGE, 1));
    let mut slow = served.viewer();
    slow.request(false);
    let mut viewer = served.viewer();
    for seed in 2..10 {
        served.show.show(frame(LARGE, seed));
        viewer.request(true);
        viewer.update();
        // It may be gone already.
        let _ = slow.stream.write_all(&[3, 0, 0, 0, 0, 0, 5, 0, 3, 32]);
    }
    assert!(viewer.screen.shows(&frame(LARGE, 9)));
    // It has read nothing, and got what its socket holds.
    let begun = Instant::now();
    while served.server.counts().too_slow.get() == 0 {
        assert!(begun.elapsed() < LONG);
        std::thread::sleep(FRAME_TIME);
    }
    let mut bytes = Vec::new();
    let _ = slow.stream.read_to_end(&mut bytes);
    assert!(bytes.len() < 4 * 1280 * 800, "{}", bytes.len());
}

#[test]
fn viewers_beyond_the_last_are_sent_away() {
    let served = Served::new(Settings::new("vm1"));
    served.show.show(frame(Size::new(64, 64), 1));
    let mut inside: Vec<Client> = (0..8).map(|_| served.viewer()).collect();
    for _ in 0..56 {
        assert!(is_let_go(&mut served.connect()));
    }
    let counts = served.server.counts();
    assert_eq!((counts.came.get(), counts.too_many.get()), (8, 56));
    for viewer in &mut inside {
        viewer.request(false);
        viewer.update();
    }
    // Who goes makes room.
    drop(inside.pop());
    let begun = Instant::now();
    while Client::greet(served.connect(), b"RFB 003.008\n").is_none() {
        assert!(begun.elapsed() < LONG);
    }
}

#[test]
fn long_text_is_dropped_and_too_long_text_ends_the_connection() {
    let served = Served::new(Settings::new("vm1"));
    served.show.show(frame(Size::new(64, 64), 1));
    let mut viewer = served.viewer();
    viewer.stream.write_all(&[6, 0, 0, 0, 0, 0x10, 0, 0]).unwrap();
    viewer.stream.write_all(&vec![b'a'; 1 << 20]).unwrap();
    viewer.request(false);
    viewer.update();
    viewer.stream.write_all(&[6, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]).unwrap();
    assert!(viewer.is_let_go());
}

proptest! {
    #[test]
    fn anything_that_is_said_is_taken_in_bounds(
        bytes in prop::collection::vec(prop_oneof![0_u8..8, any::<u8>()], 0..400),
        greeted: bool,
        piece in 1_usize..50,
    ) {
        let picture = Pictures::default().next(frame(Size::new(130, 70), 3));
        let mut session = Session::new(&"n".repeat(1000));
        let greeting: &[u8] = if greeted { b"RFB 003.008\n\x01\x01" } else { b"" };
        let mut now = Duration::ZERO;
        for piece in [greeting, &bytes].concat().chunks(piece) {
            if session.receive(piece, &NoInput).is_err() {
                break;
            }
            now += FRAME_TIME;
            session.fill(&picture, now);
            prop_assert!(session.output().len() < OUTPUT_MAX + 64 * 4 * 130 + 1000);
        }
    }
}
