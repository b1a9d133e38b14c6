//! Zeroing by the copy engines of both software GPUs, and what happens when they do not.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::{GpuVa, HostChannel, HostVram, TenantId};
use gpuvmk_gpu::register::RegisterDriver;
use gpuvmk_gpu::scrub::testing::{PATIENCE, is_untouched};
use gpuvmk_gpu::scrub::{EngineScrub, REST, SCRUB_PIECE, ScrubReport};
use gpuvmk_gpu::{ChannelSpec, GpuDriver, GpuDriverExt as _, OwnershipLedger, Scrub, Scrubber as _};
use gpuvmk_pci::SharedMemory;
use gpuvmk_pci::mapping::{Access, FilePiece, Mapping};

use crate::executor::{Executor, ExecutorConfig};
use crate::{SoftGpu, SoftGpuConfig};

const MIB: u64 = 1 << 20;
const GRANULE: u64 = 16 * MIB;
const VRAM: u64 = 64 * MIB;
const VICTIM: TenantId = TenantId(5);

struct Bench {
    gpu: EngineScrub,
    ledger: Arc<dyn OwnershipLedger>,
    start: HostVram,
    window: Mapping,
    files: Vec<SharedMemory>,
}

impl Bench {
    /// A GPU whose first two granules are full of a pattern, and all but the first 4 MiB somebody's.
    fn new(mut gpu: EngineScrub, ledger: Arc<dyn OwnershipLedger>) -> Self {
        let start = gpu.info().tenant_vram;
        let files = gpu.share_vram(start, 2 * GRANULE).unwrap();
        let pieces: Vec<_> = files
            .iter()
            .map(|piece| FilePiece { fd: piece.fd.as_fd(), offset: piece.offset, size: piece.size })
            .collect();
        let window = Mapping::contiguous(&pieces, Access::ReadWrite).unwrap();
        window.fill(0, 2 * GRANULE, 0x5a).unwrap();
        ledger.own_vram(HostVram(start.0 + SCRUB_PIECE), 2 * GRANULE - SCRUB_PIECE, Some(VICTIM));
        Self { gpu, ledger, start, window, files }
    }

    fn gf100() -> Self {
        let gpu = SoftGpu::new(SoftGpuConfig { vram: VRAM, ..SoftGpuConfig::default() }).unwrap();
        let ledger = gpu.ledger();
        Self::new(EngineScrub::new(Box::new(RegisterDriver::new(gpu).unwrap())), ledger)
    }

    fn gh100() -> Self {
        let gpu = Executor::new(ExecutorConfig { vram: VRAM, ..ExecutorConfig::default() }).unwrap();
        let ledger = gpu.ledger();
        Self::new(EngineScrub::new(Box::new(gpu)), ledger)
    }

    fn both() -> [Self; 2] {
        [Self::gf100(), Self::gh100()]
    }

    fn report(&self) -> ScrubReport {
        self.gpu.scrub_report().unwrap()
    }

