//! How many messages a session carried, by kind: what a front end costs is the number of these.

use std::fmt;

use super::wire::command;

/// Messages of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    messages: u64,
    reads: u64,
    writes: u64,
    batches: u64,
}

impl Traffic {
    /// Counts a message with this command.
    pub(super) fn note(&mut self, command: u16) {
        self.messages += 1;
        match command {
            command::REGION_READ => self.reads += 1,
            command::REGION_WRITE => self.writes += 1,
            command::REGION_WRITE_MULTI => self.batches += 1,
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
    fn kinds_are_counted_apart_and_together() {
        let mut traffic = Traffic::default();
        for command in [command::REGION_READ, command::REGION_READ, command::DMA_MAP] {
            traffic.note(command);
        }
        assert_eq!(traffic.to_string(), "messages=3 reads=2 writes=0 write_batches=0");
    }
}
