//! A guest's GPU as a PCI function: the register face of its chip over the mediator. The only place here that
//! knows which chips there are.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use super::control::ChannelControl;
use super::{FermiChannels, GspChannels, Mediator, MediatorConfig, Status, VgpuError};
use gpuvmk_aggregator::link::{AggregatorLink, Grant};
use gpuvmk_chip::{Chip, Face as ChipFace};
use gpuvmk_pci::{
    AccessError, CardUse, DirectMap, DmaError, DmaMapping, InterruptSink, MessageOwner, PciFunction,
    QueueEvents, Region, RegionTable, SharedRegions,
};
use gpuvmk_shadow_pagetable::Fermi;
use gpuvmk_units::gf100::{Gf100Config, Gf100Function};
use gpuvmk_units::gsp_face::hal;
use gpuvmk_units::gsp_face::{GspFaceConfig, GspFunction};
use gpuvmk_units::{DriverCounters, Head, LookCounters};

/// The register face that the guest sees.
#[derive(Debug)]
pub enum FaceConfig {
    /// A GF100, with its settings.
    Gf100(Gf100Config),
    /// A chip whose driver asks GSP.
    Gsp(GspFaceConfig),
}

impl FaceConfig {
    /// An ordinary card of a chip.
    ///
    /// # Errors
    /// There is no face for the chip.
    pub fn of(chip: Chip) -> Result<Self, VgpuError> {
        match chip.face {
            ChipFace::Registers if chip == Chip::GF100 => Ok(Self::Gf100(Gf100Config::default())),
            ChipFace::Registers => Err(VgpuError::NoFace(chip)),
            ChipFace::Gsp => {
                let hal = hal::of(chip).ok_or(VgpuError::NoFace(chip))?;
                Ok(Self::Gsp(GspFaceConfig::of(hal)))
            }
        }
    }
}

/// Settings of a vGPU, besides its grant.
#[derive(Debug)]
pub struct VgpuConfig {
    /// The register face that the guest sees.
    pub face: FaceConfig,
    /// The mediator behind it.
    pub mediator: MediatorConfig,
}

impl VgpuConfig {
    /// An ordinary card of a chip, with a mediator of the usual kind behind it.
    ///
    /// # Errors
    /// There is no face for the chip.
    pub fn of(chip: Chip) -> Result<Self, VgpuError> {
        Ok(Self { face: FaceConfig::of(chip)?, mediator: MediatorConfig::default() })
    }
}

/// A PCI function over a mediator.
trait Face: PciFunction {
    fn status(&self) -> Status;
    fn driver_counters(&self) -> DriverCounters;
    fn take_counters_changed(&self) -> bool;
    fn report_driver(&self, counters: &DriverCounters);
    fn paced(&self, sink: Arc<dyn InterruptSink>) -> Arc<dyn InterruptSink>;
    fn note_access(&self);
    fn message_event(&self, event: Option<OwnedFd>);
    fn head(&self) -> Option<Arc<dyn Head>>;
    #[cfg(test)]
    fn interrupt_state(&self) -> String;
}

impl Face for Gf100Function<Mediator<FermiChannels>> {
    fn status(&self) -> Status {
        self.backend().status()
    }

    fn driver_counters(&self) -> DriverCounters {
        Self::driver_counters(self)
    }

    fn take_counters_changed(&self) -> bool {
        Self::take_counters_changed(self)
    }

    fn report_driver(&self, counters: &DriverCounters) {
        self.backend().report_driver(counters);
    }

    fn paced(&self, sink: Arc<dyn InterruptSink>) -> Arc<dyn InterruptSink> {
        self.backend().paced(sink)
    }

    fn note_access(&self) {
        self.backend().note_access();
    }

    fn message_event(&self, event: Option<OwnedFd>) {
        self.backend().connect_message(event);
    }

    fn head(&self) -> Option<Arc<dyn Head>> {
        None
    }

    #[cfg(test)]
    fn interrupt_state(&self) -> String {
        Self::interrupt_state(self)
    }
}

impl Face for GspFunction<Mediator<GspChannels>> {
    fn status(&self) -> Status {
        self.backend().status()
    }

    fn driver_counters(&self) -> DriverCounters {
        Self::driver_counters(self)
    }

    fn take_counters_changed(&self) -> bool {
        Self::take_counters_changed(self)
    }

    fn report_driver(&self, counters: &DriverCounters) {
        self.backend().report_driver(counters);
    }

    fn paced(&self, sink: Arc<dyn InterruptSink>) -> Arc<dyn InterruptSink> {
        self.backend().paced(sink)
    }

    fn note_access(&self) {
        self.backend().note_access();
    }

