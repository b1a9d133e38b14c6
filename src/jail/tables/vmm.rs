//! `gpuvmk vmm`: a guest's processors, its vGPU and its disks in one process. All of its files are open
//! before the filters are put on.
//!
//! None of it runs where KVM runs no stock kernels; what each thread needs is shown by the nested test, whose
//! guests end where an entry is missing.

use libc::{
    AF_UNIX, F_ADD_SEALS, F_DUPFD_CLOEXEC, F_GET_SEALS, F_GETFL, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_SEQPACKET,
    SOCK_STREAM,
};

use super::card;
use super::common::{BASE, END, FACTS, START};
use crate::rule::{Rule, Test, rules};

/// Any call of KVM's (`KVMIO`), whatever it reads and writes.
const ANY: Test = Test::Field { mask: 0xff00, value: 0xae00 };
/// `KVM_RUN`.
const RUN: Test = Test::Is(0xae80);
/// `KVM_GET_REGS`.
const GET_REGS: Test = Test::Is(0x8090_ae81);
/// `KVM_SET_USER_MEMORY_REGION`.
const SLOT: Test = Test::Is(0x4020_ae46);
/// `KVM_IOEVENTFD`.
const DOORBELL: Test = Test::Is(0x4040_ae79);
/// `KVM_IRQFD`.
const MESSAGE: Test = Test::Is(0x4020_ae76);
/// `KVM_SET_GSI_ROUTING`.
const ROUTES: Test = Test::Is(0x4008_ae6a);
/// `KVM_IRQ_LINE`.
const LINE: Test = Test::Is(0x4008_ae61);

/// Rules for carrying out a guest's access to a GPU.
const GPU: &[Rule] = rules! {
    SYS_read rare "needs KVM with hardware below it": "events, interrupts' descriptors";
    SYS_preadv2 rare "needs KVM with hardware below it": "messages from before they were enabled or unmasked";
    SYS_write rare "needs KVM with hardware below it": "interrupts, doorbells, the console, log";
    SYS_ppoll rare "needs KVM with hardware below it": "waits for the aggregator, or a thread that has not put its filter on";
    SYS_close rare "needs KVM with hardware below it": "what is not needed any more";
    SYS_statx rare "needs KVM with hardware below it": "which file guest memory is";
    SYS_fstatfs rare "needs KVM with hardware below it": "how large pages of guest memory are";
    SYS_fcntl(1 Test::int(F_DUPFD_CLOEXEC)) rare "needs KVM with hardware below it": "a second descriptor of the same file";
    SYS_fcntl(1 Test::int(F_GET_SEALS)) rare "needs KVM with hardware below it": "whether shared memory can shrink";
    SYS_fcntl(1 Test::int(F_GETFL)) rare "needs KVM with hardware below it": "whether memory may be written";
    SYS_eventfd2 rare "needs KVM with hardware below it": "wakes threads, doorbells";
};

/// The aggregator, and a new one after a reset.
const AGGREGATOR: &[Rule] = rules! {
    SYS_sendmsg rare "needs KVM with hardware below it": "requests to the aggregator, with guest memory";
    SYS_recvmsg rare "needs KVM with hardware below it": "answers of the aggregator";
    SYS_socket(0 Test::int(AF_UNIX), 1 Test::int(SOCK_SEQPACKET | SOCK_CLOEXEC), 2 Test::Is(0))
        rare "needs KVM with hardware below it": "a new aggregator";
    SYS_connect rare "needs KVM with hardware below it": "a new aggregator";
};

/// Rules for the effects of an access, or of an aggregator's event: windows, doorbells and interrupts change.
const MACHINE: &[Rule] = rules! {
    SYS_ioctl(1 SLOT) rare "needs KVM with hardware below it": "windows that are mapped into the guest, or not any more";
    SYS_ioctl(1 DOORBELL) rare "needs KVM with hardware below it": "doorbells that KVM signals";
    SYS_ioctl(1 MESSAGE) rare "needs KVM with hardware below it": "messages that KVM delivers";
    SYS_ioctl(1 ROUTES) rare "needs KVM with hardware below it": "where messages go";
    SYS_ioctl(1 LINE) rare "needs KVM with hardware below it": "interrupt lines";
    SYS_epoll_ctl rare "needs KVM with hardware below it": "doorbells that come and go";
};

