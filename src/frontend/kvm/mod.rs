//! A virtual machine of our own on KVM: guests reach PCI functions without a socket in between.
//!
//! An access to a function is an exit of the guest's processor, carried out by the thread that runs it
//! ([`Processor`]). Some accesses need no exit: memory that a window shows is mapped into the guest while it
//! is shown ([`windows`]), and interrupts go through an eventfd that KVM delivers by itself ([`messages`]).
//! KVM signals doorbells that a function names to a thread that carries them out ([`doorbells`]), and
//! notifications of queues to who serves these ([`kicks`]).
//!
//! Guests are not trusted: no access, value or order of accesses makes this code panic, and what a guest can
//! have it keep is bounded by the sizes of its functions' regions. The process is: it owns the guest's
//! memory.

use super::pieces;

mod attached;
mod bus;
mod doorbells;
mod error;
mod kicks;
mod lines;
mod machine;
mod messages;
mod msix;
mod processor;
mod ram;
mod routes;
mod slots;
mod windows;

pub use attached::{Attached, Placement, ShortcutCounts};
pub use bus::{BusDevice, Buses};
pub use error::KvmError;
pub use machine::Machine;
pub use processor::{Exit, Processor};
pub use ram::Ram;
pub use windows::WindowCounts;