    fn scrub(&mut self, offset: u64, size: u64) {
        let began = Instant::now();
        while self.gpu.advance_scrub(HostVram(self.start.0 + offset), size).unwrap() == Scrub::Pending {
            assert!(began.elapsed() < Duration::from_secs(10), "it never ends");
            self.gpu.take_events(&mut Vec::new());
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Bytes with this value from an offset on.
    fn count(&self, offset: u64, size: u64, value: u8) -> usize {
        let mut bytes = vec![0; usize::try_from(size).unwrap()];
        self.window.read(offset, &mut bytes).unwrap();
        bytes.iter().filter(|byte| **byte == value).count()
    }

    fn own(&mut self) -> HostChannel {
        self.gpu.own_channel().unwrap().0
    }
}

#[test]
fn engine_zeroes_the_piece_and_nothing_beside_it() {
    for mut bench in Bench::both() {
        bench.scrub(0, SCRUB_PIECE);

        assert_eq!(bench.count(0, SCRUB_PIECE, 0), 4 << 20);
        assert_eq!(bench.count(SCRUB_PIECE, 2 * GRANULE - SCRUB_PIECE, 0x5a), 28 << 20);
        let report = bench.report();
        assert_eq!((&*report.by, report.engine_bytes, report.processor_bytes), ("copy engine", 4 << 20, 0));
        assert_eq!((report.checked_places, report.failed_checks, report.fallbacks), (64, 0, 0));
        assert!(report.engine_bytes_per_second > 0);
        assert_eq!(bench.ledger.foreign_accesses_of_host(), 0);
    }
}

#[test]
fn ledger_tells_when_the_engine_is_sent_to_somebodys_memory() {
    for mut bench in Bench::both() {
        bench.scrub(SCRUB_PIECE, SCRUB_PIECE);

        assert!(bench.ledger.foreign_accesses_of_host() > 0);
    }
}

#[test]
fn several_pieces_are_under_way_at_a_time() {
    for mut bench in Bench::both() {
        let pieces: Vec<_> = (0..4).map(|n| HostVram(bench.start.0 + n * SCRUB_PIECE)).collect();
        for piece in &pieces {
            assert_eq!(bench.gpu.advance_scrub(*piece, SCRUB_PIECE).unwrap(), Scrub::Pending);
        }
        assert_eq!(bench.gpu.jobs(), 4);

        (0..4).for_each(|n| bench.scrub(n * SCRUB_PIECE, SCRUB_PIECE));

        assert_eq!(bench.count(0, GRANULE, 0), 16 << 20);
        assert_eq!((bench.report().engine_bytes, bench.gpu.jobs()), (16 << 20, 0));
    }
}

#[test]
fn zeroed_memory_goes_back_to_the_host_and_is_not_zeroed_again() {
    for mut bench in Bench::both() {
        assert!(!is_untouched(&bench.files[..1]));
        (0..4).for_each(|n| bench.scrub(n * SCRUB_PIECE, SCRUB_PIECE));
        assert!(is_untouched(&bench.files[..1]));
        let before = bench.report();

        bench.scrub(0, SCRUB_PIECE);

        let after = bench.report();
        assert_eq!(after.engine_bytes, before.engine_bytes);
        assert_eq!(after.untouched_bytes, before.untouched_bytes + SCRUB_PIECE);
    }
}

#[test]
fn whole_memory_is_zeroed_before_there_are_tenants() {
    for mut bench in Bench::both() {
        bench.ledger.own_vram(bench.start, 2 * GRANULE, None);
        bench.gpu.scrub_all().unwrap();

        assert_eq!(bench.count(0, 2 * GRANULE, 0), 32 << 20);
        let report = bench.report();
        assert_eq!((report.engine_bytes, report.processor_bytes), (2 * GRANULE, 0));
        assert_eq!(report.untouched_bytes, bench.gpu.info().tenant_vram_size - 2 * GRANULE);
    }
}

#[test]
fn pieces_that_the_engine_cannot_take_are_the_processors() {
    for mut bench in Bench::both() {
        bench.scrub(0x1000, 0x3000);

        assert_eq!((bench.report().engine_bytes, bench.report().processor_bytes), (0, 0x3000));
        assert_eq!(bench.count(0, 0x5000, 0), 0x3000);
        assert!(bench.gpu.advance_scrub(HostVram(0), 1 << 20).is_err(), "the host's own memory");
    }
}

#[test]
fn piece_that_is_not_zero_afterwards_is_zeroed_by_the_processor() {
    let mut bench = Bench::gf100();
    // The engine copies something else than zeros.
    let (zeros, size) = bench.gpu.own_channel().unwrap().1;
    let wrong = vec![1; usize::try_from(size).unwrap()];
    bench.gpu.own_memory().unwrap().write(zeros, &wrong).unwrap();

    bench.scrub(0, SCRUB_PIECE);

    assert_eq!(bench.count(0, SCRUB_PIECE, 0), 4 << 20);
    let report = bench.report();
    assert_eq!((report.failed_checks, report.engine_bytes, report.processor_bytes), (1, 0, 4 << 20));
}

#[test]
fn engine_that_does_not_finish_is_cut_off_and_comes_back() {
    for mut bench in Bench::both() {
        let own = bench.own();
        bench.gpu.inner().enable_channel(own, false).unwrap();
        let began = Instant::now();

        bench.scrub(0, SCRUB_PIECE);

        assert!(began.elapsed() >= PATIENCE && began.elapsed() < Duration::from_secs(1));
        assert_eq!(bench.count(0, SCRUB_PIECE, 0), 4 << 20);
        let report = bench.report();
        assert_eq!((&*report.by, report.fallbacks, report.processor_bytes), ("processor", 1, 4 << 20));
        assert!(report.fallback_reason.unwrap().contains("did not finish"));

        std::thread::sleep(REST);
        bench.scrub(SCRUB_PIECE, SCRUB_PIECE);
        assert_eq!(bench.report().engine_bytes, 4 << 20);
        assert_eq!(bench.report().by, "copy engine");
    }
}

#[test]
fn memory_that_is_given_out_is_taken_from_the_engine_first() {
    for mut bench in Bench::both() {
        // The engine gets no time for it before.
        bench.gpu.inner().commit_runlist(&[]).unwrap();
        assert_eq!(bench.gpu.advance_scrub(bench.start, SCRUB_PIECE).unwrap(), Scrub::Pending);

        bench.gpu.share_vram(bench.start, GRANULE).unwrap();
        bench.gpu.list_again().unwrap();
        std::thread::sleep(Duration::from_millis(20));

        assert_eq!(bench.count(0, SCRUB_PIECE, 0x5a), 4 << 20, "nothing of it was written");
        bench.scrub(SCRUB_PIECE, SCRUB_PIECE);
        let report = bench.report();
        assert!(report.fallback_reason.unwrap().contains("stopped"), "the engine met a fault");
        assert_eq!(bench.count(0, 2 * SCRUB_PIECE, 0), 4 << 20);
    }
}

#[test]
fn tenants_do_not_meet_the_channel() {
    for mut bench in Bench::both() {
        let inner = bench.gpu.inner().info().channels;
        assert_eq!(bench.gpu.info().channels, inner - 1);
        let own = bench.own();
        let space = bench.gpu.create_space().unwrap();
        let spec = ChannelSpec {
            context_of: None,
            space,
            gpfifo: GpuVa(0x10_0000),
            gpfifo_entries_log2: 6,
            userd: bench.start,
            engines: EngineSet::COPY1,
        };
        for _ in 0..bench.gpu.info().channels {
            assert_ne!(bench.gpu.create_channel(spec).unwrap(), own);
        }
        assert!(bench.gpu.create_channel(spec).is_err());
        bench.gpu.inner().preempt_channel(own).unwrap();
        let mut events = Vec::new();
        for _ in 0..20 {
            bench.gpu.take_events(&mut events);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(events, []);
        bench.scrub(0, SCRUB_PIECE);
        assert_eq!(bench.count(0, SCRUB_PIECE, 0), 4 << 20);
    }
}

#[test]
fn piece_that_nobody_wrote_since_is_not_zeroed_again_and_one_byte_makes_it_so() {
    for mut bench in Bench::both() {
        bench.scrub(0, SCRUB_PIECE);
        let first = bench.report();

        bench.scrub(0, SCRUB_PIECE);

        let again = bench.report();
        assert_eq!(again.engine_bytes, first.engine_bytes);
        assert_eq!(again.untouched_bytes, first.untouched_bytes + SCRUB_PIECE);
        bench.window.write(SCRUB_PIECE - 1, &[1]).unwrap();
        bench.scrub(0, SCRUB_PIECE);
        assert_eq!(bench.report().engine_bytes, first.engine_bytes + SCRUB_PIECE);
        assert_eq!(bench.count(0, SCRUB_PIECE, 0), 4 << 20);
    }
}
