//! Wraps any PCI function and records every access to it and every interrupt of it, while a recording is on.

use std::sync::Arc;
use std::time::Instant;

use super::event::{Access, Direction, Event, Place};
use super::tracer::Tracer;
use gpuvmk_pci::{
    AccessError, CardUse, CoalescableWrite, DirectMap, DirectWindow, DmaError, DmaMapping, InterruptSink,
    MessageOwner, PciFunction, PlainMemory, QueueEvents, Region, RegionTable, RegionWatcher, SharedRegions,
};

/// A function whose accesses are recorded while a recording is on.
pub struct Traced<F: ?Sized> {
    tracer: Tracer,
    function: Arc<F>,
}

impl<F: ?Sized> std::fmt::Debug for Traced<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Traced").field("tracer", &self.tracer).finish_non_exhaustive()
    }
}

impl<F: PciFunction + ?Sized> Traced<F> {
    /// Records the accesses to `function` with `tracer`.
    pub fn new(function: Arc<F>, tracer: Tracer) -> Self {
        Self { tracer, function }
    }

    /// Records what was done since `start`; long accesses (configuration space, ROM) become several entries.
    fn record(&self, direction: Direction, region: Region, offset: u64, data: &[u8], start: Instant) {
        let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut offset = offset;
        for piece in data.chunks(8) {
            let mut value = [0; 8];
            for (to, from) in value.iter_mut().zip(piece) {
                *to = *from;
            }
            let size = u8::try_from(piece.len()).unwrap_or(8);
            let value = u64::from_le_bytes(value);
            let place = Place::Region(region);
            self.tracer.access(Access { direction, place, size, offset, value, took });
            offset = offset.wrapping_add(8);
        }
    }
}

impl<F: PciFunction + ?Sized> PciFunction for Traced<F> {
    fn regions(&self) -> RegionTable {
        self.function.regions()
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        if !self.tracer.is_on() {
            return self.function.read(region, offset, data);
        }
        let start = Instant::now();
        self.function.read(region, offset, data)?;
        self.record(Direction::Read, region, offset, data, start);
        Ok(())
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        if !self.tracer.is_on() {
            return self.function.write(region, offset, data);
        }
        let start = Instant::now();
        let done = self.function.write(region, offset, data);
        self.record(Direction::Write, region, offset, data, start);
        done
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        self.function.dma_map(mapping)
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        self.function.dma_unmap(iova, size)
    }

    fn dma_unmap_all(&self) {
        self.function.dma_unmap_all();
    }

    fn most_dma_ranges(&self) -> usize {
        self.function.most_dma_ranges()
    }

    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        let tracer = &self.tracer;
        let traced = |sink| Arc::new(TracedSink { tracer: tracer.clone(), sink }) as Arc<dyn InterruptSink>;
        self.function.connect_interrupts(sink.map(traced));
    }

    fn reset(&self) {
        self.tracer.event(|| Event::Reset);
        self.function.reset();
    }

    fn client_gone(&self) {
        self.function.client_gone();
    }

    fn card_use(&self) -> Option<CardUse> {
        self.function.card_use()
    }

    fn direct_map(&self) -> Option<&dyn DirectMap> {
        self.function.direct_map().is_some().then_some(self)
    }

    fn message_owner(&self) -> Option<&dyn MessageOwner> {
        self.function.message_owner()
    }

    fn queue_events(&self) -> Option<&dyn QueueEvents> {
        self.function.queue_events()
    }

    fn shared_regions(&self) -> Option<&dyn SharedRegions> {
        self.function.shared_regions()
    }
}

/// Accesses that bypass this wrapper would be missing in a trace.
impl<F: PciFunction + ?Sized> DirectMap for Traced<F> {
    fn plain_memory(&self, region: Region) -> std::io::Result<Option<PlainMemory>> {
        // A recording that begins later misses them.
        let map = self.function.direct_map().filter(|_| !self.tracer.wants_region(region));
        map.map_or(Ok(None), |map| map.plain_memory(region))
    }

    fn show(&self, region: Region, offset: u64, size: u64, visit: &mut dyn FnMut(DirectWindow<'_>)) {
        if let Some(map) = self.function.direct_map().filter(|_| !self.tracer.wants_region(region)) {
            map.show(region, offset, size, visit);
        }
    }

    fn coalescable_writes(&self) -> Vec<CoalescableWrite> {
        // The trace would show when they were carried out, and not the guest's access.
        let map = self.function.direct_map().filter(|_| !self.tracer.is_on());
        map.map_or_else(Vec::new, DirectMap::coalescable_writes)
    }

    fn is_posted(&self, region: Region, offset: u64, size: usize) -> bool {
        self.function.direct_map().is_some_and(|map| map.is_posted(region, offset, size))
    }

    fn watch(&self, watcher: Option<Arc<dyn RegionWatcher>>) {
        if let Some(map) = self.function.direct_map() {
            map.watch(watcher);
        }
    }
}

/// Where a traced function's interrupts go.
struct TracedSink {
    tracer: Tracer,
    sink: Arc<dyn InterruptSink>,
}

impl InterruptSink for TracedSink {
    fn set_intx(&self, asserted: bool) {
        if asserted {
            self.tracer.event(|| Event::Interrupt { vector: INTX });
        }
        self.sink.set_intx(asserted);
    }

    fn fire_msi(&self, vector: u16) {
        self.tracer.event(|| Event::Interrupt { vector: vector.into() });
        self.sink.fire_msi(vector);
    }

    fn message_sent(&self, vector: u16) {
        self.tracer.event(|| Event::Interrupt { vector: vector.into() });
        self.sink.message_sent(vector);
    }
}

/// Number of the INTx line in traces.
pub const INTX: u32 = u32::MAX;
