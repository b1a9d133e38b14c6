//! The desired state: what a folder of configuration files wants to run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};

use crate::aggregator::machine::guests::GuestList;
use crate::cli::aggregator::guests;
use crate::config::{AnyConfig, GpuConfig, VmConfig, VmFile, files};
use crate::host::size::show_size;
use crate::scheduler::share::Share;

/// A GPU and the VMs that are to share it, with their files.
#[derive(Debug)]
pub(super) struct DesiredState {
    pub file: PathBuf,
    pub gpu: GpuConfig,
    pub control: PathBuf,
    /// Those who may come, if the GPU's file says.
    pub guests: Option<GuestList>,
    pub vms: Vec<(PathBuf, VmConfig)>,
}

/// Reads all configuration files of a folder, each of which must be right. GPUs and VMs come in the order of
/// their files' names.
pub(super) fn read(folder: &Path) -> anyhow::Result<Vec<DesiredState>> {
    let (mut desired, mut vms) = (Vec::new(), Vec::new());
    for file in files(folder)? {
        match AnyConfig::load(&file)? {
            AnyConfig::Gpu(gpu) => {
                let Some(control) = gpu.control.as_ref().map(|control| control.path.clone()) else {
                    bail!("{}: has no [control] section, so nobody can ask what runs on it", file.display());
                };
                let guests = guests(&gpu, &file)?;
                desired.push(DesiredState { file, gpu, control, guests, vms: Vec::new() });
            }
            AnyConfig::Vm(VmFile::Part(vm)) => vms.push((file, vm)),
            AnyConfig::Vm(VmFile::Whole(_)) => bail!(
                "{}: has the key `card`: a VM with a whole card shares no GPU; start it by itself, and keep its file elsewhere",
                file.display()
            ),
        }
    }
    ensure!(!desired.is_empty(), "{} has no GPU's file (one with the key `backend`)", folder.display());
    for (file, vm) in vms {
        let Some(desired) = desired.iter_mut().find(|desired| desired.gpu.socket.path == vm.gpu) else {
            let sockets: Vec<_> =
                desired.iter().map(|desired| desired.gpu.socket.path.display().to_string()).collect();
            bail!(
                "{}: `gpu` is {}, where no GPU of this folder serves; there are {}",
                file.display(),
                vm.gpu.display(),
                sockets.join(", ")
            );
        };
        if let Some((other, _)) = desired.vms.iter().find(|(_, other)| other.name == vm.name) {
            bail!("{}: `name` is {}, which {} has already", file.display(), vm.name, other.display());
        }
        let mut vm = vm;
        if let Some(guests) = &desired.guests {
            vm.share = allowed(guests, &vm)
                .map_err(|why| anyhow!("{}: {why} of {}", file.display(), desired.file.display()))?;
        }
        desired.vms.push((file, vm));
    }
    Ok(desired)
}

/// The share of a VM by the list of its GPU's file, or what of it the list does not allow; the text goes on
/// with the file.
fn allowed(guests: &GuestList, vm: &VmConfig) -> Result<Share, String> {
    let name = &vm.name;
    let Some(guest) = guests.get(name) else {
        return Err(format!("{name} may not come: no [[vm]] section of that name is among those"));
    };
    if vm.vram > guest.vram {
        let (asked, most) = (show_size(vm.vram), show_size(guest.vram));
        return Err(format!("`vram` is {asked}, more than the {most} in the [[vm]] section"));
    }
    if vm.channels > guest.channels {
        let most = guest.channels;
        return Err(format!("`channels` is {}, more than the {most} in the [[vm]] section", vm.channels));
    }
    guest.share.within(vm.share).map_err(|rejection| format!("{rejection} in the [[vm]] section"))
}

/// A key of `gpuvmk set`, with its value in the form of the status; `None` where it is not set.
pub(super) type Setting = (&'static str, Option<u64>);

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A VM's part of the GPU. A fixed part that the file does not name is the aggregator's to choose.
pub(super) fn share(vm: &VmConfig) -> Vec<Setting> {
    let share = vm.share;
    let mut settings = vec![
        ("weight", Some(share.weight.into())),
        ("cap", share.cap.map(u64::from)),
        ("period", Some(micros(share.period))),
        ("budget", Some(micros(share.budget))),
    ];
    settings.extend(share.fixed.map(|fixed| ("fixed", Some(u64::from(fixed)))));
    settings
}

/// The settings of a GPU's policy.
pub(super) fn policy(gpu: &GpuConfig) -> [Setting; 2] {
    [("slice", gpu.settings.slice.map(micros)), ("period", gpu.settings.period.map(micros))]
}
