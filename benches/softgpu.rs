//! What the software GPU's engine core can do: latency of a submission, and bytes copied in a second, as a
//! GF100 and as the executor of GH100's classes.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a benchmark that cannot be set up has failed")]

use std::os::fd::AsFd;
use std::sync::Arc;

use divan::counter::BytesCount;
use gpuvmk::addr::{GpuVa, HostChannel, HostVram};
use gpuvmk::backend::{Backend, EngineBackend, FifoState};
use gpuvmk::chip::addr::GuestChannel;
use gpuvmk::chip::channel_event::{ChannelStop, MmuFault};
use gpuvmk::chip::gf100::methods::m2mf;
use gpuvmk::chip::gf100::mmu::{LargePages, Pde, Pte};
use gpuvmk::chip::gf100::ramin;
use gpuvmk::chip::gh100::methods::{copy, host};
use gpuvmk::chip::{Aperture, EngineSet, PhysicalAddress};
use gpuvmk::gpu::{ChannelSpec, GpuDriver, GpuDriverExt as _, HostMapping, HostTarget};
use gpuvmk::pci::mapping::{Access, FilePiece, Mapping, create_memory_file};
use gpuvmk::pci::{DmaBacking, DmaMapping};
use gpuvmk::softgpu::Core;
use gpuvmk::softgpu::executor::{Executor, ExecutorConfig};

fn main() {
    divan::main();
}

const VRAM: u64 = 64 << 20;
const DIRECTORY: u64 = 0x10_0000;
const INSTANCE: u64 = 0x20_0000;
const USERD: u64 = 0x20_1000;
const CONTEXT: u64 = 0x20_4000;
const RUNLIST: u64 = 0x20_8000;
const RING: u64 = 0x20_9000;
const REPORT: u64 = 0x20_a000;
const PUSH: u64 = 0x21_0000;
/// Copies go between here and the next 16 MiB.
const DATA: u64 = 0x100_0000;
const DATA_SIZE: u64 = 16 << 20;
/// System memory, in the same address space.
const SYSTEM_VA: u64 = 0x4000_0000;
const IOVA: u64 = 0x8000_0000;

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

/// One channel whose address space shows VRAM at 0, and system memory at `SYSTEM_VA`.
struct Bench {
    core: Core,
    _system: Mapping,
    put: u32,
    report: u32,
}

impl Bench {
    fn new() -> Self {
        let core = Core::new(VRAM).expect("a core");
        let fd = create_memory_file(c"bench-system", DATA_SIZE).expect("memory");
        let system = Mapping::of_file(fd.as_fd(), 0, DATA_SIZE, Access::ReadWrite).expect("mapping");
        let backing = Some(DmaBacking { fd, offset: 0 });
        core.dma_map(DmaMapping { iova: IOVA, size: DATA_SIZE, writable: true, backing, owner: None })
            .expect("DMA");
        let bench = Self { core, _system: system, put: 0, report: 0 };
        bench.map(0, vram(0), VRAM, 17);
        let memory = PhysicalAddress { aperture: Aperture::SystemCoherent, address: IOVA };
        bench.map(SYSTEM_VA, memory, DATA_SIZE, 12);
        bench.start();
        bench
    }

    fn write_u64(&self, address: u64, word: u64) {
        self.core.write_memory(vram(address), &word.to_le_bytes()).expect("VRAM");
    }

    fn map(&self, va: u64, target: PhysicalAddress, size: u64, shift: u8) {
        let large = LargePages::K128;
        let index = large.directory_index(va);
        let table = 0x40_0000 + index * 0x10_0000;
        let (large_table, small_table) =
            if shift == 17 { (Some(vram(table)), None) } else { (None, Some(vram(table))) };
        self.write_u64(DIRECTORY + index * 8, Pde { large: large_table, small: small_table }.encode());
        for offset in (0..size).step_by(1 << shift) {
            let target = PhysicalAddress { address: target.address + offset, ..target };
            let pte = Pte { target, read_only: false, privileged: false, kind: 0 };
            self.write_u64(table + large.table_index(va + offset, shift) * 8, pte.encode());
        }
    }

