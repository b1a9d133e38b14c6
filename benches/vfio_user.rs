//! What an access costs through the vfio-user socket, with a function that does nothing: the price that every
//! trapped register read of a guest pays, without the guest's exit.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start has nothing to tell")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::client::{Client, write_body};
use common::function::TestFunction;
use divan::Bencher;
use divan::counter::ItemsCount;
use gpuvmk::frontend::vfio_user::wire::{self, command};
use gpuvmk::frontend::vfio_user::{Server, StopHandle};
use gpuvmk::pci::PciFunction;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A client whose server runs on another thread until the client is dropped.
fn connected() -> Client {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = Server::from_fd(OwnedFd::from(theirs)).unwrap();
    let function: Arc<dyn PciFunction> = Arc::new(TestFunction::silent());
    let stop = StopHandle::new().unwrap();
    std::thread::spawn(move || server.run(&function, &(), &stop).unwrap());
    let mut client = Client::on(ours);
    client.negotiate();
    client
}

/// A blocking read of a register.
#[divan::bench]
fn read_4_bytes(bencher: Bencher<'_, '_>) {
    let mut client = connected();
    bencher.bench_local(|| client.read(0, 0x100, 4));
}

/// A write that waits for its answer (configuration space, I/O ports).
#[divan::bench]
fn write_4_bytes(bencher: Bencher<'_, '_>) {
    let mut client = connected();
    bencher.bench_local(|| client.write(0, 0x100, &[1, 2, 3, 4]));
}

/// Posted writes, one message each, and the read that waits for them.
#[divan::bench]
fn post_100_writes(bencher: Bencher<'_, '_>) {
    let mut client = connected();
    let body = write_body(0, 0x100, &[1, 2, 3, 4]);
    bencher.counter(ItemsCount::new(100u32)).bench_local(|| {
        for _ in 0..100 {
            client.post(command::REGION_WRITE, &body);
        }
        client.read(0, 0x100, 4)
    });
}

/// Posted writes in one message, and the read that waits for them.
#[divan::bench]
fn post_100_writes_together(bencher: Bencher<'_, '_>) {
    let mut client = connected();
    let access = wire::RegionAccess { offset: 0x100, region: 0, count: 4 };
    let writes = [wire::SmallWrite { access, data: [1; 8] }; 100];
    let body = [wire::WriteMulti { count: 100 }.as_bytes(), writes.as_bytes()].concat();
    bencher.counter(ItemsCount::new(100u32)).bench_local(|| {
        client.post(command::REGION_WRITE_MULTI, &body);
        client.read(0, 0x100, 4)
    });
}

fn main() {
    divan::main();
}
