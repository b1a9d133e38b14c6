//! `patterns`: pictures that the host compares pixel for pixel with what its monitor shows: in every mode and
//! format that is advertised, in every layout, and below a cursor.
//!
//! `what=modes,formats,layouts,cursor` chooses among them; `seed=N` makes other pictures of them.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::stage::Stage;
use super::{Figures, Options};
use crate::drm::{Framebuffer, Layout, Mode, Screen, Table};
use crate::pattern;

/// Formats and layouts are shown in this mode: each costs what its pixels cost.
const SIZE: (u16, u16) = (640, 480);
/// Bytes of a pixel of each format (`drm_fourcc.h`) that is shown.
const FORMATS: [(&[u8; 4], usize); 14] = [
    (PALETTE, 1),
    (b"RG16", 2),
    (b"XR15", 2),
    (b"AR15", 2),
    (PLAIN, 4),
    (b"AR24", 4),
    (b"XB24", 4),
    (b"AB24", 4),
    (b"XR30", 4),
    (b"AR30", 4),
    (b"XB30", 4),
    (b"AB30", 4),
    (b"XB4H", 8),
    (b"AB4H", 8),
];
/// Formats that are advertised, and not shown: what becomes of YUV's colours is not known.
const NOT_SHOWN: [&[u8; 4]; 2] = [b"YUYV", b"UYVY"];
const PLAIN: &[u8; 4] = b"XR24";
/// Pixels that name a colour of a table.
const PALETTE: &[u8; 4] = b"C8  ";
/// Formats that are shown in all layouts: pixels of 2, 4 and 8 bytes.
const IN_BLOCKS: [&[u8; 4]; 3] = [b"RG16", PLAIN, b"AB4H"];
/// Side of the cursor.
const CURSOR: usize = 64;
/// Where it is shown: inside, and across all edges.
const PLACES: [(i32, i32); 4] = [(100, 200), (-20, -10), (620, 471), (0, 416)];

pub fn run(options: &Options) -> Result<Figures> {
    let what: String = options.get("what", "modes,formats,layouts,cursor".to_owned())?;
    let wants = |name: &str| what.split(',').any(|word| word == name);
    let screen = Screen::open(options.gpu()?)?;
    let small = screen.modes.iter().find(|mode| size(mode) == SIZE).copied();
    let small = small.context("there is no mode of 640x480")?;
    let (stage, seed) = (Stage::open()?, options.get("seed", 1)?);
    let mut show = Show { stage, screen: &screen, seed, shown: 0, last: None };
    let mut figures = Figures::new();
    if wants("modes") {
        for mode in &screen.modes {
            show.picture(*mode, PLAIN, Layout::Linear)?;
        }
        figures.insert("modes".into(), screen.modes.len().into());
    }
    if wants("formats") {
        show.picture(small, PLAIN, Layout::Linear)?;
        let formats = screen.formats()?;
        let code = |name: &[u8; 4]| u32::from_le_bytes(*name);
        for format in &formats {
            let known = FORMATS.iter().any(|(name, _)| code(name) == *format);
            let left_out = NOT_SHOWN.iter().any(|name| code(name) == *format);
            ensure!(known || left_out, "the format {format:#010x} is advertised");
        }
        for (name, _) in FORMATS.iter().filter(|(name, _)| formats.contains(&code(name))) {
            show.picture(small, name, Layout::Linear)?;
        }
        show.inverse(small)?;
        figures.insert("formats".into(), formats.len().into());
    }
    if wants("layouts") {
        for name in IN_BLOCKS {
            for height in 0..=5 {
                show.picture(small, name, Layout::Blocks(height))?;
            }
        }
    }
    if wants("cursor") {
        show.cursor(small)?;
    }
    figures.insert("pictures".into(), show.shown.into());
    Ok(figures)
}

fn size(mode: &Mode) -> (u16, u16) {
    (mode.hdisplay, mode.vdisplay)
}

/// What is shown so far.
struct Show<'a> {
    stage: Stage,
    screen: &'a Screen,
    seed: u32,
    shown: u32,
    /// What is shown: it goes when the next one is, so that the head is never without a picture.
    last: Option<Framebuffer<'a>>,
}

impl<'a> Show<'a> {
    /// Shows a picture whose seed is its own.
    fn picture(&mut self, mode: Mode, name: &[u8; 4], layout: Layout) -> Result<()> {
        let text = String::from_utf8_lossy(name);
        let about = || format!("{text} of {:?}, {layout:?}", size(&mode));
        self.seed += 1;
        let bytes = pixels(self.seed, size(&mode), name);
        let code = u32::from_le_bytes(*name);
        let picture = self.screen.framebuffer(size(&mode), code, layout, &bytes).with_context(about)?;
        if name == PALETTE {
            // Red is what a pixel says, green what it leaves, blue one of two.
            let of =
                |value: u16| [value * 0x101, (0xff - value) * 0x101, if value < 0x80 { 0 } else { 0xffff }];
            let palette: Vec<_> = (0..=0xff).map(of).collect();
            self.screen.set_table(Table::Input, Some(&palette))?;
        }
        self.put(mode, picture).with_context(about)?;
        let (width, height) = size(&mode);
        self.see(json!({ "width": width, "height": height, "format": &*text, "seed": self.seed }))?;
        if name == PALETTE {
            self.screen.set_table(Table::Input, None)?;
        }
        Ok(())
    }

