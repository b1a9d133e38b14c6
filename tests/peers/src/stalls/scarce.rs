//! Guest memory of which there is less than was announced: a file system that is full, and a control group
//! that is at its limit.
//!
//! Both need root, to mount the one and to make the other.

use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk::addr::Gpa;
use gpuvmk::aggregator::link::LinkError;
use gpuvmk::aggregator::protocol::{GuestTarget, Request, SpaceId};
use gpuvmk_attacks::Outcome;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::Scene;
use crate::aggregator::tenant;
use crate::files;
use crate::findings::Findings;
use crate::tenant::{DATA, Tenant, VRAM_VA};

/// What is announced.
const ANNOUNCED: u64 = 64 << 20;
/// What there is of it.
const THERE: u64 = 4 << 20;
const PIECE: u64 = 1 << 20;
const GPA: u64 = 1 << 33;
const VA: u64 = 0x40_0000_0000;
/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// `SIGKILL`, which is how the kernel ends who has used up his control group's memory.
const KILLED: i32 = 9;

/// A file system in memory, taken away when dropped.
struct FileSystem(PathBuf);

impl FileSystem {
    fn mount(size: u64) -> Result<Self> {
        let place = std::env::temp_dir().join(format!("gpuvmk-full-{}", std::process::id()));
        fs::create_dir_all(&place)?;
        let system = Self(place);
        let options = CString::new(format!("size={size}"))?;
        mount("gpuvmk-full", &system.0, "tmpfs", MountFlags::empty(), Some(options.as_c_str()))
            .context("a file system in memory cannot be mounted")?;
        Ok(system)
    }

    fn file(&self, size: u64) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = rustix::fs::open(self.0.join("memory"), flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::ftruncate(&file, size)?;
        Ok(file)
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.0);
    }
}

/// True, and noted, for who is not root.
fn is_left_out(findings: &mut Findings, what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        findings.count(format!("left out: only root {what}"));
    }
    !is_root
}

fn announce(tenant: &Tenant, file: OwnedFd) -> Result<()> {
    let map = Request::DmaMap { gpa: Gpa(GPA), size: ANNOUNCED, offset: 0, writable: true };
    tenant.link.request(&map, Some(file))?;
    tenant
        .map(VA, GuestTarget::System { address: Gpa(GPA), coherent: true }, ANNOUNCED)
        .context("page tables for it")
}

/// The GPU copies to memory on a file system that has no more: that VM's vGPU fails safely, and nobody
/// else's.
pub fn full_file_system(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    if is_left_out(findings, "mounts a file system") {
        return Ok(Outcome::Quarantined);
    }
    let system = FileSystem::mount(THERE)?;
    let file = system.file(ANNOUNCED)?;
    let filled = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, THERE);
    filled.context("the file system has not even what it should have")?;
    ensure!(
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), THERE, PIECE).is_err(),
        "the file system is not full"
    );
    let mut tenant = tenant(scene, "full")?;
    announce(&tenant, file)?;
    tenant.channel(0, 0);
    tenant.list(&[0]);
    tenant.copy(0, 0, VRAM_VA + DATA, VA, PIECE);
    ensure!(tenant.finishes_within(0, PATIENCE), "a copy to what is there does not end");
    let start = Instant::now();
    tenant.copy(0, 0, VRAM_VA + DATA, VA + THERE, PIECE);
    loop {
        let asked = tenant.link.request(&Request::CreateSpace(SpaceId(1)), None);
        match asked.and_then(|()| tenant.link.request(&Request::DestroySpace(SpaceId(1)), None)) {
            Err(LinkError::Refused { kind, .. }) => {
                findings.count(format!("afterwards: refused ({kind:?})"));
                break;
            }
            Err(error) => return Err(error.into()),
            Ok(()) => {}
        }
        ensure!(start.elapsed() < PATIENCE, "memory that is not there is taken for memory");
        std::thread::sleep(Duration::from_millis(1));
    }
    while scene.goes_on() {
        std::thread::sleep(Duration::from_millis(20));
    }
    scene.keep(tenant);
    scene.keep(system);
    Ok(Outcome::Quarantined)
}

/// A control group with a limit of memory, removed when dropped.
struct Group(PathBuf);

impl Group {
    fn new(limit: u64) -> Result<Self> {
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let (root, file) = if unified {
            // Where the controller is on already, that is refused or does nothing.
            let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
            ("/sys/fs/cgroup", "memory.max")
        } else {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        };
        let group = Self(Path::new(root).join(format!("gpuvmk-attack-{}", std::process::id())));
        fs::create_dir(&group.0).with_context(|| format!("no control group {}", group.0.display()))?;
        fs::write(group.0.join(file), limit.to_string())
            .context("a control group takes no limit of memory")?;
        Ok(group)
    }

    fn take(&self, process: u32) -> Result<()> {
        Ok(fs::write(self.0.join("cgroup.procs"), process.to_string())?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process has just ended, which the kernel may not have noted yet.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The child: a tenant that fills its memory, in a control group that has not so much, while the GPU copies
/// to it.
pub fn child(scene: &mut Scene) -> Result<()> {
    println!("ready");
    // Until it is in its group.
    std::io::stdin().lines().next().context("nobody says that it goes on")??;
    let file = files::memory(ANNOUNCED)?;
    let mut tenant = tenant(scene, &format!("limited-{}", std::process::id()))?;
    announce(&tenant, file.try_clone()?)?;
    tenant.channel(0, 0);
    tenant.list(&[0]);
    for at in (0..ANNOUNCED).step_by(usize::try_from(PIECE)?) {
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), at, PIECE)?;
        tenant.copy(0, 0, VRAM_VA + DATA, VA + at, PIECE);
        // What is filled through a mapping is the control group's at once.
        let mapping = gpuvmk::pci::mapping::Mapping::of_file(
            file.as_fd(),
            at,
            PIECE,
            gpuvmk::pci::mapping::Access::ReadWrite,
        )?;
        mapping.fill(0, PIECE, 1)?;
    }
    Ok(())
}

/// Processes that use up their control group's memory in the middle of the GPU's work, and are killed for it.
pub fn at_the_limit(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    if is_left_out(findings, "makes a control group") {
        return Ok(Outcome::Values);
    }
    let group = Group::new(ANNOUNCED / 4)?;
    scene.begin();
    let mut killed = 0_u64;
    while scene.goes_on() || killed == 0 {
        let mut child = scene.child("child-at-limit", 0)?.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a child's output")?).read_line(&mut line)?;
        ensure!(line.trim() == "ready", "a child said '{line}'");
        group.take(child.id())?;
        let mut input = child.stdin.take().context("a child's input")?;
        std::io::Write::write_all(&mut input, b"go\n")?;
        let status = child.wait()?;
        findings.check(
            status.signal() == Some(KILLED),
            format!("a process beyond its control group's limit ended with {status}"),
        );
        killed += 1;
        if killed >= 100 {
            break;
        }
    }
    findings.add("killed", killed);
    Ok(Outcome::Values)
}
