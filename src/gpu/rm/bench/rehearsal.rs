//! A rehearsal: one tenant's life on the driver, with a second process that maps its window, every effect
//! checked.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{BenchConfig, Figure, Look, Report, StepError, Stop, residue};
use crate::rm::abi::RmStatus;
use crate::rm::abi::classes::{
    FERMI_TWOD_A, HOPPER_A, HOPPER_COMPUTE_A, HOPPER_DMA_COPY_A, KEPLER_INLINE_TO_MEMORY_B,
};
use crate::rm::error::RmError;
use crate::rm::kernel::Kernel;
use crate::rm::pushbuffer::Commands;
use crate::rm::{RmConfig, RmDriver};
use crate::{
    Budget, ChannelSpec, GpuDriver, GpuDriverExt as _, GpuEvent, HostMapping, HostRange, HostTarget, Renewal,
    Scrubber as _, SpaceHandle,
};
use gpuvmk_chip::addr::{GpuVa, HostChannel, HostVram, Iova};
use gpuvmk_chip::gh100::userd::USERD_GP_PUT;
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_pci::mapping::{Access, FilePiece, Mapping, create_memory_file};
use gpuvmk_pci::{DmaBacking, DmaMapping};

/// What the second process writes into its window: at 0, and at the end.
pub const WINDOW_PATTERN: u64 = 0x6770_7576_6d6b_2121;

const MIB: u64 = 1 << 20;
const PARTITION: u64 = 128 * MIB;
const GUEST_RAM: u64 = 128 * MIB;
const RAM_IOVA: u64 = 1 << 32;
/// Guest-like layout: VRAM low (also below 1 MiB, as nouveau does), RAM high, the ring in RAM.
const VRAM_VA: u64 = 0x20_0000;
const LOW_VA: u64 = 0x1_1000;
const RAM_VA: u64 = 0x80_0000_0000;
const HIGH_VA: u64 = 1 << 41;
const RING: u64 = 0;
const COMMANDS: u64 = 0x1000;
const SEMAPHORE: u64 = 0x2000;
const DATA: u64 = MIB;
const USERD: u64 = 0x10_0200;
/// Of one context buffer.
const MOST_LOOKED_AT: u64 = 256 * MIB;

struct Tenant {
    driver: RmDriver,
    window: Mapping,
    ram: Mapping,
    space: SpaceHandle,
    put: u32,
    sequence: u32,
    userd: u64,
}

pub(super) fn rehearse(
    kernel: &Arc<dyn Kernel>,
    config: &BenchConfig,
    report: &mut Report,
) -> Result<(), Stop> {
    let rm =
        RmConfig { gpu: config.gpu.clone(), vram: 2 * PARTITION, uid: None, places: config.places.clone() };
    let start = Instant::now();
    let made = RmDriver::on_kernel(kernel, &rm).map_err(StepError::from);
    let mut driver = match made {
        Ok(driver) => driver,
        Err(error) => return report.note("driver: open", Err(error)),
    };
    report.figures.push(Figure::times("driver: open", vec![start.elapsed()]));
    report.note("driver: open", Ok(()))?;
    let start = Instant::now();
    let shared = driver.share_vram(HostVram(0), PARTITION).map_err(StepError::from);
    report
        .figures
        .push(Figure::times("driver: partition of 128 MiB made, cleared and checked", vec![start.elapsed()]));
    let window = match shared {
        Ok(mut pieces) => pieces.remove(0).fd,
        Err(error) => return report.note("driver: partition", Err(error)),
    };
    report.note("driver: partition", Ok(()))?;
    let outcome = second_process(&window);
    report.note("window: another process maps and writes it", outcome)?;
    let mut tenant = match Tenant::new(driver, &window) {
        Ok(tenant) => tenant,
        Err(error) => return report.note("driver: memory and space", Err(error)),
    };
    report.note("driver: memory and space", Ok(()))?;
    let outcome = tenant.see_window();
    report.note("window: what the other process wrote is there", outcome)?;
    let outcome = tenant.map_all(report);
    report.note("driver: mappings", outcome)?;
    for (name, engines, engine) in [
        ("copy channel 1", EngineSet::COPY1, Engine::Copy(1)),
        ("copy channel 2", EngineSet::COPY2, Engine::Copy(2)),
        ("graphics channel", EngineSet::GRAPHICS | EngineSet::COPY0, Engine::Copy(0)),
    ] {
        let outcome = tenant.channel(report, name, engines, engine, config.residue);
        report.note(&format!("driver: {name}"), outcome)?;
    }
    let outcome = tenant.holes();
    report.note("driver: holes, cut pages, refused addresses", outcome)?;
    let outcome = tenant.second_partition(report);
    report.note("driver: a second partition, in system memory where BAR1 is small", outcome)?;
    let outcome = tenant.leave(report);
    report.note(
        "driver: teardown leaves nothing",
        outcome.as_ref().map(|_| ()).map_err(|error| wrong(error.to_string())),
    )?;
    let outcome = outcome.and_then(|tenant| tenant.renew(window, report));
    report.note("window: whoever keeps it keeps its memory from others", outcome)
}

