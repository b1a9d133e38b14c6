//! Handles, parents, frees and limits, with the status codes of the real resource manager.

use super::config;
use super::driver::{ALLOC, ALLOC_MEMORY, CONTROL, Driver, UNLOADING, words};
use super::probe::{DEVICE, SPACE, SUBDEVICE, channel, client, set_page_directory};
use crate::model::Counters;
use crate::model::{Call, GspConfig, Note, ObjectLimits};
use gpuvmk_backend::ObjectUsage;

const CLIENT: u32 = 0xc1d0_0000;
const INTERNAL: u32 = 0xc1e0_0004;

const DUPLICATE: u32 = 0x19;
const RESOURCES: u32 = 0x1a;
const PERMISSIONS: u32 = 0x1b;
const INVALID_CLASS: u32 = 0x22;
const INVALID_CLIENT: u32 = 0x23;
const INVALID_HANDLE: u32 = 0x33;
const INVALID_PARENT: u32 = 0x36;
const PARAM_STRUCT: u32 = 0x3a;
const NOT_SUPPORTED: u32 = 0x56;
const NOT_FOUND: u32 = 0x57;

fn event(driver: &mut Driver, client: u32, parent: u32, handle: u32) -> u32 {
    driver.alloc(client, parent, handle, 0x7e, &[0; 0x18])
}

#[test]
pub fn handles_are_unique_within_a_client_and_not_between_clients() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);

    client(&mut driver, CLIENT + 1, true);

    assert_eq!(driver.alloc(CLIENT, CLIENT, CLIENT, 0, &[]), DUPLICATE);
    assert_eq!(driver.alloc(CLIENT, CLIENT, DEVICE, 0x80, &[0; 0x38]), DUPLICATE);
    assert_eq!(driver.alloc(CLIENT, CLIENT, 0, 0x80, &[0; 0x38]), 0, "RM makes a name up");
    assert_eq!(driver.alloc(CLIENT, CLIENT, CLIENT, 0x80, &[0; 0x38]), INVALID_HANDLE);
}

#[test]
pub fn parents_must_exist_and_be_of_the_right_type() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);

    assert_eq!(driver.alloc(CLIENT + 9, CLIENT + 9, 1, 0x80, &[0; 0x38]), INVALID_CLIENT);
    assert_eq!(driver.alloc(CLIENT, 0x77, 1, 0x2080, &[0; 4]), INVALID_PARENT);
    assert_eq!(driver.alloc(CLIENT, CLIENT, 1, 0x2080, &[0; 4]), INVALID_PARENT);
    assert_eq!(driver.alloc(CLIENT, SUBDEVICE, 1, 0x90f1, &[0; 0x30]), INVALID_PARENT);
    assert_eq!(driver.alloc(CLIENT, DEVICE, 1, 0xcbc0, &[]), INVALID_PARENT);
    assert_eq!(driver.alloc(CLIENT, SPACE, 1, 0xc86f, &channel(1, 1, 0, 0)), INVALID_PARENT);
}

#[test]
fn unknown_classes_and_parameters_of_a_wrong_size_are_refused() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);

    assert_eq!(driver.alloc(CLIENT, DEVICE, 1, 0x0073, &[]), INVALID_CLASS);
    assert_eq!(driver.alloc(CLIENT, DEVICE, 1, 0x90f1, &[0; 0x2c]), PARAM_STRUCT);
    assert_eq!(driver.alloc(CLIENT + 1, CLIENT + 1, CLIENT + 1, 0, &[0; 8]), PARAM_STRUCT);

    assert!(driver.gsp.take_notes().contains(&Note::Unknown { what: Call::Allocation(0x73), name: None }));

    let Counters { refused, .. } = driver.gsp.counters();
    let by_reason = driver.gsp.refusals();
    assert_eq!(by_reason.class + by_reason.parameters, refused);
    assert!(by_reason.class > 0 && by_reason.parameters > 1, "{by_reason:?}");
}

