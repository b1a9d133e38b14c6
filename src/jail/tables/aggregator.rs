//! The aggregator: what device back ends and operators drive.

use libc::{AT_FDCWD, F_ADD_SEALS, F_DUPFD_CLOEXEC, F_GET_SEALS, F_GETFL, O_CLOEXEC, O_RDWR};

use super::card;
use super::common::{BASE, END, FACTS, START};
use crate::rule::{Rule, Test, rules};

/// Waits for the service to end.
pub(crate) const SUPERVISOR: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_sendto: "a signal's handler tells its thread";
        SYS_write: "ends the threads, log";
        SYS_close: "the end";
    },
];

const SERVICE: &[Rule] = rules! {
    SYS_epoll_pwait2: "waits for everybody, to the microsecond";
    SYS_epoll_ctl: "device back ends that come and go";
    SYS_timerfd_settime: "when something is due";
    SYS_ppoll: "whether it is gone";
    SYS_write: "wakes porters, log";
    SYS_read: "the GPU's events";
    SYS_close: "what a back end had";
    SYS_io_destroy: "the end";
    SYS_statx: "what a file of guest memory is";
    SYS_unlink rare "only with a socket for recordings": "that socket, at the end";
    SYS_fcntl(1 Test::int(F_DUPFD_CLOEXEC)): "a second descriptor of the same file";
    SYS_fcntl(1 Test::int(F_GET_SEALS)): "whether a file is memory";
    SYS_fcntl(1 Test::int(F_GETFL)): "whether its sender may write to it";
    SYS_fstatfs: "how large its pages are";
};

/// Owns the software GPU.
pub(crate) const OWNER: &[&[Rule]] = &[
    BASE,
    END,
    FACTS,
    SERVICE,
    rules! {
        SYS_fallocate rare "only when descriptors run out": "memory that is to be zero";
        SYS_lseek: "memory that nobody has touched";
        SYS_ioctl(1 Test::Is(0xc020_aa00)): "pages of guest memory that nobody has are not made here";
        SYS_clock_nanosleep rare "the software GPU answers sooner": "waits for the GPU";
    },
];

/// How a node of the driver is opened. The bit left out is O_LARGEFILE, which says nothing here.
const NODE: Test = Test::Field { mask: !0x8000, value: (O_RDWR | O_CLOEXEC).cast_unsigned() };

/// Owns a real GPU through the NVIDIA driver: new files of its nodes (Landlock allows no others), its calls.
pub(crate) const RM_OWNER: &[&[Rule]] = &[
    BASE,
    END,
    FACTS,
    SERVICE,
    rules! {
        SYS_open(1 NODE)
            rare "needs NVIDIA's driver": "each mapping and event source of the driver has a file";
        SYS_openat(0 Test::int(AT_FDCWD), 2 NODE)
            rare "needs NVIDIA's driver; depends on the C library": "the same";
        SYS_pread64 rare "needs NVIDIA's driver": "whether a window is still somebody's";
        SYS_epoll_wait rare "needs NVIDIA's driver": "which of the driver's event sources has something";
        SYS_ioctl(1 Test::Field { mask: 0xc000_ff00, value: 0xc000_4600 })
            rare "needs NVIDIA's driver": "the driver's calls";
        SYS_clock_nanosleep rare "needs NVIDIA's driver": "waits for the GPU";
    },
];