/// Makes the machine.
const MAKER: &[Rule] = rules! {
        SYS_ioctl(1 ANY) rare "needs KVM with hardware below it": "a machine, its processors, all that changes of it, its end";
        SYS_epoll_ctl rare "needs KVM with hardware below it": "doorbells that come and go";
        SYS_clock_nanosleep rare "needs KVM with hardware below it": "until its processors have ended, before it tries again; what it starts";
        SYS_memfd_create rare "needs KVM with hardware below it": "main memory";
        SYS_ftruncate rare "needs KVM with hardware below it": "the same";
        SYS_fcntl(1 Test::int(F_ADD_SEALS)) rare "needs KVM with hardware below it": "the same";
        SYS_lseek rare "needs KVM with hardware below it": "kernel and initramfs, and how large memory's file is";
        SYS_epoll_create1 rare "needs KVM with hardware below it": "doorbells";
        SYS_epoll_wait rare "needs KVM with hardware below it": "a doorbells' thread that has not put its filter on";
        SYS_pread64 rare "needs KVM with hardware below it": "kernel and initramfs";
        SYS_tgkill(0 Test::OwnPid) rare "needs KVM with hardware below it": "brings processors back";
        SYS_sendto rare "needs KVM with hardware below it": "a signal's handler tells its thread";
        SYS_ioctl(1 Test::Field { mask: !7, value: 0x5400 }) rare "only at a terminal": "puts the terminal back (TCGETS, TCSETS)";
        SYS_ioctl(1 Test::Is(0x802c_542a)) rare "only at a terminal, and with newer C libraries": "the same (TCGETS2)";
        SYS_ioctl(1 Test::Is(0x402c_542b)) rare "only at a terminal, and with newer C libraries": "the same (TCSETS2)";
};

/// Main thread: makes the machine, again after each reset, and waits for its end.
pub(crate) const VMM: &[&[Rule]] = &[BASE, START, END, FACTS, GPU, AGGREGATOR, MAKER];

/// The same for a machine with a whole card.
pub(crate) const CARD_VMM: &[&[Rule]] = &[BASE, START, END, FACTS, GPU, MAKER, card::DRIVES];

/// Runs a processor.
const RUNS: &[Rule] = rules! {
    SYS_ioctl(1 RUN) rare "needs KVM with hardware below it": "the guest";
    SYS_epoll_wait rare "only a driver that looks for its own messages": "which messages wait";
    SYS_ioctl(1 GET_REGS) rare "needs KVM with hardware below it": "where it was at its end, for the log";
};

/// Runs a guest's processor, and carries out its accesses.
pub(crate) const PROCESSOR: &[&[Rule]] = &[BASE, START, END, FACTS, GPU, AGGREGATOR, MACHINE, RUNS];

/// The same where the guest has a whole card.
pub(crate) const CARD_PROCESSOR: &[&[Rule]] =
    &[BASE, END, FACTS, GPU, MACHINE, RUNS, card::DRIVES, card::READS];

/// Hears doorbells.
const HEARS: &[Rule] = rules! {
    SYS_epoll_wait rare "needs KVM with hardware below it": "waits for doorbells";
    SYS_read rare "needs KVM with hardware below it": "takes a signal";
    SYS_write rare "needs KVM with hardware below it": "work for the aggregator, interrupts, log";
    SYS_ppoll rare "needs KVM with hardware below it": "waits for the aggregator, or a thread that has not put its filter on";
    SYS_close rare "needs KVM with hardware below it": "a doorbell that is gone";
};

/// Carries out what doorbells that KVM signals stand for.
pub(crate) const DOORBELLS: &[&[Rule]] = &[
    BASE,
    END,
    FACTS,
    MACHINE,
    HEARS,
    rules! {
        SYS_sendmsg rare "needs KVM with hardware below it": "requests to the aggregator";
        SYS_recvmsg rare "needs KVM with hardware below it": "its answers";
    },
];

/// The same where nothing is behind a doorbell but a card.
pub(crate) const CARD_DOORBELLS: &[&[Rule]] = &[BASE, END, FACTS, MACHINE, HEARS];

/// How a file's room is given back, and cleared.
const FREE: u32 = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE).cast_unsigned();
const ZERO: u32 = (libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE).cast_unsigned();

