//! Services of the host: closing descriptors, sockets, processors, signals, and the service manager.
//!
//! Nothing here knows of GPUs.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod cancel;
pub mod clock;
pub mod contention;
pub mod fork;
pub mod journal;
pub mod pace;
pub mod poll_window;
pub mod processors;
pub mod reaper;
pub mod service_manager;
pub mod size;
pub mod socket_path;
pub mod urgency;
