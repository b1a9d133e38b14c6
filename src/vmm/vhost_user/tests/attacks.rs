//! A back end that lies in every field, says nothing, or floods: its device suffers, and nobody waits.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::super::{BackEnd, Deadlines, DeviceKind, back_end_function};
use super::driver::{Driver, LIMIT, wait};
use super::fake::{
    Fake, GET_CONFIG, GET_FEATURES, GET_INFLIGHT_FD, GET_PROTOCOL_FEATURES, GET_QUEUE_NUM, GET_VRING_BASE,
    Lie, SET_FEATURES, SET_MEM_TABLE, SET_VRING_CALL, SET_VRING_ENABLE, message,
};
use super::{VERSION_1, back_end, is_running, round};

/// Answers that are none, made of the honest one.
fn lies(honest: &[u8]) -> Vec<Lie> {
    let changed = |at: usize, value: u8| {
        let mut bytes = honest.to_vec();
        if let Some(byte) = bytes.get_mut(at) {
            *byte = byte.wrapping_add(value);
        }
        Lie::Says(bytes)
    };
    let cut = |size: usize| Lie::Says(honest[..size.min(honest.len())].to_vec());
    vec![
        Lie::Silent,
        Lie::Leaves,
        // Another request's answer, no answer, another version, other sizes.
        changed(0, 1),
        changed(4, 252),
        changed(4, 1),
        changed(8, 1),
        changed(8, 255),
        changed(10, 255),
        cut(1),
        cut(11),
        cut(13),
        Lie::Says(vec![0xff; 4096]),
        Lie::Says([honest, honest].concat()),
    ]
}

/// What is said at the start must be believed, so a liar is not begun with.
#[test]
fn liar_is_refused_at_the_start_with_a_reason_and_in_time() {
    for request in [GET_FEATURES, GET_PROTOCOL_FEATURES, GET_QUEUE_NUM, GET_CONFIG] {
        for which in 0..lies(&[0; 20]).len() {
            // Twice the answer is taken for the next one's, or the socket's end.
            let fake = Fake::start(2);
            fake.lies(move |said, honest| (said == request).then(|| lies(honest)[which].clone()));
            let deadlines = Deadlines::start(LIMIT).unwrap();
            let start = Instant::now();
            let made = back_end_function(back_end(&fake, DeviceKind::Other(4)), &deadlines, Duration::ZERO);
            assert!(start.elapsed() < LIMIT * 20, "request {request}, lie {which}");
            let doubled = which + 1 == lies(&[0; 20]).len();
            // Of answers that have one size, `vhost` reads so much, whatever they say of it.
            let other_size = (5..8).contains(&which) && request != GET_CONFIG;
            let harmless = other_size || doubled && request == GET_CONFIG;
            assert!(made.is_err() || harmless, "request {request}, lie {which}");
        }
    }
    // Values that cannot be.
    for (request, value) in [(GET_QUEUE_NUM, 0u64), (GET_QUEUE_NUM, u64::MAX), (GET_CONFIG, 0)] {
        let fake = Fake::start(2);
        fake.lies(move |said, _| {
            (said == request).then(|| Lie::Says(message(request, 5, &value.to_le_bytes())))
        });
        let deadlines = Deadlines::start(LIMIT).unwrap();
        let made = back_end_function(back_end(&fake, DeviceKind::Other(4)), &deadlines, Duration::ZERO);
        assert!(made.unwrap_err().to_string().contains("back-end.sock"), "request {request}");
    }
}

#[test]
fn nobody_at_a_socket_and_one_who_takes_nobody_are_said_in_time() {
    let deadlines = Deadlines::start(LIMIT).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nobody.sock");
    let lonely = BackEnd { kind: DeviceKind::Blk, socket: socket.clone(), queues: None, configuration: 0 };
    assert!(back_end_function(lonely.clone(), &deadlines, Duration::from_millis(100)).is_err());
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let start = Instant::now();
    // Those who wait to be taken fill its queue.
    for _ in 0..2 {
        assert!(back_end_function(lonely.clone(), &deadlines, Duration::ZERO).is_err());
    }
    assert!(start.elapsed() < LIMIT * 20);
    drop(listener);
}

#[test]
fn lie_costs_its_device_alone_which_works_again_with_the_truth() {
    for request in
        [SET_FEATURES, GET_INFLIGHT_FD, SET_MEM_TABLE, SET_VRING_CALL, SET_VRING_ENABLE, GET_VRING_BASE]
    {
        for which in 0..lies(&[0; 20]).len() {
            let fake = Fake::start(1);
            let mut driver = Driver::new(back_end(&fake, DeviceKind::Other(4)), true);
            let told = Arc::new(AtomicBool::new(false));
            let lied = Arc::clone(&told);
            fake.lies(move |said, honest| {
                let now = said == request && !lied.swap(true, Ordering::SeqCst);
                now.then(|| lies(honest)[which].clone())
            });
            driver.start(VERSION_1, 1);
            // Every access of the guest's is answered at once meanwhile.
            let start = Instant::now();
            while !told.load(Ordering::SeqCst) && request != GET_VRING_BASE {
                driver.status();
                assert!(start.elapsed() < Duration::from_secs(20));
            }
            let start = Instant::now();
            driver.status();
            driver.config::<4>(0);
            assert!(start.elapsed() < LIMIT, "request {request}, lie {which}");
            driver.reset();
            fake.is_honest();
            driver.start(VERSION_1, 1);
            wait("a start with the truth", || is_running(&fake, 1));
            round(&mut driver, &fake, 0);
        }
    }
    // A place that no ring has.
    let fake = Fake::start(1);
    let mut driver = Driver::new(back_end(&fake, DeviceKind::Other(4)), true);
    driver.start(VERSION_1, 1);
    wait("a start", || is_running(&fake, 1));
    fake.lies(|said, _| {
        let body = [0, 0, 0, 0, 0, 0, 1, 0];
        (said == GET_VRING_BASE).then(|| Lie::Says(message(GET_VRING_BASE, 5, &body)))
    });
    driver.reset();
    fake.is_honest();
    driver.start(VERSION_1, 1);
    wait("a start with the truth", || is_running(&fake, 1));
}

