//! A card that a process has through VFIO: configuration space, interrupts, reset, and the memory that it
//! reaches. Its BARs are mapped.

use crate::rule::{Rule, Test, rules};

/// Rules of threads that drive it.
pub(super) const DRIVES: &[Rule] = rules! {
    SYS_ioctl(1 Test::Field { mask: 0xffff_ff00, value: 0x3b00 })
        rare "needs a card at vfio-pci": "VFIO's calls";
    SYS_pwrite64 rare "needs a card at vfio-pci": "its configuration space";
    SYS_readlink rare "needs a card at vfio-pci": "which group it gives back, at the end";
};

/// Rules of threads that read its configuration space.
pub(super) const READS: &[Rule] = rules! {
    SYS_pread64 rare "needs a card at vfio-pci": "its configuration space";
};

/// Rules of threads that start the thread of its interrupts.
pub(super) const LISTENS: &[Rule] = rules! {
    SYS_epoll_create1 rare "needs a card at vfio-pci": "the thread of its interrupts";
    SYS_epoll_ctl rare "needs a card at vfio-pci": "the same";
    SYS_epoll_wait rare "needs a card at vfio-pci": "that thread, before its own filter is on";
};
