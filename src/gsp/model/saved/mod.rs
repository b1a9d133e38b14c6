//! The state that GSP keeps over a suspension, in memory that the driver provides and hands over again.
//!
//! A machine that sleeps (S3), or whose memory is on its disk, has reset its devices or is another process
//! when it wakes. Only the guest's memory is as it was: before it unloads GSP, a driver names some of it
//! (FBSR_INIT), and at the next boot it says again where that is. Into it goes what GSP knows: objects,
//! channels, address spaces, queues, and what firmware has in VRAM. VRAM and what lies in it is the driver's
//! own affair.
//!
//! The bytes that come back are not trusted. They are copied once, bounded by the limits of allocations, and
//! each object takes the path of an allocation by the driver: if the driver could not have allocated one, all
//! are refused. A GSP that still has the state that it wrote (there was no reset since) continues with it.

mod encoding;
mod memory;
mod objects;
mod rings;

use crate::abi;
use crate::abi::values::InstanceMemory;
use crate::model::config::GspConfig;
use crate::model::effect::Effect;
use crate::model::error::SavedError;
use crate::model::queue::{Queues, Spot};
use crate::model::rm::Rm;
use encoding::{HEADER, Reader, Writer, checksum, header};
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use memory::SavedMemory;

pub(super) use memory::is_named_at;
pub(super) use rings::let_run;

/// Bytes of BAR1's root directory that firmware keeps in VRAM: two entries.
const BAR1_ROOT: usize = 16;
/// Bytes of everything but the objects, at most.
const FIXED: u64 = 0x1000;
/// Bytes of an object, at most.
const OBJECT: u64 = 64;
/// Least size of the memory that drivers provide, in bytes.
const LEAST: u64 = 1 << 20;

/// What was read, its form checked.
#[derive(Debug)]
pub(super) struct State {
    body: Vec<u8>,
    /// By which a GSP knows what it wrote itself.
    pub(super) checksum: u64,
}

/// Bytes of memory that drivers must provide.
pub(super) fn room(config: &GspConfig) -> u64 {
    most(config).max(LEAST).next_multiple_of(PAGE_SIZE)
}

/// Bytes that the state of a GSP can have.
fn most(config: &GspConfig) -> u64 {
    FIXED.saturating_add(OBJECT.saturating_mul(config.objects.total.into()))
}

/// Checks that the memory named at `address` can take the state of this GSP.
pub(super) fn check_room(rm: &Rm, back: &dyn GspBackend, address: u64) -> Result<(), SavedError> {
    let memory = SavedMemory::open(back, address)?;
    // CAST: widening.
    let needed = FIXED.saturating_add(OBJECT.saturating_mul(rm.objects.len() as u64));
    if memory.size() < needed {
        return Err(SavedError::TooSmall { room: memory.size(), needed });
    }
    Ok(())
}

/// Writes the state into the memory named at `address`; returns its checksum. `spot` is where the queues will
/// be.
pub(super) fn save(rm: &Rm, back: &dyn GspBackend, spot: Spot, address: u64) -> Result<u64, SavedError> {
    let memory = SavedMemory::open(back, address)?;
    let mut to = Writer::default();
    // What names the version: objects are kept as it allocates them.
    // CAST: widening.
    to.u64(rm.abi.system_info as u64);
    to.u64(rm.config.vram);
    to.u64(engine_bits(&rm.config));
    spot.write(|value| to.u64(value));
    to.u64(rm.bar2_entry);
    let mut root = [0; BAR1_ROOT];
    let bar1 = bar1_root(&rm.config);
    back.read_memory(bar1, &mut root).map_err(|_| SavedError::NoMemory(bar1.address))?;
    root.into_iter().for_each(|byte| to.u8(byte));
    // A driver says where its display's objects are when it makes the display, and not after a sleep.
    let display = rm.display.instance_memory();
    to.u64(display.map_or(0, |memory| memory.address));
    to.u64(display.map_or(0, |memory| memory.size));
    objects::write(rm, back, &mut to);
    let whole = to.finish();
    let sum = whole.get(HEADER..).map_or(0, checksum);
    memory.write(back, &whole)?;
    Ok(sum)
}

/// Reads what is in the memory named at `address`.
pub(super) fn read(config: &GspConfig, back: &dyn GspBackend, address: u64) -> Result<State, SavedError> {
    let memory = SavedMemory::open(back, address)?;
    let mut first = [0; HEADER];
    memory.read(back, &mut first)?;
    let (length, sum) = header(&first)?;
    if length > most(config) {
        return Err(SavedError::TooLarge);
    }
    let length = usize::try_from(length).map_err(|_| SavedError::TooLarge)?;
    let mut whole = vec![0; HEADER.saturating_add(length)];
    memory.read(back, &mut whole)?;
    let body = whole.split_off(HEADER);
    if checksum(&body) != sum {
        return Err(SavedError::Checksum);
    }
    Ok(State { body, checksum: sum })
}

/// Makes everything anew that a state tells of, in a resource manager that has nothing.
pub(super) fn restore(rm: &mut Rm, back: &dyn GspBackend, state: &State) -> Result<Queues, SavedError> {
    let mut from = Reader(&state.body);
    let version = usize::try_from(from.u64()?).ok().and_then(abi::of_system_info);
    rm.abi = version.ok_or(SavedError::Meaningless("the version of the firmware"))?;
    if from.u64()? != rm.config.vram {
        return Err(SavedError::OtherGpu("size of VRAM"));
    }
    if from.u64()? != engine_bits(&rm.config) {
        return Err(SavedError::OtherGpu("set of engines"));
    }
    let spot = Spot::read(|| from.u64())?;
    let queues = Queues::reopen(back, spot).map_err(|error| SavedError::Queues(error.why()))?;
    let bar2_entry = from.u64()?;
    let mut root = [0; BAR1_ROOT];
    for byte in &mut root {
        *byte = from.u8()?;
    }
    let display = InstanceMemory { address: from.u64()?, size: from.u64()? };
    objects::read(rm, back, &mut from)?;
    if !from.is_empty() {
        return Err(SavedError::Rest);
    }
    let bar1 = bar1_root(&rm.config);
    back.write_memory(bar1, &root).map_err(|_| SavedError::NoMemory(bar1.address))?;
    if display.size != 0 {
        let said = rm.display.set_instance_memory(&rm.config, Some(display));
        said.map_err(|_| SavedError::Meaningless("the display's instance memory"))?;
    }
    rm.bar2_entry = bar2_entry;
    rm.effects.push(Effect::Bar2Root(bar2_entry));
    Ok(queues)
}

fn bar1_root(config: &GspConfig) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address: config.bar1_root() }
}

/// The engines, a bit each.
fn engine_bits(config: &GspConfig) -> u64 {
    config.engines.engines().fold(0, |bits, engine| bits | 1 << engine.nv2080_type())
}