    fn start(&self) {
        struct Quiet;
        impl gpuvmk::backend::EngineEvents for Quiet {
            fn non_stall(&self, _: gpuvmk::chip::Engine) {}
            fn message_delivered(&self, _: EngineSet) {}
            fn unsent(&self) {}
            fn monitor(&self, _: Option<(u16, u16)>) {}
            fn stopped(&self, stop: ChannelStop<GuestChannel>) {
                eprintln!("{stop:?}");
            }
            fn fault(&self, fault: MmuFault) {
                eprintln!("{fault:?}");
            }
            fn preempted(&self, _: GuestChannel) {}
            fn patch_register(&self, _: u32, _: u32) {}
            fn lost(&self, _: &str) {}
        }
        self.core.connect_events(Arc::new(Quiet));
        self.write_u64(INSTANCE + ramin::RAMFC_USERD_LO, USERD);
        self.write_u64(INSTANCE + ramin::RAMFC_SIGNATURE, u64::from(ramin::SIGNATURE));
        self.write_u64(INSTANCE + ramin::RAMFC_GP_BASE_LO, RING | 9 << 48);
        self.write_u64(INSTANCE + 0xa4, 0x1f1f_1f1f_1f1f_1f1f);
        self.write_u64(INSTANCE + ramin::PAGE_DIRECTORY_LO, DIRECTORY);
        self.write_u64(INSTANCE + ramin::VA_LIMIT_LO, (1 << 40) - 1);
        self.write_u64(INSTANCE + ramin::GRAPHICS_CONTEXT_LO, CONTEXT);
        self.write_u64(RUNLIST, 1 | u64::from(ramin::RUNLIST_ENTRY_CHANNEL) << 32);
        self.core.set_fifo_state(FifoState {
            enabled: true,
            pbdma_mask: 7,
            ready: EngineSet::all(),
            large_pages_64k: false,
        });
        self.core.bind_channel(GuestChannel(1), Some(vram(INSTANCE)));
        self.core.enable_channel(GuestChannel(1), true);
        self.core.commit_runlist(vram(RUNLIST), 1);
    }

    /// Submits words and a release, and waits for the release by polling, as a driver without interrupts.
    fn run(&mut self, words: &[u32]) {
        self.report = self.report.wrapping_add(1);
        let mut words = words.to_vec();
        words.extend([0x2004_0004, 0, u32::try_from(REPORT).expect("low"), self.report, 0x0100_0002]);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.core.write_memory(vram(PUSH), &bytes).expect("push buffer");
        self.write_u64(RING + u64::from(self.put) * 8, PUSH | (words.len() as u64) << 42);
        self.put = (self.put + 1) % 512;
        self.core.write_memory(vram(USERD + 0x8c), &self.put.to_le_bytes()).expect("USERD");
        self.core.doorbell(GuestChannel(1), self.put);
        let mut seen = [0; 4];
        while u32::from_le_bytes(seen) != self.report {
            self.core.read_memory(vram(REPORT), &mut seen).expect("report");
            std::hint::spin_loop();
        }
    }

    fn copy(&mut self, from: u64, to: u64, line: u32) {
        let count = u32::try_from(DATA_SIZE / 2).expect("small") / line;
        let low = |address: u64| u32::try_from(address).expect("below 4 GiB");
        let header = |method: u16, count: u32| 1 << 29 | count << 16 | 2 << 13 | u32::from(method) >> 2;
        let words = [
            header(0, 1),
            u32::from(m2mf::CLASS),
            header(m2mf::OFFSET_OUT_HIGH, 2),
            0,
            low(to),
            header(m2mf::OFFSET_IN_HIGH, 6),
            0,
            low(from),
            line + 64,
            line,
            line,
            count,
            header(m2mf::EXEC, 1),
            m2mf::EXEC::LINEAR_IN.mask() | m2mf::EXEC::LINEAR_OUT.mask(),
        ];
        self.run(&words);
    }
}

/// Doorbell to release, seen by a polling CPU.
#[divan::bench]
fn submission(bencher: divan::Bencher<'_, '_>) {
    let mut bench = Bench::new();
    bencher.bench_local(|| bench.run(&[]));
}

#[divan::bench(args = [4032, 65472])]
fn vram_to_vram(bencher: divan::Bencher<'_, '_>, line: u32) {
    let mut bench = Bench::new();
    bencher.counter(BytesCount::new(DATA_SIZE / 2)).bench_local(|| bench.copy(DATA, DATA + DATA_SIZE, line));
}

#[divan::bench(args = [4032, 65472])]
fn vram_to_system(bencher: divan::Bencher<'_, '_>, line: u32) {
    let mut bench = Bench::new();
    bencher.counter(BytesCount::new(DATA_SIZE / 2)).bench_local(|| bench.copy(DATA, SYSTEM_VA, line));
}

/// One copy channel of an executor, whose address space shows tenant VRAM from 0 on.
struct ExecutorBench {
    gpu: Executor,
    vram: Mapping,
    channel: HostChannel,
    put: u32,
    report: u32,
}

/// Places in tenant VRAM.
const EX_RING: u64 = 0x1000;
const EX_USERD: u64 = 0x2000;
const EX_REPORT: u64 = 0x3000;
const EX_PUSH: u64 = 0x1_0000;
const EX_DATA: u64 = 0x100_0000;

