//! Suspensions with a reset behind them: what is kept in the guest's memory is taken by another GSP, and by
//! none if it is not what a driver could have made.

use std::sync::Arc;

use proptest::prelude::*;

use super::config;
use super::driver::{ALLOC_MEMORY, Driver, STATIC_INFO, UNLOADING, UPDATE_BAR_PDE, poke, static_info, words};
use super::heads::{self, Engine};
use super::probe::{DEVICE, SUBDEVICE, channel, client, set_page_directory, start};
use crate::abi::values::InstanceMemory;
use crate::model::{
    BootError, DisplayEngine as _, DoorbellTarget, Effect, Gsp, GspConfig, Note, ObjectLimits, SavedError,
};
use gpuvmk_backend::FlushScope;
use gpuvmk_backend::testing::BackCall;
use gpuvmk_chip::addr::{Chid, GuestChannel};
use gpuvmk_chip::{Aperture, PhysicalAddress};

const CLIENT: u32 = 0xc1d0_0000;
const CHANNEL: u32 = 0xf1f0_0001;
const INTERNAL: u32 = 0xc1e0_0004;
const INTERNAL_DEVICE: u32 = 0xabcd_0080;
const INTERNAL_SUBDEVICE: u32 = 0xabcd_2080;

/// Where the driver has the memory that it hands over.
const META: u64 = 0x22_0000;
const FIRST: u64 = 0x21_0000;
const SECOND: u64 = 0x21_1000;
const THIRD: u64 = 0x21_2000;
const PAGES: u64 = 0x101;

/// The page tables and the ring of the channel, in VRAM.
const DIRECTORY: u64 = 0x10_0000;
const RING: u64 = 0x20_0000;
const RING_VA: u64 = 0x1_1ff0;
const USERD: u64 = 0x2_0000;
const BAR2_ENTRY: u64 = 0x7_7002;

/// Where a display's objects are.
const OBJECTS: InstanceMemory = InstanceMemory { address: 0x1f_0000, size: 0x1_0000 };

/// Pages of what is handed over lie apart, the last one first.
fn page(index: u64) -> u64 {
    0x24_0000 + (PAGES - 1 - index) * 0x1000
}

fn provide(driver: &Driver) {
    let longs = |longs: &[u64]| longs.iter().flat_map(|long| long.to_le_bytes()).collect::<Vec<_>>();
    driver.back.put_ram(FIRST, &longs(&[SECOND]));
    driver.back.put_ram(SECOND, &longs(&[THIRD]));
    driver.back.put_ram(THIRD, &longs(&(0..PAGES).map(page).collect::<Vec<_>>()));
    let mut meta = vec![0; 0x100];
    poke(&mut meta, 0, &longs(&[0x8a3b_b9e6_c6c3_9d93, 2, FIRST, PAGES * 0x1000]));
    driver.back.put_ram(META, &meta);
}

/// What is in the memory that is handed over.
fn state(driver: &Driver) -> Vec<u8> {
    let raw: Vec<u8> = (0..PAGES).flat_map(|index| driver.back.ram(page(index), 0x1000)).collect();
    let length = u64::from_le_bytes(raw[16..24].try_into().unwrap()) as usize;
    raw[..32 + length].to_vec()
}

fn put_state(driver: &Driver, state: &[u8]) {
    for (index, part) in (0..).zip(state.chunks(0x1000)) {
        driver.back.put_ram(page(index), part);
    }
}

/// Gives changed bytes the length and the checksum that they need.
fn seal(state: &mut [u8]) {
    let (header, body) = state.split_at_mut(32);
    let sum = body
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    poke(header, 16, &(body.len() as u64).to_le_bytes());
    poke(header, 24, &sum.to_le_bytes());
}

