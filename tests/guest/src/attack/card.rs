//! A GPU as a program reaches it that has no driver: its BARs and its configuration space through sysfs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::device_memory::DeviceMemory;

const DEVICES: &str = "/sys/bus/pci/devices";
const NVIDIA: u16 = 0x10de;
/// Configuration space: command register, and its bits for memory accesses and bus mastering.
const COMMAND: u64 = 0x04;
const MEMORY_AND_MASTER: u16 = 0x6;
const MASTER: u16 = 0x4;
/// Configuration space: first capability; the kind of the one for power management.
const CAPABILITIES: u64 = 0x34;
const POWER_MANAGEMENT: u8 = 0x01;
/// How long a function needs after a change of its power state.
const POWER_CHANGE: Duration = Duration::from_millis(15);

/// An NVIDIA GPU without a driver.
#[derive(Debug)]
pub struct Card {
    folder: PathBuf,
    config: File,
    pub bar0: DeviceMemory,
    pub bar1: DeviceMemory,
    pub bar3: DeviceMemory,
}

impl Card {
    /// The GPU number `gpu`, by its place on the bus. Its registers answer when this returns.
    pub fn open(gpu: usize) -> Result<Self> {
        let cards = cards()?;
        let folder =
            cards.get(gpu).with_context(|| format!("no GPU {gpu}: there are {}", cards.len()))?.clone();
        fs::write(folder.join("enable"), "1").context("cannot enable the GPU")?;
        let config = File::options().read(true).write(true).open(folder.join("config"))?;
        let bar = |number: u8| {
            let path = folder.join(format!("resource{number}"));
            DeviceMemory::map(&path).with_context(|| format!("cannot map {}", path.display()))
        };
        let card = Self { bar0: bar(0)?, bar1: bar(1)?, bar3: bar(3)?, config, folder };
        card.set_command(MEMORY_AND_MASTER)?;
        Ok(card)
    }

    /// A register; ones when the function does not answer.
    pub fn reg(&self, offset: u32) -> u32 {
        self.bar0.load32(offset as usize).unwrap_or(u32::MAX)
    }

    /// Writes a register.
    pub fn set(&self, offset: u32, value: u32) {
        // An offset beyond the BAR cannot be written by a guest.
        let _ = self.bar0.store32(offset as usize, value);
    }

    /// Function reset, as the kernel does it; memory accesses and bus mastering are on afterwards.
    pub fn reset(&self) -> Result<()> {
        self.set_command(MEMORY_AND_MASTER)?;
        fs::write(self.folder.join("reset"), "1").context("cannot reset the GPU")?;
        self.set_command(MEMORY_AND_MASTER)
    }

    /// Reads configuration space.
    pub fn config(&self, offset: u64) -> Result<u32> {
        let mut word = [0; 4];
        self.config.read_exact_at(&mut word, offset).context("cannot read configuration space")?;
        Ok(u32::from_le_bytes(word))
    }

    /// Writes two bytes of configuration space.
    pub fn set_config16(&self, offset: u64, value: u16) -> Result<()> {
        self.config.write_all_at(&value.to_le_bytes(), offset).context("cannot write configuration space")
    }

    /// Lets the function access memory, or not.
    pub fn set_bus_master(&self, on: bool) -> Result<()> {
        self.set_command(if on { MEMORY_AND_MASTER } else { MEMORY_AND_MASTER & !MASTER })
    }

    /// Power state D3 and back to D0.
    pub fn sleep_and_wake(&self) -> Result<()> {
        let mut at = self.config(CAPABILITIES)? & 0xff;
        while at != 0 {
            let header = self.config(u64::from(at))?.to_le_bytes();
            if header[0] == POWER_MANAGEMENT {
                for state in [3, 0] {
                    self.set_config16(u64::from(at) + 4, state)?;
                    thread::sleep(POWER_CHANGE);
                }
                return self.set_command(MEMORY_AND_MASTER);
            }
            at = u32::from(header[1]);
        }
        ensure!(at != 0, "the GPU has no power states");
        Ok(())
    }

    /// Where the BAR number `bar` lies on the bus.
    pub fn bar_address(&self, bar: usize) -> Result<u64> {
        let text =
            fs::read_to_string(self.folder.join("resource")).context("cannot read the GPU's resources")?;
        let line = text.lines().nth(bar).context("the GPU has no such BAR")?;
        let start = line.split_whitespace().next().and_then(|word| word.strip_prefix("0x"));
        Ok(u64::from_str_radix(start.context("the GPU's resources are not as expected")?, 16)?)
    }

    fn set_command(&self, value: u16) -> Result<()> {
        self.set_config16(COMMAND, value)
    }
}

/// The folders of all NVIDIA GPUs, in the order of the bus.
fn cards() -> Result<Vec<PathBuf>> {
    let is_card = |folder: &Path| hex(&folder.join("vendor")) == Some(NVIDIA.into());
    let mut found: Vec<PathBuf> = fs::read_dir(DEVICES)
        .context("there is no PCI bus")?
        .flatten()
        .map(|entry| entry.path())
        .filter(|folder| is_card(folder))
        .collect();
    found.sort();
    Ok(found)
}

fn hex(path: &Path) -> Option<u32> {
    u32::from_str_radix(fs::read_to_string(path).ok()?.trim().strip_prefix("0x")?, 16).ok()
}
