//! Wraps any PCI function and records every access to it.

use std::sync::Arc;

use super::record::Operation;
use super::recorder::Recorder;
use crate::pci::{
    AccessError, DmaError, DmaMapping, InterruptSink, PciFunction, Region, RegionTable, SharedMemory,
};

/// A function whose accesses are recorded.
pub struct Traced<F: ?Sized> {
    recorder: Recorder,
    function: Arc<F>,
}

impl<F: ?Sized> std::fmt::Debug for Traced<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Traced").field("recorder", &self.recorder).finish_non_exhaustive()
    }
}

impl<F: PciFunction + ?Sized> Traced<F> {
    /// Records the accesses to `function` with `recorder`.
    pub fn new(function: Arc<F>, recorder: Recorder) -> Self {
        Self { recorder, function }
    }
}

impl<F: PciFunction + ?Sized> PciFunction for Traced<F> {
    fn regions(&self) -> RegionTable {
        self.function.regions()
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        self.function.read(region, offset, data)?;
        self.recorder.access(Operation::Read, Some(region), offset, data);
        Ok(())
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        // Recorded first: what the write causes comes later in the log.
        self.recorder.access(Operation::Write, Some(region), offset, data);
        self.function.write(region, offset, data)
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

    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        self.function.connect_interrupts(sink);
    }

    fn reset(&self) {
        self.recorder.access(Operation::Reset, None, 0, &[]);
        self.function.reset();
    }

    // `plain_memory` is not passed on: accesses to it would be missing in the trace.

    fn share(&self, region: Region, offset: u64, size: u64) -> std::io::Result<Vec<SharedMemory>> {
        self.function.share(region, offset, size)
    }
}