/// What the driver itself saves and puts back: tables, ring, USERD.
fn put_vram(driver: &Driver, get: u32, gp_put: u32) {
    let vram = |address: u64, value: u64| driver.back.put_vram(address, &value.to_le_bytes());
    for level in 0..4 {
        vram(DIRECTORY + level * 0x1000, (DIRECTORY + (level + 1) * 0x1000) | 2);
    }
    // The half of an entry of the last directory that names small pages.
    vram(DIRECTORY + 0x4008, (DIRECTORY + 0x5000) | 2);
    vram(DIRECTORY + 0x5000 + 8 * 0x11, RING | 1);
    vram(DIRECTORY + 0x5000 + 8 * 0x12, (RING + 0x8000) | 1);
    for entry in 0..8 {
        vram(ring_entry(entry), 0x4_0000_1000 | entry << 4 | 3 << 42);
    }
    driver.back.put_vram(USERD + 0x88, &words(&[get, gp_put]));
}

/// The ring begins two entries before the end of a page.
fn ring_entry(entry: u64) -> u64 {
    if entry < 2 { RING + 0xff0 + entry * 8 } else { RING + 0x8000 + (entry - 2) * 8 }
}

fn entries(driver: &Driver) -> Vec<bool> {
    (0..8).map(|entry| driver.back.vram(ring_entry(entry), 8) != [0; 8]).collect()
}

fn internal(driver: &mut Driver, cmd: u32, parameters: &[u8]) -> u32 {
    driver.control(INTERNAL, INTERNAL_SUBDEVICE, cmd, parameters).0
}

/// A driver with a channel that runs, one of the golden kind, an event, and BAR2.
fn working(config: GspConfig, get: u32, gp_put: u32) -> Driver {
    let mut driver = Driver::booted(config);
    let mut bar2 = words(&[1, 0, 0, 0, 56, 0]);
    poke(&mut bar2, 8, &BAR2_ENTRY.to_le_bytes());
    assert_eq!(driver.call(UPDATE_BAR_PDE, &bar2).result, 0);
    client(&mut driver, CLIENT, true);
    assert_eq!(set_page_directory(&mut driver, CLIENT, DIRECTORY), 0);
    assert_eq!(driver.alloc(CLIENT, DEVICE, CHANNEL, 0xc86f, &channel(10, 3, RING_VA, USERD)), 0);
    start(&mut driver, CLIENT, CHANNEL, 10);
    assert_eq!(driver.alloc(CLIENT, CHANNEL, 0xc8b5, 0xc8b5, &words(&[1, 10])), 0);
    assert_eq!(driver.alloc(CLIENT, DEVICE, CHANNEL + 1, 0xc86f, &channel(1, 1, 0, 0x3_0000)), 0);
    assert_eq!(driver.alloc(CLIENT, CHANNEL + 1, 0xcb97, 0xcb97, &[]), 0);
    assert_eq!(driver.alloc(CLIENT, SUBDEVICE, 0x100, 0x7e, &[0; 0x18]), 0);
    put_vram(&driver, get, gp_put);
    driver.back.put_vram(driver.gsp.bar1_root(), &0x1234_5002u64.to_le_bytes());
    provide(&driver);
    driver
}

/// As nouveau does it, up to the last RPC.
fn prepare(driver: &mut Driver) -> u32 {
    assert_eq!(internal(driver, 0x2080_0ac3, &[1]), 0);
    let list =
        [INTERNAL, INTERNAL_DEVICE, 0xcaf0_0003, 0x81, 0, 0, 0, 0, 0x1000, 0, 1, 0, 1 << 16, 0, 0x400, 0];
    assert_eq!(driver.call(ALLOC_MEMORY, &words(&list)).result, 0);
    let mut parameters = words(&[INTERNAL, 0xcaf0_0003, 1, 0]);
    parameters.extend(META.to_le_bytes());
    let status = internal(driver, 0x2080_0ac2, &parameters);
    assert_eq!(driver.free(INTERNAL, 0xcaf0_0003), 0);
    status
}

fn suspend(driver: &mut Driver) {
    assert_eq!(prepare(driver), 0);
    assert_eq!(driver.call(UNLOADING, &words(&[1, 3])).result, 0);
    driver.effects.clear();
}

/// Another process, or the same after a reset of the function.
fn lose_power(driver: &mut Driver) {
    driver.gsp = Gsp::new(config());
    driver.back.power_off();
}

fn resume(driver: &mut Driver) -> Result<(), BootError> {
    let effects = driver.gsp.resume(&driver.back, META)?;
    driver.effects.extend(effects);
    Ok(())
}

