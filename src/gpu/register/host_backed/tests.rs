//! Partitions that come where others were.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::super::reach::{Answer, Order, Teller};
use super::*;

const START: HostVram = HostVram(64 << 20);
const SIZE: u64 = 4 * GRANULE;

/// Carries out orders that it is given leave for.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<(VecDeque<Order>, bool)>>);

impl Held {
    fn let_go(&self, goes: bool) {
        self.0.lock().unwrap().1 = goes;
    }
}

impl Teller for Held {
    fn order(&mut self, order: Order) {
        self.0.lock().unwrap().0.push_back(order);
    }

    fn answer(&mut self) -> Option<Answer> {
        let (orders, goes) = &mut *self.0.lock().unwrap();
        let order = if *goes { orders.pop_front()? } else { return None };
        Some(match order {
            Order::Map(mapping, _) => Answer::Mapped(mapping.iova, Ok(())),
            Order::Unmap { iova, .. } => Answer::Unmapped(iova, Ok(())),
        })
    }
}

fn vram() -> (HostBackedVram, Held) {
    let kernel = Held::default();
    let reach = Reach::new(Box::new(kernel.clone()));
    (HostBackedVram::new(reach, START.0, START.0 + 4 * SIZE), kernel)
}

#[test]
fn partition_that_the_card_still_reaches_is_refused_and_not_waited_for() {
    let (mut vram, kernel) = vram();
    vram.share(START, SIZE).unwrap();
    kernel.let_go(true);
    assert_eq!(vram.reach(START, SIZE).unwrap(), None);
    assert!(vram.reach(START, SIZE).unwrap().is_some(), "the card reaches it");

    // The kernel does not come to an end with it: whoever waited would wait for ever.
    kernel.let_go(false);
    for _ in 0..2 {
        let error = vram.share(START, 2 * SIZE).unwrap_err().to_string();
        assert!(error.contains("still being taken from the card"), "{error}");
    }

    kernel.let_go(true);
    let shared = vram.share(START, 2 * SIZE).unwrap();
    assert_eq!(shared.first().map(|piece| piece.size), Some(2 * SIZE));
}

#[test]
fn partition_that_the_card_never_reached_gives_way_at_once() {
    let (mut vram, kernel) = vram();
    vram.share(START, SIZE).unwrap();
    kernel.let_go(false);

    // Of another size, as after an admission that came to nothing.
    vram.share(START, 2 * SIZE).unwrap();

    assert_eq!(vram.parts(START.0, START.0 + 4 * SIZE), [(START.0, 0, 2 * SIZE)]);
}
