//! How many messages a session carried, by kind: what a front end costs is the number of these.

use std::fmt;

use super::wire::command;

/// Bytes of a batch's head, and of each write in it.
const BATCH_HEAD: usize = 8;
const BATCHED_WRITE: usize = 24;

/// Messages of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    messages: u64,
    reads: u64,
    /// Alone or in batches.
    writes: u64,
    batches: u64,
}

impl Traffic {
    /// Counts a message with this command and body.
    pub(super) fn note(&mut self, command: u16, body: &[u8]) {
        self.messages += 1;
        match command {
            command::REGION_READ => self.reads += 1,
            command::REGION_WRITE => self.writes += 1,
            command::REGION_WRITE_MULTI => {
                self.batches += 1;
                self.writes += (body.len().saturating_sub(BATCH_HEAD) / BATCHED_WRITE) as u64;
            }
            _ => {}
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, reads, writes, batches } = self;
        write!(f, "messages={messages} reads={reads} writes={writes} write_batches={batches}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_apart_and_writes_of_a_batch_one_by_one() {
        let mut traffic = Traffic::default();
        for command in [command::REGION_READ, command::REGION_READ, command::DMA_MAP] {
            traffic.note(command, &[0; 16]);
        }
        traffic.note(command::REGION_WRITE_MULTI, &[0; 8 + 3 * 24]);
        assert_eq!(traffic.to_string(), "messages=4 reads=2 writes=3 write_batches=1");
    }
}
