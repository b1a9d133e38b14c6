//! The tenant of a rehearsal: its window, its memory, its address space and its channels.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::report::{Figure, Report};
use crate::step_error::StepError;
use gpuvmk_chip::addr::{GpuVa, HostChannel, HostVram, Iova};
use gpuvmk_chip::gh100::userd::USERD_GP_PUT;
use gpuvmk_chip::stream::RingEntry;
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_gpu::rm::RmDriver;
use gpuvmk_gpu::rm::abi::classes::{
    FERMI_TWOD_A, HOPPER_A, HOPPER_COMPUTE_A, HOPPER_DMA_COPY_A, KEPLER_INLINE_TO_MEMORY_B,
};
use gpuvmk_gpu::rm::raw::Commands;
use gpuvmk_gpu::{
    Budget, ChannelSpec, GpuDriver, GpuDriverExt as _, GpuEvent, HostMapping, HostRange, HostTarget, Renewal,
    Scrubber as _, SpaceHandle,
};
use gpuvmk_pci::mapping::{Access, FilePiece, Mapping, create_memory_file};
use gpuvmk_pci::{DmaBacking, DmaMapping};

/// What the second process writes into its window: at 0, and at the end.
pub(crate) const WINDOW_PATTERN: u64 = 0x6770_7576_6d6b_2121;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const PARTITION: u64 = 128 * MIB;
pub(crate) const GUEST_RAM: u64 = 128 * MIB;
pub(crate) const RAM_IOVA: u64 = 1 << 32;
/// Guest-like layout: VRAM low (also below 1 MiB, as nouveau does), RAM high, the ring in RAM.
pub(crate) const VRAM_VA: u64 = 0x20_0000;
pub(crate) const LOW_VA: u64 = 0x1_1000;
pub(crate) const RAM_VA: u64 = 0x80_0000_0000;
pub(crate) const HIGH_VA: u64 = 1 << 41;
pub(crate) const RING: u64 = 0;
pub(crate) const COMMANDS: u64 = 0x1000;
pub(crate) const SEMAPHORE: u64 = 0x2000;
pub(crate) const DATA: u64 = MIB;
pub(crate) const USERD: u64 = 0x10_0200;

/// The tenant, and the driver that is its alone.
pub(crate) struct Tenant {
    pub(crate) driver: RmDriver,
    pub(crate) window: Mapping,
    pub(crate) ram: Mapping,
    pub(crate) space: SpaceHandle,
    put: u32,
    sequence: u32,
    userd: u64,
}

/// A step that did not do what it should.
pub(crate) fn wrong(why: impl Into<String>) -> StepError {
    StepError::Wrong(why.into())
}

/// Memory of this process that cannot be reached.
pub(crate) fn memory(error: impl std::fmt::Display) -> StepError {
    StepError::Wrong(error.to_string())
}

fn mapping(va: u64, pages: u32, page_shift: u8, target: HostTarget) -> HostMapping {
    HostMapping { va: GpuVa(va), pages, page_shift, target, read_only: false, kind: 0 }
}

fn ram(offset: u64) -> HostTarget {
    HostTarget::System { iova: Iova(RAM_IOVA + offset), coherent: true }
}

impl Tenant {
    pub(crate) fn new(mut driver: RmDriver, window: &OwnedFd) -> Result<Self, StepError> {
        let piece = FilePiece { fd: window.as_fd(), offset: 0, size: PARTITION };
        let window = Mapping::granted(&[piece], Access::ReadWrite).map_err(memory)?;
        let file = create_memory_file(c"gpuvmk-rehearsal", GUEST_RAM)?;
        let ram = Mapping::of_file(file.as_fd(), 0, GUEST_RAM, Access::ReadWrite).map_err(memory)?;
        // As a device back end does.
        ram.populate(0, GUEST_RAM)?;
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

    pub(crate) fn see_window(&self) -> Result<(), StepError> {
        for at in [0, PARTITION - 8] {
            let found = self.window.read_u64(at).map_err(memory)?;
            if found != WINDOW_PATTERN {
                return Err(wrong(format!("{found:#x} at {at:#x}")));
            }
        }
        Ok(())
    }

    pub(crate) fn map_all(&mut self, report: &mut Report) -> Result<(), StepError> {
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

    pub(crate) fn channel(
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
            context_of: None,
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

    pub(crate) fn with_channel(
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
    pub(crate) fn until_left(&mut self, channel: HostChannel, start: Instant) -> Result<(), StepError> {
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

    pub(crate) fn holes(&mut self) -> Result<(), StepError> {
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
    pub(crate) fn second_partition(&mut self, report: &mut Report) -> Result<(), StepError> {
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
            self.channel(report, "channel of the second partition", EngineSet::COPY1, Engine::COPY1, false);
        self.window = first;
        let range = HostRange { va: GpuVa(VRAM_VA), pages: 64, page_shift: 21 };
        self.driver.update_space(self.space, &[range], &[], u64::MAX)?;
        self.driver.scrub_vram(HostVram(PARTITION), PARTITION)?;
        outcome
    }

    pub(crate) fn leave(mut self, report: &mut Report) -> Result<Self, StepError> {
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
    pub(crate) fn renew(self, window: OwnedFd, report: &mut Report) -> Result<(), StepError> {
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
    pub(crate) fn submit(
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
        let count = u32::try_from(commands.words().len()).unwrap_or(0);
        let entry = RingEntry::segment(RAM_VA + slot, count);
        self.ram.write_u64(RING + u64::from(self.put) * 8, entry).map_err(memory)?;
        self.put = (self.put + 1) % 512;
        self.window.write_u32(USERD + USERD_GP_PUT, self.put).map_err(memory)?;
        self.driver.doorbell(channel)?;
        Ok(self.sequence)
    }

    pub(crate) fn semaphore(&self) -> Result<u32, StepError> {
        self.ram.read_u32(SEMAPHORE).map_err(memory)
    }

    pub(crate) fn wait(&mut self, value: u32) -> Result<(), StepError> {
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
