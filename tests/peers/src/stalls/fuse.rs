//! Files whose every operation waits for a process that does not answer: a file system in user space (FUSE),
//! served here.
//!
//! Needs root, to mount it. Format of the messages: `linux/fuse.h`.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use gpuvmk::addr::Gpa;
use gpuvmk::aggregator::protocol::Request;
use gpuvmk_attacks::Outcome;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::Scene;
use crate::findings::Findings;
use crate::raw::{Raw, encoded};

/// Operations that are answered.
mod operation {
    pub const LOOKUP: u32 = 1;
    pub const GETATTR: u32 = 3;
    pub const OPEN: u32 = 14;
    pub const INIT: u32 = 26;
}
const HEADER: usize = 40;
const ROOT: u64 = 1;
const FILE: u64 = 2;
const SIZE: u64 = 1 << 30;
const DIRECTORY: u32 = 0o040_755;
const REGULAR: u32 = 0o100_666;
const ENOSYS: i32 = -38;
/// Attributes are known for a moment only.
const VALID_SECONDS: u64 = 0;

/// A mounted file system; it answers until it is told not to, and is taken away when dropped.
struct FileSystem {
    place: PathBuf,
    /// Its end ends all that waits.
    device: Option<OwnedFd>,
    deaf: Arc<AtomicBool>,
}

impl FileSystem {
    fn mount(name: &str) -> Result<Self> {
        let device: OwnedFd = File::options().read(true).write(true).open("/dev/fuse")?.into();
        let place = std::env::temp_dir().join(format!("gpuvmk-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place)?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = std::ffi::CString::new(options)?;
        mount("gpuvmk", &place, "fuse", MountFlags::empty(), Some(options.as_c_str()))
            .context("a file system in user space cannot be mounted")?;
        let deaf = Arc::new(AtomicBool::new(false));
        let (server, told) = (File::from(device.try_clone()?), Arc::clone(&deaf));
        std::thread::spawn(move || serve(server, &told));
        Ok(Self { place, device: Some(device), deaf })
    }

    fn open(&self) -> Result<File> {
        Ok(File::options().read(true).write(true).open(self.place.join("memory"))?)
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        // All who wait get an error then.
        let _ = unmount(&self.place, UnmountFlags::DETACH | UnmountFlags::FORCE);
        self.deaf.store(false, Ordering::Relaxed);
        self.device = None;
        let _ = std::fs::remove_dir(&self.place);
    }
}

/// Answers what it must until it is deaf.
fn serve(mut device: File, deaf: &AtomicBool) {
    let mut message = vec![0; 0x2_1000];
    while let Ok(length) = device.read(&mut message) {
        let Some(header) = message.get(..HEADER.min(length)).filter(|header| header.len() == HEADER) else {
            continue;
        };
        let word = |at: usize| {
            header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
        };
        let long = |at: usize| {
            header.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
        };
        if deaf.load(Ordering::Relaxed) {
            continue;
        }
        let (unique, node) = (long(8), long(16));
        let (error, body) = match word(4) {
            operation::INIT => (0, init()),
            operation::LOOKUP => (0, entry()),
            operation::GETATTR => (0, [&[0; 16][..], &attributes(node)].concat()),
            operation::OPEN => (0, vec![0; 16]),
            _ => (ENOSYS, Vec::new()),
        };
        let size = u32::try_from(16 + body.len()).unwrap_or(16);
        let answer = [&size.to_ne_bytes()[..], &error.to_ne_bytes(), &unique.to_ne_bytes(), &body].concat();
        // Forgetting has no answer, which the kernel says.
        let _ = device.write(&answer);
    }
}

fn init() -> Vec<u8> {
    let words = [7_u32, 31, 0x2_0000, 0, 0, 0x2_0000, 1, 0];
    let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    body.resize(64, 0);
    body
}

fn entry() -> Vec<u8> {
    let mut body: Vec<u8> =
        [FILE, 1, VALID_SECONDS, VALID_SECONDS, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    body.extend(attributes(FILE));
    body
}

fn attributes(node: u64) -> Vec<u8> {
    let (mode, size) = if node == ROOT { (DIRECTORY, 0) } else { (REGULAR, SIZE) };
    let longs = [node, size, size / 512, 0, 0, 0];
    let words = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
    let longs = longs.iter().flat_map(|long: &u64| long.to_ne_bytes());
    longs.chain(words.iter().flat_map(|word: &u32| word.to_ne_bytes())).collect()
}

/// Such a file as guest memory and as what sends messages, and in a stranger's first message.
pub fn files_that_nobody_serves(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    if !rustix::process::geteuid().is_root() {
        findings.count("left out: only root mounts such a file system");
        return Ok(Outcome::Refused);
    }
    let system = FileSystem::mount("fuse")?;
    let map = encoded(&Request::DmaMap { gpa: Gpa(1 << 33), size: 0x1000, offset: 0, writable: true });
    let message = encoded(&Request::MessageEvent { given: true });
    let mut peers = Vec::new();
    for (number, request) in [&map, &message, &map].into_iter().enumerate() {
        let file = system.open()?;
        let raw = match number {
            0 | 1 => Raw::joined(&scene.aggregator, &format!("fuse-{number}"))?,
            _ => Raw::connect(&scene.aggregator)?,
        };
        peers.push((raw, request, file));
    }
    system.deaf.store(true, Ordering::Relaxed);
    scene.begin();
    for (raw, request, file) in peers {
        let sent = raw.send(request, &[file.as_fd()])?;
        findings.count(if sent == Some(true) { "given away" } else { "not taken" });
        // The kernel asks the file system at each close, here too.
        std::thread::spawn(move || drop(file));
        scene.keep(raw);
    }
    while scene.goes_on() {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(system);
    Ok(Outcome::Refused)
}
