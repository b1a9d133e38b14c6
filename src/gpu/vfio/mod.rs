//! A real card through the kernel's VFIO. It is found on the bus ([`sysfs`]), judged ([`obstacles`]), bound
//! to `vfio-pci` ([`binding`]) and opened ([`open`]). Then it is a [`PciFunction`](gpuvmk_pci::PciFunction)
//! like any other ([`VfioFunction`]): the register driver and the front ends see no difference.
//!
//! The IOMMU contains the card: the card reaches the memory that [`VfioFunction`] maps, at the bus addresses
//! that the aggregator chose, and nothing else of the host.
//!
//! Sources: Linux `include/uapi/linux/vfio.h`, `Documentation/driver-api/vfio.rst`,
//! `Documentation/ABI/testing/sysfs-bus-pci`.

mod bars;
pub mod binding;
mod card;
mod claim;
mod dma;
mod function;
pub mod holders;
mod interrupts;
pub mod obstacles;
pub mod open;
pub mod probe;
pub mod reset;
pub mod sysfs;
pub mod vbios;

pub use claim::Claim;
pub use function::VfioFunction;
pub use open::{Interface, OpenError};