/// Starts this program again with the window as its standard input, and waits for it.
fn second_process(window: &OwnedFd) -> Result<(), StepError> {
    let program = std::env::current_exe()?;
    let output = Command::new(program)
        .args(["gpu", "window-child", "--size", &PARTITION.to_string()])
        .stdin(Stdio::from(window.try_clone()?))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(StepError::Wrong(format!("the second process failed ({}): {said}", output.status)))
}

/// The second process: maps its standard input, sees zeros, writes the pattern.
///
/// # Errors
/// It cannot be mapped, or does not behave as memory.
pub fn play_window_child(size: u64) -> Result<String, String> {
    let stdin = std::io::stdin();
    let piece = FilePiece { fd: stdin.as_fd(), offset: 0, size };
    let memory = Mapping::granted(&[piece], Access::ReadWrite).map_err(|error| super::chain(&error))?;
    let last = size.saturating_sub(8);
    for at in [0, last] {
        let found = memory.read_u64(at).map_err(|error| error.to_string())?;
        if found != 0 {
            return Err(format!("{found:#x} at {at:#x} of a fresh window"));
        }
        memory.write_u64(at, WINDOW_PATTERN).map_err(|error| error.to_string())?;
        let found = memory.read_u64(at).map_err(|error| error.to_string())?;
        if found != WINDOW_PATTERN {
            return Err(format!("{found:#x} reads back at {at:#x}"));
        }
    }
    let start = Instant::now();
    for at in (0x1000..0x8_1000).step_by(8) {
        memory.write_u64(at, 0).map_err(|error| error.to_string())?;
    }
    let wrote = start.elapsed();
    let start = Instant::now();
    for at in (0..0x1000).step_by(8) {
        memory.read_u64(0x1000 + at).map_err(|error| error.to_string())?;
    }
    Ok(format!("65536 stores {wrote:?}, 512 loads {:?}", start.elapsed()))
}

fn wrong(why: impl Into<String>) -> StepError {
    StepError::Wrong(why.into())
}

fn memory(error: impl std::fmt::Display) -> StepError {
    StepError::Wrong(error.to_string())
}

fn mapping(va: u64, pages: u32, page_shift: u8, target: HostTarget) -> HostMapping {
    HostMapping { va: GpuVa(va), pages, page_shift, target, read_only: false, kind: 0 }
}

fn ram(offset: u64) -> HostTarget {
    HostTarget::System { iova: Iova(RAM_IOVA + offset), coherent: true }
}

impl Tenant {
    fn new(mut driver: RmDriver, window: &OwnedFd) -> Result<Self, StepError> {
        let piece = FilePiece { fd: window.as_fd(), offset: 0, size: PARTITION };
        let window = Mapping::granted(&[piece], Access::ReadWrite).map_err(memory)?;
        let file = create_memory_file(c"gpuvmk-rehearsal", GUEST_RAM)?;
        let ram = Mapping::of_file(file.as_fd(), 0, GUEST_RAM, Access::ReadWrite).map_err(memory)?;
        let backing = Some(DmaBacking { fd: file, offset: 0 });
        driver.dma_map(DmaMapping {
            iova: RAM_IOVA,
            size: GUEST_RAM,
            writable: true,
            backing,
            owner: None,
        })?;
        let space = driver.create_space()?;
        Ok(Self { driver, window, ram, space, put: 0, sequence: 0, userd: USERD })
    }

    fn see_window(&self) -> Result<(), StepError> {
        for at in [0, PARTITION - 8] {
            let found = self.window.read_u64(at).map_err(memory)?;
            if found != WINDOW_PATTERN {
                return Err(wrong(format!("{found:#x} at {at:#x}")));
            }
        }
        Ok(())
    }

