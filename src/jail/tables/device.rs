//! The device back end: what a guest and its QEMU drive.

use libc::{
    AF_UNIX, F_ADD_SEALS, F_DUPFD_CLOEXEC, F_GET_SEALS, F_GETFL, F_SETFL, SOCK_CLOEXEC, SOCK_SEQPACKET,
};

use super::card;
use super::common::{BASE, END, FACTS, START};
use crate::rule::{Rule, Test, rules};

/// Serves QEMU over vfio-user.
const CLIENT: &[Rule] = rules! {
    SYS_read: "events, interrupts' descriptors";
    SYS_recvmsg: "messages of QEMU, answers of the aggregator";
    SYS_sendto: "answers to QEMU; a signal's handler tells its thread";
    SYS_write: "interrupts, doorbells, log";
    SYS_ppoll: "waits for QEMU and the aggregator, whether an interrupt's descriptor has room";
    SYS_accept4: "QEMU";
    SYS_close: "what QEMU has taken back";
    SYS_statx: "which file guest memory is";
    SYS_fstatfs: "how large pages of guest memory are";
    SYS_fcntl(1 Test::int(F_DUPFD_CLOEXEC)): "a second descriptor of the same file";
    SYS_fcntl(1 Test::int(F_GET_SEALS)): "whether a file is memory, and can shrink";
    SYS_fcntl(1 Test::int(F_GETFL)): "reads of an interrupt's descriptor must not wait; whether QEMU may write to memory";
    SYS_fcntl(1 Test::int(F_SETFL)): "the same";
    SYS_getsockopt: "who QEMU is";
    SYS_setsockopt: "how long a client may be silent";
    SYS_shutdown: "the end of a session";
    SYS_eventfd2: "wakes threads";
    SYS_unlink: "its own socket, at the end";
};

/// Serves QEMU, makes requests to the aggregator, and connects to a new aggregator when the old one is gone.
pub(crate) const SESSION: &[&[Rule]] = &[
    BASE,
    START,
    END,
    FACTS,
    CLIENT,
    rules! {
        SYS_sendmsg: "requests to the aggregator, with guest memory";
        SYS_fallocate: "BAR3's memory is to be zero";
        SYS_memfd_create rare "only with bar3 = \"direct\", and a client after another": "BAR3's memory for the next client";
        SYS_ftruncate rare "only with bar3 = \"direct\", and a client after another": "the same";
        SYS_fcntl(1 Test::int(F_ADD_SEALS)) rare "only with bar3 = \"direct\", and a client after another": "the same";
        SYS_socket(0 Test::int(AF_UNIX), 1 Test::int(SOCK_SEQPACKET | SOCK_CLOEXEC), 2 Test::Is(0)): "a new aggregator";
        SYS_connect: "a new aggregator";
        SYS_clock_nanosleep rare "only without descriptors left, or where QEMU makes its eventfd wait":
            "waits before it tries again";
    },
];

/// Serves QEMU with a software GPU in the same process.
pub(crate) const SOFTGPU: &[&[Rule]] = &[
    BASE,
    START,
    END,
    FACTS,
    CLIENT,
    rules! {
        SYS_clock_nanosleep rare "only without descriptors left": "waits before it tries again";
    },
];

/// Serves QEMU a whole card.
pub(crate) const CARD_SESSION: &[&[Rule]] = &[
    BASE,
    START,
    END,
    FACTS,
    CLIENT,
    card::DRIVES,
    card::READS,
    card::LISTENS,
    rules! {
        SYS_sendmsg rare "needs a card at vfio-pci": "a BAR's file, which QEMU maps";
        SYS_clock_nanosleep rare "only without descriptors left": "waits before it tries again";
    },
];

/// Answers clients that come while another one has the device.
pub(crate) const DOOR: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_ppoll: "waits for clients, for what one says, and for the end of the one that has the device";
        SYS_accept4: "clients";
        SYS_recvmsg: "what a client says first";
        SYS_sendto: "that the device is taken";
        SYS_getsockopt: "who the clients are";
        SYS_write: "log";
        SYS_close: "the client's connection";
    },
];

