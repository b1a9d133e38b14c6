//! Rings of channels that were made anew: the driver goes on where it was, and a new channel begins with the
//! first entry.
//!
//! The finished work of a channel is in its ring's entries before GP_GET. They are replaced by empty entries,
//! in the driver's ring, before the channel runs: it reaches its old position by passing them. (An entry is
//! written anew by the driver before it means something again.) Work that was submitted and not begun
//! follows. Not kept: the state of a channel's engines, and a piece of work that was under way.

use crate::abi::status::Status;
use crate::model::channel::Revived;
use crate::model::objects::Kind;
use crate::model::rm::Rm;
use crate::model::token::Token;
use gpuvmk_backend::{FlushScope, GspBackend};
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::addr::{GuestChannel, PAGE_SIZE};
use gpuvmk_chip::gmmu::Gmmu;
use gpuvmk_chip::stream::RingEntry;
use gpuvmk_mmio_trap::PhysicalMemory;
use gpuvmk_mmio_trap::aperture::Translation;
use gpuvmk_mmio_trap::aperture::gmmu::{GmmuRoot, GmmuTables};

/// The back's memory.
struct Memory<'a>(&'a dyn GspBackend);

impl PhysicalMemory for Memory<'_> {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> bool {
        self.0.read_memory(address, data).is_ok()
    }

    fn read_tables(&self, address: PhysicalAddress, data: &mut [u8]) -> bool {
        self.0.read_tables(address, data).is_ok()
    }

    fn write(&self, address: PhysicalAddress, data: &[u8]) -> bool {
        self.0.write_memory(address, data).is_ok()
    }
}

/// Lets channels run again that may, those that were made anew from where they were.
pub(in super::super) fn let_run(rm: &mut Rm, back: &dyn GspBackend) -> Result<(), Status> {
    let at_work = revive(rm, back);
    rm.channels.hold(back, false)?;
    at_work.into_iter().for_each(|(slot, gp_put)| back.doorbell(slot, gp_put));
    Ok(())
}

/// Prepares the channels that were made anew for running. Channels whose position cannot be restored are
/// stopped, and reported to the driver. Others that have work are returned, with the GP_PUT of their
/// doorbell.
fn revive(rm: &mut Rm, back: &dyn GspBackend) -> Vec<(GuestChannel, u32)> {
    let revived = rm.channels.take_positions();
    if revived.is_empty() {
        return Vec::new();
    }
    // The driver has put its page tables back by now, and says so of none of them.
    for directory in rm.objects.directories() {
        back.flush_tlb(FlushScope { page_directory: directory, hub_only: false });
    }
    let format = rm.config.hal.mmu;
    let mut ring = Vec::new();
    for (token, channel) in revived {
        let directory = directory_of(rm, token);
        match directory.ok_or(()).and_then(|directory| pass_over(back, format, directory, &channel)) {
            Ok(()) if channel.get != channel.put => ring.push((channel.slot, channel.put)),
            Ok(()) => {}
            Err(()) => rm.lose(token),
        }
    }
    ring
}

fn directory_of(rm: &Rm, token: Token) -> Option<PhysicalAddress> {
    let (id, space) = rm.objects.iter().find_map(|(id, object)| match object.kind {
        Kind::Channel { token: of, space } if of == token => Some((id, space)),
        _ => None,
    })?;
    rm.objects.directory_of_channel(id, space)
}

/// Makes the entries before GP_GET do nothing. Work that goes on behind the ring's end does not follow what
/// begins at its start.
fn pass_over(
    back: &dyn GspBackend,
    format: Gmmu,
    directory: PhysicalAddress,
    channel: &Revived,
) -> Result<(), ()> {
    if channel.get > channel.put {
        return Err(());
    }
    let memory = Memory(back);
    let tables = GmmuTables { format, root: GmmuRoot::Root(directory) };
    let mut at = channel.ring;
    let end = channel.ring.saturating_add(u64::from(channel.get).saturating_mul(8));
    while at < end {
        let page = at & !(PAGE_SIZE - 1);
        let mapping = tables.walk(page, &memory).found.map_err(drop)?;
        let stop = page.saturating_add(PAGE_SIZE).min(end);
        let mut entries = vec![0; usize::try_from(stop.saturating_sub(at)).map_err(drop)?];
        let target = PhysicalAddress {
            address: mapping.target.address.checked_add(at - page).ok_or(())?,
            ..mapping.target
        };
        if !memory.read(target, &mut entries) {
            return Err(());
        }
        for entry in entries.as_chunks_mut::<8>().0 {
            // An entry that only says where segments lie stays.
            if matches!(RingEntry::decode(u64::from_le_bytes(*entry)), RingEntry::Segment { .. }) {
                *entry = [0; 8];
            }
        }
        if !memory.write(target, &entries) {
            return Err(());
        }
        at = stop;
    }
    Ok(())
}
