//! Which of the host's processors a process may use, so that two machines do not take them from each other.
//!
//! What a hostile guest does to a GPU is told from what its processors cost the host only if the host has
//! processors for both: so each side is kept on a half of them.

pub mod slow;

use std::fs;

use anyhow::{Context, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A half of the processors that this process may use. Of an odd number the first half is the larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// The first processors.
    First,
    /// The last processors.
    Second,
}

/// The processors that this process may use.
fn usable() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("Cannot learn which processors may be used")?;
    Ok((0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect())
}

fn half(processors: &[usize], half: Half) -> &[usize] {
    let (first, second) = processors.split_at(processors.len().div_ceil(2));
    match half {
        _ if second.is_empty() => first,
        Half::First => first,
        Half::Second => second,
    }
}

/// Keeps processes of two sides on a half each.
pub fn divide(first: impl IntoIterator<Item = u32>, second: impl IntoIterator<Item = u32>) -> Result<()> {
    first.into_iter().try_for_each(|process| keep(process, Half::First))?;
    second.into_iter().try_for_each(|process| keep(process, Half::Second))
}

/// Keeps all threads of a process on one half of the processors; threads that they start later, too. With one
/// processor there is nothing to divide.
pub fn keep(process: u32, on: Half) -> Result<()> {
    let mut set = CpuSet::new();
    half(&usable()?, on).iter().for_each(|processor| set.set(*processor));
    let tasks = format!("/proc/{process}/task");
    for entry in fs::read_dir(&tasks).with_context(|| format!("Cannot look at {tasks}"))?.flatten() {
        let thread = entry.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        // A thread that has ended meanwhile needs nothing.
        let kept = thread.map_or(Ok(()), |thread| sched_setaffinity(Some(thread), &set));
        match kept {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error).context("Cannot choose a thread's processors"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::process::Process;

    #[test]
    fn halves_are_apart_and_together_all() {
        assert_eq!((half(&[0, 1], Half::First), half(&[0, 1], Half::Second)), (&[0][..], &[1][..]));
        assert_eq!((half(&[2, 5, 7], Half::First), half(&[2, 5, 7], Half::Second)), (&[2, 5][..], &[7][..]));
        assert_eq!((half(&[3], Half::First), half(&[3], Half::Second)), (&[3][..], &[3][..]));
    }

    #[test]
    fn process_is_kept_on_its_half() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let process = Process::start(command, "sleep").unwrap();

        keep(process.id(), Half::Second).unwrap();

        let id = Pid::from_raw(i32::try_from(process.id()).unwrap());
        let set = sched_getaffinity(id).unwrap();
        let found: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect();
        assert_eq!(found, half(&usable().unwrap(), Half::Second));
    }
}
