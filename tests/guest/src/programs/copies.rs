//! `copy`: GART to VRAM to GART in many sizes and at many offsets, every byte compared, on every engine there
//! is.

use anyhow::{Context, Result, bail};

use super::session::{self, Session};
use super::{Figures, Options};
use crate::drm::{Buffer, Device, Place};
use crate::pattern;

const BUFFER: usize = 6 << 20;
const SIZES: [usize; 13] =
    [1, 3, 4, 64, 255, 4095, 4096, 4097, 16384, 65_537, 1 << 20, (1 << 20) + 4100, (4 << 20) + 5];
/// Offsets into source, VRAM and target: none, by pages, by single bytes, over a page's end.
const OFFSETS: [[usize; 3]; 4] = [[0, 0, 0], [4096, 8192, 12288], [1, 2, 3], [4092, 131_068, 4100]];

pub fn run(options: &Options) -> Result<Figures> {
    let device = Device::open(options.gpu()?)?;
    let largest = options.get("largest", usize::MAX)?;
    let (mut copies, mut total) = (0u64, 0u64);
    let mut names = Vec::new();
    for engine in session::engines(&device)? {
        names.push(format!("{engine:?}"));
        let mut session = Session::on(&device, engine, BUFFER)?;
        for length in SIZES.into_iter().filter(|size| *size <= largest) {
            for offsets in OFFSETS {
                let seed = u32::try_from(copies)?;
                session.there_and_back(seed, offsets, length).with_context(|| format!("{engine:?}"))?;
                copies += 1;
                total += length as u64;
            }
        }
        within_vram(&mut session).with_context(|| format!("{engine:?}"))?;
        copies += 1;
    }
    let mut figures = Figures::new();
    figures.insert("copies".into(), copies.into());
    figures.insert("bytes".into(), total.into());
    figures.insert("engines".into(), names.into());
    Ok(figures)
}

/// GART to VRAM, VRAM to another VRAM buffer, and back, in one go.
fn within_vram(session: &mut Session) -> Result<()> {
    const LENGTH: usize = (1 << 20) + 77;
    let other = Buffer::new(&session.device, Place::Vram, LENGTH)?;
    let contents = pattern::bytes(0xa11, 0, LENGTH);
    session.source.write(0, &contents)?;
    session.channel.copy((&session.vram, 0), (&session.source, 0), LENGTH)?;
    session.channel.copy((&other, 0), (&session.vram, 0), LENGTH)?;
    session.channel.copy((&session.target, 0), (&other, 0), LENGTH)?;
    session.target.wait()?;
    let mut found = vec![0; LENGTH];
    session.target.read(0, &mut found)?;
    match pattern::difference(&found, &contents) {
        Some(difference) => bail!("copy within VRAM went wrong: {difference}"),
        None => Ok(()),
    }
}
