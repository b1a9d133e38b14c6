//! Pictures whose pixels are made from a seed, as the guest program `patterns` shows them: the bytes of a
//! surface are hashes of their places, and what they look like follows from the format (`drm_fourcc.h`).

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

use super::picture::Picture;

/// What a pixel must be, and by how much it may differ where a card may round otherwise.
type Wanted = ([u8; 3], u8);

/// Compares a picture with what a guest says it shows: its size, format and seed, and a cursor over it.
///
/// # Errors
/// It is another picture; the first pixel that differs, and how many do.
pub fn compare(picture: &Picture, said: &Map<String, Value>) -> Result<()> {
    let number = |of: &Map<String, Value>, name: &str| {
        of.get(name).and_then(Value::as_i64).with_context(|| format!("the guest says no {name}"))
    };
    let size = (usize::try_from(number(said, "width")?)?, usize::try_from(number(said, "height")?)?);
    ensure!(
        (picture.width, picture.height) == size,
        "the picture is of {}x{}, not {}x{}",
        picture.width,
        picture.height,
        size.0,
        size.1
    );
    let format = said.get("format").and_then(Value::as_str).context("the guest says no format")?;
    let mut wanted = pixels(format, u32::try_from(number(said, "seed")?)?, size.0 * size.1)?;
    if said.get("inverse") == Some(&Value::Bool(true)) {
        wanted.iter_mut().for_each(|(rgb, _)| *rgb = rgb.map(|colour| 0xff - colour));
    }
    if let Some(Value::Object(cursor)) = said.get("cursor") {
        let side = usize::try_from(number(cursor, "side")?)?;
        let place = (number(cursor, "x")?, number(cursor, "y")?);
        lay(&mut wanted, size, place, side, u32::try_from(number(cursor, "seed")?)?);
    }
    let differs = |(found, (wanted, off)): &(&[u8; 3], &Wanted)| {
        found.iter().zip(wanted).any(|(found, wanted)| found.abs_diff(*wanted) > *off)
    };
    let mut wrong = picture.pixels.iter().zip(&wanted).enumerate().filter(|(_, pair)| differs(pair));
    if let Some((at, (found, (wanted, _)))) = wrong.next() {
        let (x, y, more) = (at % size.0, at / size.0, wrong.count());
        anyhow::bail!(
            "pixel {x},{y} is {found:02x?}, not {wanted:02x?}, and {more} others differ ({format})"
        );
    }
    Ok(())
}

