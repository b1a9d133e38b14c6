//! `display`: the head of a GPU, as a program without a library uses it: modes, a picture, flips at the
//! mode's rate, a cursor. What is seen stays for `secs` seconds, for those who look from outside.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Figures, Options};
use crate::drm::Screen;

/// The mode that is set: drawing costs what its pixels cost.
const SIZE: (u16, u16) = (640, 480);
/// Lines that are drawn of each picture.
const LINES: usize = 16;

pub fn run(options: &Options) -> Result<Figures> {
    let flips: u32 = options.get("flips", 60)?;
    let mut screen = Screen::open(options.gpu()?)?;
    let names: Vec<String> =
        screen.modes.iter().map(|mode| format!("{}x{}", mode.hdisplay, mode.vdisplay)).collect();
    let mode = screen.modes.iter().find(|mode| (mode.hdisplay, mode.vdisplay) == SIZE).copied();
    let mode = mode.ok_or_else(|| anyhow::anyhow!("there is no mode of 640x480 among {names:?}"))?;
    let mut pictures = Vec::new();
    for colour in [0x00ff_0000u32, 0x0000_ff00] {
        let mut picture = screen.picture(SIZE.0.into(), SIZE.1.into())?;
        let line = colour.to_le_bytes().repeat(SIZE.0.into());
        for at in 0..LINES {
            picture.pixels.write_words(at * picture.pitch, &line)?;
        }
        pictures.push(picture);
    }
    screen.set_mode(mode, &pictures[0])?;
    let mut cursor = screen.picture(64, 64)?;
    for at in 0..8 {
        cursor.pixels.write_words(at * cursor.pitch, &0xffff_ffffu32.to_le_bytes().repeat(8))?;
    }
    screen.cursor(&cursor, 100, 200)?;
    let (mut first, mut last) = (None, (0, 0));
    for flip in 0..flips {
        let picture = pictures.get(usize::from(flip % 2 == 0)).unwrap_or(&pictures[0]);
        let now = screen.flip(picture)?;
        ensure!(first.is_none() || now.0 > last.0 && now.1 >= last.1, "frame {now:?} comes after {last:?}");
        first = first.or(Some(now));
        last = now;
    }
    let (begun, time) = first.unwrap_or(last);
    let frames = last.0.wrapping_sub(begun);
    ensure!(frames >= flips.saturating_sub(1), "{flips} flips took {frames} frames");
    let milliseconds = (last.1 - time) as f64 / 1e3;
    // A frame of 640x480 takes 16.7 ms; one that is late is counted with those that it missed.
    let each = milliseconds / f64::from(frames.max(1));
    ensure!((15.0..19.0).contains(&each), "a frame takes {each} ms");
    screen.cursor(&cursor, 300, 20)?;
    std::thread::sleep(Duration::from_secs(options.get("secs", 0)?));
    let mut figures = Figures::new();
    figures.insert("modes".into(), names.into());
    figures.insert("flips".into(), flips.into());
    figures.insert("frames".into(), frames.into());
    figures.insert("frame_ms".into(), crate::stats::round(each).into());
    Ok(figures)
}