/// What follows a boot, as nouveau does it.
fn go_on(driver: &mut Driver, get: u32, gp_put: u32) {
    driver.poll();
    assert_eq!(driver.events.pop().map(|event| event.function), Some(0x1001));
    put_vram(driver, get, gp_put);
    driver.back.calls();
    assert_eq!(internal(driver, 0x2080_0ac3, &[0]), 0);
}

#[test]
pub fn what_is_kept_is_taken_by_another_process_twice_in_a_row() {
    let mut driver = working(config(), 5, 5);
    let (objects, live) = (driver.gsp.objects(), driver.back.live());
    let page_directory = PhysicalAddress { aperture: Aperture::Vram, address: DIRECTORY };
    let flush = FlushScope { page_directory, hub_only: false };
    for round in 0..2 {
        suspend(&mut driver);
        lose_power(&mut driver);

        resume(&mut driver).unwrap();

        assert_eq!(driver.effects, [Effect::Running, Effect::Bar2Root(BAR2_ENTRY)]);
        assert_eq!(driver.gsp.objects(), objects, "round {round}");
        assert_eq!(driver.back.live(), live);
        assert!(!driver.back.calls().iter().any(|call| matches!(call, BackCall::Schedule(..))), "not yet");
        assert_eq!(driver.back.vram(driver.gsp.bar1_root(), 8), 0x1234_5002u64.to_le_bytes());
        go_on(&mut driver, 5, 5);
        assert_eq!(driver.back.calls(), [BackCall::Flush(flush), BackCall::Schedule(0, true)]);
        assert_eq!(entries(&driver), [false, false, false, false, false, true, true, true]);
        assert_eq!(
            driver.gsp.doorbell_target(1, Chid(3)),
            Some(DoorbellTarget { channel: GuestChannel(0), userd: USERD })
        );
    }
    assert_eq!(driver.call(STATIC_INFO, &static_info()).result, 0);
    assert_eq!(driver.free(CLIENT, CLIENT), 0);
    assert_eq!(driver.gsp.objects(), 3);
    assert_eq!(driver.gsp.counters().refused, 0);
    assert_eq!(driver.gsp.counters().sequence_gaps, 0);
}

#[test]
pub fn work_that_was_submitted_and_not_begun_follows() {
    let mut driver = working(config(), 2, 6);
    suspend(&mut driver);
    lose_power(&mut driver);
    resume(&mut driver).unwrap();

    go_on(&mut driver, 2, 6);

    assert_eq!(entries(&driver), [false, false, true, true, true, true, true, true]);
    assert_eq!(driver.back.calls()[1..], [BackCall::Schedule(0, true), BackCall::Doorbell(0, 6)]);
}

#[test]
pub fn channel_whose_place_cannot_be_found_again_is_told_as_stopped() {
    // Work that goes on behind the ring's end; places outside the ring.
    for (get, gp_put) in [(5, 2), (5000, 5000)] {
        let mut driver = working(config(), get, gp_put);
        suspend(&mut driver);
        lose_power(&mut driver);
        resume(&mut driver).unwrap();

        go_on(&mut driver, get, gp_put);

        assert_eq!(entries(&driver), [true; 8]);
        assert!(!driver.back.calls().contains(&BackCall::Schedule(0, true)));
        let event = driver.events.pop().unwrap();
        assert_eq!((event.function, event.word(0), event.word(4), event.word(0x10)), (0x1004, 10, 3, 45));
        assert_eq!(driver.gsp.doorbell_target(1, Chid(3)), None);
        assert_eq!(driver.effects.last(), Some(&Effect::Interrupt));
    }
}

#[test]
pub fn gsp_that_was_not_reset_goes_on_as_it_is() {
    let mut driver = working(config(), 5, 5);
    suspend(&mut driver);
    driver.back.calls();

    resume(&mut driver).unwrap();

    assert_eq!(driver.effects, [Effect::Running]);
    assert_eq!(driver.back.calls(), []);
    go_on(&mut driver, 5, 5);
    assert_eq!(driver.back.calls(), [BackCall::Schedule(0, true)]);
    assert_eq!(entries(&driver), [true; 8]);
}