#[test]
pub fn parameters_longer_than_the_rpc_are_refused() {
    let mut driver = Driver::booted(config());

    let alloc = driver.call(ALLOC, &words(&[CLIENT, CLIENT, CLIENT, 0, 0, 0x6c, 0, 0]));
    let control = driver.call(CONTROL, &words(&[INTERNAL, 0xabcd_2080, 0x2080_0137, 0, u32::MAX, 0]));

    assert_eq!((alloc.result, alloc.word(16)), (0, PARAM_STRUCT));
    assert_eq!((control.result, control.word(12)), (0, PARAM_STRUCT));
    assert_eq!(driver.call(ALLOC, &[0; 8]).result, PARAM_STRUCT);
    assert_eq!(driver.call(CONTROL, &[0; 8]).result, PARAM_STRUCT);
}

#[test]
pub fn freeing_an_object_frees_what_is_below_it_and_nothing_else() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);
    client(&mut driver, CLIENT + 1, true);
    assert_eq!(event(&mut driver, CLIENT, SUBDEVICE, 0x100), 0);
    let before = driver.gsp.objects();

    assert_eq!(driver.free(CLIENT, SUBDEVICE), 0);

    assert_eq!(driver.gsp.objects(), before - 2);
    assert_eq!(driver.free(CLIENT, 0x100), NOT_FOUND);
    assert_eq!(driver.free(CLIENT, CLIENT), 0);
    assert_eq!(driver.gsp.objects(), 3 + 4);
    assert_eq!(driver.free(CLIENT, CLIENT), INVALID_CLIENT);
    assert_eq!(driver.alloc(CLIENT + 1, DEVICE, 0x200, 0x90f1, &[0; 0x30]), 0);
}

#[test]
pub fn handle_of_a_freed_object_can_be_used_again() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);
    assert_eq!(driver.free(CLIENT, CLIENT), 0);

    client(&mut driver, CLIENT, true);

    assert_eq!(driver.gsp.objects(), 3 + 4);
}

#[test]
pub fn firmwares_own_objects_cannot_be_freed() {
    let mut driver = Driver::booted(config());

    for object in [INTERNAL, 0xabcd_0080, 0xabcd_2080] {
        assert_eq!(driver.free(INTERNAL, object), PERMISSIONS);
    }
    assert_eq!(driver.alloc(INTERNAL, INTERNAL, INTERNAL, 0, &[]), DUPLICATE);
}

#[test]
pub fn one_client_can_have_so_many_objects_and_no_more() {
    let limits = ObjectLimits { total: 1000, per_client: 20 };
    let mut driver = Driver::booted(GspConfig { objects: limits, ..config() });
    client(&mut driver, CLIENT, true);
    assert!((0..16).all(|index| event(&mut driver, CLIENT, SUBDEVICE, 0x1000 + index) == 0));

    assert_eq!(event(&mut driver, CLIENT, SUBDEVICE, 1), RESOURCES);

    assert_eq!(driver.gsp.take_object_usage(), ObjectUsage { limit: 1000, used: 3 + 20, refused: 1 });
    assert_eq!(driver.free(CLIENT, 0x1000), 0);
    assert_eq!(event(&mut driver, CLIENT, SUBDEVICE, 1), 0);
    client(&mut driver, CLIENT + 1, true);
    assert_eq!(driver.gsp.take_object_usage(), ObjectUsage { limit: 1000, used: 3 + 20 + 4, refused: 0 });
}

#[test]
fn all_clients_together_can_have_so_many_objects_and_no_more() {
    let limits = ObjectLimits { total: 64, per_client: 20 };
    let mut driver = Driver::booted(GspConfig { objects: limits, ..config() });
    assert!((1..=61).all(|client| driver.alloc(client, 0, client, 0, &[]) == 0));

    assert_eq!(driver.alloc(CLIENT, 0, CLIENT, 0, &[]), RESOURCES);
    assert_eq!(driver.alloc(1, 1, 0x100, 0x80, &[0; 0x38]), RESOURCES);

    assert_eq!(driver.gsp.take_object_usage(), ObjectUsage { limit: 64, used: 64, refused: 2 });
}

#[test]
pub fn usual_limits_leave_room_for_hundreds_of_programs() {
    let mut driver = Driver::booted(config());
    assert!((0..400).all(|index| {
        client(&mut driver, CLIENT + index, true);
        (0..30).all(|event_| event(&mut driver, CLIENT + index, SUBDEVICE, 0x1000 + event_) == 0)
    }));
}

