//! Address spaces: the driver keeps the page tables; we keep the mappings and give it the differences.
//!
//! A space is the driver's own (`FERMI_VASPACE_A`, flags 0), because the graphics engine's context buffers
//! live in it too. So that a guest's addresses are free when the guest wants them, they are reserved at once,
//! without page tables ([`WINDOWS`]). What is left to the driver:
//! * [4 GiB, 4.5 GiB), which it keeps for its firmware (and nouveau keeps free for the same reason);
//! * [0xc0_00000000, 2^40): context buffers, which the 3D engine names by 40 bits. Nothing else below 2^40 is
//!   free, so they land there.
//!
//! Guest mappings there are refused; the rest of an update is done.
//!
//! The driver unmaps by range, so parts of a mapping too; where a cut goes through a large page, the page is
//! unmapped and its remains are mapped again with 4 KiB pages. Storage kinds are not passed to the driver:
//! memory is mapped with the kind it was made with.

use super::abi::Handle;
use super::abi::calls::{MapDma, UnmapDma};
use super::abi::classes::{FERMI_VASPACE_A, SpaceParams};
use super::abi::controls::InvalidateTlb;
use super::abi::flags::map;
use super::device::Device;
use super::error::RmError;
use super::space_pages::{PAGE_SHIFTS, fitting_shift, page_ranges, small_pages};
use super::system::{Located, SYSTEM_BITS, SystemMemory};
use super::vram::{Vram, VramPlace};
use super::windows::{BASE, VA_BITS, WINDOWS, Window, reserve, unmappable};
use crate::budget::CALL;
use crate::space_map::{Run, SpaceMap, SpaceShape};
use crate::{
    Budget, GpuError, HostMapping, HostRange, HostTarget, Progress, Revocation, SpaceUpdate, SpaceUsage,
};
use gpuvmk_chip::addr::HostVram;

const SHAPE: SpaceShape =
    SpaceShape { va_bits: VA_BITS, system_bits: SYSTEM_BITS, page_shifts: PAGE_SHIFTS, join: false };

/// Mappings that one call unmaps at most: the NVIDIA driver goes through them one by one.
const RUNS_A_CALL: usize = 64;

/// Mappings that are taken out between two looks at the clock when memory goes: each may be a call.
const RUNS_A_LOOK: usize = 4;

/// Bytes that one call maps at most.
const MOST_A_CALL: u64 = 64 << 20;

/// Where the memory is that mappings name.
#[derive(Debug)]
pub struct Memories<'a> {
    /// VRAM of the GPU.
    pub vram: &'a Vram,
    /// The ranges of system memory.
    pub system: &'a mut SystemMemory,
}

/// A part of a mapping that is one call.
#[derive(Clone, Copy, Debug)]
struct Part {
    run: Run,
    memory: Handle,
    offset: u64,
    /// True where it is system memory.
    host: bool,
}

/// An address space.
#[derive(Debug)]
pub struct Space {
    /// The driver's object.
    pub handle: Handle,
    windows: Vec<Window>,
    runs: SpaceMap,
}

