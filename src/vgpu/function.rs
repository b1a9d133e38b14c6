//! A guest's GPU as a PCI function: the register face of its chip over the mediator.

use std::sync::Arc;

use super::{FermiChannels, Mediator, MediatorConfig, Status, VgpuError};
use crate::aggregator::link::{AggregatorLink, Grant};
use crate::pci::{
    AccessError, DmaError, DmaMapping, InterruptSink, PciFunction, Region, RegionTable, SharedMemory,
};
use crate::units::gf100::{FaceCounters, Gf100Config, Gf100Function};

/// What a vGPU is made of, besides what was granted.
#[derive(Debug, Default)]
pub struct VgpuConfig {
    /// What the guest sees.
    pub face: Gf100Config,
    /// What stands behind it.
    pub mediator: MediatorConfig,
}

/// A guest's mediated GPU.
#[derive(Debug)]
pub struct Vgpu {
    face: Gf100Function<Mediator<FermiChannels>>,
}

impl Vgpu {
    /// The vGPU of an admitted tenant, in its reset state.
    ///
    /// # Errors
    /// The granted VRAM cannot be mapped, or the register face cannot be built.
    pub fn new(link: Arc<dyn AggregatorLink>, grant: Grant, config: VgpuConfig) -> Result<Self, VgpuError> {
        let mediator = Mediator::new(link, grant, config.mediator)?;
        Ok(Self { face: Gf100Function::new(Arc::new(mediator), config.face)? })
    }

    /// Its state and counts.
    pub fn status(&self) -> Status {
        self.face.backend().status()
    }

    /// Register accesses of note.
    pub fn face_counters(&self) -> FaceCounters {
        self.face.counters()
    }
}

impl PciFunction for Vgpu {
    fn regions(&self) -> RegionTable {
        self.face.regions()
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        self.face.read(region, offset, data)
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        self.face.write(region, offset, data)
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        self.face.dma_map(mapping)
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        self.face.dma_unmap(iova, size)
    }

    fn dma_unmap_all(&self) {
        self.face.dma_unmap_all();
    }

    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        self.face.connect_interrupts(sink);
    }

    fn reset(&self) {
        self.face.reset();
    }

    fn share(&self, region: Region, offset: u64, size: u64) -> std::io::Result<Vec<SharedMemory>> {
        self.face.share(region, offset, size)
    }
}
