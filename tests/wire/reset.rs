//! DEVICE_RESET and DEVICE_GET_INFO.

use crate::common::Running;
use crate::common::function::Event;
use gpuvmk::frontend::vfio_user::wire::{self, command, irq};
use gpuvmk::pci::mapping::create_memory_file;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use zerocopy::IntoBytes;

#[test]
fn reset_reaches_the_function_and_is_answered_without_a_body() {
    let server = Running::start();
    let mut client = server.client();
    client.write(0, 0, &[1; 4]);
    server.function.take_events();

    let reply = client.command(command::DEVICE_RESET, &[]);

    assert_eq!((reply.errno(), reply.body.len()), (0, 0));
    assert_eq!(server.function.take_events(), [Event::Reset]);
    assert_eq!(client.read(0, 0, 4).body[16..], [0; 4]);
}

#[test]
fn memory_and_interrupts_stay_across_a_reset() {
    let server = Running::start();
    let mut peer = server.peer();
    let file = create_memory_file(c"reset", 4096).unwrap();
    let event = EventFd::new(EFD_NONBLOCK).unwrap();
    peer.dma_map(0, 0x1000, 4096, file.as_raw_fd()).unwrap();
    let flags = irq::DATA_EVENTFD | irq::ACTION_TRIGGER;
    peer.set_irqs(irq::MSI, flags, 0, 1, &[event.as_raw_fd()]).unwrap();

    peer.reset().unwrap();
    server.function.fire_msi();

    assert_eq!(event.read().unwrap(), 1);
    assert_eq!(server.function.dma.len(), 1);
}

#[test]
fn reset_with_a_body_is_refused() {
    let server = Running::start();
    let mut client = server.client();
    server.function.take_events();

    let reply = client.command(command::DEVICE_RESET, &[0; 4]);

    assert_eq!(reply.errno(), libc::EINVAL);
    assert!(server.function.take_events().is_empty());
    client.assert_in_step();
}

#[test]
fn device_is_a_resettable_pci_function() {
    let server = Running::start();
    let mut client = server.client();
    let request = wire::DeviceInfo { argsz: 16, flags: 0, num_regions: 0, num_irqs: 0 };

    let info: wire::DeviceInfo = client.command(command::DEVICE_GET_INFO, request.as_bytes()).parse();

    assert_eq!(info, wire::DeviceInfo { argsz: 16, flags: 3, num_regions: 9, num_irqs: 3 });
}

#[test]
fn resets_that_a_client_leaves_behind_do_not_keep_the_next_one_waiting() {
    let server = Running::start();
    *server.function.slow.lock().unwrap() = Duration::from_millis(60);
    let mut client = server.client();
    server.function.take_events();
    for _ in 0..200 {
        client.post(command::DEVICE_RESET, &[]);
    }
    drop(client);

    let start = Instant::now();
    let _next = server.client();

    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let resets = server.function.take_events().into_iter().filter(|event| *event == Event::Reset).count();
    assert!(resets < 20, "{resets} resets");
}
