//! 36 more VMs on the same GPU, started and stopped in random order.
//!
//! Each has a device backend of its own; all 36 are tenants at once. Their QEMUs run firmware without a
//! kernel, so that a small machine can hold them: at most [`QEMUS`] at a time, each connected to its backend,
//! idle, and then killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use gpuvmk_lab::daemons::{Daemon, listens};
use gpuvmk_lab::machine::{self, fits_socket_address, no_migration};
use gpuvmk_lab::process::{Priority, Process};
use serde_json::json;

use super::stage::{CASE, Stage};
use crate::attack::judge::Told;

const VMS: usize = 36;
const QEMUS: usize = 8;
/// How long a backend may take to listen, and QEMU to be connected.
const PATIENCE: Duration = Duration::from_secs(20);
/// A QEMU that uses next to no processor for so long is at rest.
const REST: Duration = Duration::from_millis(100);

/// One of the VMs.
#[derive(Debug)]
struct Vm {
    qemu: Option<Process>,
    device: Daemon,
}

/// An order that looks random and is the same in each run.
fn shuffled(count: usize, seed: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|number| (number + 1).wrapping_mul(seed) % 101);
    order
}

pub fn start_and_stop(stage: &mut Stage<'_>) -> Result<Told> {
    let mut vms: Vec<Option<Vm>> = (0..VMS).map(|_| None).collect();
    // Each time its own: to cut files off that are there already waits for the disk, seconds at times, and
    // the victim is watched.
    let folder = (0..)
        .map(|round| stage.workshop.folder(CASE).join(format!("vms-{round}")))
        .find(|folder| !folder.exists());
    let folder = folder.context("There is no free folder")?;
    let mut running = Vec::new();
    let (mut starts, mut stops) = (0, 0);
    for number in shuffled(VMS, 37) {
        let mut vm = start(stage, &folder, number)?;
        let qemu = qemu(stage, &folder, number)?;
        wait_connected(stage, &mut vm)?;
        wait_at_rest(stage, &qemu)?;
        vm.qemu = Some(qemu);
        starts += 1;
        if let Some(place) = vms.get_mut(number) {
            *place = Some(vm);
        }
        running.push(number);
        // One of those that run goes, and its backend stays.
        if running.len() > QEMUS {
            let gone = running.remove((number * 7) % QEMUS);
            let qemu = vms.get_mut(gone).and_then(Option::as_mut).and_then(|vm| vm.qemu.take());
            if let Some(mut qemu) = qemu {
                beside(stage, move || qemu.kill().map(drop))?;
            }
        }
        // Every sixth time, one goes altogether and comes again.
        if starts % 6 == 0
            && let Some(again) = running.first().copied()
        {
            running.remove(0);
            stop(stage, vms.get_mut(again).and_then(Option::take))?;
            stops += 1;
            if let Some(place) = vms.get_mut(again) {
                *place = Some(start(stage, &folder, again)?);
            }
            starts += 1;
        }
    }
    // A backend listens before it is admitted.
    let mut tenants = 0;
    let all = stage.wait(PATIENCE, |stage| {
        tenants = stage.rig.tenants()?.len();
        Ok(tenants == VMS + 2)
    })?;
    ensure!(all.is_some(), "{tenants} tenants are there instead of {}", VMS + 2);
    for number in shuffled(VMS, 59) {
        stop(stage, vms.get_mut(number).and_then(Option::take))?;
        stops += 1;
    }
    Ok(Told {
        outcome: Some("V".into()),
        seen: format!("{VMS} at once, {starts} started, {stops} stopped"),
        ..Told::default()
    })
}

fn name(number: usize) -> String {
    format!("more-{number}")
}

fn socket(stage: &Stage<'_>, number: usize) -> PathBuf {
    stage.rig.socket_folder().join(format!("{}.sock", name(number)))
}

