//! The server and viewers that mean well.

use std::io::Write as _;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use super::client::{Client, LONG, Served};
use super::pictures::frame;
use crate::mode::Size;
use crate::rfb::{Settings, ViewerInput};
use crate::watch::FRAME_TIME;

const SIZE: Size = Size::new(300, 200);

#[test]
fn viewers_of_all_versions_see_the_same() {
    let served = Served::new(Settings::new("vm1"));
    served.show.show(frame(SIZE, 1));
    // The last one is Apple's, which is served as the newest one.
    for version in [b"RFB 003.003\n", b"RFB 003.007\n", b"RFB 003.008\n", b"RFB 003.889\n"] {
        let mut viewer = Client::greet(served.connect(), version).unwrap();
        viewer.request(false);
        viewer.update();
        assert!(viewer.screen.shows(&frame(SIZE, 1)), "{version:?}");
    }
    assert_eq!(served.server.counts().came.get(), 4);
}

#[test]
fn two_viewers_see_changes_each_at_its_own_pace() {
    let served = Served::new(Settings::new("vm1"));
    served.show.show(frame(SIZE, 1));
    let (mut one, mut other) = (served.viewer(), served.viewer());
    one.request(true);
    one.update();
    for seed in 2..6 {
        one.request(true);
        served.show.show(frame(SIZE, seed));
        one.update();
        assert!(one.screen.shows(&frame(SIZE, seed)));
    }
    other.request(true);
    other.update();
    assert!(other.screen.shows(&frame(SIZE, 5)));
}

#[test]
fn source_is_looked_at_while_somebody_waits_for_a_picture() {
    let served = Served::new(Settings::new("vm1"));
    served.show.show(frame(SIZE, 1));
    std::thread::sleep(FRAME_TIME);
    assert_eq!(served.show.looks(), (0, 0));
    let mut viewer = served.viewer();
    viewer.request(true);
    viewer.update();
    viewer.request(true);
    let begun = Instant::now();
    while served.show.looks().1 == 0 {
        assert!(begun.elapsed() < LONG);
    }
    drop(viewer);
    while served.show.looks().1 != 0 {
        assert!(begun.elapsed() < LONG);
    }
}

#[test]
fn viewer_that_asks_too_often_gets_30_pictures_a_second() {
    let served = Served::new(Settings::new("vm1"));
    served.show.show(frame(SIZE, 1));
    let mut viewer = served.viewer();
    let begun = Instant::now();
    for _ in 0..10 {
        viewer.request(false);
        viewer.update();
    }
    assert!(begun.elapsed() >= FRAME_TIME * 9, "{:?}", begun.elapsed());
}

/// Sends what is done.
struct Told(Sender<String>);

impl ViewerInput for Told {
    fn key(&self, down: bool, key: u32) {
        let _ = self.0.send(format!("key {key:x} {down}"));
    }

    fn pointer(&self, buttons: u8, x: u16, y: u16) {
        let _ = self.0.send(format!("pointer {buttons} {x} {y}"));
    }
}

#[test]
fn keys_and_pointer_are_handed_on() {
    let (sender, told) = channel();
    let served = Served::with_input(Settings::new("vm1"), Box::new(Told(sender)));
    served.show.show(frame(SIZE, 1));
    let mut viewer = served.viewer();
    viewer.stream.write_all(&[4, 1, 0, 0, 0, 0, 0xff, 0x0d, 5, 1, 0, 2, 0, 3]).unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), "key ff0d true");
    assert_eq!(told.recv_timeout(LONG).unwrap(), "pointer 1 2 3");
}

#[test]
fn server_ends_while_viewers_look() {
    let served = Served::new(Settings::new("vm1"));
    served.show.show(frame(SIZE, 1));
    let mut viewer = served.viewer();
    viewer.request(true);
    drop(served);
    assert!(viewer.is_let_go());
}
