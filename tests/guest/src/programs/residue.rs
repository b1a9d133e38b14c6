//! `residue`: is anything of an earlier guest left in this GPU's memory?
//!
//! `step=fill` fills VRAM with a pattern, as far as buffers can be had, and sees that it is there.
//! `step=scan` looks for the pattern in every page of VRAM (with `stride=N` in every Nth), before this guest
//! has written most of them, and must find none. It looks through PRAMIN, the window of BAR0 onto all of
//! VRAM: what the kernel gives to programs may have been cleared by the kernel.
//!
//! The window is the driver's too: it is put back, and nothing else may use the GPU meanwhile.

use std::fs::File;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::{Figures, Options};
use crate::chip::Chip;
use crate::drm::abi::Parameter;
use crate::drm::{Buffer, Channel, Device, Place, render_nodes};
use crate::stats;
use crate::sys::Mapping;

const PAGE: u64 = 4096;
const BUFFER: usize = 4 << 20;
/// Every word of a filled page.
const WORD: u32 = 0x5ec2_e7a5;
/// VRAM that the driver and this program's channel take for themselves.
const RESERVE: usize = 32 << 20;

/// Bytes of BAR0, and of the window in it.
const BAR0: usize = 16 << 20;
const PRAMIN: usize = 0x70_0000;
const PRAMIN_SIZE: u64 = 1 << 20;

pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    match options.get("step", "scan".to_owned())?.as_str() {
        "fill" => fill(gpu),
        "scan" => scan(gpu, options.get("stride", 1)?),
        other => bail!("'{other}' is no step; there are fill and scan"),
    }
}

fn fill(gpu: usize) -> Result<Figures> {
    let device = Device::open(gpu)?;
    let vram = device.parameter(Parameter::VramSize)?;
    let filled = fill_vram(&device)?;
    let pages = filled.bytes() / PAGE;
    let found = Window::open(gpu, Chip::of(&device)?)?.pages_with_the_pattern(vram, 1)?;
    ensure!(found >= pages, "{pages} pages were filled, but only {found} are seen through PRAMIN");
    let mut figures = Figures::new();
    figures.insert("pages".into(), pages.into());
    Ok(figures)
}

/// Memory full of the pattern; it still is when this is given back.
pub struct Filled(Vec<Buffer>);

impl Filled {
    /// How much.
    pub fn bytes(&self) -> u64 {
        (self.0.len() * BUFFER) as u64
    }
}

/// Fills VRAM, as far as buffers can be had.
pub fn fill_vram(device: &Device) -> Result<Filled> {
    let vram = device.parameter(Parameter::VramSize)?;
    let count = usize::try_from(vram)?.saturating_sub(RESERVE) / BUFFER;
    ensure!(count > 0, "{} MiB of VRAM are too little to fill any", vram >> 20);
    let mut channel = Channel::open(device, Chip::of(device)?.mover())?;
    let mut staging = Buffer::new(device, Place::Gart, BUFFER)?;
    staging.write(0, &WORD.to_le_bytes().repeat(BUFFER / 4))?;
    let mut buffers = Vec::new();
    for _ in 0..count {
        let buffer = Buffer::new(device, Place::Vram, BUFFER)?;
        channel.copy((&buffer, 0), (&staging, 0), BUFFER)?;
        staging.wait()?;
        buffers.push(buffer);
    }
    Ok(Filled(buffers))
}

fn scan(gpu: usize, stride: u64) -> Result<Figures> {
    let device = Device::open(gpu)?;
    let vram = device.parameter(Parameter::VramSize)?;
    let start = Instant::now();
    let found = Window::open(gpu, Chip::of(&device)?)?.pages_with_the_pattern(vram, stride)?;
    let took = start.elapsed();
    ensure!(found == 0, "{found} of {} pages hold what another guest wrote", vram / PAGE);
    let mut figures = Figures::new();
    figures.insert("pages".into(), (vram / PAGE / stride.max(1)).into());
    figures.insert("found_bytes".into(), 0.into());
    figures.insert("scan_ms".into(), stats::round(took.as_secs_f64() * 1e3).into());
    Ok(figures)
}

/// PRAMIN, put back where the driver had it when this ends.
struct Window {
    bar: Mapping,
    selector: usize,
    before: u32,
}

impl Window {
    fn open(gpu: usize, chip: &Chip) -> Result<Self> {
        let node = render_nodes().get(gpu).cloned().context("no such GPU")?;
        let name = node.file_name().context("a node without a name")?.to_string_lossy().into_owned();
        let path = format!("/sys/class/drm/{name}/device/resource0");
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open {path}"))?;
        let bar = Mapping::new(&file, 0, BAR0).with_context(|| format!("cannot map {path}"))?;
        let selector = chip.window;
        let mut before = [0; 4];
        bar.read_words(selector, &mut before)?;
        Ok(Self { bar, selector, before: u32::from_le_bytes(before) })
    }

    /// Pages of VRAM, among every `stride`th, that hold the pattern. One word of each is looked at, at
    /// another place in each: the pattern fills whole pages.
    fn pages_with_the_pattern(&mut self, vram: u64, stride: u64) -> Result<u64> {
        let mut found = 0;
        for base in (0..vram).step_by(usize::try_from(PRAMIN_SIZE)?) {
            let select = u32::try_from(base >> 16)?;
            self.bar.write_words(self.selector, &select.to_le_bytes())?;
            for page in (0..PRAMIN_SIZE.min(vram - base) / PAGE).step_by(usize::try_from(stride.max(1))?) {
                let place = page * PAGE + (page * 52) % PAGE;
                let mut word = [0; 4];
                self.bar.read_words(PRAMIN + usize::try_from(place)?, &mut word)?;
                found += u64::from(u32::from_le_bytes(word) == WORD);
            }
        }
        Ok(found)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Nobody could be told of a failure, and there is none: the register lies in the mapping.
        let _ = self.bar.write_words(self.selector, &self.before.to_le_bytes());
    }
}
