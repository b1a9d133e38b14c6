//! Doorbells: from the token to the back.

use super::driver::{CHANNEL, Driver};
use super::*;
use gpuvmk_backend::testing::BackCall;
use gpuvmk_pci::DirectMap;

const USERD: u64 = 0x10_0000;

fn ring(gpu: &Gpu, chid: u32) {
    gpu.wr(0xbb_0090, 1 << 16 | chid);
}

#[test]
fn doorbell_hands_on_what_userd_says() {
    let gpu = Gpu::new();
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, USERD);
    driver.channel(9, USERD + 0x200);
    gpu.back.calls();
    gpu.back.put_vram(USERD + 0x8c, &5u32.to_le_bytes());
    gpu.back.put_vram(USERD + 0x28c, &6u32.to_le_bytes());
    ring(&gpu, 3);
    ring(&gpu, 9);
    gpu.back.put_vram(USERD + 0x8c, &7u32.to_le_bytes());
    ring(&gpu, 3);
    assert_eq!(
        gpu.back.calls(),
        [BackCall::Doorbell(0, 5), BackCall::Doorbell(1, 6), BackCall::Doorbell(0, 7)]
    );
}

#[test]
fn token_of_no_channel_is_counted() {
    let gpu = Gpu::new();
    ring(&gpu, 3);
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, USERD);
    gpu.back.calls();
    ring(&gpu, 4);
    gpu.wr(0xbb_0090, 2 << 16 | 3);
    assert_eq!(gpu.back.calls(), []);
    assert_eq!(gpu.function.counters().bad_doorbells, 3);
}

#[test]
fn channel_that_was_freed_or_moved_is_not_rung_by_what_was_remembered() {
    let gpu = Gpu::new();
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, USERD);
    ring(&gpu, 3);
    driver.free(CHANNEL + 3);
    gpu.back.calls();
    ring(&gpu, 3);
    assert_eq!(gpu.back.calls(), []);
    driver.channel(8, USERD);
    driver.channel(3, USERD + 0x200);
    gpu.back.put_vram(USERD + 0x28c, &6u32.to_le_bytes());
    gpu.back.calls();
    ring(&gpu, 3);
    // In a slot that was not used before: the one that is free again comes last.
    assert_eq!(gpu.back.calls(), [BackCall::Doorbell(2, 6)]);
}

#[test]
fn doorbell_does_not_wait_for_a_command_under_way() {
    let gpu = Arc::new(Gpu::new());
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, USERD);
    ring(&gpu, 3);
    gpu.back.calls();
    // While the back makes the second channel, with GSP held, another CPU rings the first.
    let other = gpu.clone();
    gpu.back.interrupt_creation(move |_| {
        let gpu = other.clone();
        std::thread::spawn(move || ring(&gpu, 3)).join().unwrap();
    });
    driver.channel(4, USERD + 0x200);
    assert!(matches!(
        gpu.back.calls()[..],
        [BackCall::Create(1, _), BackCall::Doorbell(0, 0), BackCall::Schedule(1, true)]
    ));
}

#[test]
fn doorbells_of_channels_that_rang_may_be_late() {
    #[derive(Default)]
    struct Told(std::sync::atomic::AtomicU32);
    impl gpuvmk_pci::RegionWatcher for Told {
        fn changed(&self, _: Region) {}
        fn replaced(&self) {}
        fn coalescable_writes_changed(&self) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let gpu = Gpu::new();
    let told = Arc::new(Told::default());
    gpu.function.watch(Some(told.clone()));
    let times = || told.0.swap(0, std::sync::atomic::Ordering::SeqCst);
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, USERD);
    assert_eq!(gpu.function.coalescable_writes(), []);
    times();

    ring(&gpu, 3);
    let region = Region::Bar(0);
    let late = gpuvmk_pci::CoalescableWrite { region, offset: 0xbb_0090, value: 1 << 16 | 3 };
    assert_eq!((gpu.function.coalescable_writes(), times()), (vec![late], 1));
    ring(&gpu, 3);
    ring(&gpu, 4);
    assert_eq!((gpu.function.coalescable_writes(), times()), (vec![late], 0));

    driver.free(CHANNEL + 3);
    assert_eq!(gpu.function.coalescable_writes(), []);
    assert!(times() >= 1);
    driver.channel(8, USERD);
    ring(&gpu, 8);
    times();
    gpu.function.reset();
    assert_eq!((gpu.function.coalescable_writes(), times()), (vec![], 1));
}

#[test]
fn nobody_waits_for_a_doorbell() {
    let gpu = Gpu::new();
    let posted = |region, offset, size| gpu.function.is_posted(region, offset, size);
    assert!(posted(Region::Bar(0), 0xbb_0090, 4));
    assert!(!posted(Region::Bar(0), 0xbb_0094, 4) && !posted(Region::Bar(0), 0xbb_0090, 8));
    assert!(!posted(Region::Bar(1), 0xbb_0090, 4));
}
