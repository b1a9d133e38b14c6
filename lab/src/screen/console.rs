//! Text on a guest's console, read back from the picture of its monitor by the kernel's own font.

use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

use super::picture::Picture;

/// Pixels of a letter's line.
const WIDTH: usize = 8;
/// What Linux' console writes with, where nothing else is said.
const GREY: [u8; 3] = [0xaa; 3];
/// What stands for a place without a letter that there is.
const UNKNOWN: char = '\u{fffd}';

/// A console's font: which letter has which pixels.
#[derive(Debug)]
struct Font {
    height: usize,
    letters: HashMap<Vec<u8>, char>,
}

impl Font {
    /// The font that a guest says: for each glyph a byte a line, in hexadecimal.
    fn of(said: &Map<String, Value>) -> Result<Self> {
        let height = said.get("height").and_then(Value::as_u64).context("the font has no height")?;
        let height = usize::try_from(height)?;
        ensure!((8..=32).contains(&height), "letters of {height} lines");
        let text = said.get("glyphs").and_then(Value::as_str).context("the font has no glyphs")?;
        let digits: Vec<u8> = text.bytes().collect();
        let bytes: Option<Vec<u8>> = digits
            .as_chunks::<2>()
            .0
            .iter()
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let bytes = bytes.context("the font is no hexadecimal")?;
        let mut letters = HashMap::new();
        for (letter, glyph) in (' '..='~').zip(bytes.chunks_exact(height).skip(usize::from(b' '))) {
            if let Some(other) = letters.insert(glyph.to_vec(), letter) {
                bail!("'{other}' and '{letter}' look the same");
            }
        }
        ensure!(letters.len() == 95, "the font has {} letters", letters.len());
        Ok(Self { height, letters })
    }

    /// The lines of a console that fills a picture, without blanks behind them.
    fn read(&self, picture: &Picture) -> Vec<String> {
        let columns = picture.width / WIDTH;
        let line = |row: usize| {
            let text: String = (0..columns).map(|column| self.letter(picture, column, row)).collect();
            text.trim_end().to_owned()
        };
        (0..picture.height / self.height).map(line).collect()
    }

    /// The letter at a place: grey on black.
    fn letter(&self, picture: &Picture, column: usize, row: usize) -> char {
        let mut glyph = Vec::with_capacity(self.height);
        for y in 0..self.height {
            let mut bits = 0u8;
            for x in 0..WIDTH {
                match picture.pixel(column * WIDTH + x, row * self.height + y) {
                    [0, 0, 0] => {}
                    GREY => bits |= 0x80 >> x,
                    _ => return UNKNOWN,
                }
            }
            glyph.push(bits);
        }
        self.letters.get(&glyph).copied().unwrap_or(UNKNOWN)
    }
}

/// Reads the lines of a console; `said` has its font, the lines that were written, and whether there is
/// nothing else. Comes back with all lines that are seen, but for empty ones behind them.
///
/// # Errors
/// Other lines are seen than were written.
pub fn compare(picture: &Picture, said: &Map<String, Value>) -> Result<Vec<String>> {
    let font = said.get("font").and_then(Value::as_object).context("the guest says no font")?;
    let mut seen = Font::of(font)?.read(picture);
    let lines = said.get("lines").and_then(Value::as_array).context("the guest says no lines")?;
    let written: Option<Vec<&str>> = lines.iter().map(Value::as_str).collect();
    let written = written.filter(|lines| !lines.is_empty()).context("the guest wrote no lines")?;
    let is_there = if said.get("cleared") == Some(&Value::Bool(true)) {
        let (first, rest) = seen.split_at(written.len().min(seen.len()));
        first.iter().eq(written.iter()) && rest.iter().all(String::is_empty)
    } else {
        seen.windows(written.len()).any(|window| window.iter().eq(written.iter()))
    };
    ensure!(is_there, "the console shows {seen:?}, not {written:?}");
    seen.truncate(seen.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1));
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Glyphs whose lines all have the letter's number, but for the blank.
    fn glyph(number: u8) -> [u8; 8] {
        [if number == b' ' { 0 } else { number }; 8]
    }

    fn said(lines: &[&str], cleared: bool) -> Map<String, Value> {
        let glyphs: String = (0..=255).flat_map(glyph).map(|byte| format!("{byte:02x}")).collect();
        let font = json!({ "height": 8, "glyphs": glyphs });
        let Value::Object(said) = json!({ "lines": lines, "cleared": cleared, "font": font }) else {
            panic!("no object")
        };
        said
    }

    /// A console of 6 by 3 letters.
    fn picture(lines: [&str; 3]) -> Picture {
        let mut pixels = Vec::new();
        for line in lines {
            for y in 0..8 {
                for letter in format!("{line:6}").bytes() {
                    let bits = glyph(letter)[y];
                    pixels.extend((0..8).map(|x| if bits & 0x80 >> x != 0 { GREY } else { [0; 3] }));
                }
            }
        }
        Picture { width: 48, height: 24, pixels }
    }

    #[test]
    fn lines_are_read_back() {
        let shown = picture(["one", "", "\"two\""]);
        assert_eq!(compare(&shown, &said(&["one", "", "\"two\""], true)).unwrap(), ["one", "", "\"two\""]);
        compare(&shown, &said(&["", "\"two\""], false)).unwrap();
        assert!(compare(&shown, &said(&["one"], true)).is_err());
        assert!(compare(&shown, &said(&["two"], false)).is_err());
    }

    #[test]
    fn a_pixel_that_is_wrong_is_no_letter() {
        let mut shown = picture(["one", "", ""]);
        shown.pixels[0] = [0xab; 3];
        let why = compare(&shown, &said(&["one"], true)).unwrap_err().to_string();
        assert!(why.contains("\u{fffd}ne"), "{why}");
        shown.pixels[0] = GREY;
        assert!(compare(&shown, &said(&["one"], true)).is_err());
    }
}