/// The bytes of a seed: splitmix64's mix of the place of each word and the seed.
fn bytes(seed: u32, length: usize) -> Vec<u8> {
    let word = |index: u64| {
        let mut value = (index + (u64::from(seed) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        value ^= value >> 31;
        value = value.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value.to_be_bytes()
    };
    let words = (0..length.div_ceil(4) as u64).flat_map(|index| {
        let [a, b, c, d, ..] = word(index);
        [d, c, b, a]
    });
    words.take(length).collect()
}

/// What the pixels of a seed look like.
fn pixels(format: &str, seed: u32, count: usize) -> Result<Vec<Wanted>> {
    let whole = |rgb: [u8; 3]| (rgb, 0);
    let words = |of: fn(u32) -> [u8; 3]| -> Vec<Wanted> {
        let bytes = bytes(seed, count * 4);
        bytes.as_chunks().0.iter().map(|word| whole(of(u32::from_le_bytes(*word)))).collect()
    };
    let halves = |of: fn(u16) -> [u8; 3]| -> Vec<Wanted> {
        let bytes = bytes(seed, count * 2);
        bytes.as_chunks().0.iter().map(|word| whole(of(u16::from_le_bytes(*word)))).collect()
    };
    Ok(match format {
        // By the program's table.
        "C8  " => {
            let blue = |value: u8| if value < 0x80 { 0 } else { 0xff };
            bytes(seed, count).into_iter().map(|value| whole([value, 0xff - value, blue(value)])).collect()
        }
        "RG16" => halves(|word| [widened(word >> 11, 5), widened(word >> 5, 6), widened(word, 5)]),
        "XR15" | "AR15" => halves(|word| [widened(word >> 10, 5), widened(word >> 5, 5), widened(word, 5)]),
        "XR24" | "AR24" => words(|word| [16, 8, 0].map(|shift| low_byte(word >> shift))),
        "XB24" | "AB24" => words(|word| [0, 8, 16].map(|shift| low_byte(word >> shift))),
        "XR30" | "AR30" => words(|word| [22, 12, 2].map(|shift| low_byte(word >> shift))),
        "XB30" | "AB30" => words(|word| [2, 12, 22].map(|shift| low_byte(word >> shift))),
        // The program has so many 255th for each byte.
        "XB4H" | "AB4H" => words(|word| [0, 8, 16].map(|shift| low_byte(word >> shift))),
        other => anyhow::bail!("the guest shows the format '{other}'"),
    })
}

fn low_byte(word: u32) -> u8 {
    word.to_le_bytes()[0]
}

/// The lowest bits of a word as 8: the upper ones are repeated below.
fn widened(word: u16, bits: u32) -> u8 {
    let value = word & ((1 << bits) - 1);
    (value << (8 - bits) | value >> (2 * bits - 8)).to_le_bytes()[0]
}

/// Lays the program's cursor over a picture: a pixel is hidden, opaque, or half of it.
fn lay(wanted: &mut [Wanted], size: (usize, usize), place: (i64, i64), side: usize, seed: u32) {
    let inside = |at: i64, offset: usize, most: usize| {
        let at = usize::try_from(at + i64::try_from(offset).ok()?).ok()?;
        (at < most).then_some(at)
    };
    for (at, [blue, green, red, alpha]) in bytes(seed, side * side * 4).as_chunks().0.iter().enumerate() {
        let (x, y) = (inside(place.0, at % side, size.0), inside(place.1, at / side, size.1));
        let (Some(x), Some(y)) = (x, y) else { continue };
        let Some(behind) = wanted.get_mut(y * size.0 + x) else { continue };
        let front = [red, green, blue];
        match alpha & 3 {
            0 => {}
            1 => {
                for (behind, front) in behind.0.iter_mut().zip(front) {
                    let sum = u32::from(front / 2) + u32::from(*behind) * (0xff - 0x80) / 0xff;
                    *behind = u8::try_from(sum).unwrap_or(0xff);
                }
                behind.1 = 1;
            }
            _ => *behind = (front.map(|colour| *colour), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(of: Value) -> Map<String, Value> {
        let Value::Object(said) = of else { panic!("no object") };
        said
    }

    fn picture(format: &str, seed: u32) -> Picture {
        let pixels = pixels(format, seed, 64).unwrap().into_iter().map(|(rgb, _)| rgb).collect();
        Picture { width: 8, height: 8, pixels }
    }

    #[test]
    fn one_wrong_pixel_is_found() {
        let about = said(json!({ "width": 8, "height": 8, "format": "XR24", "seed": 7 }));
        let mut shown = picture("XR24", 7);
        compare(&shown, &about).unwrap();
        shown.pixels[11][1] ^= 1;
        let why = compare(&shown, &about).unwrap_err().to_string();
        assert!(why.starts_with("pixel 3,1 is"), "{why}");
        assert!(compare(&picture("XR24", 8), &about).is_err());
        assert!(compare(&Picture { width: 4, height: 16, ..picture("XR24", 7) }, &about).is_err());
    }

    #[test]
    fn bits_mean_what_the_formats_names_say() {
        assert_eq!(
            [widened(0x1f, 5), widened(0x10, 5), widened(0x20, 6), widened(0xffc0, 6)],
            [255, 132, 130, 0]
        );
        let red = |format: &str| pixels(format, 3, 1).unwrap()[0].0[0];
        let blue = |format: &str| pixels(format, 3, 1).unwrap()[0].0[2];
        assert_eq!((red("XR24"), red("XR30")), (blue("XB24"), blue("XB30")));
    }

    #[test]
    fn cursor_is_cut_at_the_edges() {
        let about = said(json!({ "width": 8, "height": 8, "format": "XR24", "seed": 7,
                                 "cursor": { "x": -60, "y": 5, "side": 64, "seed": 9 } }));
        let mut wanted = pixels("XR24", 7, 64).unwrap();
        lay(&mut wanted, (8, 8), (-60, 5), 64, 9);
        let shown = Picture { width: 8, height: 8, pixels: wanted.into_iter().map(|(rgb, _)| rgb).collect() };
        compare(&shown, &about).unwrap();
        let plain = picture("XR24", 7);
        assert_eq!(shown.pixels[..40], plain.pixels[..40]);
        assert!(compare(&plain, &about).is_err());
    }
}
