//! A rehearsal: one tenant's life on the driver, with a second process that maps its window, every effect
//! checked.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use crate::bench::BenchConfig;
use crate::report::{Figure, Report, Stop};
use crate::step_error::{StepError, chain};
use crate::tenant::{PARTITION, Tenant, WINDOW_PATTERN, wrong};
use gpuvmk_chip::addr::HostVram;
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_gpu::GpuDriver;
use gpuvmk_gpu::rm::raw::{Kernel, open_driver};
use gpuvmk_gpu::rm::{RmConfig, Timeslice};
use gpuvmk_pci::mapping::{Access, FilePiece, Mapping};

pub(crate) fn rehearse(
    kernel: &Arc<dyn Kernel>,
    config: &BenchConfig,
    report: &mut Report,
) -> Result<(), Stop> {
    let rm = RmConfig {
        gpu: config.gpu.clone(),
        vram: 2 * PARTITION,
        chip: None,
        uid: None,
        timeslice: Timeslice::default(),
        paths: config.paths.clone(),
    };
    let start = Instant::now();
    let made = open_driver(kernel, &rm).map_err(StepError::from);
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
        ("copy channel 1", EngineSet::COPY1, Engine::COPY1),
        ("copy channel 2", EngineSet::COPY2, Engine::COPY2),
        ("graphics channel", EngineSet::GRAPHICS | EngineSet::COPY0, Engine::COPY0),
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
        .args(["window-child", "--size", &PARTITION.to_string()])
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
pub(crate) fn play_window_child(size: u64) -> Result<String, String> {
    let stdin = std::io::stdin();
    let piece = FilePiece { fd: stdin.as_fd(), offset: 0, size };
    let memory = Mapping::granted(&[piece], Access::ReadWrite).map_err(|error| chain(&error))?;
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