    fn map_all(&mut self, report: &mut Report) -> Result<(), StepError> {
        let vram = |offset| HostTarget::Vram(HostVram(offset));
        let maps = [
            mapping(LOW_VA, 4, 12, vram(0x8000)),
            mapping(VRAM_VA, 64, 21, vram(0)),
            mapping(0x1_4000_0000, 32, 16, vram(32 * MIB)),
            mapping(RAM_VA, u32::try_from(GUEST_RAM >> 12).unwrap_or(0), 12, ram(0)),
            mapping(HIGH_VA, 16, 12, ram(DATA)),
        ];
        let start = Instant::now();
        self.driver.update_space(self.space, &[], &maps, u64::MAX)?;
        report
            .figures
            .push(Figure::times("driver: first mappings, 128 MiB of RAM registered", vec![start.elapsed()]));
        let range = HostRange { va: GpuVa(0x2_0000_0000), pages: 1024, page_shift: 12 };
        let (mut mapped, mut unmapped) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            let map = mapping(range.va.0, range.pages, 12, vram(64 * MIB));
            let start = Instant::now();
            self.driver.update_space(self.space, &[], &[map], u64::MAX)?;
            mapped.push(start.elapsed());
            let start = Instant::now();
            self.driver.update_space(self.space, &[range], &[], u64::MAX)?;
            unmapped.push(start.elapsed());
        }
        report.figures.push(Figure::times("driver: map 4 MiB of video memory, 4K pages", mapped));
        report.figures.push(Figure::times("driver: unmap 4 MiB of video memory, 4K pages", unmapped));
        Ok(())
    }

    fn channel(
        &mut self,
        report: &mut Report,
        name: &str,
        engines: EngineSet,
        copy: Engine,
        residue: bool,
    ) -> Result<(), StepError> {
        self.window.fill(USERD, 0x200, 0).map_err(memory)?;
        self.put = 0;
        let start = Instant::now();
        let channel = self.driver.create_channel(ChannelSpec {
            space: self.space,
            gpfifo: GpuVa(RAM_VA + RING),
            gpfifo_entries_log2: 9,
            userd: HostVram(self.userd),
            engines,
        })?;
        let made = start.elapsed();
        report.figures.push(Figure::times(format!("driver: {name} made"), vec![made]));
        let outcome = self.with_channel(report, name, channel, engines, copy).and_then(|()| {
            if residue && engines.contains(EngineSet::GRAPHICS) {
                self.look_at_context_buffers(report, channel)?;
            }
            Ok(())
        });
        self.driver.preempt_channel(channel)?;
        let start = Instant::now();
        self.driver.destroy_channel(channel)?;
        report.figures.push(Figure::times(format!("driver: {name} destroyed"), vec![start.elapsed()]));
        outcome
    }

    fn with_channel(
        &mut self,
        report: &mut Report,
        name: &str,
        channel: HostChannel,
        engines: EngineSet,
        copy: Engine,
    ) -> Result<(), StepError> {
        self.driver.create_object(channel, HOPPER_DMA_COPY_A.number, copy)?;
        if engines.contains(EngineSet::GRAPHICS) {
            for class in [FERMI_TWOD_A, HOPPER_A, KEPLER_INLINE_TO_MEMORY_B, HOPPER_COMPUTE_A] {
                let start = Instant::now();
                self.driver.create_object(channel, class.number, Engine::Graphics)?;
                report
                    .figures
                    .push(Figure::times(format!("driver: object {}", class.name), vec![start.elapsed()]));
            }
        }
        if self.driver.create_object(channel, 0xc661, copy).is_ok() {
            return Err(wrong("a class that tenants may not have was made"));
        }
        self.driver.enable_channel(channel, true)?;
        self.driver.commit_runlist(&[channel])?;
        self.copy_and_compare(channel)?;
        let notified = self.notification(channel, engines)?;
        report.figures.push(Figure::times(format!("driver: {name}, submission to notification"), notified));
        // Held back, it does nothing; let go, it does what was left.
        let start = Instant::now();
        self.driver.commit_runlist(&[])?;
        report.figures.push(Figure::times(format!("driver: {name} taken off"), vec![start.elapsed()]));
        let value = self.submit(channel, |commands, _| {
            let _ = commands;
        })?;
        std::thread::sleep(Duration::from_millis(5));
        if self.semaphore()? == value {
            return Err(wrong("a channel that was taken off ran"));
        }
        let start = Instant::now();
        self.driver.commit_runlist(&[channel])?;
        report.figures.push(Figure::times(format!("driver: {name} let run again"), vec![start.elapsed()]));
        self.driver.doorbell(channel)?;
        self.wait(value)?;
        let start = Instant::now();
        self.driver.preempt_channel(channel)?;
        report.figures.push(Figure::times(format!("driver: {name} told to leave"), vec![start.elapsed()]));
        self.until_left(channel, start)?;
        report.figures.push(Figure::times(format!("driver: {name} preempted"), vec![start.elapsed()]));
        Ok(())
    }

    /// Looks after a preemption until it is told to be complete.
    fn until_left(&mut self, channel: HostChannel, start: Instant) -> Result<(), StepError> {
        let mut events = Vec::new();
        while !events.contains(&GpuEvent::Preempted(channel)) {
            if start.elapsed() > Duration::from_secs(2) {
                return Err(wrong(format!("the channel has not left within 2 s; events: {events:?}")));
            }
            self.driver.advance_pending(&mut Budget::unlimited());
            self.driver.take_events(&mut events);
        }
        Ok(())
    }

    /// RAM to VRAM to RAM through every kind of mapping.
    fn copy_and_compare(&mut self, channel: HostChannel) -> Result<(), StepError> {
        let bytes: Vec<u8> = (0..MIB / 8).flat_map(|n| (n * 0x1_0001 + 7).to_le_bytes()).collect();
        self.ram.write(DATA, &bytes).map_err(memory)?;
        self.ram.fill(2 * DATA, MIB, 0).map_err(memory)?;
        let size = 1 << 20;
        let value = self.submit(channel, |commands, ram| {
            commands.copy(ram + DATA, VRAM_VA + 40 * MIB, size);
            // The same video memory through 64K pages.
            commands.copy(0x1_4000_0000, 0x1_4000_0000, 16);
            commands.copy(VRAM_VA + 40 * MIB, ram + 2 * DATA, size);
        })?;
        self.wait(value)?;
        let mut back = vec![0; bytes.len()];
        self.ram.read(2 * DATA, &mut back).map_err(memory)?;
        if back != bytes {
            return Err(wrong("RAM, video memory, RAM: not what it was"));
        }
        let found = self.window.read_u64(40 * MIB).map_err(memory)?;
        if found.to_le_bytes() != bytes.get(..8).unwrap_or_default() {
            return Err(wrong(format!("the window shows {found:#x}")));
        }
        // Through the mapping above 2^40.
        let value = self.submit(channel, |commands, ram| {
            commands.copy(HIGH_VA, ram + 3 * DATA, 0x1000);
        })?;
        self.wait(value)?;
        let mut back = vec![0; 0x1000];
        self.ram.read(3 * DATA, &mut back).map_err(memory)?;
        if back.as_slice() != bytes.get(..0x1000).unwrap_or_default() {
            return Err(wrong("a mapping above 2^40 shows something else"));
        }
        Ok(())
    }

    /// What a tenant's engines can read of the buffers that the NVIDIA driver maps into each graphics
    /// context, and whether anything is there.
    fn look_at_context_buffers(
        &mut self,
        report: &mut Report,
        channel: HostChannel,
    ) -> Result<(), StepError> {
        let space = self.driver.space_object(self.space).ok_or_else(|| wrong("no such address space"))?;
        let start = Instant::now();
        let found = match residue::context_buffers(self.driver.device(), space) {
            // Drivers as they are delivered answer this question for nobody: nothing is known of these
            // buffers then, and to read addresses without knowing would be to provoke faults.
            Err(StepError::Rm(RmError::Refused { call, status }))
                if status == RmStatus::ERR_TEST_ONLY_CODE_NOT_ENABLED =>
            {
                report.not_told.push(format!("where graphics contexts' buffers are ({call}: {status})"));
                return Ok(());
            }
            found => found?,
        };
        report.figures.push(Figure::times("driver: search for context buffers", vec![start.elapsed()]));
        for pages in found {
            let residue::Pages { va, size, plain, video } = pages;
            let kind = match (plain, video) {
                (true, true) => "video memory, readable",
                (true, false) => "system memory, readable",
                (false, _) => "privileged",
            };
            let what = format!("context buffer at {va:#x}, {kind}");
            let mut look = Look { what, bytes: 0, pattern: None, not_zero: 0 };
            // Nobody may read what is privileged: it would be a fault.
            let most = if plain { size.min(MOST_LOOKED_AT) } else { 0 };
            while look.bytes < most {
                let piece = MIB.min(most - look.bytes);
                let from = va + look.bytes;
                let bytes = u32::try_from(piece).unwrap_or(0);
                let value = self.submit(channel, |commands, ram| {
                    commands.copy(from, ram + DATA, bytes);
                })?;
                self.wait(value)?;
                let mut read = vec![0; usize::try_from(piece).unwrap_or(0)];
                self.ram.read(DATA, &mut read).map_err(memory)?;
                let set = read.as_chunks::<4>().0.iter().filter(|word| **word != [0; 4]).count();
                look.not_zero += set as u64;
                look.bytes += piece;
            }
            if !plain {
                look.bytes = size;
            }
            report.looks.push(look);
        }
        Ok(())
    }

    fn notification(&mut self, channel: HostChannel, engines: EngineSet) -> Result<Vec<Duration>, StepError> {
        let mut events = Vec::new();
        let mut times = Vec::new();
        for _ in 0..50 {
            self.driver.take_events(&mut events);
            events.clear();
            let start = Instant::now();
            self.submit(channel, |commands, _| {
                commands.notify();
            })?;
            loop {
                let fd = self.driver.event_fd().try_clone_to_owned()?;
                let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
                rustix::event::poll(
                    &mut [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)],
                    Some(&wait),
                )
                .map_err(std::io::Error::from)?;
                self.driver.take_events(&mut events);
                let ours = |event: &GpuEvent| matches!(event, GpuEvent::NonStall(engine) if engines.contains((*engine).into()));
                if let Some(error) = events.iter().find(|event| matches!(event, GpuEvent::ChannelError(_))) {
                    return Err(wrong(format!("{error:?}")));
                }
                if events.iter().any(ours) {
                    times.push(start.elapsed());
                    break;
                }
                if start.elapsed() > Duration::from_millis(500) {
                    return Err(wrong(format!("no notification within 500 ms, only {events:?}")));
                }
            }
        }
        Ok(times)
    }

    fn holes(&mut self) -> Result<(), StepError> {
        let budget = u64::MAX;
        let range = |va, pages, page_shift| HostRange { va: GpuVa(va), pages, page_shift };
        // A hole of one small page in a large one, mapped again; then everything.
        self.driver.update_space(self.space, &[range(VRAM_VA + 0x5000, 1, 12)], &[], budget)?;
        let again = mapping(VRAM_VA + 0x5000, 1, 12, HostTarget::Vram(HostVram(0x5000)));
        self.driver.update_space(self.space, &[], &[again], budget)?;
        self.driver.update_space(self.space, &[range(VRAM_VA, 64, 21)], &[], budget)?;
        let usage = self.driver.space_usage(self.space)?;
        if usage.pages == 0 {
            return Err(wrong("everything is gone"));
        }
        for refused in [0xc0_0000_0000, 0xff_0000_0000, 0x1_1000_0000] {
            let map = mapping(refused, 1, 12, ram(0));
            if self.driver.update_space(self.space, &[], &[map], budget).is_ok() {
                return Err(wrong(format!("{refused:#x} was mapped")));
            }
        }
        Ok(())
    }

    /// A channel whose USERD and target are in a partition that BAR1 has no room for any more.
    fn second_partition(&mut self, report: &mut Report) -> Result<(), StepError> {
        let pieces = self.driver.share_vram(HostVram(PARTITION), PARTITION)?;
        self.driver.scrub_vram(HostVram(PARTITION), PARTITION)?;
        let files: Vec<_> = pieces
            .iter()
            .map(|piece| FilePiece { fd: piece.fd.as_fd(), offset: piece.offset, size: piece.size })
            .collect();
        let window = Mapping::granted(&files, Access::ReadWrite).map_err(memory)?;
        let first = std::mem::replace(&mut self.window, window);
        let map = mapping(VRAM_VA, 64, 21, HostTarget::Vram(HostVram(PARTITION)));
        self.driver.update_space(self.space, &[], &[map], u64::MAX)?;
        self.userd = PARTITION + USERD;
        let outcome =
            self.channel(report, "channel of the second partition", EngineSet::COPY1, Engine::Copy(1), false);
        self.window = first;
        let range = HostRange { va: GpuVa(VRAM_VA), pages: 64, page_shift: 21 };
        self.driver.update_space(self.space, &[range], &[], u64::MAX)?;
        self.driver.scrub_vram(HostVram(PARTITION), PARTITION)?;
        outcome
    }

    fn leave(mut self, report: &mut Report) -> Result<Self, StepError> {
        let start = Instant::now();
        let revoked = self.driver.revoke_system(self.space, Iova(RAM_IOVA), GUEST_RAM)?;
        report.figures.push(Figure::times("driver: 128 MiB of RAM revoked", vec![start.elapsed()]));
        if revoked == 0 {
            return Err(wrong("no page of RAM was mapped"));
        }
        self.driver.dma_unmap(Iova(RAM_IOVA), GUEST_RAM)?;
        self.driver.clear_space(self.space)?;
        self.driver.destroy_space(self.space)?;
        let start = Instant::now();
        self.driver.scrub_vram(HostVram(0), PARTITION)?;
        report.figures.push(Figure::times("driver: 128 MiB cleared and checked", vec![start.elapsed()]));
        let found = self.window.read_u64(0).map_err(memory)?;
        if found != 0 {
            return Err(wrong(format!("{found:#x} after clearing")));
        }
        let left = self.driver.left_behind()?;
        if left.is_empty() { Ok(self) } else { Err(wrong(format!("left: {}", left.join(", ")))) }
    }

    /// The partition's memory goes when nobody has its window any more: neither as a file nor as a mapping.
    fn renew(self, window: OwnedFd, report: &mut Report) -> Result<(), StepError> {
        let Self { mut driver, window: mapped, .. } = self;
        let mut renew = |wanted: Renewal, when: &str| {
            let start = Instant::now();
            let renewal = driver.renew_vram(HostVram(0), 4 * MIB)?;
            report
                .figures
                .push(Figure::times(format!("driver: partition given up, {when}"), vec![start.elapsed()]));
            if renewal == wanted {
                Ok(())
            } else {
                Err(wrong(format!("{renewal:?} instead of {wanted:?} {when}")))
            }
        };
        renew(Renewal::Held, "while somebody has file and mapping")?;
        drop(window);
        renew(Renewal::Held, "while somebody has a mapping")?;
        drop(mapped);
        renew(Renewal::Done, "when nobody has it")?;
        let start = Instant::now();
        let fresh = driver.share_vram(HostVram(0), PARTITION)?;
        report.figures.push(Figure::times("driver: partition for the next owner", vec![start.elapsed()]));
        let dirty = driver.is_vram_dirty(HostVram(0), PARTITION);
        drop(fresh);
        if dirty { Ok(()) } else { Err(wrong("memory of the next owner that nobody has cleared")) }
    }

    /// Submits commands and a semaphore release behind them.
    fn submit(
        &mut self,
        channel: HostChannel,
        fill: impl FnOnce(&mut Commands, u64),
    ) -> Result<u32, StepError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut commands = Commands::default();
        if self.put == 0 {
            commands.bind_copy(HOPPER_DMA_COPY_A.number);
        }
        fill(&mut commands, RAM_VA);
        commands.release(RAM_VA + SEMAPHORE, self.sequence, true);
        let slot = COMMANDS + u64::from(self.put % 8) * 0x200;
        let bytes: Vec<u8> = commands.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        self.ram.write(slot, &bytes).map_err(memory)?;
        let entry = (RAM_VA + slot) | (commands.words().len() as u64) << 42;
        self.ram.write_u64(RING + u64::from(self.put) * 8, entry).map_err(memory)?;
        self.put = (self.put + 1) % 512;
        self.window.write_u32(USERD + USERD_GP_PUT, self.put).map_err(memory)?;
        self.driver.doorbell(channel)?;
        Ok(self.sequence)
    }

    fn semaphore(&self) -> Result<u32, StepError> {
        self.ram.read_u32(SEMAPHORE).map_err(memory)
    }

    fn wait(&mut self, value: u32) -> Result<(), StepError> {
        let start = Instant::now();
        while self.semaphore()? != value {
            if start.elapsed() > Duration::from_secs(2) {
                let mut events = Vec::new();
                self.driver.take_events(&mut events);
                return Err(wrong(format!("no semaphore within 2 s; events: {events:?}")));
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
}