impl Space {
    /// A new, empty space.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new(device: &mut Device) -> Result<Self, RmError> {
        let mut params = SpaceParams { base: BASE, ..Default::default() };
        let handle = device.client.alloc(device.device, FERMI_VASPACE_A, &mut params)?;
        let mut space = Self { handle, windows: Vec::new(), runs: SpaceMap::new(SHAPE) };
        for (start, end) in WINDOWS {
            match reserve(device, handle, start, end) {
                Ok(object) => space.windows.push(Window { start, end, object }),
                Err(error) => {
                    space.destroy(device)?;
                    return Err(error);
                }
            }
        }
        Ok(space)
    }

    /// Takes it away, with all its mappings.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn destroy(&mut self, device: &mut Device) -> Result<(), RmError> {
        while self.advance_destroy(device, &mut Budget::unlimited())? != Progress::Done {}
        Ok(())
    }

    /// The same for as long as the budget lasts.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn advance_destroy(&mut self, device: &mut Device, budget: &mut Budget) -> Result<Progress, RmError> {
        while let Some(window) = self.windows.pop() {
            device.client.free(window.object)?;
            if budget.spend(CALL) {
                return Ok(Progress::More);
            }
        }
        device.client.free(self.handle)?;
        budget.spend(CALL);
        Ok(Progress::Done)
    }

    /// Its pages, and the host memory that they cost.
    pub fn usage(&self) -> SpaceUsage {
        self.runs.usage()
    }

    /// True if a run points into a range of VRAM.
    pub fn uses_vram(&self, start: HostVram, size: u64) -> bool {
        let end = start.0.saturating_add(size);
        self.runs.runs().any(|run| match run.target {
            HostTarget::Vram(HostVram(at)) => at < end && at.saturating_add(run.len) > start.0,
            HostTarget::System { .. } => false,
        })
    }

    /// Unmaps, then maps, for as long as the budget lasts.
    ///
    /// # Errors
    /// A run is invalid, or outside the windows, or its memory cannot be mapped; the table budget is used up;
    /// or the driver refuses to unmap.
    pub fn advance_update(
        &mut self,
        device: &mut Device,
        memories: &mut Memories<'_>,
        update: &mut SpaceUpdate,
        table_budget: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let mut unflushed = false;
        let updated = self.update_some(device, memories, update, table_budget, budget, &mut unflushed);
        if unflushed {
            let mut params = InvalidateTlb { space: self.handle, flags: 0 };
            device.client.control(device.device, &mut params)?;
        }
        updated
    }

    fn update_some(
        &mut self,
        device: &mut Device,
        memories: &mut Memories<'_>,
        update: &mut SpaceUpdate,
        table_budget: u64,
        budget: &mut Budget,
        unflushed: &mut bool,
    ) -> Result<Progress, GpuError> {
        while let Some(range) = update.unmap.front().copied() {
            let end = range.va.0.saturating_add(u64::from(range.pages) << range.page_shift);
            let some = self.runs.in_a_row(range.va.0, end, RUNS_A_CALL);
            let removed = self.runs.unmap_some(&range, table_budget, some);
            if removed.as_ref().map_or(true, Vec::is_empty) {
                update.unmap.pop_front();
            }
            let removed = removed?;
            if removed.is_empty() {
                budget.spend(1);
                continue;
            }
            self.unmap_runs(device, memories, &removed)?;
            if budget.spend(CALL) {
                return Ok(Progress::More);
            }
        }
        while update.join_front() {
            let Some(mapping) = update.map.front().copied() else { break };
            let part = match self.part(device, memories, &mapping) {
                Ok(Some(part)) => part,
                Ok(None) => return Ok(Progress::Waits),
                Err(error) => {
                    // Whatever was mapped there is not what the guest wants: it goes.
                    let HostMapping { va, pages, page_shift, .. } = mapping;
                    update.mapped(u64::MAX);
                    update.unmap.push_back(HostRange { va, pages, page_shift });
                    return Err(error);
                }
            };
            let run = part.run;
            let some = self.runs.in_a_row(run.va.0, run.end(), RUNS_A_CALL);
            if some > 0 {
                let range = HostRange { va: run.va, pages: small_pages(run.len), page_shift: 12 };
                let replaced = self.runs.unmap_some(&range, table_budget, some)?;
                self.unmap_runs(device, memories, &replaced)?;
                if budget.spend(CALL) {
                    return Ok(Progress::More);
                }
                continue;
            }
            update.mapped(run.len);
            // Translations that were absent are not remembered; the last call drops those that were replaced.
            let defer = !update.is_empty();
            self.map_part(device, memories, &part, defer, table_budget)?;
            *unflushed = defer;
            if budget.spend(CALL) && !update.is_empty() {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    /// Unmaps for as long as the budget lasts.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn advance_clear(
        &mut self,
        device: &Device,
        memories: &mut Memories<'_>,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        loop {
            let some = self.runs.in_a_row(0, u64::MAX, RUNS_A_CALL);
            if some == 0 {
                return Ok(Progress::Done);
            }
            let removed = self.runs.clear_some(some);
            self.unmap_runs(device, memories, &removed)?;
            if budget.spend(CALL) {
                return Ok(Progress::More);
            }
        }
    }

    /// Unmaps what points at a range of bus addresses, for as long as the budget lasts.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn advance_revoke(
        &mut self,
        device: &Device,
        memories: &mut Memories<'_>,
        revocation: &mut Revocation,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let mut removed = Vec::new();
        loop {
            removed.clear();
            let done = self.runs.revoke_some(revocation, u64::MAX, RUNS_A_LOOK, &mut removed);
            self.unmap_runs(device, memories, &removed)?;
            let spent = budget.spend(if removed.is_empty() { 1 } else { CALL });
            if done {
                return Ok(Progress::Done);
            }
            if spent {
                return Ok(Progress::More);
            }
        }
    }

    /// The first part of a mapping that lies in one window and one memory object; none while its memory is
    /// being made one.
    fn part(
        &self,
        device: &mut Device,
        memories: &mut Memories<'_>,
        mapping: &HostMapping,
    ) -> Result<Option<Part>, GpuError> {
        let HostMapping { va, target, read_only, kind, .. } = *mapping;
        let window = self.window(va.0).ok_or_else(|| unmappable(va))?;
        let total = u64::from(mapping.pages) << mapping.page_shift;
        let left = total.min(window.end.saturating_sub(va.0)).min(MOST_A_CALL);
        let (memory, offset, size, host) = match target {
            HostTarget::Vram(at) => match memories.vram.place(device, memories.system, at, left)? {
                Some(place) => (place.object, place.offset, place.size, place.host),
                None => return Ok(None),
            },
            HostTarget::System { iova, .. } => {
                let located = memories.system.locate(device, iova, left);
                match located.map_err(GpuError::as_unmappable)? {
                    Located::At(place) => (place.object, place.offset, place.size, true),
                    Located::Waits => return Ok(None),
                }
            }
        };
        // The driver holds system memory page by page.
        let page_shift = if host { 12 } else { fitting_shift(mapping.page_shift, va.0 | offset | size) };
        let run = Run { va, len: size, target, read_only, kind, page_shift };
        Ok(Some(Part { run, memory, offset, host }))
    }

    /// Maps a part where nothing is.
    fn map_part(
        &mut self,
        device: &Device,
        memories: &mut Memories<'_>,
        part: &Part,
        defer: bool,
        table_budget: u64,
    ) -> Result<(), GpuError> {
        let run = part.run;
        let mapping = HostMapping {
            va: run.va,
            pages: u32::try_from(run.pages()).map_err(|_| unmappable(run.va))?,
            page_shift: run.page_shift,
            target: run.target,
            read_only: run.read_only,
            kind: run.kind,
        };
        self.runs.insert(&mapping, table_budget)?;
        match self.call_map(device, part, defer) {
            Ok(()) => {
                memories.system.note_mapped(&run);
                Ok(())
            }
            Err(error) => {
                // The books must match the driver's state.
                let range = HostRange { va: run.va, pages: mapping.pages, page_shift: run.page_shift };
                self.runs.unmap(&range, u64::MAX)?;
                let in_doubt = error.status().is_some_and(super::is_timeout);
                let error = GpuError::from(error);
                Err(if in_doubt { error } else { error.as_unmappable() })
            }
        }
    }

    fn call_map(&self, device: &Device, part: &Part, defer: bool) -> Result<(), RmError> {
        let Part { run, memory, offset, host } = *part;
        let Some(window) = self.window(run.va.0) else { return Ok(()) };
        let page = match run.page_shift {
            21 => map::PAGE_2M,
            16 => map::PAGE_64K,
            _ => map::PAGE_4K,
        };
        let access = if run.read_only { map::READ_ONLY } else { 0 };
        let snoop = if host { map::SNOOP } else { 0 };
        let flush = if defer { map::DEFER_FLUSH } else { 0 };
        device.client.map_dma(MapDma {
            device: device.device,
            dma: window.object,
            memory,
            offset,
            length: run.len,
            flags: map::FIXED | page | access | snoop | flush,
            va: run.va.0,
            ..Default::default()
        })
    }

    /// Unmaps runs that the books no longer have.
    fn unmap_runs(
        &self,
        device: &Device,
        memories: &mut Memories<'_>,
        removed: &[Run],
    ) -> Result<(), GpuError> {
        let mut rests: Vec<&Run> = Vec::new();
        for (start, end) in page_ranges(removed) {
            let Some(window) = self.window(start) else { continue };
            // The driver unmaps by range: what is there of any mapping, and parts of those that reach out.
            device.client.unmap_dma(UnmapDma {
                device: device.device,
                dma: window.object,
                va: start,
                size: end.saturating_sub(start),
                ..Default::default()
            })?;
            rests.extend(
                self.runs.overlapping(start, end).filter(|run| run.va.0 >= start && run.end() <= end),
            );
        }
        for run in removed {
            memories.system.note_unmapped(run);
        }
        // The rest of a cut page is mapped again with small pages. System memory has no large ones.
        for run in rests {
            let HostTarget::Vram(at) = run.target else { continue };
            if let Some(VramPlace { object: memory, offset, host, .. }) =
                memories.vram.video_place(at, run.len)
            {
                self.call_map(device, &Part { run: *run, memory, offset, host }, false)?;
            }
        }
        Ok(())
    }

    fn window(&self, va: u64) -> Option<Window> {
        self.windows.iter().find(|window| (window.start..window.end).contains(&va)).copied()
    }
}
