//! `gpuvmk trace replay FILE`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::aggregator::DEFAULT_CHANNELS;
use crate::aggregator::protocol::{Hello, PROTOCOL_VERSION, TenantLimits};
use crate::aggregator::{Config, Service, ServiceHandle, connect_in_process};
use crate::chip::{Chip as Model, Face};
use crate::cli::output::print;
use crate::gpu::GpuDriver;
use crate::gpu::register::RegisterDriver;
use crate::host::size::parse_size;
use crate::pci::PciFunction;
use crate::scheduler::policy::PolicyKind;
use crate::scheduler::share::Share;
use crate::softgpu::executor::{Executor, ExecutorConfig};
use crate::softgpu::{SoftGpu, SoftGpuConfig};
use crate::trace::replay::{Outcome, Replay};
use crate::trace::{Access, Event, Filter, text};
use crate::vgpu::{Vgpu, VgpuConfig};
use gpuvmk_trace_tools::input::{Chip, each, open};

/// Arguments of `gpuvmk trace replay`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuvmk trace replay vm1.trace\n  gpuvmk trace replay --on softgpu --leave-out unit=PFSP softgpu.trace\n\n\
                  A trace from the start of a device (trace.path of a VM's file, or --trace of softgpu) is played into a new one, and\n\
                  what is read now is compared with what was read then; the first differences are shown. Times of the clock are not\n\
                  compared. A guest's memory is not in its trace: work that engines fetch from there does nothing. The exit status is 0\n\
                  if there is no difference and 1 if there is one."
)]
pub(super) struct Args {
    /// The trace; `-` is standard input.
    file: PathBuf,
    /// The device that it is played into.
    #[arg(long, value_enum, default_value_t = On::Vgpu)]
    on: On,
    /// VRAM of that [default: what the trace says that its device had, or 256M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    vram: Option<u64>,
    /// Do not compare these, as `gpuvmk trace filter` would choose them; may be repeated: all conditions must
    /// hold.
    #[arg(long, value_name = "CONDITION")]
    leave_out: Vec<String>,
    /// Play only so many entries, from the first on.
    #[arg(long, value_name = "N")]
    entries: Option<u64>,
    /// How many differences to show.
    #[arg(long, default_value_t = 10)]
    most: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    /// A vGPU, on a software GPU that it has to itself.
    Vgpu,
    /// The software GPU itself (GF100).
    Softgpu,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("`{text}` is not a size such as 256M"))
}

/// Offsets of clocks in BAR0: NV_PTIMER_TIME_0 and _1, which every chip has there, and a GH100's
/// NV_VIRTUAL_FUNCTION_TIME_0 and _1.
const CLOCKS: [u64; 4] = [0x9400, 0x9410, 0xbb_0080, 0xbb_0084];

