//! DEVICE_GET_IRQ_INFO and DEVICE_SET_IRQS, and interrupts on their way out.

use crate::common::{Running, descriptors_of, eventually};
use gpuvmk::frontend::vfio_user::wire::{self, command, irq};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use zerocopy::IntoBytes;

const TRIGGER_EVENTFD: u32 = irq::DATA_EVENTFD | irq::ACTION_TRIGGER;

fn event() -> EventFd {
    EventFd::new(EFD_NONBLOCK).unwrap()
}

#[allow(unsafe_code, reason = "the eventfd crate hands out raw descriptors only")]
fn fd(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open while `event` lives, which the result borrows.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

fn count(event: &EventFd) -> u64 {
    event.read().unwrap_or(0)
}

fn set(flags: u32, index: u32, start: u32, count: u32) -> Vec<u8> {
    wire::SetIrqs { argsz: 20, flags, index, start, count }.as_bytes().to_vec()
}

fn info(index: u32) -> Vec<u8> {
    wire::IrqInfo { argsz: 16, flags: 0, index, count: 0 }.as_bytes().to_vec()
}

#[test]
fn types_and_vectors_follow_configuration_space() {
    let server = Running::start();
    let mut peer = server.peer();

    let types: Vec<(u32, u32)> =
        (0..3).map(|index| peer.get_irq_info(index).unwrap()).map(|info| (info.flags, info.count)).collect();

    assert_eq!(types, [(0b0111, 1), (0b1001, 1), (0b1001, 0)]);
}

#[test]
fn unknown_interrupt_type_is_refused() {
    let server = Running::start();
    let mut client = server.client();

    for index in [3, 4, u32::MAX] {
        assert_eq!(client.command(command::DEVICE_GET_IRQ_INFO, &info(index)).errno(), libc::EINVAL);
    }
    assert_eq!(client.command(command::DEVICE_GET_IRQ_INFO, &info(0)[..15]).errno(), libc::EINVAL);
    client.assert_in_step();
}

#[test]
fn independent_client_gets_messages() {
    let server = Running::start();
    let mut peer = server.peer();
    let event = event();

    peer.set_irqs(irq::MSI, TRIGGER_EVENTFD, 0, 1, &[event.as_raw_fd()]).unwrap();
    server.function.fire_msi();
    server.function.fire_msi();

    assert_eq!(count(&event), 2);
    peer.set_irqs(irq::MSI, irq::DATA_NONE | irq::ACTION_TRIGGER, 0, 0, &[]).unwrap();
    server.function.fire_msi();
    assert_eq!(count(&event), 0);
}

#[test]
fn line_masks_itself_and_is_signalled_again_on_unmask() {
    let server = Running::start();
    let mut client = server.client();
    let event = event();
    client.command_with(command::DEVICE_SET_IRQS, &set(TRIGGER_EVENTFD, 0, 0, 1), &[fd(&event)]);
    let unmask = set(irq::DATA_NONE | irq::ACTION_UNMASK, 0, 0, 1);

    server.function.set_intx(true);
    server.function.set_intx(true);
    assert_eq!(count(&event), 1);
    assert_eq!(client.command(command::DEVICE_SET_IRQS, &unmask).errno(), 0);
    assert_eq!(count(&event), 1, "still asserted");
    server.function.set_intx(false);
    client.command(command::DEVICE_SET_IRQS, &unmask);

    assert_eq!(count(&event), 0);
}

#[test]
fn masked_line_is_silent() {
    let server = Running::start();
    let mut client = server.client();
    let event = event();
    client.command_with(command::DEVICE_SET_IRQS, &set(TRIGGER_EVENTFD, 0, 0, 1), &[fd(&event)]);

    client.command(command::DEVICE_SET_IRQS, &set(irq::DATA_NONE | irq::ACTION_MASK, 0, 0, 1));
    server.function.set_intx(true);
    assert_eq!(count(&event), 0);
    let selected = [set(irq::DATA_BOOL | irq::ACTION_UNMASK, 0, 0, 1), vec![1]].concat();
    client.command(command::DEVICE_SET_IRQS, &selected);

    assert_eq!(count(&event), 1);
}

#[test]
fn unselected_vectors_are_left_alone() {
    let server = Running::start();
    let mut client = server.client();
    let event = event();
    client.command_with(command::DEVICE_SET_IRQS, &set(TRIGGER_EVENTFD, 0, 0, 1), &[fd(&event)]);
    server.function.set_intx(true);
    count(&event);

    let unselected = [set(irq::DATA_BOOL | irq::ACTION_UNMASK, 0, 0, 1), vec![0]].concat();
    assert_eq!(client.command(command::DEVICE_SET_IRQS, &unselected).errno(), 0);

    assert_eq!(count(&event), 0);
}

#[test]
fn unmask_descriptor_unmasks_without_a_message() {
    let server = Running::start();
    let mut client = server.client();
    let (event, unmask) = (event(), event());
    client.command_with(command::DEVICE_SET_IRQS, &set(TRIGGER_EVENTFD, 0, 0, 1), &[fd(&event)]);
    let body = set(irq::DATA_EVENTFD | irq::ACTION_UNMASK, 0, 0, 1);
    assert_eq!(client.command_with(command::DEVICE_SET_IRQS, &body, &[fd(&unmask)]).errno(), 0);
    server.function.set_intx(true);
    assert_eq!(count(&event), 1);

    unmask.write(1).unwrap();

    eventually("the line is signalled again", || count(&event) == 1);
    assert_eq!(client.command(command::DEVICE_SET_IRQS, &body).errno(), 0, "taken away");
    unmask.write(1).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(count(&event), 0);
}

#[test]
fn client_may_trigger_to_test_its_wiring() {
    let server = Running::start();
    let mut client = server.client();
    let (line, message) = (event(), event());
    client.command_with(command::DEVICE_SET_IRQS, &set(TRIGGER_EVENTFD, 0, 0, 1), &[fd(&line)]);
    client.command_with(command::DEVICE_SET_IRQS, &set(TRIGGER_EVENTFD, 1, 0, 1), &[fd(&message)]);

    let trigger = irq::DATA_NONE | irq::ACTION_TRIGGER;
    client.command(command::DEVICE_SET_IRQS, &set(trigger, 0, 0, 1));
    client.command(command::DEVICE_SET_IRQS, &set(trigger, 1, 0, 1));

    assert_eq!((count(&line), count(&message)), (1, 1));
}

#[test]
fn vector_without_a_descriptor_is_deassigned() {
    let server = Running::start();
    let mut client = server.client();
    let event = event();
    client.command_with(command::DEVICE_SET_IRQS, &set(TRIGGER_EVENTFD, 1, 0, 1), &[fd(&event)]);

    assert_eq!(client.command(command::DEVICE_SET_IRQS, &set(TRIGGER_EVENTFD, 1, 0, 1)).errno(), 0);
    server.function.fire_msi();

    assert_eq!(count(&event), 0);
}

#[test]
fn full_counter_does_not_stop_the_device() {
    let server = Running::start();
    let mut client = server.client();
    let event = event();
    event.write(u64::MAX - 1).unwrap();
    client.command_with(command::DEVICE_SET_IRQS, &set(TRIGGER_EVENTFD, 1, 0, 1), &[fd(&event)]);

    server.function.fire_msi();

    client.assert_in_step();
}

#[test]
fn malformed_requests_are_refused() {
    let server = Running::start();
    let mut client = server.client();
    let mut errno = |body: &[u8]| client.command(command::DEVICE_SET_IRQS, body).errno();
    let trigger = irq::DATA_NONE | irq::ACTION_TRIGGER;

    let bodies = [
        set(trigger, 3, 0, 1),
        set(trigger, 2, 0, 1),
        set(trigger, 0, 0, 2),
        set(trigger, 0, 1, 1),
        set(trigger, 1, u32::MAX, 1),
        set(trigger, 1, 1, u32::MAX),
        set(irq::DATA_NONE, 0, 0, 1),
        set(irq::ACTION_TRIGGER, 0, 0, 1),
        set(trigger | irq::DATA_BOOL, 0, 0, 1),
        set(trigger | irq::ACTION_MASK, 0, 0, 1),
        set(trigger | 1 << 6, 0, 0, 1),
        set(irq::DATA_BOOL | irq::ACTION_TRIGGER, 0, 0, 1),
        [set(irq::DATA_BOOL | irq::ACTION_TRIGGER, 0, 0, 1), vec![1, 1]].concat(),
        [set(trigger, 0, 0, 1), vec![1]].concat(),
        set(irq::DATA_NONE | irq::ACTION_MASK, 1, 0, 1),
        set(irq::DATA_EVENTFD | irq::ACTION_MASK, 0, 0, 1),
        wire::SetIrqs { argsz: 19, flags: trigger, index: 0, start: 0, count: 1 }.as_bytes().to_vec(),
        set(trigger, 0, 0, 1)[..19].to_vec(),
        Vec::new(),
    ];
    for body in bodies {
        assert_eq!(errno(&body), libc::EINVAL, "{body:?}");
    }
    client.assert_in_step();
}

#[test]
fn wrong_descriptors_are_refused_and_closed() {
    let server = Running::start();
    let mut client = server.client();
    let event = event();
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("no-eventfd")).unwrap();
    let mut errno = |flags, fds: &[BorrowedFd<'_>]| {
        client.command_with(command::DEVICE_SET_IRQS, &set(flags, 1, 0, 1), fds).errno()
    };

    assert_eq!(errno(TRIGGER_EVENTFD, &[file.as_fd()]), libc::EINVAL, "a file");
    assert_eq!(errno(TRIGGER_EVENTFD, &[file.as_fd(), file.as_fd()]), libc::EINVAL, "too many");
    assert_eq!(errno(irq::DATA_NONE | irq::ACTION_TRIGGER, &[file.as_fd()]), libc::EINVAL, "unexpected");
    assert_eq!(errno(TRIGGER_EVENTFD, &[fd(&event)]), 0);
    assert_eq!(descriptors_of("no-eventfd"), 1, "only the test's own");
}

#[test]
fn descriptors_of_a_refused_set_do_not_replace_present_ones() {
    let server = Running::start();
    let mut client = server.client();
    let (good, late) = (event(), event());
    client.command_with(command::DEVICE_SET_IRQS, &set(TRIGGER_EVENTFD, 1, 0, 1), &[fd(&good)]);

    let refused = client.command_with(
        command::DEVICE_SET_IRQS,
        &set(TRIGGER_EVENTFD, 1, 0, 1),
        &[fd(&late), fd(&late)],
    );
    server.function.fire_msi();

    assert_eq!(refused.errno(), libc::EINVAL);
    assert_eq!((count(&good), count(&late)), (1, 0));
}