#[test]
pub fn what_is_handed_over_counts_and_not_what_the_process_has() {
    let mut driver = working(config(), 5, 5);
    suspend(&mut driver);
    let earlier = state(&driver);
    resume(&mut driver).unwrap();
    go_on(&mut driver, 5, 5);
    assert_eq!(driver.alloc(CLIENT, SUBDEVICE, 0x101, 0x7e, &[0; 0x18]), 0);
    suspend(&mut driver);
    put_state(&driver, &earlier);
    driver.back.calls();

    resume(&mut driver).unwrap();

    let made = driver.back.calls().into_iter().filter(|call| matches!(call, BackCall::Create(..)));
    assert_eq!(made.count(), 1, "the process's own was not taken");
}

#[test]
fn memory_that_is_none_or_too_small_is_refused_before_anything_stops() {
    let longs = |value: u64| value.to_le_bytes();
    for (at, value, status) in [
        (META, 0, 0x1e),
        (META + 8, 3, 0x1e),
        (META + 16, 1 << 40, 0x1e),
        (META + 16, FIRST + 8, 0x1e),
        (FIRST, 0, 0x1e),
        (META + 24, 0x1000, 0x1a),
    ] {
        let mut driver = working(config(), 5, 5);
        driver.back.put_ram(at, &longs(value));

        assert_eq!(prepare(&mut driver), status, "{at:#x}");

        assert_eq!(driver.gsp.counters().saves_refused, 1);
        assert!(driver.gsp.take_notes().iter().any(|note| matches!(note, Note::NotSaved(_))));
    }
}

#[test]
pub fn memory_that_goes_away_before_the_end_leaves_gsp_running() {
    let mut driver = working(config(), 5, 5);
    assert_eq!(prepare(&mut driver), 0);
    driver.back.put_ram(THIRD, &(1u64 << 40).to_le_bytes());
    driver.effects.clear();

    assert_eq!(driver.call(UNLOADING, &words(&[1, 3])).result, 0x1e);

    assert_eq!(driver.effects, []);
    assert_eq!(driver.call(STATIC_INFO, &static_info()).result, 0);
    assert_eq!(driver.gsp.counters().saves_refused, 1);
}

/// Changes what is kept, and lets another GSP have it.
fn refused(change: impl FnOnce(&mut Driver, &mut Vec<u8>)) -> SavedError {
    let mut driver = working(config(), 5, 5);
    suspend(&mut driver);
    lose_power(&mut driver);
    let mut kept = state(&driver);
    change(&mut driver, &mut kept);
    put_state(&driver, &kept);
    let Err(BootError::Saved(error)) = resume(&mut driver) else { panic!("taken") };
    nothing_is_left(&driver);
    assert_eq!(driver.gsp.counters().restores_refused, 1);
    error
}

fn nothing_is_left(driver: &Driver) {
    assert_eq!(driver.gsp.objects(), 0);
    assert!(driver.back.live().is_empty());
    assert!(driver.effects.is_empty());
    assert_eq!(driver.gsp.doorbell_target(1, Chid(3)), None);
}

#[test]
pub fn what_is_not_what_was_kept_is_refused_with_a_reason_and_leaves_nothing() {
    assert_eq!(refused(|_, state| state[0] ^= 1), SavedError::NoState);
    assert_eq!(refused(|_, state| state[8] = 9), SavedError::Version(9));
    assert_eq!(refused(|_, state| state[40] ^= 1), SavedError::Checksum);
    assert_eq!(refused(|_, state| poke(state, 16, &[0xff; 8])), SavedError::TooLarge);
    assert_eq!(
        refused(|driver, _| driver.back.put_ram(THIRD, &[0x11; 8])),
        SavedError::NoPage(0x1111_1111_1111_1111)
    );
    let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
        refused(|_, state| {
            change(state);
            seal(state);
        })
    };
    assert_eq!(
        sealed(&|state| poke(state, 40, &(1u64 << 30).to_le_bytes())),
        SavedError::OtherGpu("size of VRAM")
    );
    assert_eq!(sealed(&|state| state[32] ^= 4), SavedError::Meaningless("the version of the firmware"));
    assert_eq!(sealed(&|state| state[48] ^= 4), SavedError::OtherGpu("set of engines"));
    assert!(matches!(sealed(&|state| poke(state, 56, &[0xff; 8])), SavedError::Queues(_)));
    assert_eq!(sealed(&|state| state.push(0)), SavedError::Rest);
    assert_eq!(sealed(&|state| state.truncate(state.len() - 1)), SavedError::Short);
}