/// VRAM of a device whose trace does not say how much it had, in bytes.
const VRAM: u64 = 256 << 20;

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let trace = open(&args.file)?;
    let chip = Chip::of(trace.header());
    let name = trace.header().chip.clone().unwrap_or_default();
    let Some(model) = Model::by_name(&name) else {
        let known = Model::ALL.iter().map(|model| model.name()).collect::<Vec<_>>().join(", ");
        bail!("{}: its chip is `{name}`; a trace of one of these can be played: {known}", args.file.display())
    };
    let filter = (!args.leave_out.is_empty())
        .then(|| Filter::parse(args.leave_out.iter().map(String::as_str), chip.0))
        .transpose()?;
    let left_out = |access: &Access| {
        let clock = access.place == crate::trace::Place::Region(crate::pci::Region::Bar(0))
            && CLOCKS.contains(&access.offset);
        clock || filter.as_ref().is_some_and(|filter| filter.wants(&Event::Access(*access)))
    };
    let vram = args.vram.or(trace.header().vram).unwrap_or(VRAM);
    // The service goes last.
    let (_service, function) = function(args.on, vram, model)?;
    let mut replay = Replay::new(&*function, &left_out, args.most);
    let read = each(trace, &args.file, |entry| {
        let more = args.entries.is_none_or(|most| replay.played() < most);
        if more {
            replay.step(&entry);
        }
        Ok(more)
    });
    let outcome = replay.finish();
    if args.json {
        print(&format!("{}\n", to_json(&outcome, &chip)))?;
    } else {
        print(&describe(&outcome, &chip))?;
    }
    read?;
    Ok(if outcome.differing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A device as after power-on, and what serves it.
fn function(
    on: On,
    vram: u64,
    model: Model,
) -> anyhow::Result<(Option<ServiceHandle>, Arc<dyn PciFunction>)> {
    if on == On::Softgpu {
        if model != Model::GF100 {
            bail!("{model} has no registers of its own on the software GPU: replay its trace on a vGPU");
        }
        let gpu = SoftGpu::new(SoftGpuConfig { vram, ..SoftGpuConfig::default() })
            .context("Cannot make the software GPU")?;
        return Ok((None, gpu));
    }
    // Beside the vGPU's memory the host needs some.
    let all = vram.saturating_add(64 << 20);
    let driver: Box<dyn GpuDriver> = match model.face {
        Face::Registers => {
            let gpu = SoftGpu::new(SoftGpuConfig { vram: all, ..SoftGpuConfig::default() })
                .context("Cannot make the software GPU")?;
            Box::new(RegisterDriver::new(gpu).context("Cannot bring the GPU up")?)
        }
        Face::Gsp => Box::new(
            Executor::new(ExecutorConfig { vram: all, ..ExecutorConfig::default() })
                .context("Cannot make the software GPU")?,
        ),
    };
    let config = Config::in_process(PolicyKind::Fifo);
    let service = Service::start(driver, None, &config).context("Cannot serve the GPU")?;
    let hello = Hello {
        version: PROTOCOL_VERSION,
        name: "replay".to_owned(),
        chip: model.into(),
        vram,
        channels: DEFAULT_CHANNELS,
        share: Share::default(),
        limits: TenantLimits::default(),
    };
    let (link, grant) = connect_in_process(&service, hello).context("Cannot have a vGPU")?;
    let config = VgpuConfig::of(model).context("Cannot make the vGPU")?;
    let vgpu = Vgpu::new(link, grant, config).context("Cannot make the vGPU")?;
    Ok((Some(service), Arc::new(vgpu)))
}

fn describe(outcome: &Outcome, chip: &Chip) -> String {
    let mut lines = vec![format!(
        "{} entries: {} reads compared, {} polls, {} not compared; {} writes; {} refused, {} in no region",
        outcome.entries,
        outcome.reads,
        outcome.polls,
        outcome.left_out,
        outcome.writes,
        outcome.refused,
        outcome.unknown
    )];
    for one in &outcome.first {
        let mut line = Vec::new();
        let entry = crate::trace::Entry { nanos: one.nanos, event: Event::Access(one.access) };
        text::line(&entry, &chip.0, &mut line);
        let then = String::from_utf8_lossy(&line).trim_end().to_owned();
        let now = one.got.map_or_else(|| "refused".to_owned(), |got| format!("{got:#x}"));
        lines.push(format!("entry {}: {then}\n  now {now}", one.number));
    }
    lines.push(match outcome.differing {
        0 => "no difference".to_owned(),
        count => format!("{count} reads differ"),
    });
    lines.join("\n") + "\n"
}

fn to_json(outcome: &Outcome, chip: &Chip) -> Value {
    let first = outcome.first.iter().map(|one| {
        json!({
            "entry": one.number, "ns": one.nanos, "place": text::place(one.access.place), "offset": one.access.offset,
            "size": one.access.size, "then": one.access.value, "now": one.got,
            "name": text::register(&one.access, &chip.0).map(|(definition, _)| definition.name),
        })
    });
    json!({
        "ok": outcome.differing == 0, "entries": outcome.entries, "reads": outcome.reads, "polls": outcome.polls,
        "left_out": outcome.left_out, "writes": outcome.writes, "refused": outcome.refused,
        "unknown": outcome.unknown, "differing": outcome.differing, "differences": first.collect::<Vec<_>>(),
    })
}
