//! The versions of the driver that guests are made with, each of a Debian of its own.

use crate::kernel::KernelSeries;

/// A version of the driver, and what it is built and run with.
#[derive(Debug, PartialEq, Eq)]
pub struct Release {
    /// The version of its modules, libraries and programs.
    pub version: &'static str,
    /// The series of the kernel that the modules are built for.
    pub series: KernelSeries,
    /// Debian's suite that has it.
    pub(super) suite: &'static str,
    /// Where the kernel comes from, beside what is always looked at.
    pub(super) kernel_suite: Option<&'static str>,
    /// The names of the kernel's packages, as a pattern.
    pub(super) kernels: &'static str,
    /// The newest kernel that it builds for as it is shipped: `pci_resize_resource()` has three arguments.
    pub(super) newest_kernel: &'static str,
    /// The package of the kernel's build programs; none: one for each kernel, with its version in the name.
    pub(super) kbuild: Option<&'static str>,
    /// What is fetched, in megabytes.
    pub(super) megabytes: u32,
    /// The cache's entry.
    pub(super) entry: &'static str,
    /// Changes when what is kept does.
    pub(super) kept: &'static str,
}

/// The usual one.
pub(super) const USUAL: &Release = &Release {
    version: "550.163.01",
    series: KernelSeries::V6_12,
    suite: "trixie",
    // Its 6.12 has three arguments; those of Debian 13 itself, and the security archive's from 6.12.115
    // on at the latest, have four.
    kernel_suite: Some("bookworm-backports"),
    kernels: r"^linux-image-6\.12\.[0-9]+\+deb12-amd64-unsigned$",
    newest_kernel: "6.12.95",
    kbuild: None,
    megabytes: 190,
    entry: "nvidia-driver",
    kept: "550.163.01, layout 1",
};

/// All of them, the usual one first.
pub const RELEASES: [&Release; 2] = [
    USUAL,
    &Release {
        version: "535.261.03",
        series: KernelSeries::V6_1,
        suite: "bookworm",
        kernel_suite: None,
        // 6.1.0-57 of the security archive has four.
        kernels: r"^linux-image-6\.1\.0-[0-9]+-amd64-unsigned$",
        newest_kernel: "6.1.0-50",
        kbuild: Some("linux-kbuild-6.1/bookworm"),
        megabytes: 130,
        entry: "nvidia-driver-535",
        kept: "535.261.03, layout 1",
    },
];

impl Release {
    /// The one that is built for a series.
    pub fn of(series: KernelSeries) -> Option<&'static Self> {
        RELEASES.into_iter().find(|release| release.series == series)
    }
}
