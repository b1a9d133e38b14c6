//! What a rehearsal checks on a channel of its tenant: copies, notifications, and what engines can read.

use std::time::{Duration, Instant};

use crate::report::{Figure, Look, Report};
use crate::residue;
use crate::step_error::StepError;
use crate::tenant::{DATA, HIGH_VA, MIB, Tenant, VRAM_VA, memory, wrong};
use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_gpu::rm::RmError;
use gpuvmk_gpu::rm::abi::RmStatus;
use gpuvmk_gpu::rm::raw;
use gpuvmk_gpu::{GpuDriver, GpuEvent};

/// Of one context buffer.
const MOST_LOOKED_AT: u64 = 256 * MIB;

impl Tenant {
    /// RAM to VRAM to RAM through every kind of mapping.
    pub(crate) fn copy_and_compare(&mut self, channel: HostChannel) -> Result<(), StepError> {
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
    pub(crate) fn look_at_context_buffers(
        &mut self,
        report: &mut Report,
        channel: HostChannel,
    ) -> Result<(), StepError> {
        let space =
            raw::space_object(&self.driver, self.space).ok_or_else(|| wrong("no such address space"))?;
        let start = Instant::now();
        let found = match residue::context_buffers(raw::device(&self.driver), space) {
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

    pub(crate) fn notification(
        &mut self,
        channel: HostChannel,
        engines: EngineSet,
    ) -> Result<Vec<Duration>, StepError> {
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
                if let Some(error) = events.iter().find(|event| matches!(event, GpuEvent::Stopped(_))) {
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
}
