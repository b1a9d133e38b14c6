//! Guests with heads, whose monitors are looked at.

use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::kernel::KernelSeries;
use gpuvmk_lab::rig::Topology;

use super::{Case, Disturbance, Guest, case};

/// Flips, and pictures of all formats and below a cursor.
const SHORT: &[&str] = &["display", "patterns:what=formats", "patterns:what=cursor:seed=100"];
/// All that a head shows.
const EVERYTHING: &[&str] = &[
    "console",
    "display",
    "patterns:what=modes",
    "patterns:what=formats:seed=100",
    "patterns:what=layouts:seed=200",
    "patterns:what=cursor:seed=300",
    "console:say=again",
];
/// Text before and after devices were suspended, and a mode and a cursor after that.
const SUSPENDED: &[&str] = &["console", "suspend", "console:say=awake", "patterns:what=cursor"];
/// The same over a sleep of the whole machine (S3), in which the chip loses all that it knows.
const SLEPT: &[&str] = &["console", "suspend:sleep=deep", "console:say=awake", "patterns:what=cursor"];
/// Other monitors, and none, while the driver works.
const PLUGGED: &[&str] = &["console", "hotplug", "console:say=again"];
/// Two guests' pictures at once.
const ONE: &[&str] = &["console:say=vm1", "patterns:what=formats:seed=1000", "console:say=vm1"];
const OTHER: &[&str] = &["console:say=vm2", "patterns:what=formats:seed=2000", "console:say=vm2"];

/// The kernel's console is drawn by its processor, which waits for each word: for a whole screen so long that
/// the kernel would take it for hung.
const PATIENT: &[&str] = &["watchdog_thresh=60"];
/// The kernel leaves the monitor to programs.
const WITHOUT_CONSOLE: &[&str] = &["fbcon=map:9"];

/// A small monitor: each word of a picture that the guest's processor writes is an access that traps.
const SIZE: &str = "640x480";

/// Cases of heads, most of them nightly's.
pub fn cases() -> Vec<Case> {
    let (old, newest) = (KernelSeries::V6_12, KernelSeries::Newest);
    let of = |chip, name, kernel, programs| Guest {
        display: SIZE,
        kernel_words: if programs == SHORT { WITHOUT_CONSOLE } else { PATIENT },
        ..Guest::new(name, chip, kernel, programs)
    };
    let guest = |name, kernel, programs| of(Chip::AD104, name, kernel, programs);
    let looked = |name: &str, nightly, guests| {
        let case = case(format!("display-{name}"), Topology::Mediated, guests);
        Case { nightly, disturbance: Disturbance::Looked, ..case }
    };
    vec![
        looked("short", false, vec![guest("vm1", old, SHORT)]),
        looked("6.12", true, vec![guest("vm1", old, EVERYTHING)]),
        looked("newest", true, vec![guest("vm1", newest, EVERYTHING)]),
        looked("suspended", true, vec![guest("vm1", old, SUSPENDED)]),
        looked("slept", true, vec![guest("vm1", newest, SLEPT)]),
        looked("plugged-6.12", true, vec![guest("vm1", old, PLUGGED)]),
        looked("plugged-newest", true, vec![guest("vm1", newest, PLUGGED)]),
        looked("two-guests", true, vec![guest("vm1", old, ONE), guest("vm2", newest, OTHER)]),
    ]
}
