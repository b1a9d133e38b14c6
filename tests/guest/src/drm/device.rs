//! The DRM device node of one GPU.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use super::abi::{self, GetParam, Parameter};
use crate::sys::{self, Direction, IoctlArgument};

/// An open render node. Clones share the one open file, and with it one GPU address space.
#[derive(Debug, Clone)]
pub struct Device {
    file: Arc<File>,
}

/// The render nodes that nouveau serves, in order.
pub fn render_nodes() -> Vec<PathBuf> {
    let mut nodes: Vec<PathBuf> = fs::read_dir("/sys/class/drm")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("renderD"))
        .filter(|entry| driver_of(&entry.path()).as_deref() == Some("nouveau"))
        .map(|entry| Path::new("/dev/dri").join(entry.file_name()))
        .collect();
    nodes.sort();
    nodes
}

fn driver_of(class_entry: &Path) -> Option<String> {
    let link = fs::read_link(class_entry.join("device/driver")).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

impl Device {
    /// Opens the render node of the GPU number `gpu`.
    pub fn open(gpu: usize) -> Result<Self> {
        let nodes = render_nodes();
        ensure!(!nodes.is_empty(), "no device: nouveau serves no render node");
        let path = nodes.get(gpu).with_context(|| format!("no GPU {gpu}: there are {}", nodes.len()))?;
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self { file: Arc::new(file) })
    }

    /// The open node, for mappings.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// One ioctl; the error says which.
    pub(super) fn ioctl<T: IoctlArgument>(
        &self,
        what: &'static str,
        direction: Direction,
        number: u64,
        argument: &mut T,
    ) -> Result<()> {
        sys::drm_ioctl(&self.file, direction, number, argument).context(what)
    }

    /// A parameter of the driver.
    pub fn parameter(&self, parameter: Parameter) -> Result<u64> {
        let mut argument = GetParam { param: parameter as u64, value: 0 };
        self.ioctl("GETPARAM", Direction::ReadWrite, abi::GETPARAM, &mut argument)?;
        Ok(argument.value)
    }

    /// The driver's version.
    pub fn version(&self) -> Result<String> {
        let (major, minor, patch) = sys::drm_version(&self.file).context("VERSION")?;
        Ok(format!("{major}.{minor}.{patch}"))
    }
}
