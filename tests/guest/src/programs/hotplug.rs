//! `hotplug`: the host plugs in other monitors, and none, while the driver works. Nobody asks the driver to
//! look: what its connector says in sysfs changes because it was told.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::stage::Stage;
use super::{Figures, Options};
use crate::drm::{Layout, Screen};
use crate::{pattern, stats};

/// How long the driver may take to notice.
const NOTICE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);
/// Monitors one after another; none: none.
const MONITORS: [Option<&str>; 4] = [Some("1024x768"), None, Some("800x600"), Some("640x480")];

pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    let connector = Connector::of(gpu)?;
    let mut stage = Stage::open()?;
    let mut slowest: f64 = 0.0;
    ensure!(connector.monitor()?.is_some(), "no monitor is plugged in at first");
    for (seed, monitor) in (500u32..).zip(MONITORS) {
        let setting = format!("display={}", monitor.unwrap_or("off"));
        let start = Instant::now();
        stage.ask("wants", json!({ "settings": [setting] }), "done")?;
        connector.wait(monitor)?;
        slowest = slowest.max(start.elapsed().as_secs_f64() * 1e3);
        if let Some(size) = monitor {
            show(gpu, size, seed, &mut stage).with_context(|| format!("with a monitor of {size}"))?;
        }
    }
    let mut figures = Figures::new();
    figures.insert("monitors".into(), MONITORS.len().into());
    figures.insert("slowest_ms".into(), stats::round(slowest).into());
    Ok(figures)
}

/// The size that comes first in what describes a monitor: of each side the lower eight bits, and upper four
/// elsewhere.
fn preferred(edid: &[u8]) -> Option<String> {
    let timing: &[u8; 18] = edid.get(54..)?.first_chunk()?;
    let side = |low: usize, high: usize| u16::from(timing[low]) | u16::from(timing[high] >> 4) << 8;
    Some(format!("{}x{}", side(2, 4), side(5, 7)))
}

/// Shows a picture in the mode that the monitor prefers.
fn show(gpu: usize, size: &str, seed: u32, stage: &mut Stage) -> Result<()> {
    let screen = Screen::open(gpu)?;
    let mode = *screen.modes.first().context("there are no modes")?;
    let (width, height) = (mode.hdisplay, mode.vdisplay);
    ensure!(format!("{width}x{height}") == size, "it prefers {width}x{height}");
    let bytes = pattern::bytes(seed, 0, usize::from(width) * usize::from(height) * 4);
    let picture =
        screen.framebuffer((width, height), u32::from_le_bytes(*b"XR24"), Layout::Linear, &bytes)?;
    picture.show(mode)?;
    stage.show(json!({ "width": width, "height": height, "format": "XR24", "seed": seed }))
}

/// What the driver says of its connector without being asked to look.
struct Connector(PathBuf);

impl Connector {
    fn of(gpu: usize) -> Result<Self> {
        let name = format!("card{gpu}-");
        let all = fs::read_dir("/sys/class/drm").context("cannot read /sys/class/drm")?.flatten();
        let own = all
            .map(|entry| entry.path())
            .find(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name)));
        own.map(Self).with_context(|| format!("card {gpu} has no connector"))
    }

    /// The mode that the monitor prefers; none: none is plugged in. (The list of modes there is no help: the
    /// kernel's console has it made for its own size.)
    fn monitor(&self) -> Result<Option<String>> {
        let read = |name: &str| {
            fs::read(self.0.join(name)).with_context(|| format!("cannot read the connector's {name}"))
        };
        match String::from_utf8_lossy(&read("status")?).trim() {
            "connected" => Ok(preferred(&read("edid")?)),
            "disconnected" => Ok(None),
            other => bail!("the connector is '{other}'"),
        }
    }

    fn wait(&self, wanted: Option<&str>) -> Result<()> {
        let start = Instant::now();
        loop {
            let found = self.monitor()?;
            if found.as_deref() == wanted {
                return Ok(());
            }
            ensure!(start.elapsed() < NOTICE, "the driver has {found:?}, not {wanted:?}");
            thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_size_is_that_of_the_first_timing() {
        let mut edid = [0; 128];
        edid[54..62].copy_from_slice(&[0x9e, 0x1b, 0x00, 0xa0, 0x50, 0x20, 0x17, 0x30]);
        assert_eq!(preferred(&edid).as_deref(), Some("1280x800"));
        assert_eq!(preferred(&edid[..60]), None);
    }
}