#[test]
pub fn objects_beyond_the_limits_of_the_one_who_takes_them_are_refused() {
    let mut driver = working(config(), 5, 5);
    suspend(&mut driver);
    lose_power(&mut driver);
    let objects = ObjectLimits { total: 8, per_client: 8 };
    driver.gsp = Gsp::new(GspConfig { objects, ..config() });

    let refused = resume(&mut driver);

    assert!(matches!(refused, Err(BootError::Saved(SavedError::Object { .. }))), "{refused:?}");
    nothing_is_left(&driver);
}

#[test]
pub fn boot_from_the_start_is_possible_after_a_refusal() {
    let mut driver = working(config(), 5, 5);
    suspend(&mut driver);
    lose_power(&mut driver);
    driver.back.put_ram(META + 8, &[9]);
    assert!(resume(&mut driver).is_err());
    driver.restart();

    assert_eq!(driver.boot(super::driver::LIBOS), Ok(()));

    assert_eq!(driver.gsp.objects(), 3);
}

/// A driver of a chip with a head has lost power; what is kept was changed. The engine that it finds, and how
/// its firmware begins.
fn display_after(change: impl FnOnce(&mut Vec<u8>)) -> (Arc<Engine>, Result<(), BootError>) {
    let (mut driver, _) = heads::booted();
    assert_eq!(heads::instance_memory(&mut driver, OBJECTS.address, OBJECTS.size, 2), 0);
    provide(&driver);
    suspend(&mut driver);
    lose_power(&mut driver);
    driver.gsp = Gsp::new(heads::with_head());
    let engine = Arc::new(Engine::default());
    driver.gsp.set_display(engine.clone());
    let mut kept = state(&driver);
    change(&mut kept);
    seal(&mut kept);
    put_state(&driver, &kept);
    let resumed = resume(&mut driver);
    (engine, resumed)
}

#[test]
fn display_finds_its_objects_where_the_driver_has_said_before_the_sleep() {
    let (engine, resumed) = display_after(|_| {});
    assert_eq!((engine.instance_memory(), resumed), (Some(OBJECTS), Ok(())));

    let wild = |state: &mut Vec<u8>| {
        let at = OBJECTS.address.to_le_bytes();
        let at = state.windows(8).position(|bytes| bytes == at).unwrap();
        poke(state, at, &u64::MAX.to_le_bytes());
    };
    let (engine, resumed) = display_after(wild);
    let refused = BootError::Saved(SavedError::Meaningless("the display's instance memory"));
    assert_eq!((engine.instance_memory(), resumed), (None, Err(refused)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever is handed over is taken as a whole or leaves nothing, and a GSP that took it keeps to its
    /// limits.
    #[test]
    fn hostile_state_is_taken_as_a_whole_or_leaves_nothing(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut driver = working(config(), 5, 5);
        suspend(&mut driver);
        lose_power(&mut driver);
        let mut kept = state(&driver);
        for (index, value) in &changes {
            let at = 32 + index.index(kept.len() - 32);
            kept[at] = *value;
        }
        if let Some(cut) = cut {
            kept.truncate(32 + cut.index(kept.len() - 32));
        }
        seal(&mut kept);
        put_state(&driver, &kept);
        match resume(&mut driver) {
            Ok(()) => {
                prop_assert!(driver.gsp.objects() <= config().objects.total as usize);
                prop_assert!(driver.back.live().len() <= usize::from(config().channels));
                driver.ring();
                let _ = driver.gsp.resume(&driver.back, META);
            }
            Err(BootError::Saved(_)) => nothing_is_left(&driver),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
