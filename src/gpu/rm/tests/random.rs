//! Random updates of an address space, against a table of pages.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Rig, system, vram};
use crate::{GpuDriverExt as _, HostTarget};
use gpuvmk_chip::addr::{HostVram, Iova};

#[derive(Clone, Debug)]
enum Step {
    Map { slot: u64, pages: u32, shift: u8, at: u64 },
    System { slot: u64, pages: u32, at: u64 },
    Unmap { slot: u64, pages: u32 },
    Revoke { at: u64, pages: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    // Everything in 8 MiB of addresses, so that steps meet.
    prop_oneof![
        (0..2048_u64, 1..40_u32, 0..2048_u64).prop_map(|(slot, pages, at)| Step::Map {
            slot,
            pages,
            shift: 12,
            at
        }),
        (0..128_u64, 1..8_u32, 0..128_u64).prop_map(|(slot, pages, at)| Step::Map {
            slot: slot * 16,
            pages,
            shift: 16,
            at: at * 16
        }),
        (0..4_u64, 1..3_u32, 0..4_u64).prop_map(|(slot, pages, at)| Step::Map {
            slot: slot * 512,
            pages,
            shift: 21,
            at: at * 512
        }),
        (0..2048_u64, 1..40_u32, 0..2048_u64).prop_map(|(slot, pages, at)| Step::System { slot, pages, at }),
        (0..2048_u64, 1..600_u32).prop_map(|(slot, pages)| Step::Unmap { slot, pages }),
        (0..2048_u64, 1..200_u64).prop_map(|(at, pages)| Step::Revoke { at, pages }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever is mapped and unmapped, the driver's page tables show what a plain table of pages shows.
    #[test]
    fn any_updates_and_the_pages_of_a_naive_table(steps in proptest::collection::vec(step(), 1..40)) {
        let (mut rig, space) = Rig::with_tenant();
        let base = 0x4000_0000_u64;
        let iova = 1_u64 << 32;
        let mut naive: BTreeMap<u64, HostTarget> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Map { slot, pages, shift, at } => {
                    rig.map(space, &[vram(base + slot * 4096, pages, shift, at * 4096)]).unwrap();
                    for page in 0..u64::from(pages) << (shift - 12) {
                        naive.insert(slot + page, HostTarget::Vram(HostVram((at + page) * 4096)));
                    }
                }
                Step::System { slot, pages, at } => {
                    rig.map(space, &[system(base + slot * 4096, pages, iova + at * 4096)]).unwrap();
                    for page in 0..u64::from(pages) {
                        let target = Iova(iova + (at + page) * 4096);
                        naive.insert(slot + page, HostTarget::System { iova: target, coherent: true });
                    }
                }
                Step::Unmap { slot, pages } => {
                    rig.unmap(space, base + slot * 4096, pages, 12).unwrap();
                    naive.retain(|page, _| !(slot..slot + u64::from(pages)).contains(page));
                }
                Step::Revoke { at, pages } => {
                    let (first, end) = (iova + at * 4096, iova + (at + pages) * 4096);
                    rig.driver.revoke_system(space, Iova(first), end - first).unwrap();
                    naive.retain(|_, target| match target {
                        HostTarget::System { iova: Iova(target), .. } => !(first..end).contains(target),
                        HostTarget::Vram(_) => true,
                    });
                }
            }
        }
        let state = rig.mock.state();
        for page in 0..4096_u64 {
            let found = state.translate(base + page * 4096);
            match naive.get(&page) {
                None => prop_assert!(found.is_none(), "page {} is still there", page),
                Some(HostTarget::Vram(HostVram(at))) => {
                    prop_assert_eq!(found.map(|(_, offset, _)| offset), Some(*at), "page {}", page);
                }
                Some(HostTarget::System { iova: Iova(at), .. }) => {
                    let offset = (*at - iova) % super::super::pinner::PIECE;
                    prop_assert_eq!(found.map(|(_, offset, _)| offset), Some(offset), "page {}", page);
                }
            }
        }
    }
}
