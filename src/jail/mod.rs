//! The jail: what the daemons cannot do, whatever a guest makes of them.
//!
//! A device back end parses what a hostile guest and its QEMU send. Should one of them ever take it over, it
//! finds a process without capabilities, files, network, new programs or processes, whose threads may each
//! make a few dozen kinds of system calls; any other ends the process. The aggregator, which is trusted, gets
//! the least it needs as well.
//!
//! Order, in a daemon: [`prepare`] first of all; then the steps that need files (configuration, sockets,
//! trace, the GPU's nodes); [`confine`], while there is one thread; then threads, each of which calls
//! [`enter`] first. The main thread calls it last, before the first byte of a client is read. Where nothing
//! is confined (tests, other commands), [`enter`] only notes the role. After [`prepare`], a panic ends the
//! process, unless its thread can be done without (`panic_hook`).
//!
//! The filters are data ([`Role::rules`]): `gpuvmk jail` lists them, and `tests/jail_census.rs` finds entries
//! that are not needed.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod error;
mod filesystem;
mod mode;
mod panic_hook;
mod privileges;
mod role;
mod rule;
mod seccomp;
mod tables;
mod violation;
mod warm_up;

use std::os::fd::RawFd;
use std::sync::OnceLock;

use rustix::process::Resource;

pub use self::error::JailError;
use self::filesystem::Confinement;
pub use self::filesystem::{PathRight, Right, folder};
pub use self::mode::Mode;
pub use self::role::{Drives, Role};
pub use self::rule::{Condition, Rule, Test};

/// Rights and limits of a daemon after [`confine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Rights to files and folders.
    pub paths: Vec<PathRight>,
    /// Descriptors at a time; `None`: as many as its manager allows.
    pub descriptors: Option<u64>,
    /// Bytes of private memory; `None`: as many as its manager allows.
    pub memory: Option<u64>,
    /// The hardware that it drives.
    pub drives: Drives,
    /// Threads that run beside the caller now: none in a daemon. What runs before the jail stays outside.
    pub beside: usize,
}

/// The jail of this process; unset where there is none.
static MODE: OnceLock<Mode> = OnceLock::new();

/// What this process drives; unset where there is no jail.
static DRIVES: OnceLock<Drives> = OnceLock::new();

/// Readies this process for its jail. To be called before anything else has opened a descriptor; `keep` is
/// one that a manager has left open on purpose.
///
/// # Errors
/// The handler for forbidden calls cannot be installed.
pub fn prepare(keep: Option<RawFd>) -> Result<(), JailError> {
    if let Err(error) = privileges::close_inherited(keep) {
        log::warn!("jail: inherited descriptors stay open: {error}");
    }
    let failed = |step| move |source| JailError::System { step, source };
    violation::install().map_err(failed("Installing the handler for forbidden system calls"))?;
    warm_up::libraries();
    panic_hook::install();
    Ok(())
}

/// Has this process lock as much memory as it may: what a device reaches is locked. To be called before
/// [`confine`], which takes the capability that does without a limit.
pub fn raise_locked_memory() {
    if let Err(error) = privileges::lift(Resource::Memlock) {
        log::warn!("The limit of locked memory (RLIMIT_MEMLOCK) stays as it is: {error}");
    }
}

/// Gives up capabilities, files and network, and sets limits. From now on, [`enter`] works. To be called
/// before other threads are started: they would keep what they have.
///
/// # Errors
/// The kernel refuses, or there are other threads. A kernel without Landlock is no error, but a warning.
pub fn confine(mode: Mode, allowed: &Allowance) -> Result<(), JailError> {
    if mode == Mode::Off {
        log::warn!("jail: off, by configuration");
        return Ok(());
    }
    let failed = |step| move |source| JailError::System { step, source };
    let others = privileges::other_threads(allowed.beside).map_err(failed("Counting threads"))?;
    if others > allowed.beside {
        return Err(JailError::Late { others, allowed: allowed.beside });
    }
    privileges::forget_backtraces();
    privileges::limit(Resource::Core, 0).map_err(failed("Forbidding core dumps"))?;
    match allowed.descriptors {
        Some(most) => privileges::limit(Resource::Nofile, most).map_err(failed("Limiting descriptors"))?,
        None => privileges::raise(Resource::Nofile).map_err(failed("Raising the limit of descriptors"))?,
    }
    if let Some(most) = allowed.memory {
        privileges::limit(Resource::Data, most).map_err(failed("Limiting memory"))?;
    }
    privileges::drop_capabilities().map_err(failed("Giving capabilities up"))?;
    match filesystem::confine(&allowed.paths)? {
        Confinement::Full => log::info!("jail: seccomp {mode}, Landlock, no capabilities"),
        Confinement::Part(which) => {
            log::info!("jail: seccomp {mode}, Landlock (the kernel knows {which}), no capabilities");
        }
        Confinement::None(why) => {
            log::warn!(
                "jail: seccomp {mode}, no capabilities, but files and network are not confined: {why}"
            );
        }
    }
    let _ = DRIVES.set(allowed.drives);
    let _ = MODE.set(mode);
    Ok(())
}

/// Confines this thread, and those that it starts, to what `role` may do. Ends the process where that fails:
/// it must not go on with more than it should have.
pub fn enter(role: Role) {
    let role = role.within(DRIVES.get().copied().unwrap_or_default());
    violation::remember(role);
    let Some(mode) = MODE.get() else { return };
    // Handlers of a manager's signals run on the main thread, whose filter has room for them.
    if role.thread().is_some() {
        privileges::mask_signals();
    }
    if let Err(error) = seccomp::compile(role, *mode).and_then(|programs| seccomp::install(&programs)) {
        let error = anyhow::Error::from(error);
        log::error!("jail: a thread `{role}` is not confined, ending: {error:#}");
        std::process::exit(1);
    }
}

#[cfg(test)]
mod tests;
