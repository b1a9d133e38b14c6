//! Devices whose queues another process serves: vhost-user back ends, such as passt for a network and
//! virtiofsd for folders.
//!
//! [`BackEnd`] says what device a back end is and where it listens, [`back_end_function`] makes a PCI
//! function of it. [`kind`] is what we say of a device in its back end's place, [`link`] the protocol
//! (rust-vmm's `vhost`), [`requests`] what a back end asks of us, [`deadline`] what ends waits for it,
//! [`server`] the thread that has to do with it, [`wanted`] what others want of that.
//!
//! A back end is trusted no more than a guest. It has its guest's memory, and can do to that guest what it
//! likes; nothing else is its own. What it says is checked, its death or silence costs its device alone: each
//! wait for it ends by the clock and is that of its own thread, which nobody waits for.

mod deadline;
mod device;
mod kind;
mod known;
mod link;
mod requests;
mod server;
mod socket;
#[cfg(test)]
mod tests;
mod wanted;

pub use deadline::{Deadlines, STEP_LIMIT};
pub use device::{BackEndError, back_end_function};
pub use kind::{BackEnd, DeviceKind};
pub use link::try_answers;
pub use requests::try_requests;
