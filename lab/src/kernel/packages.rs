//! Which of Debian's packages hold a kernel: names and how they are split change from one series to the next.
//!
//! A kernel of Debian 12 is `linux-image-6.1.0-56-amd64`, one of Debian 13
//! `linux-image-6.12.117+deb13-amd64`, and since 6.19 image and modules are `linux-binary-...` and
//! `linux-modules-...` of one version. Where an unsigned image is packaged beside the signed one, it is
//! taken: it is the same code, and smaller.

use super::KernelSeries;
use crate::apt::compare_versions;

/// The packages of one kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packages {
    version: String,
    names: Vec<String>,
}

const FLAVOUR: &str = "-amd64";
const UNSIGNED: &str = "-unsigned";
const SPLIT: [&str; 2] = ["linux-binary-", "linux-modules-"];
const WHOLE: &str = "linux-image-";

impl Packages {
    /// What the names of all packages match that can be a part of a kernel.
    pub(super) const PATTERN: &str =
        "^linux-(image|binary|modules)-[0-9][0-9.]*[-+][a-z0-9]+-amd64(-unsigned)?$";

    /// The newest kernel of a series among the names of packages.
    pub(super) fn choose(series: KernelSeries, names: &[String]) -> Option<Self> {
        let versions =
            names.iter().filter_map(|name| version_of(name)).filter(|version| is_of(series, version));
        let mut versions: Vec<&str> = versions.collect();
        versions.sort_by(|left, right| compare_versions(right, left));
        // The newest that is there as a whole: an archive that is being updated may have a half.
        versions.into_iter().find_map(|version| Self::of(version, names))
    }

    fn of(version: &str, names: &[String]) -> Option<Self> {
        let full = |begin: &str, end: &str| format!("{begin}{version}{FLAVOUR}{end}");
        let ways = [
            SPLIT.map(|begin| full(begin, "")).to_vec(),
            vec![full(WHOLE, UNSIGNED)],
            // A split kernel has a package of this name too, which holds nothing.
            if is_split(version) { Vec::new() } else { vec![full(WHOLE, "")] },
        ];
        let there = |way: &Vec<String>| !way.is_empty() && way.iter().all(|name| names.contains(name));
        ways.into_iter().find(there).map(|names| Self { version: version.to_owned(), names })
    }

    /// The version, such as `7.3.4+deb13`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// The packages.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether a kernel with that release is this one.
    pub(super) fn release_of(&self, release: &str) -> bool {
        release.strip_suffix(FLAVOUR) == Some(&self.version)
    }

    /// Whether this one is newer than a kernel with that release.
    pub(super) fn newer_than(&self, release: &str) -> bool {
        let there = release.strip_suffix(FLAVOUR).unwrap_or(release);
        compare_versions(&self.version, there).is_gt()
    }
}

/// The version in a package's name.
fn version_of(name: &str) -> Option<&str> {
    let name = name.strip_suffix(UNSIGNED).unwrap_or(name);
    let rest = SPLIT.into_iter().chain([WHOLE]).find_map(|begin| name.strip_prefix(begin))?;
    rest.strip_suffix(FLAVOUR).filter(|version| version.starts_with(|letter: char| letter.is_ascii_digit()))
}

fn is_of(series: KernelSeries, version: &str) -> bool {
    match series {
        KernelSeries::V6_1 => version.starts_with("6.1.0-"),
        KernelSeries::V6_12 => version.starts_with("6.12.") && version.ends_with("+deb13"),
        KernelSeries::V7_2 => version.starts_with("7.2.") && version.ends_with("+deb13"),
        KernelSeries::Newest => version.contains("+deb"),
    }
}

/// Whether Debian packages this version's image and modules apart.
fn is_split(version: &str) -> bool {
    compare_versions(version, "6.19").is_ge()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the archive had them in November 2026, shortened.
    const NAMES: &[&str] = &[
        "linux-image-6.1.0-50-amd64",
        "linux-image-6.1.0-50-amd64-unsigned",
        "linux-image-6.1.0-9-amd64-unsigned",
        "linux-image-6.12.107+deb13-amd64-unsigned",
        "linux-image-6.12.94+deb13-amd64-unsigned",
        "linux-image-6.12.117+deb12-amd64-unsigned",
        "linux-image-6.18.15+deb13-amd64",
        "linux-image-7.2.9+deb13-amd64",
        "linux-binary-7.2.9+deb13-amd64",
        "linux-modules-7.2.9+deb13-amd64",
        "linux-binary-7.2.12+deb13-amd64",
        "linux-modules-7.2.12+deb13-amd64",
        "linux-image-7.3.4+deb13-amd64",
        "linux-binary-7.3.4+deb13-amd64",
        "linux-modules-7.3.4+deb13-amd64",
        "linux-binary-unsigned-7.3.4+deb13-amd64",
        "linux-modules-amd64",
    ];

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    fn chosen(series: KernelSeries, of: &[&str]) -> Option<Vec<String>> {
        Packages::choose(series, &names(of)).map(|packages| packages.names)
    }

    #[test]
    fn each_series_gets_its_newest_version() {
        let of = |series| chosen(series, NAMES).unwrap();
        assert_eq!(of(KernelSeries::V6_1), ["linux-image-6.1.0-50-amd64-unsigned"]);
        assert_eq!(of(KernelSeries::V6_12), ["linux-image-6.12.107+deb13-amd64-unsigned"]);
        assert_eq!(
            of(KernelSeries::V7_2),
            ["linux-binary-7.2.12+deb13-amd64", "linux-modules-7.2.12+deb13-amd64"]
        );
        assert_eq!(
            of(KernelSeries::Newest),
            ["linux-binary-7.3.4+deb13-amd64", "linux-modules-7.3.4+deb13-amd64"]
        );
    }

    #[test]
    fn newest_kernel_is_of_whatever_series_comes() {
        let mut more = NAMES.to_vec();
        more.extend(["linux-binary-7.10.1+deb13-amd64", "linux-modules-7.10.1+deb13-amd64"]);
        assert_eq!(chosen(KernelSeries::Newest, &more).unwrap()[0], "linux-binary-7.10.1+deb13-amd64");
        assert_eq!(
            chosen(KernelSeries::Newest, &NAMES[..7]).unwrap(),
            ["linux-image-6.18.15+deb13-amd64"],
            "of a kernel that is one package"
        );
    }

    #[test]
    fn half_a_kernel_is_none() {
        let mut more = NAMES.to_vec();
        more.extend(["linux-binary-7.4.1+deb13-amd64", "linux-image-7.4.1+deb13-amd64"]);
        assert_eq!(chosen(KernelSeries::Newest, &more).unwrap()[0], "linux-binary-7.3.4+deb13-amd64");
    }

    #[test]
    fn series_that_the_archive_has_no_more_is_none() {
        let without: Vec<&str> = NAMES.iter().copied().filter(|name| !name.contains("-7.2.")).collect();
        assert_eq!(chosen(KernelSeries::V7_2, &without), None);
    }

    #[test]
    fn kernels_are_compared_with_a_release_by_their_numbers() {
        let packages = Packages::choose(KernelSeries::V6_12, &names(NAMES)).unwrap();
        assert!(packages.release_of("6.12.107+deb13-amd64") && !packages.release_of("6.12.10+deb13-amd64"));
        assert!(packages.newer_than("6.12.94+deb13-amd64") && !packages.newer_than("6.12.108+deb13-amd64"));
    }
}
