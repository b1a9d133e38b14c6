//! Submissions: one at a time, and many that do not wait for each other.

use anyhow::Result;

use super::Suite;
use crate::programs::session::Session;
use crate::push::Commands;

const SMALL: usize = 4096;
const LARGE: usize = 16 << 20;
/// Submissions under way before anybody waits.
const DEPTH: u32 = 64;

/// 4 KiB copies in submissions of their own, one wait for the last: the time of each.
pub fn pipelined(suite: &mut Suite) -> Result<()> {
    let mut session = Session::open(suite.gpu, 64 << 10)?;
    let commands = session.channel.copy_commands((&session.vram, 0), (&session.source, 0), SMALL)?;
    let mut submit = |times: u32| -> Result<()> {
        for _ in 0..times {
            session.channel.submit(&commands, &[&session.vram, &session.source])?;
        }
        session.vram.wait()
    };
    // The first submissions pay for page faults and buffer placement.
    submit(DEPTH)?;
    for _ in 0..suite.times(200) {
        suite.time_each("pipelined_4k", DEPTH, || submit(DEPTH))?;
    }
    Ok(())
}

/// What `bench` times, for its cost: submissions of copies, each waited for asleep.
pub fn counted(suite: &mut Suite) -> Result<()> {
    let mut session = Session::open(suite.gpu, LARGE)?;
    let works = [
        ("latency_4k", SMALL, 1),
        ("copy_1m", 1 << 20, 1),
        ("copy_16m", LARGE, 1),
        ("work_4m", 1 << 20, 4),
        ("work_16m", 4 << 20, 4),
        ("work_64m", LARGE, 4),
    ];
    for (name, length, copies) in works {
        let one = session.channel.copy_commands((&session.vram, 0), (&session.source, 0), length)?;
        let mut commands = Commands::new();
        (0..copies).for_each(|_| commands.extend(&one));
        for _ in 0..suite.times(60) {
            suite.time(name, || {
                session.channel.submit(&commands, &[&session.vram, &session.source])?;
                session.vram.wait()
            })?;
        }
    }
    Ok(())
}
