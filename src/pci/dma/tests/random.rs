//! Random changes and accesses against a naive model.

use super::*;
use proptest::prelude::*;

/// One step of the model check.
#[derive(Clone, Copy, Debug)]
enum Step {
    Map { page: u64, pages: u64 },
    Unmap { page: u64, pages: u64 },
    Write { at: u64, size: usize, byte: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0u64..16, 1u64..6);
    prop_oneof![
        range.clone().prop_map(|(page, pages)| Step::Map { page, pages }),
        range.prop_map(|(page, pages)| Step::Unmap { page, pages }),
        (0u64..20 * PAGE, 0usize..9000, any::<u8>()).prop_map(|(at, size, byte)| Step::Write {
            at,
            size,
            byte
        }),
    ]
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A naive model: every page knows its mapping and its bytes.
    #[test]
    fn space_agrees_with_a_page_array(steps in proptest::collection::vec(step(), 1..40)) {
        let space = DmaSpace::new();
        let shared = memory_file(32);
        let mut model: Vec<Option<(usize, Vec<u8>)>> = vec![None; 32];
        for (id, step) in steps.into_iter().enumerate() {
            match step {
                Step::Map { page, pages } => {
                    let (first, end) = (index(page), index(page + pages));
                    let free = model[first..end].iter().all(Option::is_none);
                    // Half of them in one file, where they may be joined.
                    let mapping = if id % 2 == 0 {
                        own(page * PAGE, pages * PAGE)
                    } else {
                        part(&shared, page * PAGE, pages * PAGE, page * PAGE)
                    };
                    prop_assert_eq!(space.map(mapping).is_ok(), free);
                    if free {
                        for (at, entry) in model[first..end].iter_mut().enumerate() {
                            let mut bytes = vec![0; 4096];
                            space.read((page + at as u64) * PAGE, &mut bytes).unwrap();
                            *entry = Some((id, bytes));
                        }
                    }
                }
                Step::Unmap { page, pages } => {
                    let (first, end) = (index(page), index(page + pages));
                    prop_assert!(space.unmap(page * PAGE, pages * PAGE).is_ok());
                    model[first..end].fill(None);
                }
                Step::Write { at, size, byte } => {
                    let mut expected = Ok(());
                    for address in at..at + size as u64 {
                        match &mut model[index(address / PAGE)] {
                            Some((_, bytes)) => bytes[index(address % PAGE)] = byte,
                            None => {
                                expected = Err(fault(address, FaultKind::NotMapped));
                                break;
                            }
                        }
                    }
                    prop_assert_eq!(space.write(at, &vec![byte; size]), expected);
                }
            }
        }
        for (page, entry) in model.iter().enumerate() {
            let mut bytes = vec![0; 4096];
            let result = space.read(page as u64 * PAGE, &mut bytes);
            prop_assert_eq!(result.is_ok(), entry.is_some());
            if let Some((_, expected)) = entry {
                prop_assert_eq!(&bytes, expected);
            }
        }
    }
}
