//! Why there is no jail.

use std::io;

/// Why there is no jail.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// Threads run already, and would stay outside.
    #[error(
        "{others} other threads run before the jail closes, where {allowed} may: a fault of this program"
    )]
    Late {
        /// Threads beside the caller.
        others: usize,
        /// How many there may be.
        allowed: usize,
    },
    /// A step that every kernel takes.
    #[error("{step} failed; `jail = \"off\"` does without the jail")]
    System {
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Landlock refuses.
    #[error("Landlock cannot be set up; `jail = \"off\"` does without the jail")]
    Landlock(#[from] landlock::RulesetError),
    /// A folder or a device that stays within reach.
    #[error(
        "A place that this process needs cannot be named to Landlock; `jail = \"off\"` does without the jail"
    )]
    Place(#[source] landlock::PathFdError),
    /// A filter cannot be made.
    #[error("The filter of system calls cannot be put on; `jail = \"off\"` does without the jail")]
    Filter(#[source] seccompiler::Error),
}
