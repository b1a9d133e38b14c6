//! Mappings in GPU address spaces.

use super::super::abi::calls::{MapDma, UnmapDma};
use super::super::abi::{RmStatus, flags};
use super::super::kernel::CallError;
use super::state::{MockMapping, State, refuse};

impl State {
    /// Maps, where nothing is mapped yet.
    pub(super) fn map(&mut self, call: MapDma) -> Result<(), CallError> {
        if self.refuse_map_after == Some(0) {
            self.refuse_map_after = None;
            return refuse(RmStatus::ERR_NO_MEMORY);
        }
        self.refuse_map_after = self.refuse_map_after.map(|left| left - 1);
        let (Some(dma), Some(memory)) = (self.objects.get(&call.dma), self.objects.get(&call.memory)) else {
            return refuse(RmStatus::ERR_OBJECT_NOT_FOUND);
        };
        if call.flags & flags::map::FIXED == 0 || call.va < dma.range.0 || call.va + call.length > dma.range.1
        {
            return refuse(RmStatus::ERR_INVALID_OFFSET);
        }
        if call.offset + call.length > memory.range.1 - memory.range.0 {
            return refuse(RmStatus::ERR_INVALID_BASE);
        }
        let page = match call.flags & 0xf00 {
            flags::map::PAGE_2M => 2 << 20,
            flags::map::PAGE_64K => 64 << 10,
            _ => 4096,
        };
        if !(call.va | call.offset | call.length).is_multiple_of(page) {
            return refuse(RmStatus::ERR_INVALID_OFFSET);
        }
        // They do not overlap, so the last one that begins before the end is the only one that may be in the
        // way.
        let before = self.mappings.range((call.dma, 0)..(call.dma, call.va + call.length)).next_back();
        let overlaps = before.is_some_and(|((_, start), mapping)| call.va < *start + mapping.length);
        if overlaps {
            return refuse(RmStatus::ERR_IN_USE);
        }
        self.maps += 1;
        let MapDma { dma, memory, offset, length, flags, va, .. } = call;
        self.mappings.insert((dma, va), MockMapping { dma, memory, offset, length, flags });
        Ok(())
    }

    /// Unmaps by range, as the real one: mappings are cut, never inside a page.
    pub(super) fn unmap(&mut self, call: UnmapDma) -> Result<(), CallError> {
        self.unmaps += 1;
        let end = call.va + call.size;
        let before = self.mappings.range((call.dma, 0)..(call.dma, call.va)).next_back();
        let within = self.mappings.range((call.dma, call.va)..(call.dma, end));
        let hit: Vec<(u64, MockMapping)> = before
            .into_iter()
            .chain(within)
            .filter(|((_, start), m)| call.va < *start + m.length)
            .map(|((_, start), m)| (*start, *m))
            .collect();
        for (start, mapping) in hit {
            let page = match mapping.flags & 0xf00 {
                flags::map::PAGE_2M => 2 << 20,
                flags::map::PAGE_64K => 64 << 10,
                _ => 4096,
            };
            let (from, to) = (start.max(call.va), (start + mapping.length).min(end));
            if from % page != 0 || to % page != 0 {
                return refuse(RmStatus::ERR_INVALID_ARGUMENT);
            }
            self.mappings.remove(&(call.dma, start));
            if start < from {
                self.mappings.insert((call.dma, start), MockMapping { length: from - start, ..mapping });
            }
            let stop = start + mapping.length;
            if to < stop {
                let offset = mapping.offset + (to - start);
                let rest = MockMapping { offset, length: stop - to, ..mapping };
                self.mappings.insert((call.dma, to), rest);
            }
        }
        Ok(())
    }
}
