//! What a driver does to a common configuration.

use super::*;

const FEATURE: u32 = 9;

fn shape(features: u64) -> Shape {
    Shape { features, queues: 2, queue_size: 256, vectors: 3 }
}

fn has(common: &Common, feature: u32) -> bool {
    common.accepted() >> feature & 1 != 0
}

fn agreed(common: &mut Common, low_half: u32, high_half: u32) -> Status {
    for (select, half) in [(0u32, low_half), (1, high_half)] {
        assert_eq!(common.write(8, &select.to_le_bytes()), Effect::None);
        assert_eq!(common.write(12, &half.to_le_bytes()), Effect::None);
    }
    assert_eq!(common.write(20, &[0b1011]), Effect::None);
    common.status
}

#[test]
fn driver_sees_features_by_halves_and_starts_with_those_it_was_offered() {
    let mut common = Common::new(shape(1 << FEATURE));
    let mut half = [0; 4];
    common.read(4, &mut half);
    assert_eq!(u32::from_le_bytes(half), 1 << FEATURE);
    let _ = common.write(0, &1u32.to_le_bytes());
    common.read(4, &mut half);
    assert_eq!(u32::from_le_bytes(half), 1);
    let _ = common.write(0, &2u32.to_le_bytes());
    common.read(4, &mut half);
    assert_eq!(u32::from_le_bytes(half), 0);
    // One that was not offered, and a driver of before version 1.
    assert!(!agreed(&mut common.clone(), 1 << 3, 1).contains(Status::FEATURES_OK));
    assert!(!agreed(&mut common.clone(), 1 << FEATURE, 0).contains(Status::FEATURES_OK));
    assert_eq!(common.clone().write(20, &[0b111]), Effect::None, "not without an agreement");
    assert!(agreed(&mut common, 1 << FEATURE, 1).contains(Status::FEATURES_OK));
    assert_eq!(common.write(20, &[0b1111]), Effect::Start);
    assert_eq!(common.write(20, &[0b1111]), Effect::None);
    // What was agreed stays.
    let _ = common.write(8, &0u32.to_le_bytes());
    let _ = common.write(12, &0u32.to_le_bytes());
    assert!(has(&common, FEATURE));
    assert!(common.needs_reset() && !common.needs_reset());
    let _ = common.write(20, &[0b1111]);
    assert!(common.status.contains(Status::NEEDS_RESET));
    assert_eq!(common.write(20, &[0]), Effect::Reset);
    // The driver sees the end of its reset once the device is done with it.
    let mut status = [0];
    common.read(20, &mut status);
    assert!(status[0] != 0 && common.is_resetting() && !common.is_driven());
    assert_eq!(common.write(20, &[1]), Effect::None);
    common.reset();
    common.read(20, &mut status);
    assert_eq!(status, [0]);
    assert_eq!((common.status, has(&common, FEATURE)), (Status::empty(), false));
}

#[test]
fn queue_is_set_up_by_words_or_wider_and_then_stays() {
    let mut common = Common::new(shape(0));
    let _ = common.write(24, &64u16.to_le_bytes());
    let _ = common.write(24, &65u16.to_le_bytes());
    let _ = common.write(24, &512u16.to_le_bytes());
    let _ = common.write(32, &0x1_2345_6000u64.to_le_bytes());
    let _ = common.write(40, &0x7000u32.to_le_bytes());
    let _ = common.write(44, &1u32.to_le_bytes());
    let _ = common.write(48, &0x8000u64.to_le_bytes());
    let _ = common.write(28, &1u16.to_le_bytes());
    let _ = common.write(32, &[0; 8]);
    let set = QueuePlace {
        size: 64,
        enabled: true,
        descriptors: 0x1_2345_6000,
        available: 0x1_0000_7000,
        used: 0x8000,
    };
    assert_eq!(common.queues()[0], set);
    // There is no third one.
    let _ = common.write(22, &2u16.to_le_bytes());
    let mut size = [0xff; 2];
    common.read(24, &mut size);
    assert_eq!(size, [0, 0]);
    let _ = common.write(24, &8u16.to_le_bytes());
    assert_eq!(common.queues()[0], set);
    // Nothing lies behind it.
    let mut behind = [0xff; 8];
    common.read(SIZE as u64, &mut behind);
    assert_eq!(behind, [0; 8]);
    let _ = common.write(u64::MAX, &[1]);
    assert_eq!(SIZE, 56);
}
#[test]
fn each_queue_has_its_own_place_message_and_notification() {
    let mut common = Common::new(shape(0));
    assert_eq!(common.write(16, &2u16.to_le_bytes()), Effect::Vectors);
    assert_eq!(common.write(22, &1u16.to_le_bytes()), Effect::None);
    let _ = common.write(24, &32u16.to_le_bytes());
    assert_eq!(common.write(26, &1u16.to_le_bytes()), Effect::Vectors);
    assert_eq!(common.write(26, &1u16.to_le_bytes()), Effect::None, "the same as before");
    let mut registers = [0; 4];
    common.read(24, &mut registers);
    assert_eq!(registers, [32, 0, 1, 0]);
    common.read(30, &mut registers[..2]);
    assert_eq!(registers[..2], [1, 0], "where it is notified");
    assert_eq!((common.queues()[0].size, common.queues()[1].size), (256, 32));
    // A message that is not there is none.
    let _ = common.write(26, &3u16.to_le_bytes());
    assert_eq!(*common.vectors(), Vectors { configuration: 2, queues: vec![NO_VECTOR, NO_VECTOR] });
    let mut count = [0; 2];
    common.read(18, &mut count);
    assert_eq!(count, [2, 0]);
    let mut generation = [0];
    common.configuration_changed();
    common.read(21, &mut generation);
    assert_eq!(generation, [1]);
}
