//! Registers of a GF100 that the attacker's driver uses, by the names of open-gpu-doc and envytools.

pub const PMC_BOOT_0: u32 = 0x00_0000;
pub const PMC_INTR: u32 = 0x00_0100;
pub const PMC_INTR_EN: u32 = 0x00_0140;
pub const PMC_ENABLE: u32 = 0x00_0200;
pub const PMC_ENABLE_PBDMA: u32 = 0x00_0204;

pub const PBUS_WINDOW: u32 = 0x00_1700;
pub const PBUS_BAR1: u32 = 0x00_1704;
pub const PBUS_BAR3: u32 = 0x00_1714;
/// The VRAM that the window shows.
pub const PRAMIN: u32 = 0x70_0000;

pub const PFIFO_INTR: u32 = 0x00_2100;
pub const PFIFO_INTR_EN: u32 = 0x00_2140;
/// PFIFO_INTR: an MMU fault, a PBDMA's error.
pub const INTR_FAULT: u32 = 1 << 28;
pub const INTR_PBDMA: u32 = 1 << 29;
pub const PFIFO_ENABLE: u32 = 0x00_2200;
pub const PFIFO_USERD_POLL: u32 = 0x00_2254;
pub const PFIFO_RUNLIST_BASE: u32 = 0x00_2270;
pub const PFIFO_RUNLIST: u32 = 0x00_2274;
pub const PFIFO_RUNLIST_STATUS: u32 = 0x00_227c;
pub const PFIFO_FAULT_ID: u32 = 0x00_259c;
pub const PFIFO_INTR_ENGINE: u32 = 0x00_25a8;
pub const PFIFO_INTR_ENGINE_EN: u32 = 0x00_2628;
pub const PFIFO_PREEMPT: u32 = 0x00_2634;
pub const PFIFO_ENGINE_STATUS: u32 = 0x00_2640;
pub const PFIFO_FAULT: u32 = 0x00_2800;
pub const PFIFO_CHAN_INST: u32 = 0x00_3000;
pub const PFIFO_CHAN_STATE: u32 = 0x00_3004;
/// State bits of register commands that take time.
pub const PENDING: u32 = 1 << 20;

pub const PPBDMA_CHANNEL: u32 = 0x04_0120;
pub const PPBDMA_INTR: u32 = 0x04_0108;
pub const PPBDMA_INTR_EN: u32 = 0x04_010c;
pub const PPBDMA_STRIDE: u32 = 0x2000;
pub const PPBDMAS: u32 = 3;

pub const PTIMER_INTR: u32 = 0x00_9100;
pub const PTIMER_INTR_EN: u32 = 0x00_9140;
pub const PTIMER_NUMERATOR: u32 = 0x00_9200;
pub const PTIMER_DENOMINATOR: u32 = 0x00_9210;
pub const PTIMER_TIME: u32 = 0x00_9400;
pub const PTIMER_ALARM: u32 = 0x00_9420;

pub const PTOP_PARTITIONS: u32 = 0x02_2438;
pub const PFBPA_SIZE: u32 = 0x11_020c;
pub const PFBPA_STRIDE: u32 = 0x1000;

pub const PFB_INVALIDATE_PDB: u32 = 0x10_0cb8;
pub const PFB_INVALIDATE: u32 = 0x10_0cbc;
/// Starts an invalidation of all addresses of one directory, or of every directory.
pub const INVALIDATE_ONE: u32 = 0x8000_0001;
pub const INVALIDATE_ALL: u32 = 0x8000_0003;

pub const PGRAPH_INTR: u32 = 0x40_0100;
pub const PGRAPH_STATUS: u32 = 0x40_0700;
/// Falcons: FECS, GPCCS, the copy engines, PMU.
pub const FECS: u32 = 0x40_9000;
pub const GPCCS: u32 = 0x41_a000;
pub const PCE0: u32 = 0x10_4000;
pub const PCE1: u32 = 0x10_5000;
pub const PPMU: u32 = 0x10_a000;
/// Offsets within a falcon.
pub const FALCON_ACCESS: u32 = 0x048;
pub const FALCON_INSTANCE: u32 = 0x050;
pub const FALCON_CONTROL: u32 = 0x100;
pub const FALCON_ENTRY: u32 = 0x104;
pub const FALCON_DMA: u32 = 0x10c;
pub const FALCON_CODE_INDEX: u32 = 0x180;
pub const FALCON_CODE: u32 = 0x184;
pub const FALCON_START: u32 = 2;
/// The index goes on with each word written.
pub const FALCON_NEXT_ON_WRITE: u32 = 1 << 24;
pub const FECS_MAILBOX: u32 = 0x40_9800;
pub const FECS_ARGUMENT: u32 = 0x40_9500;
pub const FECS_COMMAND: u32 = 0x40_9504;

pub const PROM: u32 = 0x30_0000;
pub const XVE: u32 = 0x08_8000;
pub const XVE_MSI_REARM: u32 = 0x08_8704;
