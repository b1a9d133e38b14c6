//! Back ends that serve, go, come back, and lie.

mod attacks;
mod driver;
mod fake;

use std::io::Write;

use super::{BackEnd, DeviceKind};
use driver::{Driver, wait};
use fake::{Fake, GET_INFLIGHT_FD, SET_CONFIG, SET_INFLIGHT_FD, SET_VRING_BASE, SET_VRING_ENABLE, message};

const VERSION_1: u64 = 1 << 32;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

fn back_end(fake: &Fake, kind: DeviceKind) -> BackEnd {
    let configuration = if matches!(kind, DeviceKind::Other(_)) { 32 } else { 0 };
    BackEnd { kind, socket: fake.socket.clone(), queues: None, configuration }
}

fn is_running(fake: &Fake, queues: usize) -> bool {
    let state = fake.state.lock().unwrap();
    state.rings.iter().filter(|ring| ring.enabled).count() == queues
}

/// Asks, has the back end answer, and takes the message.
fn round(driver: &mut Driver, fake: &Fake, queue: u16) {
    let before = driver.answered(queue);
    driver.ask(queue);
    wait("a kick", || fake.answer(queue.into()) == 1);
    assert_eq!(driver.answered(queue), before + 1);
    let event = &driver.messages[usize::from(queue) + 1];
    wait("a message", || event.read().is_ok());
}

#[test]
fn queues_of_a_device_are_served_by_another_process_each_with_its_message() {
    let fake = Fake::start(3);
    let mut driver = Driver::new(back_end(&fake, DeviceKind::Other(4)), true);
    // What it has, without what is the protocol's.
    assert_eq!(driver.offered(), fake::FEATURES & !(1 << 30));
    assert_eq!(driver.config::<4>(28), [28, 29, 30, 31]);
    assert_eq!(driver.config::<4>(30), [30, 31, 0, 0], "no more than was asked for");
    driver.start(VERSION_1 | 1 << 3, 3);
    wait("a start", || is_running(&fake, 3));
    assert_eq!(fake.state.lock().unwrap().features, VERSION_1 | 1 << 3 | 1 << 30);
    for queue in [2, 0, 1, 0] {
        round(&mut driver, &fake, queue);
    }
    driver.reset();
    assert!(is_running(&fake, 0), "the driver sees its reset when queues are left alone");
    // The same connection serves the next driver, from the beginning of its rings.
    driver.start(VERSION_1, 1);
    wait("a start", || is_running(&fake, 1));
    round(&mut driver, &fake, 0);
    assert_eq!(fake.state.lock().unwrap().connections, 1);
}

#[test]
fn back_end_that_comes_back_goes_on_where_it_was() {
    let fake = Fake::start(2);
    let mut driver = Driver::new(back_end(&fake, DeviceKind::Net { mac: MAC }), true);
    assert_eq!(driver.config::<8>(0), [2, 0, 0, 0, 0, 7, 1, 0]);
    driver.start(VERSION_1 | 1 << 16, 2);
    wait("a start", || is_running(&fake, 2));
    for _ in 0..40 {
        round(&mut driver, &fake, 1);
    }
    fake.die();
    wait("no link", || driver.config::<1>(6) == [0]);
    wait("a message about it", || driver.messages[0].read().is_ok());
    driver.ask(1);
    wait("a link", || driver.config::<1>(6) == [1]);
    wait("a start", || is_running(&fake, 2));
    let bases = fake.said(SET_VRING_BASE);
    assert_eq!(bases.last().unwrap(), &[1, 0, 0, 0, 40, 0, 0, 0]);
    wait("what was asked meanwhile", || fake.answer(1) == 1);
    assert_eq!(driver.answered(1), 41);
    round(&mut driver, &fake, 0);
    // It is given what the one before it had noted.
    assert_eq!((fake.said(GET_INFLIGHT_FD).len(), fake.said(SET_INFLIGHT_FD).len()), (1, 2));
    assert_eq!(fake.said(SET_INFLIGHT_FD)[1][..20], [&[0x77; 16][..], &[2, 0, 16, 0]].concat());
    // One that goes while nobody drives its device.
    driver.reset();
    fake.die();
    wait("no link", || driver.config::<1>(6) == [0]);
    driver.start(VERSION_1, 2);
    wait("a start", || is_running(&fake, 2));
    assert_eq!(fake.said(SET_VRING_BASE).last().unwrap(), &[1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(fake.said(GET_INFLIGHT_FD).len(), 2, "another driver's requests are others");
    round(&mut driver, &fake, 1);
}

#[test]
fn configuration_is_passed_on_in_both_directions() {
    let fake = Fake::start(1);
    let mut driver = Driver::new(back_end(&fake, DeviceKind::Other(4)), true);
    driver.start(VERSION_1, 1);
    driver.set_config(4, &[9, 8]);
    wait("a write", || driver.config::<2>(4) == [9, 8]);
    assert_eq!(fake.said(SET_CONFIG)[0][12..], [9, 8]);
    driver.set_config(31, &[1, 1]);
    wait("a message about it", || driver.messages[0].read().is_ok());
    let [generation] = driver.read::<1>(21);
    fake.state.lock().unwrap().configuration[0] = 0x77;
    let mut requests = fake.state.lock().unwrap().requests.take().unwrap();
    requests.write_all(&message(2, 1, &[])).unwrap();
    wait("news", || driver.config::<1>(0) == [0x77]);
    wait("a message about it", || driver.messages[0].read().is_ok());
    assert_eq!(driver.read::<1>(21), [generation + 1]);
    assert_eq!(fake.said(SET_CONFIG).len(), 1, "what lies behind is not its business");
}

#[test]
fn queues_rest_while_the_function_may_not_reach_memory() {
    use gpuvmk_pci::{PciFunction, Region, header};
    let fake = Fake::start(1);
    let mut driver = Driver::new(back_end(&fake, DeviceKind::Other(4)), true);
    driver.start(VERSION_1, 1);
    wait("a start", || is_running(&fake, 1));
    round(&mut driver, &fake, 0);
    let command = |value: u16| {
        driver.function.write(Region::Config, header::COMMAND, &value.to_le_bytes()).unwrap();
    };
    command(2);
    wait("a rest", || is_running(&fake, 0));
    command(6);
    wait("a start", || is_running(&fake, 1));
    assert_eq!(fake.said(SET_VRING_BASE).last().unwrap(), &[0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(fake.said(SET_VRING_ENABLE).len(), 3);
    round(&mut driver, &fake, 0);
}

#[test]
fn queue_without_memory_is_the_drivers_mistake() {
    let fake = Fake::start(1);
    let mut driver = Driver::new(back_end(&fake, DeviceKind::Other(4)), true);
    for (register, address) in [(32, 8u64), (40, 1), (48, u64::MAX - 3), (32, 1 << 20)] {
        driver.reset();
        driver.start_with(VERSION_1, register, address);
        wait("a device that needs a reset", || driver.status() & 1 << 6 != 0);
    }
    assert!(is_running(&fake, 0));
    driver.start(VERSION_1, 1);
    wait("a start", || is_running(&fake, 1));
    round(&mut driver, &fake, 0);
}