/// Takes the aggregator's events and raises the vGPU's interrupts.
pub(crate) const EVENTS: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_ppoll: "waits for the aggregator, whether an interrupt's descriptor has room";
        SYS_read: "the same";
        SYS_write: "interrupts, log";
        SYS_close: "what the connection had";
    },
];

/// Sleeps until the GF100's alarm is due.
pub(crate) const ALARM: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_ppoll: "whether an interrupt's descriptor has room";
        SYS_write: "interrupts, log";
    },
];

/// Carries out what channels of a guest's kernel are told, on its memory.
pub(crate) const KERNEL_CHANNELS: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_ppoll rare "needs NVIDIA's driver in the guest": "waits for the aggregator, whether an interrupt's descriptor has room";
        SYS_read rare "needs NVIDIA's driver in the guest": "the same";
        SYS_write rare "needs NVIDIA's driver in the guest": "interrupts, doorbells, log";
        SYS_sendmsg rare "needs NVIDIA's driver in the guest": "requests to the aggregator: page tables have changed";
        SYS_recvmsg rare "needs NVIDIA's driver in the guest": "its answers";
    },
];

/// Begins the frames of a head: what waits for that is read from the guest's memory, and told there.
pub(crate) const FRAMES: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_ppoll rare "needs a guest with a display": "waits for the aggregator, whether an interrupt's descriptor has room";
        SYS_read rare "needs a guest with a display": "the same";
        SYS_write rare "needs a guest with a display": "interrupts, log";
        SYS_sendmsg rare "needs a guest with a display": "requests to the aggregator";
        SYS_recvmsg rare "needs a guest with a display": "its answers";
    },
];

/// Composes what a head shows, from the guest's memory.
pub(crate) const COMPOSE: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_ppoll rare "needs people who look at a display": "waits for the aggregator";
        SYS_read rare "needs people who look at a display": "the same";
        SYS_write rare "needs people who look at a display": "wakes who serves those people, log";
        SYS_sendmsg rare "needs people who look at a display": "requests to the aggregator";
        SYS_recvmsg rare "needs people who look at a display": "its answers";
    },
];

/// Serves people who look at a head.
pub(crate) const VIEWERS: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_ppoll rare "needs people who look at a display": "waits for them and for pictures";
        SYS_accept4 rare "needs people who look at a display": "lets them in";
        SYS_read rare "needs people who look at a display": "wakes, and what they say";
        SYS_recvfrom rare "needs people who look at a display": "what they say";
        SYS_write rare "needs people who look at a display": "pictures, log";
        SYS_sendto rare "needs people who look at a display": "pictures";
        SYS_close rare "needs people who look at a display": "lets them go";
    },
];

/// Waits for KVM's word that a guest has dealt with INTx.
pub(crate) const UNMASK: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_ppoll: "waits for KVM, whether an interrupt's descriptor has room";
        SYS_read: "the same";
        SYS_write: "an interrupt that is still wanted, log";
        SYS_close: "KVM's descriptor";
    },
];

/// Writes the access trace.
pub(crate) const TRACE: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_write: "the trace, log";
        SYS_close: "the trace";
    },
];

/// Serves clients that record while the VM works.
pub(crate) const RECORDER: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_ppoll: "waits for an operator, whether he is still there";
        SYS_accept4: "operators";
        SYS_getsockopt: "who an operator is";
        SYS_setsockopt: "how long an operator may be silent";
        SYS_recvfrom: "what he wants";
        SYS_sendto: "the trace, refusals";
        SYS_fcntl(1 Test::int(F_DUPFD_CLOEXEC)): "a second descriptor of his socket";
        SYS_write: "log";
        SYS_close: "his socket";
        SYS_clock_nanosleep rare "only without descriptors left": "waits before it tries again";
    },
];
