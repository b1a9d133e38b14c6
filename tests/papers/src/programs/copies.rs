//! CPY and PINCPY: memory there and back, without a kernel.

use anyhow::ensure;

use super::Size;
use crate::gpu::Direction;
use crate::job::{Check, Job, Part, Room};
use crate::reference::{bytes, mix, result};

/// Memory of any kind: phases alone tell how long it takes.
pub(super) fn pageable(size: Size) -> Job {
    let count = size.pick(16 << 10, 4 << 20);
    let sent = bytes((0..count).map(mix));
    let expected = sent.clone();
    let check: Check = Box::new(move |results| {
        ensure!(result(results, 0)? == expected, "what came back is not what was sent");
        Ok(())
    });
    Job {
        results: vec![Part { room: 0, at: 0, bytes: sent.len() }],
        rooms: vec![Room::with(sent)],
        steps: vec![],
        transfers: vec![],
        check,
    }
}

/// Pinned memory, by an engine, both ways.
pub(super) fn pinned(size: Size) -> Job {
    let transfers = vec![(0, Direction::ToDevice), (0, Direction::FromDevice)];
    Job { transfers, ..pageable(size) }
}