    fn message_event(&self, event: Option<OwnedFd>) {
        self.backend().connect_message(event);
    }

    fn head(&self) -> Option<Arc<dyn Head>> {
        Self::head(self)
    }

    #[cfg(test)]
    fn interrupt_state(&self) -> String {
        Self::interrupt_state(self)
    }
}

/// A guest's mediated GPU.
pub struct Vgpu {
    face: Box<dyn Face>,
    /// Of people who look at its monitor. Held while counters are read and reported: the last report is the
    /// newest, whatever threads there are.
    reporting: Mutex<LookCounters>,
}

impl fmt::Debug for Vgpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vgpu").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Vgpu {
    /// The vGPU of an admitted tenant, in its reset state.
    ///
    /// # Errors
    /// The granted VRAM cannot be mapped, or the register face cannot be built.
    pub fn new(link: Arc<dyn AggregatorLink>, grant: Grant, config: VgpuConfig) -> Result<Self, VgpuError> {
        let VgpuConfig { face, mediator } = config;
        let face: Box<dyn Face> = match face {
            FaceConfig::Gf100(face) => {
                let back: Arc<Mediator<FermiChannels>> = back(link, grant, Fermi::default(), mediator)?;
                Box::new(Gf100Function::new(back, face)?)
            }
            FaceConfig::Gsp(face) => {
                let back: Arc<Mediator<GspChannels>> = back(link, grant, face.hal.mmu, mediator)?;
                Box::new(GspFunction::new(back, face)?)
            }
        };
        let vgpu = Self { face, reporting: Mutex::default() };
        // Operators ask whether it has a head before any driver comes.
        vgpu.report_driver();
        Ok(vgpu)
    }

    /// Its state and counts.
    pub fn status(&self) -> Status {
        self.face.status()
    }

    /// What its head shows, for those who look; none: it has no head.
    pub fn head(&self) -> Option<Arc<dyn Head>> {
        self.face.head()
    }

    /// All that decides about messages, for searches through every state.
    #[cfg(test)]
    pub fn interrupt_state(&self) -> String {
        self.face.interrupt_state()
    }

    /// What was counted of the driver, since the vGPU was made.
    pub fn driver_counters(&self) -> DriverCounters {
        let looks = *self.reporting.lock().unwrap_or_else(PoisonError::into_inner);
        DriverCounters { looks, ..self.face.driver_counters() }
    }

    /// Reports to operators that people look at its monitor, and what that cost.
    pub fn report_looks(&self, looks: LookCounters) {
        let mut reporting = self.reporting.lock().unwrap_or_else(PoisonError::into_inner);
        *reporting = looks;
        self.face.report_driver(&DriverCounters { looks, ..self.face.driver_counters() });
    }

    /// Reports to operators what is counted of the driver, if an access changed it, or an event since the
    /// last access.
    fn report_driver(&self) {
        if self.face.take_counters_changed() {
            let looks = self.reporting.lock().unwrap_or_else(PoisonError::into_inner);
            self.face.report_driver(&DriverCounters { looks: *looks, ..self.face.driver_counters() });
        }
    }
}

fn back<C: ChannelControl>(
    link: Arc<dyn AggregatorLink>,
    grant: Grant,
    format: C::Format,
    config: MediatorConfig,
) -> Result<Arc<Mediator<C>>, VgpuError> {
    Mediator::new(link, grant, format, config).map(Arc::new)
}

impl PciFunction for Vgpu {
    fn regions(&self) -> RegionTable {
        self.face.regions()
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        self.face.note_access();
        let result = self.face.read(region, offset, data);
        self.report_driver();
        result
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        self.face.note_access();
        let result = self.face.write(region, offset, data);
        self.report_driver();
        result
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

    fn most_dma_ranges(&self) -> usize {
        self.face.most_dma_ranges()
    }

    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        self.face.connect_interrupts(sink.map(|sink| self.face.paced(sink)));
    }

    fn reset(&self) {
        self.face.reset();
    }

    fn client_gone(&self) {
        self.face.client_gone();
    }

    fn card_use(&self) -> Option<CardUse> {
        self.face.card_use()
    }

    fn direct_map(&self) -> Option<&dyn DirectMap> {
        self.face.direct_map()
    }

    fn message_owner(&self) -> Option<&dyn MessageOwner> {
        Some(self)
    }

    fn queue_events(&self) -> Option<&dyn QueueEvents> {
        None
    }

    fn shared_regions(&self) -> Option<&dyn SharedRegions> {
        self.face.shared_regions()
    }
}

impl MessageOwner for Vgpu {
    fn connect_message(&self, event: Option<OwnedFd>) {
        self.face.message_event(event);
    }
}
