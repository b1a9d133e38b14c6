//! Rectangles.

use std::rc::Rc;

use anyhow::{Context as _, Result};

use super::{Figures, figures, pattern, same};
use crate::driver::{Context, Corner, DeviceMemory, Place};

const WIDTH: usize = 300;
const HEIGHT: usize = 77;

/// A rectangle goes to the device, from there to a place with another pitch, and back; words around it stay,
/// and a smaller one is filled.
pub fn planes(context: &Rc<Context>) -> Result<Figures> {
    const FILL: u32 = 0x89ab_cdef;
    let size = (WIDTH, HEIGHT);
    let [host, one, two, back] =
        [(20, 3, 400), (64, 5, 512), (4, 0, 320), (7, 1, 333)].map(|(x, y, pitch)| Corner { x, y, pitch });
    let bytes_of = |corner: Corner| corner.pitch * (corner.y + HEIGHT + 2);
    let mut sent = pattern(bytes_of(host), 70);
    let [first, second] = [one, two].map(|corner| DeviceMemory::allocate(context, bytes_of(corner)));
    let (first, second) = (first?, second?);
    first.fill_words(0x5a5a_5a5a)?;
    second.fill_words(0x5a5a_5a5a)?;

    context.copy_plane(Place::Host(&mut sent, host), Place::Device(&first, one), size)?;
    context.copy_plane(Place::Device(&first, one), Place::Device(&second, two), size)?;
    let inner = Corner { x: two.x + 16, y: two.y + 9, pitch: two.pitch };
    context.fill_plane((&second, inner), FILL, (20, 8))?;
    let mut found = vec![0x33; bytes_of(back)];
    context.copy_plane(Place::Device(&second, two), Place::Host(&mut found, back), size)?;

    let mut expected = [vec![0x5a; bytes_of(one)], vec![0x5a; bytes_of(two)], vec![0x33; bytes_of(back)]];
    for (corner, expected) in [one, two, back].into_iter().zip(&mut expected) {
        for line in 0..HEIGHT {
            let of = |corner: Corner| (corner.y + line) * corner.pitch + corner.x;
            expected[of(corner)..][..WIDTH].copy_from_slice(&sent[of(host)..][..WIDTH]);
            if corner != one && (9..17).contains(&line) {
                let words: Vec<u8> = std::iter::repeat_n(FILL.to_le_bytes(), 20).flatten().collect();
                expected[of(corner) + 16..][..words.len()].copy_from_slice(&words);
            }
        }
    }
    same(&first.read()?, &expected[0]).context("the first place")?;
    same(&second.read()?, &expected[1]).context("the second place")?;
    same(&found, &expected[2]).context("what came back")?;
    Ok(figures(&[("bytes", WIDTH), ("lines", HEIGHT)]))
}
