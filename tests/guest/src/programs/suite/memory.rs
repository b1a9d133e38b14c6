//! Memory by size: allocated, mapped into an address space that a channel uses, unmapped, freed.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::Suite;
use crate::chip::Chip;
use crate::drm::abi::Parameter;
use crate::drm::{Buffer, Device, Place, UserSpace};
use crate::programs::evict::available_memory;

/// Sizes by name, and how often each is measured.
const SIZES: [(&str, usize, usize); 6] = [
    ("4k", 4 << 10, 30),
    ("64k", 64 << 10, 30),
    ("1m", 1 << 20, 30),
    ("16m", 16 << 20, 12),
    ("256m", 256 << 20, 3),
    ("1g", 1 << 30, 2),
];
const PLACES: [(&str, Place); 2] = [("vram", Place::Vram), ("gart", Place::Gart)];
/// Buffers whose memory the next one may want.
const LARGE: usize = 16 << 20;
/// How long the kernel may take to have their memory back.
const FREEING: Duration = Duration::from_millis(150);
/// VRAM that the driver has for itself, at the most.
const DRIVERS_VRAM: usize = 128 << 20;

pub fn run(suite: &mut Suite, maps: bool) -> Result<()> {
    for (name, place) in PLACES {
        let room = room(suite.gpu, place)?;
        for (label, size, repeats) in SIZES {
            if size > room {
                suite.leave_out(format!("{name}_{label}: {}", room_of(place)));
            } else if maps {
                mapped(suite, place, &format!("{name}_{label}"), size, repeats)?;
            } else {
                allocated(suite, place, &format!("{name}_{label}"), size, repeats)?;
            }
        }
    }
    if !maps {
        suite.leave_out("map, unmap: this kernel's nouveau has no VM_BIND".to_owned());
    }
    Ok(())
}

fn mapped(suite: &mut Suite, place: Place, name: &str, size: usize, repeats: usize) -> Result<()> {
    let mut space = UserSpace::open(suite.gpu)?;
    let engine = Chip::of(space.device())?.mover();
    // Tables that no channel uses are of no interest to anybody.
    let _channel = space.channel(engine)?;
    let address = space.reserve(size);
    for _ in 0..suite.times(repeats) {
        let buffer = suite.time(&format!("alloc_{name}"), || Buffer::new(space.device(), place, size))?;
        suite.time(&format!("map_{name}"), || space.map_at(&buffer, address, None))?;
        suite.time(&format!("unmap_{name}"), || space.unmap(address, size))?;
        free(suite, name, buffer)?;
    }
    Ok(())
}

/// Without VM_BIND each buffer is mapped when it is made.
fn allocated(suite: &mut Suite, place: Place, name: &str, size: usize, repeats: usize) -> Result<()> {
    let device = Device::open(suite.gpu)?;
    for _ in 0..suite.times(repeats) {
        let buffer = suite.time(&format!("alloc_{name}"), || Buffer::new(&device, place, size))?;
        free(suite, name, buffer)?;
    }
    Ok(())
}

fn free(suite: &mut Suite, name: &str, buffer: Buffer) -> Result<()> {
    let large = buffer.size() >= LARGE;
    suite.time(&format!("free_{name}"), || {
        drop(buffer);
        Ok(())
    })?;
    if large {
        // The kernel goes on freeing it in the background. The next buffer's time is to be its own, without
        // eviction.
        thread::sleep(FREEING);
    }
    Ok(())
}

/// What a buffer that is left out does not fit into.
fn room_of(place: Place) -> &'static str {
    match place {
        Place::Vram => "more than half of the VRAM that programs can have",
        Place::Gart => "more than a quarter of the guest's free memory",
    }
}

/// The largest buffer that the guest can be expected to get, while the one before may not be gone yet: the
/// kernel frees them by and by. It gives no more than half of a machine's memory to buffers.
fn room(gpu: usize, place: Place) -> Result<usize> {
    match place {
        Place::Vram => {
            let vram = usize::try_from(Device::open(gpu)?.parameter(Parameter::VramSize)?)?;
            Ok(vram.saturating_sub(DRIVERS_VRAM) / 2)
        }
        Place::Gart => Ok(available_memory()? / 4),
    }
}