/// Holds VMs' memory in place for a real GPU, through the NVIDIA driver.
pub(crate) const PINNER: &[&[Rule]] = &[
    BASE,
    END,
    FACTS,
    rules! {
        SYS_ioctl(1 Test::Field { mask: 0xc000_ff00, value: 0xc000_4600 })
            rare "needs NVIDIA's driver": "the driver's calls";
        SYS_statx rare "needs NVIDIA's driver": "how long a VM's memory is";
        SYS_fstatfs rare "needs NVIDIA's driver": "how large its pages are";
        SYS_fcntl(1 Test::int(F_GET_SEALS)) rare "needs NVIDIA's driver": "whether a file is memory";
        SYS_fcntl(1 Test::int(F_GETFL)) rare "needs NVIDIA's driver": "whether its sender may write to it";
        SYS_fcntl(1 Test::int(F_DUPFD_CLOEXEC))
            rare "needs NVIDIA's driver": "a second descriptor of the same file";
        SYS_ioctl(1 Test::Is(0xc020_aa00))
            rare "needs NVIDIA's driver": "pages that its back end has not filled are not made here";
        SYS_lseek rare "needs NVIDIA's driver": "whether its back end has filled it";
        SYS_fallocate rare "needs NVIDIA's driver": "a partition in system memory that is to be zero";
        SYS_close rare "needs NVIDIA's driver": "the same";
        SYS_write rare "needs NVIDIA's driver": "wakes the owner, log";
    },
];

/// Lets a card reach VMs' memory, and takes it away.
pub(crate) const CARD_PINNER: &[&[Rule]] = &[
    BASE,
    END,
    FACTS,
    rules! {
        SYS_ioctl(1 Test::Field { mask: 0xffff_ff00, value: 0x3b00 })
            rare "needs a card at vfio-pci": "VFIO's calls";
        SYS_statx rare "needs a card at vfio-pci": "how long a VM's memory is";
        SYS_fstatfs rare "needs a card at vfio-pci": "how large its pages are";
        SYS_fcntl(1 Test::int(F_GET_SEALS)) rare "needs a card at vfio-pci": "whether a file is memory";
        SYS_fcntl(1 Test::int(F_GETFL))
            rare "needs a card at vfio-pci": "whether its sender may write to it";
        SYS_fcntl(1 Test::int(F_DUPFD_CLOEXEC))
            rare "needs a card at vfio-pci": "a second descriptor of the same file";
        SYS_ioctl(1 Test::Is(0xc020_aa00))
            rare "needs a card at vfio-pci": "pages that its back end has not filled are not made here";
        SYS_lseek rare "needs a card at vfio-pci": "whether its back end has filled it";
        SYS_prlimit64(0 Test::Is(0))
            rare "needs a card at vfio-pci": "how much memory may be locked, where that is too little";
        SYS_close rare "needs a card at vfio-pci": "what a VM had";
        SYS_write rare "needs a card at vfio-pci": "log";
    },
];

/// Owns a card through VFIO: calls for its interrupts, its reset and the memory that it reaches.
pub(crate) const CARD_OWNER: &[&[Rule]] = &[
    BASE,
    END,
    FACTS,
    SERVICE,
    card::DRIVES,
    card::READS,
    rules! {
        SYS_memfd_create rare "needs a card at vfio-pci": "VRAM for the next VM";
        SYS_ftruncate rare "needs a card at vfio-pci": "the same";
        SYS_fcntl(1 Test::int(F_ADD_SEALS)) rare "needs a card at vfio-pci": "the same";
        SYS_fallocate rare "needs a card at vfio-pci": "memory that is to be zero";
        SYS_clock_nanosleep rare "needs a card at vfio-pci": "waits for the GPU";
    },
];

/// Hands on a card's interrupts.
pub(crate) const CARD_INTERRUPTS: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_epoll_wait rare "needs a card at vfio-pci": "the card's interrupts";
        SYS_read rare "needs a card at vfio-pci": "the same";
        SYS_write rare "needs a card at vfio-pci": "wakes the owner, interrupts, log";
        SYS_ppoll rare "needs a card at vfio-pci, for a VM alone": "whether an interrupt's descriptor has room";
        SYS_close rare "needs a card at vfio-pci": "the end";
    },
];