#[test]
fn one_who_comes_back_with_less_is_not_taken() {
    let fake = Fake::start(2);
    let mut driver = Driver::new(back_end(&fake, DeviceKind::Other(4)), true);
    driver.start(VERSION_1, 2);
    wait("a start", || is_running(&fake, 2));
    for (request, value) in [(GET_FEATURES, super::fake::FEATURES & !(1 << 3)), (GET_QUEUE_NUM, 1)] {
        fake.lies(move |said, _| {
            (said == request).then(|| Lie::Says(message(request, 5, &value.to_le_bytes())))
        });
        let before = fake.state.lock().unwrap().connections;
        fake.die();
        wait("two attempts", || fake.state.lock().unwrap().connections >= before + 2);
        assert!(is_running(&fake, 0));
        fake.is_honest();
        wait("a start with the truth", || is_running(&fake, 2));
    }
    round(&mut driver, &fake, 1);
}

/// All who hold an eventfd share its flags.
#[test]
fn eventfds_that_are_full_and_have_writers_wait_hold_nobody_up() {
    let fake = Fake::start(1);
    let mut driver = Driver::new(back_end(&fake, DeviceKind::Other(4)), true);
    driver.start(VERSION_1, 1);
    wait("a start", || is_running(&fake, 1));
    {
        let state = fake.state.lock().unwrap();
        let ring = &state.rings[0];
        for event in [ring.kick.as_ref().unwrap(), ring.call.as_ref().unwrap()] {
            let mut event = event;
            // What is there is taken out first.
            let _ = event.read(&mut [0; 8]);
            event.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
            rustix::fs::fcntl_setfl(event, rustix::fs::OFlags::RDWR).unwrap();
        }
    }
    let start = Instant::now();
    driver.ask(0);
    driver.status();
    assert!(start.elapsed() < LIMIT, "an access waits");
    fake.die();
    wait("a start", || is_running(&fake, 1));
    driver.reset();
    // The message is sent at last, as KVM would take it.
    driver.messages[1].read().unwrap();
    driver.start(VERSION_1, 1);
    wait("a start", || is_running(&fake, 1));
    driver.ask(0);
    wait("what was asked", || fake.answer(0) == 1);
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// As long as there are no messages, all queues have one eventfd, of which the line is made.
#[test]
fn line_is_asserted_whatever_a_back_end_does_to_its_eventfd() {
    let fake = Fake::start(2);
    let mut driver = Driver::new(back_end(&fake, DeviceKind::Other(4)), false);
    let served = |driver: &mut Driver, queue: u16| {
        driver.ask(queue);
        wait("a kick", || fake.answer(queue.into()) == 1);
        wait("a line", || driver.reasons() == 1);
    };
    driver.start(VERSION_1, 2);
    wait("a start", || is_running(&fake, 2));
    (0..2).for_each(|queue| served(&mut driver, queue));
    let mut call = fake.state.lock().unwrap().rings[0].call.as_ref().unwrap().try_clone().unwrap();
    // Readers wait from now on, and what is there is taken away again.
    rustix::fs::fcntl_setfl(&call, rustix::fs::OFlags::RDWR).unwrap();
    for _ in 0..2000 {
        call.write_all(&1u64.to_ne_bytes()).unwrap();
        call.read_exact(&mut [0; 8]).unwrap();
    }
    driver.reset();
    driver.start(VERSION_1, 2);
    wait("a start", || is_running(&fake, 2));
    driver.reasons();
    (0..2).for_each(|queue| served(&mut driver, queue));
}

#[test]
fn floods_of_messages_and_of_requests_leave_the_device_to_its_driver() {
    let fake = Fake::start(1);
    let mut driver = Driver::new(back_end(&fake, DeviceKind::Other(4)), true);
    driver.start(VERSION_1, 1);
    wait("a start", || is_running(&fake, 1));
    let (mut call, mut requests) = {
        let mut state = fake.state.lock().unwrap();
        (state.rings[0].call.as_ref().unwrap().try_clone().unwrap(), state.requests.take().unwrap())
    };
    let end = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU32::new(0));
    let (ended, counted) = (Arc::clone(&end), Arc::clone(&written));
    let flood = std::thread::spawn(move || {
        while !ended.load(Ordering::SeqCst) {
            call.write_all(&1u64.to_ne_bytes()).unwrap();
            // It is not listened to for long.
            let _ = requests.write_all(&message(9, 1, &[0; 64]));
            let _ = requests.write_all(&message(2, 1, &[]));
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    while written.load(Ordering::SeqCst) < 200 {
        round(&mut driver, &fake, 0);
    }
    driver.reset();
    driver.start(VERSION_1, 1);
    wait("a start", || is_running(&fake, 1));
    round(&mut driver, &fake, 0);
    end.store(true, Ordering::SeqCst);
    flood.join().unwrap();
    // Something unasked where only answers are: the connection is given up, and made again.
    let before = fake.state.lock().unwrap().connections;
    fake.says(&[0; 64]);
    wait("another connection", || fake.state.lock().unwrap().connections > before);
    wait("a start", || is_running(&fake, 1));
    round(&mut driver, &fake, 0);
}
