//! A card: a software GPU that shares nothing of what its BARs show with processes. Its driver keeps its own
//! memory, and tenants', in the host's.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use gpuvmk::addr::{HostChannel, HostVram, Iova, TenantId};
use gpuvmk::aggregator::{Config, Service, ServiceHandle};
use gpuvmk::chip::Engine;
use gpuvmk::gpu::OwnershipLedger;
use gpuvmk::gpu::register::RegisterDriver;
use gpuvmk::pci::{
    AccessError, CardUse, DirectMap, DmaError, DmaMapping, InterruptSink, MessageOwner, PciFunction,
    QueueEvents, Region, RegionTable, SharedRegions,
};
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};

/// Where the driver of a card has the memory that is in place of the first byte of VRAM.
pub const FIRST_IOVA: u64 = 1 << 32;

/// The card, which counts what is done to it.
pub struct Card {
    gpu: Arc<SoftGpu>,
    reads: AtomicU64,
    writes: AtomicU64,
    /// The memory that it reaches.
    reached: Mutex<BTreeMap<u64, u64>>,
    /// Who told it of memory, or took some away.
    told_by: Mutex<Vec<ThreadId>>,
}

impl Card {
    pub fn new(vram: u64) -> Arc<Self> {
        let gpu = SoftGpu::new(SoftGpuConfig { vram, ..SoftGpuConfig::default() }).unwrap();
        let (reads, writes) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { gpu, reads, writes, reached: Mutex::default(), told_by: Mutex::default() })
    }

    /// Loads and stores so far.
    pub fn accesses(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.writes.load(Ordering::Relaxed))
    }

    /// How many ranges from a bus address on it reaches.
    pub fn ranges_from(&self, iova: u64) -> usize {
        self.reached.lock().unwrap().range(iova..).count()
    }

    /// The threads that told it of memory, or took some away, since the last call.
    pub fn told_by(&self) -> Vec<ThreadId> {
        std::mem::take(&mut *self.told_by.lock().unwrap())
    }

    /// Who owns what, for a GPU whose tenants' VRAM is elsewhere.
    pub fn ledger(&self) -> Arc<dyn OwnershipLedger> {
        Arc::new(CardLedger(self.gpu.ledger()))
    }
}

impl PciFunction for Card {
    fn regions(&self) -> RegionTable {
        self.gpu.regions()
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.gpu.read(region, offset, data)
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.gpu.write(region, offset, data)
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        let (iova, size) = (mapping.iova, mapping.size);
        self.told_by.lock().unwrap().push(std::thread::current().id());
        self.gpu.dma_map(mapping)?;
        self.reached.lock().unwrap().insert(iova, size);
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        self.told_by.lock().unwrap().push(std::thread::current().id());
        self.gpu.dma_unmap(iova, size)?;
        self.reached.lock().unwrap().remove(&iova);
        Ok(())
    }

    fn dma_unmap_all(&self) {
        self.gpu.dma_unmap_all();
        self.reached.lock().unwrap().clear();
    }

    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        self.gpu.connect_interrupts(sink);
    }

    fn reset(&self) {
        self.gpu.reset();
    }

    fn card_use(&self) -> Option<CardUse> {
        let (reads, writes) = self.accesses();
        Some(CardUse { reads, writes, reached: self.reached.lock().unwrap().values().sum() })
    }

    fn most_dma_ranges(&self) -> usize {
        self.gpu.most_dma_ranges()
    }

    fn client_gone(&self) {
        self.gpu.client_gone();
    }

    fn direct_map(&self) -> Option<&dyn DirectMap> {
        None
    }

    fn message_owner(&self) -> Option<&dyn MessageOwner> {
        None
    }

    fn queue_events(&self) -> Option<&dyn QueueEvents> {
        None
    }

    fn shared_regions(&self) -> Option<&dyn SharedRegions> {
        None
    }
}

/// What tenants own of VRAM, they own of the memory in its place; of VRAM itself they own nothing.
struct CardLedger(Arc<gpuvmk::softgpu::ledger::Ledger>);

impl OwnershipLedger for CardLedger {
    fn own_vram(&self, start: HostVram, size: u64, owner: Option<TenantId>) {
        self.0.own_system(Iova(FIRST_IOVA + start.0), size, owner);
    }

    fn own_system(&self, start: Iova, size: u64, owner: Option<TenantId>) {
        self.0.own_system(start, size, owner);
    }

    fn own_channel(&self, channel: HostChannel, owner: Option<TenantId>) {
        self.0.own_channel(channel, owner);
    }

    fn foreign_accesses(&self, tenant: TenantId) -> u64 {
        self.0.foreign_accesses(tenant)
    }

    fn engine_time(&self, tenant: TenantId) -> Vec<(Engine, Duration)> {
        self.0.engine_time(tenant)
    }

    fn foreign_accesses_of_host(&self) -> u64 {
        self.0.foreign_accesses_of_host()
    }
}

/// The aggregator of a card with `vram` bytes.
pub fn card_host(vram: u64, policy: PolicyKind) -> (Arc<Card>, ServiceHandle) {
    let card = Card::new(vram);
    let driver = RegisterDriver::on_card(card.clone(), None).unwrap();
    let service = card_service(&card, driver, policy);
    (card, service)
}

/// The aggregator of a card that a driver has brought up.
pub fn card_service(card: &Card, driver: RegisterDriver, policy: PolicyKind) -> ServiceHandle {
    let ledger = card.ledger();
    Service::start(Box::new(driver), Some(ledger), &Config::in_process(policy)).unwrap()
}
