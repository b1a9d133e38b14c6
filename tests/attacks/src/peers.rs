//! Attacks by a process at a socket: a QEMU that lies to its device backend, and a device backend that lies
//! to the aggregator. Data only, as the guests' attacks are.

use crate::Outcome;
use Outcome::{Limited, Quarantined, Refused, Values};

/// Who makes an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A program in place of QEMU, at a device backend's socket (`tests/peers`).
    Client,
    /// A program in place of a device backend, at the aggregator's socket (`tests/peers`).
    Backend,
    /// A program in place of a device backend that is after the time of a neighbour; made without guests.
    Neighbour,
    /// QEMU itself, and what the host does to it.
    Machine,
}

/// One attack.
#[derive(Debug, Clone, Copy)]
pub struct PeerAttack {
    /// Its row in the list of hostile behaviours; `None` for one that the list does not have.
    pub row: Option<u8>,
    /// Its name, unique.
    pub name: &'static str,
    /// Who makes it.
    pub by: By,
    /// What it does, for the table in the documentation.
    pub what: &'static str,
    /// Outcomes that are right.
    pub expected: &'static [Outcome],
    /// Part of the short run.
    pub short: bool,
}

impl PeerAttack {
    const fn short(self) -> Self {
        Self { short: true, ..self }
    }
}

const fn client(row: u8, name: &'static str, expected: &'static [Outcome], what: &'static str) -> PeerAttack {
    PeerAttack { row: Some(row), name, by: By::Client, what, expected, short: false }
}

const fn machine(
    row: u8,
    name: &'static str,
    expected: &'static [Outcome],
    what: &'static str,
) -> PeerAttack {
    PeerAttack { row: Some(row), name, by: By::Machine, what, expected, short: false }
}

const fn stall(name: &'static str, expected: &'static [Outcome], what: &'static str) -> PeerAttack {
    PeerAttack { row: None, name, by: By::Neighbour, what, expected, short: false }
}

const fn backend(name: &'static str, expected: &'static [Outcome], what: &'static str) -> PeerAttack {
    PeerAttack { row: None, name, by: By::Backend, what, expected, short: false }
}

const R: &[Outcome] = &[Refused];
const V: &[Outcome] = &[Values];
const L: &[Outcome] = &[Limited];
const Q: &[Outcome] = &[Quarantined];
const RL: &[Outcome] = &[Refused, Limited];

