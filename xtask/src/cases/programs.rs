//! What guests of the cases run.

use gpuvmk_chip::Face;
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::kernel::KernelSeries;

/// Our own kernels, of which the one that keeps a GPU busy is kept short: the software GPU takes it a
/// thousand times longer.
const COMPUTE: &str = "compute:rounds=20:warm=1:repeats=3";
/// Mesa's Vulkan driver as it is.
const NVK: &str = "nvk:checks=transfer,code,compute";
/// Every program that a guest with a GF100 of its own must pass.
pub const EVERYTHING_FERMI: &[&str] = &[
    "probe", "copy", "exec", "fence", "channels", "bar1", "badaddr", "badcopy", "badexec", "evict", "reload",
];
/// The same before Linux 6.6, whose nouveau has no VM_BIND.
pub const EVERYTHING_FERMI_OLD: &[&str] =
    &["probe", "copy", "fence", "channels", "bar1", "badaddr", "badcopy", "evict", "reload"];
/// The same with a chip that has a GSP. What provokes faults comes before what shows that the GPU still
/// works.
pub const EVERYTHING_GSP: &[&str] = &[
    "probe",
    "copy",
    "exec",
    "fence",
    "channels",
    "fill",
    "i2m",
    COMPUTE,
    "badlaunch",
    "bar1",
    "badaddr",
    "badcopy",
    "badexec",
    "evict",
    "reload",
    "suspend",
];
/// The same, and Mesa's Vulkan driver.
pub const EVERYTHING_AND_VULKAN: &[&str] = &[
    "probe",
    "copy",
    "exec",
    "fence",
    "channels",
    "fill",
    "i2m",
    COMPUTE,
    "badlaunch",
    "bar1",
    "badaddr",
    "badcopy",
    "badexec",
    "evict",
    "reload",
    "suspend",
    NVK,
    "copy:largest=65537",
];
/// What differs between chips with a GSP: how it boots and goes, page tables, classes, machine code.
pub const CHIP: &[&str] = &["probe", "copy", "exec", "evict", "suspend", "reload", COMPUTE, NVK];
/// The same on a chip whose machine code the software GPU does not execute: it says so.
pub const CHIP_WITHOUT_SHADERS: &[&str] =
    &["probe", "copy", "exec", "evict", "suspend", "reload", "badlaunch", "nvk:checks=transfer"];
/// Kernels of our own, and those that cannot go on.
pub const KERNELS: &[&str] = &["probe", COMPUTE, "badlaunch", "copy:largest=65537"];
/// Enough to know that the GPU works.
pub const SHORT: &[&str] = &["probe", "copy:largest=65537", "fence"];
/// What keeps a guest busy.
pub const BUSY: &[&str] = &["probe", "copy", "fence", "channels", "evict", "load:secs=5"];
/// What a guest does beside those of other generations.
pub const TOGETHER: &[&str] =
    &["probe", "copy:largest=65537", "exec", "channels", "evict", "copy:largest=65537"];
/// What makes a recording of everything that one can have.
pub const RECORDED: &[&str] = &["probe", "copy:largest=65537", "channels"];
pub const FAULTS: &[&str] = &["probe", "badaddr", "badaddr", "badaddr", "copy:largest=65537"];
/// Each kind of hang once, and proof that the GPU works afterwards.
pub const HANGS: &[&str] =
    &["probe", "hang:kind=copy", "hang:kind=acquire", "hang:kind=chain", "copy:largest=65537"];
/// How many of those there are.
pub const HANGS_IN_ALL: u64 = 3;
/// Waits for ever, until an operator has its channel taken off, and works on.
pub const WAITS: &[&str] = &["probe", "hang:kind=operator", "copy:largest=65537"];
/// Sleeps, and finds everything as it was.
pub const SLEEPS: &[&str] =
    &["probe", "copy:largest=65537", "suspend:sleep=deep:times=2", "copy:largest=65537", "fence"];
/// How often that is.
pub const NIGHTS: u32 = 2;
/// Is unplugged and plugged in again, and works as at first.
pub const PLUGGED: &[&str] = &["probe", "copy:largest=65537", "plug", "copy:largest=65537", "plug", "fence"];
/// How often that is.
pub const PLUGS: usize = 2;
pub const NEIGHBOUR: &[&str] = &["probe", "load:secs=15", "copy:largest=65537"];
/// Many processes' threads sleep for the ends of their work.
pub const SLEEPERS: &[&str] = &["probe", "sleepers:count=10000"];
/// The same where the driver forgets sleepers by itself.
pub const FORGIVING_SLEEPERS: &[&str] = &["probe", "sleepers:count=10000:forgive=1"];
/// Fills VRAM, and works until it is killed.
pub const FILLED: &[&str] = &["probe", "residue:step=fill", "load:secs=90"];
/// Finds nothing of whoever was there before, and leaves as much as it can.
pub const SCAN_AND_FILL: &[&str] =
    &["probe", "residue:step=scan", "copy:largest=65537", "fence", "residue:step=fill"];
/// Finds nothing of whoever was there before, and works.
pub const SCAN: &[&str] = &["probe", "residue:step=scan", "copy:largest=65537", "fence"];
pub const AT_WORK: &[&str] = &["probe", "load:secs=90"];
/// Vulkan on a Hopper, for which Mesa's launches and branches are wrong: as it is it moves data, with both
/// put right it computes.
pub const VULKAN: &[&str] =
    &["probe", "nvk:checks=transfer", "nvk:driver=edited:checks=transfer,code,compute", "copy:largest=65537"];

/// Mesa's driver with shaders that use more of the instruction set.
pub const VULKAN_WIDE: &[&str] = &["probe", "nvk:checks=wide"];

/// Every program that `chip` can run below this kernel.
pub fn everything(chip: Chip, kernel: KernelSeries) -> &'static [&'static str] {
    match (chip.face, kernel) {
        (Face::Registers, KernelSeries::V6_1) => EVERYTHING_FERMI_OLD,
        (Face::Registers, _) => EVERYTHING_FERMI,
        (Face::Gsp, _) => EVERYTHING_GSP,
    }
}

/// What shows that NVIDIA's own driver works, each time from the start of the GSP on. Its GPU has 2 GiB.
pub const NVIDIA: &[&str] = &[
    "smi:times=2",
    "cuda",
    "cuda:checks=fault",
    "cuda",
    "cuda:processes=2:checks=copy,sums",
    "smi:busy=1:memory=2048",
    "smi:persist=1",
];

/// The same for 535.261.03, whose libraries do not learn from a virtual GPU how busy it is.
pub const NVIDIA_535: &[&str] = &[
    "smi:times=2",
    "cuda",
    "cuda:checks=fault",
    "cuda",
    "cuda:processes=2:checks=copy,sums",
    "smi:busy=1:use=0:memory=2048",
    "smi:persist=1",
];
