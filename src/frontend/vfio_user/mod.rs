//! A vfio-user server: shows one PCI function to QEMU (`-device vfio-user-pci`) or another client over a
//! Unix socket.
//!
//! The client is the tenant's side of the trust boundary. Every message is read completely into one bounded
//! buffer, checked, and answered by exactly one reply (none where the client asked for none). A refused
//! command gets an errno, and the stream stays in step. File descriptors that a message brings are closed
//! unless its command takes them.
//!
//! The server implements the commands that QEMU's client uses and that the protocol requires, and refuses the
//! rest with a clear errno. Not implemented: dirty-page tracking, migration ([`no_migration`] keeps QEMU from
//! it), device features, region I/O descriptors (ioeventfd), MSI-X, and access to client memory that comes
//! without a descriptor (`DMA_READ`, `DMA_WRITE`).
//!
//! Threads: the caller's thread runs the server, and serves one client at a time; another thread refuses a
//! second one, as the device is taken. One helper thread exists while a client has given an unmask descriptor
//! for INTx (KVM's resample descriptor).

mod dma;
mod door;
mod framing;
mod info;
mod interrupts;
mod irq;
pub mod no_migration;
mod poll;
mod refusal;
mod region;
mod resample;
mod server;
mod session;
mod source;
mod stop;
mod sys;
mod traffic;
mod version;
pub mod wire;

pub use framing::{FrameError, MAX_MESSAGE};
pub use gpuvmk_host::socket_path::BindError;
pub use gpuvmk_host::socket_path::SocketSpec;
pub use interrupts::FrontendInterrupts;
pub use poll::USUAL as USUAL_POLL;
pub use server::{ServeError, Server};
pub use session::{Peer, SessionEnd, SessionObserver};
pub use stop::StopHandle;
