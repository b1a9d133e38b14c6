//! `victim`: honest work beside an attacker. Copies without a pause, every page marked and checked, registers
//! read between them and timed; says every quarter of a second how much was done, until the host says `end`.
//!
//! Copies are queued two deep, so that the GPU need not wait for this program. Each page carries the victim's
//! mark, its number and the copy's; all marks are compared after each copy, and all bytes of one page in
//! turn.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk_attacks::VICTIM_MARK;
use serde_json::json;

use super::{Figures, Options};
use crate::chip::Chip;
use crate::cmdline::Plan;
use crate::device_memory::DeviceMemory;
use crate::drm::{Buffer, Channel, Device, Place, render_nodes};
use crate::report::Reports;

const BYTES: usize = 4 << 20;
const PAGE: usize = 4096;
const DEPTH: usize = 2;
const TICK: Duration = Duration::from_millis(250);
/// Register reads that are timed after each copy was submitted.
const READS: usize = 6;

/// One copy's buffers.
struct Lane {
    source: Buffer,
    vram: Buffer,
    target: Buffer,
    turn: u32,
}

pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    let plan = Plan::parse(&fs::read_to_string("/proc/cmdline")?);
    let port = plan.report.context("the victim needs a report port (gpuvmk.report)")?;
    let mut reports = Reports::to(Some(&port));
    let over = told_to_end(&port)?;
    let device = Device::open(gpu)?;
    let registers = registers(gpu)?;
    let mut channel = Channel::open(&device, Chip::of(&device)?.mover())?;
    let mut lanes = (0..DEPTH).map(|_| Lane::new(&device)).collect::<Result<Vec<_>>>()?;
    for lane in &mut lanes {
        lane.submit(&mut channel)?;
    }

    reports.event("victim-ready", json!({}));
    let (mut copies, mut since, mut all) = (0u64, Instant::now(), 0u64);
    let mut reads: BTreeMap<u32, u32> = BTreeMap::new();
    for lane in (0..DEPTH).cycle() {
        let lane = lanes.get_mut(lane).context("a lane")?;
        lane.check().with_context(|| format!("copy {all}"))?;
        if over.load(Ordering::Relaxed) {
            break;
        }
        lane.submit(&mut channel)?;
        (copies, all) = (copies + 1, all + 1);
        for _ in 0..READS {
            let start = Instant::now();
            registers.load32(0)?;
            *reads.entry(bucket(start.elapsed())).or_default() += 1;
        }
        if since.elapsed() >= TICK {
            let nanos = u64::try_from(since.elapsed().as_nanos())?;
            let reads: Vec<(u32, u32)> = std::mem::take(&mut reads).into_iter().collect();
            reports.event("tick", json!({ "copies": copies, "us": nanos / 1000, "reads": reads }));
            (copies, since) = (0, Instant::now());
        }
    }
    let mut figures = Figures::new();
    figures.insert("copies".into(), all.into());
    Ok(figures)
}

impl Lane {
    fn new(device: &Device) -> Result<Self> {
        let buffer = |place| Buffer::new(device, place, BYTES);
        let mut lane = Self {
            source: buffer(Place::Gart)?,
            vram: buffer(Place::Vram)?,
            target: buffer(Place::Gart)?,
            turn: 0,
        };
        let filling: Vec<u8> = (0..BYTES).map(|at| (at ^ at >> 12).to_le_bytes()[0]).collect();
        lane.source.write(0, &filling)?;
        Ok(lane)
    }

    /// Marks all pages and copies them there and back.
    fn submit(&mut self, channel: &mut Channel) -> Result<()> {
        self.turn = self.turn.wrapping_add(1);
        for page in 0..BYTES / PAGE {
            self.source.write(page * PAGE, &mark(page, self.turn))?;
        }
        channel.copy((&self.vram, 0), (&self.source, 0), BYTES)?;
        channel.copy((&self.target, 0), (&self.vram, 0), BYTES)
    }

    /// Waits for the copy, and compares.
    fn check(&mut self) -> Result<()> {
        self.target.wait()?;
        let mut found = [0; 16];
        for page in 0..BYTES / PAGE {
            self.target.read(page * PAGE, &mut found)?;
            ensure!(found == mark(page, self.turn), "page {page} has {found:x?}");
        }
        let page = self.turn as usize % (BYTES / PAGE);
        let (mut whole, mut wanted) = ([0; PAGE], [0; PAGE]);
        self.target.read(page * PAGE, &mut whole)?;
        self.source.read(page * PAGE, &mut wanted)?;
        ensure!(whole == wanted, "page {page} differs behind its mark");
        Ok(())
    }
}

/// What stands at the start of a page.
fn mark(page: usize, turn: u32) -> [u8; 16] {
    let words = [VICTIM_MARK[0], VICTIM_MARK[1], u32::try_from(page).unwrap_or(0), turn];
    let mut bytes = [0; 16];
    for (place, word) in bytes.chunks_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The bucket of a time: eight for each doubling of nanoseconds, equally wide.
fn bucket(time: Duration) -> u32 {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(8);
    let doubling = nanos.ilog2();
    // The three bits below the highest one.
    let eighth = u32::try_from(nanos >> (doubling - 3) & 7).unwrap_or(0);
    doubling * 8 + eighth
}

/// The registers of the GPU that nouveau serves.
fn registers(gpu: usize) -> Result<DeviceMemory> {
    let node = render_nodes().get(gpu).cloned().context("no render node")?;
    let name = node.file_name().context("a render node without a name")?;
    let path = Path::new("/sys/class/drm").join(name).join("device/resource0");
    DeviceMemory::map(&path).with_context(|| format!("cannot map {}", path.display()))
}

/// True once the host has said so.
fn told_to_end(port: &str) -> Result<Arc<AtomicBool>> {
    let over = Arc::new(AtomicBool::new(false));
    let told = over.clone();
    let mut orders = BufReader::new(File::open(format!("/dev/{port}"))?);
    thread::spawn(move || {
        let mut line = String::new();
        while line.trim() != "end" {
            line.clear();
            if orders.read_line(&mut line).is_err() {
                break;
            }
        }
        told.store(true, Ordering::Relaxed);
    });
    Ok(over)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_differ_by_page_and_by_turn() {
        assert_ne!(mark(1, 1), mark(2, 1));
        assert_ne!(mark(1, 1), mark(1, 2));
        assert_eq!(mark(0, 0)[..4], VICTIM_MARK[0].to_le_bytes());
    }

    #[test]
    fn buckets_are_eight_to_a_doubling() {
        let of = |nanos| bucket(Duration::from_nanos(nanos));
        assert_eq!([of(1024), of(1024 + 128), of(2047), of(2048)], [80, 81, 87, 88]);
        assert_eq!(of(0), of(8));
    }
}