/// Serves operators.
pub(crate) const CONTROL: &[&[Rule]] = &[
    BASE,
    END,
    rules! {
        SYS_epoll_wait: "waits for operators";
        SYS_epoll_ctl: "operators that come and go";
        SYS_accept4: "operators";
        SYS_getsockopt: "who an operator is";
        SYS_ioctl(1 Test::Is(0x5421)): "reads of a connection must not wait";
        SYS_recvfrom: "questions";
        SYS_sendto: "answers";
        SYS_write: "asks the owner, log";
        SYS_close: "connections";
        SYS_statx: "whether the socket at its path is its own, at the end";
        SYS_unlink: "its own socket, at the end";
        SYS_clock_nanosleep rare "only without descriptors left": "waits before it tries again";
    },
];

/// Accepts device back ends; starts a porter for each.
pub(crate) const GATE: &[&[Rule]] = &[
    BASE,
    END,
    START,
    PORTERS,
    rules! {
        SYS_accept4: "device back ends";
        SYS_getsockopt: "who a back end is";
        SYS_pidfd_open rare "kernels before 6.5": "tells when a back end's process is gone";
        SYS_eventfd2: "what wakes a porter up, a back end's doorbell";
        SYS_shutdown(1 Test::Is(0)) rare "only with too many connections": "those that are turned away";
        SYS_statx: "whether the socket at its path is its own, at the end";
        SYS_unlink: "its own socket, at the end";
    },
];

/// Additional rules of a porter.
const PORTERS: &[Rule] = rules! {
    SYS_memfd_create: "a back end's doorbells and events";
    SYS_ftruncate: "the same";
    SYS_fcntl(1 Test::int(F_ADD_SEALS)): "the same";
    SYS_fcntl(1 Test::int(F_DUPFD_CLOEXEC)): "a second descriptor of the same file";
    SYS_pipe2: "a back end's events";
    SYS_ppoll: "waits for its back end and its owner";
    SYS_recvmsg: "requests, with guest memory";
    SYS_sendmsg: "answers, with the vGPU's memory";
    SYS_fcntl(1 Test::int(F_GET_SEALS)): "whether a file is memory";
    SYS_fcntl(1 Test::int(F_GETFL)): "what it is open for";
    SYS_read: "its owner has woken it up";
    SYS_write: "wakes its owner and its back end, log";
    SYS_io_submit: "messages to drivers";
    SYS_io_getevents: "makes room for more of them";
    SYS_close: "what a back end had";
    SYS_io_destroy rare "whoever ends last": "the end";
    SYS_clock_nanosleep rare "only with back ends that are not honest": "slows them down";
};

/// Owns the socket of one device back end.
pub(crate) const PORTER: &[&[Rule]] = &[
    BASE,
    END,
    PORTERS,
    rules! {
        SYS_eventfd2: "a back end's doorbell";
    },
];

/// Ends what VMs had. Each of its threads starts the next.
pub(crate) const REAPER: &[&[Rule]] = &[
    BASE,
    END,
    START,
    rules! {
        SYS_close: "descriptors, at the end of what they are";
        SYS_fallocate: "VRAM that is zero goes back to the kernel";
        SYS_memfd_create: "VRAM for the next owner";
        SYS_ftruncate: "the same";
        SYS_fcntl(1 Test::int(F_ADD_SEALS)): "the same";
        SYS_write rare "only when something fails": "log";
    },
];

const SOFTWARE_GPU: &[Rule] = rules! {
    SYS_write: "wakes the owner, interrupts, log";
    SYS_ppoll rare "with a small driver, the main thread raises an interrupt first": "whether an interrupt's descriptor has room, in a software GPU that is alone";
};

const CLEARS: &[Rule] = rules! {
    SYS_fallocate: "large pieces of memory that are to be zero";
};

const LONG_CLEARS: &[Rule] = rules! {
    SYS_fallocate rare "only where it takes more than a millisecond": "large pieces of memory that are to be zero";
};

/// A host unit of the software GPU, which executes short methods of engines too.
pub(crate) const PBDMA: &[&[Rule]] = &[BASE, END, SOFTWARE_GPU, CLEARS];

/// Long work of an engine of the software GPU.
pub(crate) const ENGINE: &[&[Rule]] = &[BASE, END, SOFTWARE_GPU, LONG_CLEARS];
