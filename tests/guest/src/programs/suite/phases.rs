//! The five phases into which GPUvm's authors divide a program (USENIX ATC 2014): start, data to the device,
//! launch, data back, end. There are no shader cores everywhere, so what is launched is a copy within VRAM.

use anyhow::{Result, bail};

use super::Suite;
use crate::pattern;
use crate::programs::session::Session;

const DATA: usize = 4 << 20;
/// Data, and behind it what the launched work makes of it.
const BUFFERS: usize = 2 * DATA;

pub fn run(suite: &mut Suite) -> Result<()> {
    let contents = pattern::bytes(0x9a5e, 0, DATA);
    let mut found = vec![0; DATA];
    let gpu = suite.gpu;
    for _ in 0..suite.times(12) {
        let mut session = suite.time("phase_init", || Session::open(gpu, BUFFERS))?;
        suite.time("phase_to_device", || {
            session.source.write(0, &contents)?;
            session.channel.copy((&session.vram, 0), (&session.source, 0), DATA)?;
            session.vram.wait()
        })?;
        suite.time("phase_launch", || {
            let (from, to) = ((&session.vram, 0), (&session.vram, DATA));
            let commands = session.channel.copy_commands(to, from, DATA)?;
            // The kernel refuses a list that has a buffer twice.
            session.channel.submit(&commands, &[&session.vram])?;
            session.vram.wait()
        })?;
        suite.time("phase_from_device", || {
            session.channel.copy((&session.target, 0), (&session.vram, DATA), DATA)?;
            session.target.wait()?;
            session.target.read(0, &mut found)
        })?;
        if let Some(difference) = pattern::difference(&found, &contents) {
            bail!("what came back is wrong: {difference}");
        }
        suite.time("phase_close", || {
            drop(session);
            Ok(())
        })?;
    }
    Ok(())
}
