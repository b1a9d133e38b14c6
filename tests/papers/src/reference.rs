//! What a processor computes, in the same steps as the kernels do.

use anyhow::{Result, bail, ensure};

/// A number that looks random, for a number.
#[must_use]
pub fn mix(x: u32) -> u32 {
    let x = (x ^ x >> 15).wrapping_mul(0x9e37_79b1);
    let x = (x ^ x >> 13).wrapping_mul(0x85eb_ca77);
    x ^ x >> 16
}

/// From 0 to 1, in steps of 2^-24.
#[must_use]
pub fn unit(x: u32) -> f32 {
    // 24 bits are exact.
    (mix(x) >> 8) as f32 * 2.0_f32.powi(-24)
}

/// Words as bytes.
#[must_use]
pub fn bytes(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// The words of bytes.
#[must_use]
pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// The numbers of bytes.
#[must_use]
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

/// One of several results.
///
/// # Errors
/// There are fewer.
pub fn result(results: &[Vec<u8>], number: usize) -> Result<&[u8]> {
    match results.get(number) {
        Some(bytes) => Ok(bytes),
        None => bail!("there is no result {number}"),
    }
}

/// Places to look at: all, or so many of them, with the first and the last one.
pub fn samples(count: usize, of: usize, seed: u32) -> Box<dyn Iterator<Item = usize>> {
    if of <= count {
        return Box::new(0..of);
    }
    let place = move |number: usize| match number {
        0 => 0,
        1 => of - 1,
        _ => mix(seed.wrapping_add(number as u32)) as usize % of,
    };
    Box::new((0..count).map(place))
}

/// That two words are the same.
///
/// # Errors
/// They are not.
pub fn same(found: Option<&u32>, wanted: u32, place: impl std::fmt::Display) -> Result<()> {
    ensure!(found == Some(&wanted), "{place}: {found:x?} instead of {wanted:#x}");
    Ok(())
}

/// That two numbers have the same bits.
///
/// # Errors
/// They have not.
pub fn equal(found: Option<&f32>, wanted: f32, place: impl std::fmt::Display) -> Result<()> {
    let same = found.is_some_and(|found| found.to_bits() == wanted.to_bits());
    ensure!(same, "{place}: {found:?} instead of {wanted}");
    Ok(())
}

/// That a number is close to another one: within this part of it, or of 1 where it is smaller.
///
/// # Errors
/// It is not.
pub fn close(found: Option<&f32>, wanted: f64, part: f64, place: impl std::fmt::Display) -> Result<()> {
    let near = found.is_some_and(|found| (f64::from(*found) - wanted).abs() <= part * wanted.abs().max(1.0));
    ensure!(near, "{place}: {found:?} instead of {wanted}");
    Ok(())
}