    /// Shows a picture in the colours that it leaves, by the head's own table.
    fn inverse(&mut self, mode: Mode) -> Result<()> {
        let inverse: Vec<_> = (0..1024).map(|at| [0xffff - (at << 6); 3]).collect();
        self.seed += 1;
        let code = u32::from_le_bytes(*PLAIN);
        let bytes = pixels(self.seed, size(&mode), PLAIN);
        let picture = self.screen.framebuffer(size(&mode), code, Layout::Linear, &bytes)?;
        self.put(mode, picture)?;
        self.screen.set_table(Table::Output, Some(&inverse))?;
        let (width, height) = size(&mode);
        self.see(json!({ "width": width, "height": height, "format": "XR24", "seed": self.seed,
                         "inverse": true }))?;
        self.screen.set_table(Table::Output, None)?;
        self.see(json!({ "width": width, "height": height, "format": "XR24", "seed": self.seed }))
    }

    /// Shows a cursor over a picture, at several places.
    fn cursor(&mut self, mode: Mode) -> Result<()> {
        self.seed += 1;
        let bytes = pixels(self.seed, size(&mode), PLAIN);
        let code = u32::from_le_bytes(*PLAIN);
        let picture = self.screen.framebuffer(size(&mode), code, Layout::Linear, &bytes)?;
        self.put(mode, picture)?;
        let seed = self.seed + 1;
        let mut cursor = self.screen.picture(u32::try_from(CURSOR)?, u32::try_from(CURSOR)?)?;
        for (y, line) in pattern::bytes(seed, 0, CURSOR * CURSOR * 4).chunks_exact(CURSOR * 4).enumerate() {
            let mut line = line.to_vec();
            for pixel in line.as_chunks_mut().0 {
                *pixel = cursor_pixel(*pixel);
            }
            cursor.pixels.write_words(y * cursor.pitch, &line)?;
        }
        let (width, height) = size(&mode);
        for (number, (x, y)) in PLACES.into_iter().enumerate() {
            if number == 0 {
                self.screen.cursor(&cursor, x, y)?;
            } else {
                self.screen.move_cursor(x, y)?;
            }
            self.see(json!({ "width": width, "height": height, "format": "XR24", "seed": self.seed,
                             "cursor": { "x": x, "y": y, "side": CURSOR, "seed": seed } }))?;
        }
        self.screen.hide_cursor()?;
        self.see(json!({ "width": width, "height": height, "format": "XR24", "seed": self.seed }))?;
        self.seed = seed;
        Ok(())
    }

    fn put(&mut self, mode: Mode, picture: Framebuffer<'a>) -> Result<()> {
        picture.show(mode)?;
        self.last = Some(picture);
        Ok(())
    }

    fn see(&mut self, what: serde_json::Value) -> Result<()> {
        self.shown += 1;
        self.stage.show(what)
    }
}

/// A pixel of the cursor: hidden, opaque, or its colour's half over what is behind (colours are multiplied by
/// alpha already).
fn cursor_pixel([blue, green, red, alpha]: [u8; 4]) -> [u8; 4] {
    match alpha & 3 {
        0 => [0; 4],
        1 => [blue / 2, green / 2, red / 2, 0x80],
        _ => [blue, green, red, 0xff],
    }
}

/// Pixels of a picture, line by line.
fn pixels(seed: u32, (width, height): (u16, u16), name: &[u8; 4]) -> Vec<u8> {
    let count = usize::from(width) * usize::from(height);
    match FORMATS.iter().find(|(known, _)| *known == name).map(|(_, bytes)| *bytes) {
        Some(8) => {
            let bytes = pattern::bytes(seed, 0, count * 4);
            bytes.iter().flat_map(|byte| half(*byte).to_le_bytes()).collect()
        }
        bytes => pattern::bytes(seed, 0, count * bytes.unwrap_or(4)),
    }
}

/// So many 255th as a half float that is no larger: of 256 levels it is the one of that number.
fn half(byte: u8) -> u16 {
    if byte == 0 {
        return 0;
    }
    // A single float has 13 bits more behind the point, and an exponent that is 112 greater.
    let value = f32::from(byte) / 255.0;
    u16::try_from((value.to_bits() >> 13) - (112 << 10)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_no_larger() {
        assert_eq!([half(0), half(255), half(1), half(51)], [0, 0x3c00, 0x1c04, 0x3266]);
        // 0.95294: the nearest would be 244 of 256 levels.
        assert_eq!(half(243), 0x3b9f);
    }
}
