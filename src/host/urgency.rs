//! How soon the kernel runs threads that others wait for, while others keep the processors busy.
//!
//! The aggregator's thread works for some microseconds at a time, and all VMs wait when it is late: turns get
//! too long, and samples of their use too rare. So it asks for two things. One is a short time slice, which
//! Linux 6.12 and later take (`sched_setattr(2)`, `sched_runtime` of a normal thread): such a thread gets its
//! turn earlier, but not more time in all. Older kernels ignore it. The other is a nice value below zero
//! where that is allowed (`CAP_SYS_NICE`, or `LimitNICE=` of the systemd unit). Its timers have no slack
//! either.
//!
//! A back end's threads ask for short slices only. A guest's processor stands still until its register access
//! is answered, and without short slices a thread that wakes beside a computing one waits for the end of a
//! tick (4 ms with 250 a second). They belong to one VM, so they must not be more urgent than other VMs'
//! threads. The aggregator's slices are shorter than theirs, so that it takes the processor from a back end
//! that has just rung its doorbell: the kernel prefers the shorter slice, and of two equal ones the thread
//! that runs.

#![allow(unsafe_code, reason = "no crate wraps sched_setattr(2)")]

use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getpriority_process, getrlimit, setrlimit};
use rustix::thread::set_current_timer_slack;

/// Slice of a back end's threads. The kernel takes slices of 0.1 to 100 ms.
const BRIEF: Duration = Duration::from_micros(200);
const SHORTEST: Duration = Duration::from_micros(100);
const NICE: i32 = -10;

/// `struct sched_attr` of `linux/sched/types.h`, in its first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Lets this process's threads become urgent after it has given up its capabilities. Needs a capability; a
/// process without may have got the limit from its parent.
pub fn allow() {
    let most = u64::try_from(20 - NICE).ok();
    let now = getrlimit(Resource::Nice);
    if now.current.is_some_and(|limit| Some(limit) < most) {
        // Without it, everything works, less urgently: `raise` tells.
        let _ = setrlimit(Resource::Nice, Rlimit { current: most, maximum: most.max(now.maximum) });
    }
}

/// Makes the calling thread as urgent as it may be. Returns its nice value now.
///
/// # Errors
/// The kernel refuses even short slices: the thread is unchanged.
pub fn raise() -> io::Result<i32> {
    // It is set together with the slice: the parent may have chosen a lower one.
    let before = getpriority_process(None)?;
    let urgent = before.min(NICE);
    set_current_timer_slack(NonZeroU64::new(1))?;
    set(urgent, SHORTEST).map(|()| urgent).or_else(|_| set(before, SHORTEST).map(|()| before))
}

/// Gives the calling thread, and those that it starts from now on, short time slices: for who works for some
/// microseconds at a time. Where the kernel refuses, everything works, later.
pub fn request_short_slices() {
    let done = getpriority_process(None).map_err(io::Error::from).and_then(|nice| set(nice, BRIEF));
    if let Err(error) = done {
        log::debug!("no short time slices: {error}");
    }
}

fn set(nice: i32, slice: Duration) -> io::Result<()> {
    let attr = SchedAttr {
        size: u32::try_from(size_of::<SchedAttr>()).unwrap_or(0),
        nice,
        runtime: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
        ..SchedAttr::default()
    };
    // SAFETY: the kernel reads `size` bytes at `attr`, which lives until the call returns, and writes nothing
    // but its own size there if it does not know this one.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calling thread's slice.
    fn slice() -> io::Result<Duration> {
        let mut attr = SchedAttr::default();
        // SAFETY: the kernel writes at most the given size.
        let done =
            unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size_of::<SchedAttr>(), 0) };
        if done == 0 { Ok(Duration::from_nanos(attr.runtime)) } else { Err(io::Error::last_os_error()) }
    }

    #[test]
    fn thread_is_no_less_urgent_than_before_and_others_are_as_they_were() {
        let nice = || getpriority_process(None).unwrap();
        let before = nice();

        let (told, now, owner) =
            std::thread::spawn(move || (raise().unwrap(), nice(), slice().unwrap())).join().unwrap();

        assert!(told == now && now <= before, "{before}, {told}, {now}");
        assert!(owner == SHORTEST || owner.is_zero(), "{owner:?}");
        assert_eq!(nice(), before);

        let brief = std::thread::spawn(move || {
            request_short_slices();
            // A back end's thread for events is started by its session's.
            std::thread::spawn(move || (nice(), slice().unwrap())).join().unwrap()
        });
        let (nice, slice) = brief.join().unwrap();
        assert_eq!(nice, before);
        // Kernels before 6.12 know of no wish.
        assert!(slice == BRIEF || slice.is_zero(), "{slice:?}");
    }
}
