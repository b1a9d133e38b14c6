//! A VM's GPU, as its file says: a part of one, from its aggregator, or a whole card.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::card::open_card;
use super::serve::{self, OpenTrace};
use super::{vbios, vgpu};
use crate::config::VmFile;
use crate::display::Head;
use crate::gpu::vfio::VfioFunction;
use crate::host::cancel::Cancel;
use crate::observe::log_limit;
use crate::pci::PciFunction;
use crate::trace::{Header, Tracer};
use crate::units::DriverCounters;
use crate::vgpu::Vgpu;

/// The GPU's source before the jail is put on: a card is opened, an aggregator is connected to later.
pub(super) struct Source {
    file: VmFile,
    card: Option<Arc<VfioFunction>>,
}

/// The GPU.
pub(super) enum VmGpu {
    Part { vgpu: Arc<Vgpu>, vram: u64 },
    Whole(Arc<VfioFunction>),
}

impl Source {
    /// Opens the card, if the file names one.
    pub(super) fn open(file: VmFile) -> anyhow::Result<Self> {
        let card = match &file {
            VmFile::Part(config) => {
                log_limit::set_lines_per_second(config.limits.log_lines);
                None
            }
            VmFile::Whole(config) => {
                let refused = || format!("VM `{}` cannot have its card", config.name);
                let card = open_card(config.card).with_context(refused)?;
                if let Some(path) = &config.vbios {
                    show_vbios(&card, path).with_context(refused)?;
                }
                Some(card)
            }
        };
        Ok(Self { file, card })
    }

    pub(super) fn file(&self) -> &VmFile {
        &self.file
    }

    /// The GPU; for a part of one, `wait` says how long its aggregator may take. None if the order to end
    /// came first. `path` is the file's, for messages.
    pub(super) fn gpu(
        &self,
        path: &Path,
        wait: Duration,
        cancel: &Cancel,
        tracer: &Tracer,
    ) -> anyhow::Result<Option<VmGpu>> {
        match (&self.file, &self.card) {
            (VmFile::Part(config), _) => {
                let vgpu = vgpu::admitted(config, path, wait, cancel, tracer)?;
                Ok(vgpu.map(|vgpu| VmGpu::Part { vgpu: Arc::new(vgpu), vram: config.vram }))
            }
            (VmFile::Whole(_), Some(card)) => Ok(Some(VmGpu::Whole(Arc::clone(card)))),
            (VmFile::Whole(config), None) => anyhow::bail!("{} is not open", config.card),
        }
    }
}

fn show_vbios(card: &VfioFunction, path: &Path) -> anyhow::Result<()> {
    let unfit = || format!("{} cannot be shown as its VBIOS", path.display());
    let vbios = vbios::read(path)?;
    vbios.check_device(card.device()).with_context(unfit)?;
    card.show_rom(vbios.bytes()).map_err(anyhow::Error::msg).with_context(unfit)
}

impl VmGpu {
    /// Has `tell` called, from another thread, if the GPU is a card that is taken away.
    pub(super) fn when_lost(&self, tell: impl FnOnce() + Send + 'static) {
        match self {
            // Its aggregator tells of that.
            Self::Part { .. } => {}
            Self::Whole(card) => card.when_lost(tell),
        }
    }

    /// The function that the guest is shown, whose accesses `tracer` records: from now on where a file is
    /// given for that.
    pub(super) fn traced(
        &self,
        name: &str,
        tracer: &Tracer,
        trace: Option<OpenTrace>,
    ) -> anyhow::Result<Arc<dyn PciFunction>> {
        match self {
            Self::Part { vgpu, vram } => serve::traced(Arc::clone(vgpu), (name, Some(*vram)), tracer, trace),
            Self::Whole(card) => serve::traced(Arc::clone(card), (name, None), tracer, trace),
        }
    }

    /// What its head shows, for those who look.
    pub(super) fn head(&self) -> Option<Arc<dyn Head>> {
        match self {
            Self::Part { vgpu, .. } => vgpu.head(),
            Self::Whole(_) => None,
        }
    }

    /// The part of a GPU that it is.
    pub(super) fn part(&self) -> Option<&Arc<Vgpu>> {
        match self {
            Self::Part { vgpu, .. } => Some(vgpu),
            Self::Whole(_) => None,
        }
    }

    /// Its kind, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Part { .. } => "vGPU",
            Self::Whole(_) => "Card",
        }
    }

    /// The head of traces that are recorded later.
    pub(super) fn header(&self, name: &str) -> anyhow::Result<Header> {
        let header = match self {
            Self::Part { vgpu, vram } => Header::of_function(name, Some(*vram), vgpu.as_ref()),
            Self::Whole(card) => Header::of_function(name, None, card.as_ref()),
        };
        header.context("Cannot read what the function says of itself for the heads of traces")
    }

    /// Says what it was used for.
    pub(super) fn log_end(&self) {
        match self {
            Self::Part { vgpu, .. } => {
                let status = vgpu.status();
                log::info!("vGPU ends: {}", status.counts);
                log::info!("Walks of page tables: {}", status.walks);
                let DriverCounters { face, gsp, looks } = vgpu.driver_counters();
                log::info!("Registers of note: {face}");
                log::info!("Asked of GSP: {gsp}");
                if vgpu.head().is_some() {
                    log::info!("Looked at: {looks}");
                }
            }
            Self::Whole(card) => {
                let used = card.card_use().unwrap_or_default();
                log::info!("Counts: card_reads={} card_writes={}", used.reads, used.writes);
            }
        }
    }
}