impl ExecutorBench {
    fn new() -> Self {
        let mut gpu = Executor::new(ExecutorConfig { vram: VRAM + (16 << 20), ..ExecutorConfig::default() })
            .expect("an executor");
        let (start, size) = (gpu.info().tenant_vram, gpu.info().tenant_vram_size);
        let shared = gpu.share_vram(start, size).expect("VRAM");
        let pieces: Vec<_> = shared
            .iter()
            .map(|piece| FilePiece { fd: piece.fd.as_fd(), offset: piece.offset, size: piece.size })
            .collect();
        let vram = Mapping::contiguous(&pieces, Access::ReadWrite).expect("mapping");
        let space = gpu.create_space().expect("a space");
        let pages = u32::try_from(size >> 21).expect("few");
        let target = HostTarget::Vram(start);
        let all = HostMapping { va: GpuVa(0), pages, page_shift: 21, target, read_only: false, kind: 0 };
        gpu.update_space(space, &[], &[all], 1 << 20).expect("mapped");
        let spec = ChannelSpec {
            context_of: None,
            space,
            gpfifo: GpuVa(EX_RING),
            gpfifo_entries_log2: 9,
            userd: HostVram(start.0 + EX_USERD),
            engines: EngineSet::COPY1,
        };
        let channel = gpu.create_channel(spec).expect("a channel");
        gpu.enable_channel(channel, true).expect("enabled");
        gpu.commit_runlist(&[channel]).expect("listed");
        Self { gpu, vram, channel, put: 0, report: 0 }
    }

    fn run(&mut self, words: &[u32]) {
        self.report = self.report.wrapping_add(1);
        let mut words = words.to_vec();
        let report = u32::try_from(EX_REPORT).expect("low");
        words.extend(header(host::SEM_ADDR_LO, &[report, 0, self.report, 0, 1]));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.vram.write(EX_PUSH, &bytes).expect("push buffer");
        let entry = EX_PUSH | (words.len() as u64) << 42;
        self.vram.write(EX_RING + u64::from(self.put) * 8, &entry.to_le_bytes()).expect("ring");
        self.put = (self.put + 1) % 512;
        self.vram.write(EX_USERD + 0x8c, &self.put.to_le_bytes()).expect("USERD");
        self.gpu.doorbell(self.channel).expect("doorbell");
        let mut seen = [0; 4];
        while u32::from_le_bytes(seen) != self.report {
            self.vram.read(EX_REPORT, &mut seen).expect("report");
            std::hint::spin_loop();
        }
    }

    /// Copies `DATA_SIZE / 2` bytes.
    fn copy(&mut self, line: u32, launch: u32) {
        let count = u32::try_from(DATA_SIZE / 2).expect("small") / line;
        let low = |address: u64| u32::try_from(address).expect("below 4 GiB");
        let (from, to) = (low(EX_DATA), low(EX_DATA + DATA_SIZE));
        let blocks = [0x1040, line, count, 1, 0, 0];
        let words = [
            header(copy::SET_DST_BLOCK_SIZE, &blocks),
            header(copy::SET_REMAP_CONST_A, &[7, 7, 0x0003_0004]),
            header(copy::OFFSET_IN_UPPER, &[0, from, 0, to, line, line, line, count]),
            header(copy::LAUNCH_DMA, &[launch]),
        ];
        self.run(&words.concat());
    }
}

/// Methods of subchannel 4, one behind the other.
fn header(method: u16, data: &[u32]) -> Vec<u32> {
    let count = u32::try_from(data.len()).expect("few");
    let mut words = vec![1 << 29 | count << 16 | 4 << 13 | u32::from(method) >> 2];
    words.extend(data);
    words
}

#[divan::bench]
fn executor_submission(bencher: divan::Bencher<'_, '_>) {
    let mut bench = ExecutorBench::new();
    bencher.bench_local(|| bench.run(&[]));
}

#[divan::bench(args = [4096, 65536])]
fn executor_copy(bencher: divan::Bencher<'_, '_>, line: u32) {
    let mut bench = ExecutorBench::new();
    bencher.counter(BytesCount::new(DATA_SIZE / 2)).bench_local(|| bench.copy(line, 0x386));
}

/// Into blocks of 16 GOBs.
#[divan::bench]
fn executor_copy_to_blocks(bencher: divan::Bencher<'_, '_>) {
    let mut bench = ExecutorBench::new();
    bencher.counter(BytesCount::new(DATA_SIZE / 2)).bench_local(|| bench.copy(4096, 0x286));
}

/// Words of a constant; a line has a quarter as many elements as bytes.
#[divan::bench]
fn executor_fill(bencher: divan::Bencher<'_, '_>) {
    let mut bench = ExecutorBench::new();
    bencher.counter(BytesCount::new(DATA_SIZE * 2)).bench_local(|| bench.copy(4096, 0x786));
}