/// The attacks, in the order in which they are made.
pub const ATTACKS: &[PeerAttack] = &[
    client(34, "wire-sizes", R, "messages of impossible and wrong sizes, for every command").short(),
    client(34, "wire-commands", R, "unknown commands, replies as requests, every message type").short(),
    client(34, "wire-fragments", V, "messages byte by byte, descriptors at each byte, cut off at each byte"),
    client(34, "wire-descriptors", R, "1 to 250 descriptors on messages that take none or one").short(),
    client(34, "wire-version", R, "nested, huge, doubled and broken JSON in VERSION, twice, and late")
        .short(),
    client(
        34,
        "wire-counts",
        R,
        "counts of 4 GiB and 2^64, offsets near 2^64, in every command that has one",
    )
    .short(),
    client(34, "wire-connections", V, "hundreds of connections that say nothing or half a header"),
    client(34, "wire-random", V, "random changes to good messages, as fast as they are taken"),
    client(
        35,
        "dma-lies",
        R,
        "overlaps, ranges that wrap, files smaller than claimed, no access, odd addresses",
    )
    .short(),
    client(
        35,
        "dma-files",
        R,
        "pipes, sockets, devices, folders, sealed and read-only files as guest memory",
    )
    .short(),
    client(35, "dma-truncated", V, "guest memory truncated while registers, BAR1 and BAR3 read it").short(),
    client(35, "dma-many", L, "65 536 mappings of 4 KiB"),
    client(35, "dma-in-use", V, "unmapping memory that BAR1 shows, between two accesses to it"),
    client(36, "irq-descriptors", R, "pipes, files, sockets, epoll instances and closed ends as interrupts")
        .short(),
    client(36, "irq-overflow", R, "indices, starts and counts that overflow, sizes that lie").short(),
    client(36, "irq-blocking", V, "an eventfd that is full and made blocking again").short(),
    client(32, "slow-reader", L, "a client that asks for megabytes and reads nothing").short(),
    client(31, "client-kill-loop", V, "clients killed at any moment, one after the other"),
    backend("backend-garbage", R, "random and changed datagrams, before and after hello").short(),
    backend(
        "backend-names",
        R,
        "hello with the victim's name, bad names, no or too much VRAM, too many channels",
    )
    .short(),
    backend(
        "backend-ids",
        R,
        "channel and space numbers that are absent, taken, of another tenant, too large",
    )
    .short(),
    backend(
        "backend-ranges",
        R,
        "targets beyond the partition's end, before it, wrapping; work through them",
    )
    .short(),
    backend("backend-rings", V, "doorbell board, mailbox and event ring overwritten while they are read")
        .short(),
    backend(
        "backend-messages",
        V,
        "pipes, files, full blocking eventfds and eventfds that hundreds wait for as what sends messages",
    )
    .short(),
    backend("backend-replays", R, "old requests after teardown, on the same and on other connections")
        .short(),
    backend("backend-descriptors", R, "descriptors where none belong, too many, none, and of wrong kinds")
        .short(),
    backend(
        "backend-truncated",
        &[Values, Quarantined],
        "guest memory truncated while the GPU copies from and to it",
    )
    .short(),
    backend("backend-in-use", V, "memory unmapped while the GPU copies to it: nothing is written afterwards"),
    backend("backend-requests", L, "requests as fast as they are taken"),
    backend("backend-doorbells", L, "doorbells of all channels as fast as the board takes them").short(),
    backend("backend-connections", L, "connections that say nothing, as many as are taken"),
    backend("backend-deaf", R, "requests whose answers are never read, events that are never taken").short(),
    backend("backend-deaths", V, "a process killed in the middle of each kind of request"),
    machine(
        31,
        "qemu-killed",
        V,
        "QEMU killed while its guest works, again and again, and a new one on its socket",
    ),
    machine(32, "qemu-stopped", V, "QEMU stopped for seconds while its guest works, then continued"),
    machine(33, "vms-36", V, "36 more VMs started and stopped in random order"),
    stall("stall-stranger-linger", R, "sockets whose last close waits for seconds, in a stranger's first message").short(),
    stall("stall-tenant-linger", R, "the same as guest memory, as what sends messages, and where no descriptor belongs").short(),
    stall("stall-queued-linger", R, "the same, waiting in the queue of a socket that is given away, and of a connection that is closed").short(),
    stall("stall-kinds", R, "pipes, sockets, epoll instances, devices, files on disk, sealed files, one by one and all at once").short(),
    stall("stall-fuse", R, "files of a file system in user space that does not answer"),
    stall("stall-message-waiters", L, "an eventfd for messages that 100,000 wait for").short(),
    stall("stall-socket-waiters", L, "a tenant's socket and its pipe of events, each with 100,000 who wait"),
    stall("stall-large-file", V, "memory of 1 GiB whose last holder is the aggregator, a stranger's and a tenant's").short(),
    stall("stall-scope", V, "six VMs with 256 MiB each, all of whose processes are killed at once"),
    stall("stall-sparse", RL, "guest memory of 1 GiB that is not there until the GPU writes to it").short(),
    stall("stall-full", Q, "guest memory on a file system that is full").short(),
    stall(
        "stall-limit",
        V,
        "VMs that are killed at the memory limit of their control group, in the middle of copies",
    )
    .short(),
    stall("stall-pieces", L, "requests that map 65,280 pages one by one, as fast as they are taken").short(),
    stall("stall-reset", L, "an address space filled with pages that do not join, and a function reset"),
    stall("stall-ranges", L, "512 ranges of memory, each mapped many times, taken away in one request"),
    stall("stall-tenancies", L, "one process that wants to be 72 VMs with the largest weight").short(),
    stall("stall-strangers", L, "nine processes that connect and say nothing, again and again").short(),
    stall("stall-windows", V, "the window of a process that is gone, kept by a third one while its memory is given to the next tenants").short(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_attack_expects_something() {
        let mut names: Vec<_> = ATTACKS.iter().map(|attack| attack.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ATTACKS.len());
        assert!(ATTACKS.iter().all(|attack| !attack.expected.is_empty()));
    }

    #[test]
    fn every_row_of_the_socket_sides_is_attacked() {
        for row in 31..=36 {
            assert!(ATTACKS.iter().any(|attack| attack.row == Some(row)), "row {row}");
        }
    }
}