#[test]
pub fn controls_need_their_object_and_their_size() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);

    assert_eq!(driver.control(CLIENT + 9, SUBDEVICE, 0x2080_0137, &[0; 4]).0, INVALID_CLIENT);
    assert_eq!(driver.control(CLIENT, 0x77, 0x2080_0137, &[0; 4]).0, NOT_FOUND);
    assert_eq!(driver.control(CLIENT, DEVICE, 0x2080_0137, &[0; 4]).0, NOT_SUPPORTED);
    assert_eq!(driver.control(CLIENT, SUBDEVICE, 0x2080_0137, &[0; 8]).0, PARAM_STRUCT);
    assert_eq!(driver.control(CLIENT, SUBDEVICE, 0x2080_0137, &[0; 4]).0, 0);
}

#[test]
fn unknown_controls_are_counted_and_told_once_with_their_names() {
    let mut driver = Driver::booted(config());

    for _ in 0..3 {
        assert_eq!(driver.control(INTERNAL, 0xabcd_2080, 0x2080_0102, &[0; 8]).0, NOT_SUPPORTED);
    }

    assert_eq!(driver.gsp.counters().controls_unknown, 3);
    let told: Vec<_> = driver.gsp.take_notes().iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("0x20800102 (NV2080_CTRL_CMD_GPU_GET_INFO_V2)"), "{}", told[0]);
}

#[test]
pub fn unknown_functions_are_answered_and_counted() {
    let mut driver = Driver::booted(config());

    let reply = driver.call(21, &[1; 40]);

    assert_eq!((reply.result, reply.body), (NOT_SUPPORTED, vec![1; 40]));
    assert_eq!(driver.gsp.counters().rpcs_unknown, 1);
}

#[test]
pub fn memory_lists_must_be_as_long_as_they_say() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);
    let list = |class: u32, pages: u32, entries: u32| {
        let mut body = words(&[CLIENT, DEVICE, 0x500, class, 0, 0, 0, 0, 0, 0, pages, 0, entries << 16, 0]);
        body.resize(56 + 8 * 4, 0);
        body
    };

    assert_eq!(driver.call(ALLOC_MEMORY, &list(0x81, 5, 5)).result, PARAM_STRUCT);
    assert_eq!(driver.call(ALLOC_MEMORY, &list(0x81, 3, 4)).result, PARAM_STRUCT);
    assert_eq!(driver.call(ALLOC_MEMORY, &list(0x40, 4, 4)).result, INVALID_CLASS);
    assert_eq!(driver.call(ALLOC_MEMORY, &list(0x82, 4, 4)).result, 0);
    assert_eq!(driver.call(ALLOC_MEMORY, &list(0x82, 4, 4)).result, DUPLICATE);
}

#[test]
pub fn saving_needs_memory_that_was_listed() {
    let mut driver = Driver::booted(config());

    let missing = driver.control(INTERNAL, 0xabcd_2080, 0x2080_0ac2, &words(&[INTERNAL, 9, 0, 0, 0, 0])).0;
    let other =
        driver.control(INTERNAL, 0xabcd_2080, 0x2080_0ac2, &words(&[INTERNAL, 0xabcd_0080, 0, 0, 0, 0])).0;

    assert_eq!((missing, other), (NOT_FOUND, 0x31));
}

#[test]
pub fn second_boot_finds_nothing_of_the_first() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);
    assert_eq!(set_page_directory(&mut driver, CLIENT, 0x1000), 0);
    assert_eq!(driver.alloc(CLIENT, DEVICE, 5, 0xc86f, &channel(1, 1, 0x1000, 0)), 0);
    driver.call(UNLOADING, &words(&[0, 0]));

    let mut again = Driver::new(config());
    std::mem::swap(&mut again.gsp, &mut driver.gsp);
    again.boot(super::driver::LIBOS).unwrap();
    again.poll();

    assert_eq!(again.gsp.objects(), 3);
    client(&mut again, CLIENT, true);
}
