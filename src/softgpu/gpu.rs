//! The software GPU as a PCI function: the engine core behind the register face of a GF100.

use std::sync::Arc;

use super::Core;
use super::ledger::Ledger;
use crate::Preemption;
use gpuvmk_pci::config_space::BuildError;
use gpuvmk_pci::{
    AccessError, CardUse, DirectMap, DmaError, DmaMapping, InterruptSink, MessageOwner, PciFunction,
    QueueEvents, Region, RegionTable, SharedRegions,
};
use gpuvmk_units::gf100::{FaceCounters, Gf100Config, Gf100Function};

/// What distinguishes one software GPU from another.
#[derive(Clone, Debug)]
pub struct SoftGpuConfig {
    /// Bytes of VRAM, a multiple of [`super::VRAM_UNIT`] up to [`super::MAX_VRAM`].
    pub vram: u64,
    /// The register face.
    pub face: Gf100Config,
    /// Where work leaves an engine that others want.
    pub preemption: Preemption,
}

impl Default for SoftGpuConfig {
    fn default() -> Self {
        Self { vram: 256 << 20, face: Gf100Config::default(), preemption: Preemption::default() }
    }
}

/// Why there is no software GPU.
#[derive(Debug, thiserror::Error)]
pub enum SoftGpuError {
    /// VRAM of that size, or the threads, cannot be had.
    #[error("The software GPU's core with {vram:#x} bytes of VRAM cannot be made")]
    Core {
        /// Bytes wanted.
        vram: u64,
        /// What is wrong.
        #[source]
        source: std::io::Error,
    },
    /// The configuration space is impossible.
    #[error("The software GPU's configuration space cannot be made")]
    Face(#[from] BuildError),
}

/// A software GF100, in its state after power-on.
#[derive(Debug)]
pub struct SoftGpu {
    function: Gf100Function<Core>,
}

impl SoftGpu {
    /// Powers one on.
    ///
    /// # Errors
    /// See [`SoftGpuError`].
    pub fn new(config: SoftGpuConfig) -> Result<Arc<Self>, SoftGpuError> {
        let SoftGpuConfig { vram, face, preemption } = config;
        let core = Core::new(vram).map_err(|source| SoftGpuError::Core { vram, source })?;
        core.set_preemption(preemption);
        Ok(Arc::new(Self { function: Gf100Function::new(Arc::new(core), face)? }))
    }

    /// The ledger of true owners: for the aggregator's admission code and for whoever judges, not for
    /// drivers.
    pub fn ledger(&self) -> Arc<Ledger> {
        self.function.backend().ledger()
    }

    /// Counts of accesses that are of note to operators.
    pub fn counters(&self) -> FaceCounters {
        self.function.counters()
    }
}

impl PciFunction for SoftGpu {
    fn regions(&self) -> RegionTable {
        self.function.regions()
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        self.function.read(region, offset, data)
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
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
        self.function.reset();
    }

    fn card_use(&self) -> Option<CardUse> {
        self.function.card_use()
    }

    fn most_dma_ranges(&self) -> usize {
        self.function.most_dma_ranges()
    }

    fn client_gone(&self) {
        self.function.client_gone();
    }

    fn direct_map(&self) -> Option<&dyn DirectMap> {
        self.function.direct_map()
    }

    fn message_owner(&self) -> Option<&dyn MessageOwner> {
        self.function.message_owner()
    }

    fn queue_events(&self) -> Option<&dyn QueueEvents> {
        None
    }

    fn shared_regions(&self) -> Option<&dyn SharedRegions> {
        self.function.shared_regions()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::gf100::BOOT_0;

    #[test]
    fn it_is_a_gf100_with_its_vram() {
        let gpu = SoftGpu::new(SoftGpuConfig { vram: 64 << 20, ..SoftGpuConfig::default() }).unwrap();
        let mut boot = [0; 4];
        gpu.read(Region::Bar(0), 0, &mut boot).unwrap();
        assert_eq!(u32::from_le_bytes(boot), BOOT_0);
    }

    #[test]
    fn dropping_it_ends_its_threads() {
        let gpu = SoftGpu::new(SoftGpuConfig { vram: 16 << 20, ..SoftGpuConfig::default() }).unwrap();
        let core = Arc::downgrade(gpu.function.backend());
        drop(gpu);
        assert!(core.upgrade().is_none());
    }

    #[test]
    fn impossible_vram_is_refused_with_its_size() {
        let config = SoftGpuConfig { vram: 12345, ..SoftGpuConfig::default() };
        let error = SoftGpu::new(config).unwrap_err();
        assert!(error.to_string().contains("0x3039"), "{error}");
    }
}