/// Serves a queue of a disk, whose file is open.
pub(crate) const DISK: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_pread64 rare "needs KVM with hardware below it": "the guest reads";
        SYS_pwrite64 rare "needs KVM with hardware below it": "it writes";
        SYS_fdatasync rare "needs KVM with hardware below it": "it flushes";
        SYS_fallocate(1 Test::Is(FREE)) rare "needs KVM with hardware below it": "it discards";
        SYS_fallocate(1 Test::Is(ZERO)) rare "needs KVM with hardware below it": "it clears";
        SYS_epoll_wait rare "needs KVM with hardware below it": "waits for the guest's notifications";
        SYS_read rare "needs KVM with hardware below it": "takes them";
        SYS_fcntl(1 Test::int(F_DUPFD_CLOEXEC)) rare "only where its driver breaks the rules": "the message that says so";
        SYS_ioctl(1 LINE) rare "needs KVM with hardware below it": "the disk's interrupt";
        SYS_write rare "needs KVM with hardware below it": "the disk's messages, log";
        SYS_close rare "needs KVM with hardware below it": "memory of a machine that is gone";
    },
];

/// Has to do with a vhost-user back end, and connects to it again.
pub(crate) const BACK_END: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_epoll_wait rare "needs KVM with hardware below it": "waits for orders and for the back end";
        SYS_epoll_create1 rare "needs KVM with hardware below it": "whether an eventfd takes a signal without a wait";
        SYS_epoll_ctl rare "needs KVM with hardware below it": "a back end that came back, and the same";
        SYS_read rare "needs KVM with hardware below it": "orders";
        SYS_recvfrom rare "needs KVM with hardware below it": "what the back end asks";
        SYS_sendto rare "needs KVM with hardware below it": "the answer";
        SYS_sendmsg rare "needs KVM with hardware below it": "the protocol, with the guest's memory and eventfds";
        SYS_recvmsg rare "needs KVM with hardware below it": "its answers";
        SYS_write rare "needs KVM with hardware below it": "notifications, messages, log";
        SYS_ioctl(1 LINE) rare "needs KVM with hardware below it": "the device's line";
        SYS_ioctl(1 Test::Is(0x5421)) rare "needs KVM with hardware below it": "whether a socket waits (FIONBIO)";
        SYS_fcntl(1 Test::int(F_DUPFD_CLOEXEC)) rare "needs KVM with hardware below it": "a second descriptor of the same socket";
        SYS_socket(0 Test::int(AF_UNIX), 1 Test::int(SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK))
            rare "needs KVM with hardware below it": "a back end that came back";
        SYS_connect rare "needs KVM with hardware below it": "the same";
        SYS_socketpair(0 Test::int(AF_UNIX), 1 Test::int(SOCK_STREAM | SOCK_CLOEXEC))
            rare "needs KVM with hardware below it": "where it asks";
        SYS_close rare "needs KVM with hardware below it": "a back end that is gone, memory of a machine that is gone";
    },
];

/// Shuts the sockets of back ends that are late.
pub(crate) const BACK_END_CLOCK: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_shutdown(1 Test::Is(2)) rare "needs KVM with hardware below it": "a back end that does not answer";
        SYS_write rare "needs KVM with hardware below it": "log";
    },
];

/// Gives the guest what is typed.
pub(crate) const TYPING: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_read rare "needs KVM with hardware below it": "the keys";
        SYS_write rare "needs KVM with hardware below it": "the console's interrupt, log";
        SYS_clock_nanosleep rare "needs KVM with hardware below it": "until the guest has read what came before";
    },
];

/// Takes the aggregator's events, waits for the alarm, or carries out channels of the guest's kernel, and
/// raises the vGPU's interrupts.
pub(crate) const INTERRUPTS: &[&[Rule]] = &[
    BASE,
    END,
    MACHINE,
    rules! {
        SYS_ppoll rare "needs KVM with hardware below it": "waits for the aggregator";
        SYS_read rare "needs KVM with hardware below it": "the same";
        SYS_write rare "needs KVM with hardware below it": "interrupts, log";
        SYS_sendmsg rare "needs KVM with hardware below it": "requests to the aggregator: page tables have changed";
        SYS_recvmsg rare "needs KVM with hardware below it": "its answers";
        SYS_close rare "needs KVM with hardware below it": "what the connection had";
    },
];
