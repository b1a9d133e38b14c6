//! The vfio-user server: a client sends what it wants, in pieces as it wants, with descriptors of every kind.
//! The session ends, every reply is well formed, nothing of the client is kept, no descriptor leaks.

mod client;
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "shared with tests"
)]
#[path = "../../tests/common/function.rs"]
mod function;
mod message;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use gpuvmk::frontend::vfio_user::{Server, StopHandle};
use gpuvmk::pci::PciFunction;

use crate::input::Input;
use crate::log_sink;
use function::TestFunction;

/// Serves a client that sends what `data` says.
pub fn run(data: &[u8]) {
    log_sink::install();
    let before = open_files();
    serve(data);
    assert_eq!(open_files(), before, "descriptors leak");
}

fn serve(data: &[u8]) {
    let mut input = Input::new(data);
    let pieces = message::pieces(&mut input);
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let server = Server::from_fd(OwnedFd::from(ours)).expect("a stream socket");
    let function = Arc::new(TestFunction::silent());
    let shown: Arc<dyn PciFunction> = function.clone();
    let stop = StopHandle::new().expect("an eventfd");
    std::thread::scope(|scope| {
        let client = scope.spawn(move || client::send(theirs, &pieces));
        server.run(&shown, &(), &stop).expect("a client cannot end the server");
        let replies = client.join().expect("a client that does not panic");
        client::check(&replies);
    });
    assert!(!function.is_connected(), "interrupts stay connected");
    assert!(function.dma.is_empty(), "memory of the client stays mapped");
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}