/// A device backend that listens.
fn start(stage: &mut Stage<'_>, folder: &Path, number: usize) -> Result<Vm> {
    fs::create_dir_all(folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    let name = name(number);
    let path = folder.join(format!("{name}.toml"));
    let quoted = |path: &Path| serde_json::Value::from(path.to_string_lossy()).to_string();
    let socket = socket(stage, number);
    let text = format!(
        "name = \"{name}\"\ngpu = {}\nchip = \"{}\"\nvram = \"32M\"\nchannels = 2\n\n[socket]\npath = {}\n",
        quoted(&stage.aggregator_socket()),
        stage.chip,
        quoted(&socket)
    );
    fs::write(&path, text).with_context(|| format!("Cannot write {}", path.display()))?;
    let path = path.to_string_lossy().into_owned();
    let arguments = ["device", &path];
    let mut device =
        Daemon::start_lower(stage.workshop.gpuvmk(), &arguments, folder, &name, Priority::Lower)?;
    stage.put_aside(device.process().id())?;
    let listening = stage.wait(PATIENCE, |_| {
        ensure!(device.runs()?, "{name} ended: {}", device.last_words());
        Ok(listens(&socket))
    })?;
    listening.with_context(|| format!("{name} does not listen"))?;
    Ok(Vm { qemu: None, device })
}

/// A QEMU with firmware and no kernel, in front of a backend.
fn qemu(stage: &Stage<'_>, folder: &Path, number: usize) -> Result<Process> {
    let socket = socket(stage, number);
    ensure!(fits_socket_address(&socket), "The socket path {} is too long", socket.display());
    let mut command = stage.workshop.qemu().command()?;
    command.args(["-accel", "tcg", "-machine", "q35,memory-backend=mem", "-nodefaults", "-m", "32M"]);
    command.args([
        "-object",
        "memory-backend-memfd,id=mem,size=32M,share=on",
        "-display",
        "none",
        "-vga",
        "none",
    ]);
    let device = json!({
        "driver": "vfio-user-pci",
        "id": "gpu0",
        "socket": { "type": "unix", "path": socket },
    });
    command.arg("-device").arg(device.to_string()).arg("-blockdev").arg(no_migration(&socket));
    let log = fs::File::create(folder.join(format!("{}-qemu.log", name(number))))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let process = Process::start_lower(command, &format!("QEMU of {}", name(number)), Priority::Lower)?;
    stage.put_aside(process.id())?;
    Ok(process)
}

/// Waits until the backend says that a client has come.
fn wait_connected(stage: &mut Stage<'_>, vm: &mut Vm) -> Result<()> {
    let waited = stage.wait(PATIENCE, |_| {
        ensure!(vm.device.runs()?, "a backend ended: {}", vm.device.last_words());
        Ok(vm.device.log().contains("Client connected"))
    })?;
    waited.map(|_| ()).context("QEMU does not connect")
}

/// Waits until QEMU's firmware has found nothing to start. How many processes want a processor at a time says
/// how much of it the victim's side keeps, whatever the GPU does; undisturbed, the victim is watched beside
/// one.
fn wait_at_rest(stage: &mut Stage<'_>, qemu: &Process) -> Result<()> {
    let (mut looked, mut used) = (Instant::now(), qemu.cpu_time());
    let waited = stage.wait(PATIENCE, |_| {
        let time = looked.elapsed();
        if time < REST {
            return Ok(false);
        }
        let before = std::mem::replace(&mut used, qemu.cpu_time());
        looked = Instant::now();
        Ok(used.saturating_sub(before) * 20 < time)
    })?;
    waited.map(|_| ()).context("QEMU's firmware does not come to rest")
}

/// Ends QEMU and the backend, which must end in order.
fn stop(stage: &mut Stage<'_>, vm: Option<Vm>) -> Result<()> {
    let Some(mut vm) = vm else { return Ok(()) };
    beside(stage, move || {
        drop(vm.qemu.take());
        match vm.device.stop()? {
            None => Ok(()),
            Some(problem) => anyhow::bail!("{problem}"),
        }
    })
}

/// Does what waits for a process's end, which takes the kernel seconds at times, and listens to the victim
/// meanwhile: what it is not heard to say for so long would count as standing still.
fn beside(stage: &mut Stage<'_>, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let work = thread::spawn(work);
    while !work.is_finished() {
        stage.pump()?;
        thread::sleep(machine::LOOK);
    }
    work.join().map_err(|_| anyhow!("The thread that waits for a process's end panicked"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vm_comes_once_in_either_order() {
        for seed in [37, 59] {
            let mut order = shuffled(VMS, seed);
            assert!(!order.is_sorted());
            order.sort_unstable();
            assert_eq!(order, (0..VMS).collect::<Vec<_>>());
        }
    }
}
