//! All measurements in order, on one GPU that is opened for them.
//!
//! A measurement that fails is told, and the next one is made. A call that the driver refuses ends the run:
//! whoever reads the report decides what that means.

use std::sync::Arc;

use gpuvmk_chip::Chip;
use gpuvmk_gpu::rm::raw::{Device, DeviceFacts, Doorbell, EngineTable, Kernel, open_device, open_kernel};
use gpuvmk_gpu::rm::{HostPaths, OpenError};

use crate::report::{Report, Stop};
use crate::{figures, rehearsal, residue};

/// How to measure.
#[derive(Clone, Debug)]
pub(crate) struct BenchConfig {
    /// PCI address; none: the only one.
    pub(crate) gpu: Option<String>,
    /// User to become first.
    pub(crate) uid: Option<u32>,
    /// Also rehearse the driver, with this program as the second process.
    pub(crate) rehearse: bool,
    /// Also look for what contexts find of each other's, with a rehearsal.
    pub(crate) residue: bool,
    /// Where the host shows its driver.
    pub(crate) paths: HostPaths,
}

/// What measurements share.
pub(crate) struct Bench {
    pub(crate) device: Device,
    pub(crate) chip: Chip,
    pub(crate) doorbell: Arc<Doorbell>,
    pub(crate) table: EngineTable,
}

/// Measures.
///
/// # Errors
/// The GPU cannot be taken at all.
pub(crate) fn run(config: &BenchConfig) -> Result<Report, OpenError> {
    let opened = open_kernel(&config.paths, config.uid)?;
    let (mut device, facts, table, chip) = open_device(&opened.kernel, &config.paths, config.gpu.as_deref())?;
    let kernel = opened.for_good()?;
    let DeviceFacts { address, name, .. } = facts;
    let doorbell = Arc::new(device.doorbell(chip)?);
    let mut report = Report {
        driver: config.paths.driver().version().unwrap_or_default().to_owned(),
        address,
        name,
        copy_engines: table.copy,
        uid: rustix::process::geteuid().as_raw(),
        figures: Vec::new(),
        looks: Vec::new(),
        not_told: Vec::new(),
        passed: Vec::new(),
        failed: Vec::new(),
        refused: false,
    };
    let mut bench = Bench { device, chip, doorbell, table };
    let _: Result<(), Stop> = all(&mut bench, &kernel, config, &mut report);
    Ok(report)
}

fn all(
    bench: &mut Bench,
    kernel: &Arc<dyn Kernel>,
    config: &BenchConfig,
    report: &mut Report,
) -> Result<(), Stop> {
    figures::measure(bench, report)?;
    if config.residue {
        let outcome = residue::shared_memory(bench, report);
        report.note("shared memory of other contexts", outcome)?;
    }
    if config.rehearse || config.residue {
        rehearsal::rehearse(kernel, config, report)?;
    }
    Ok(())
}
