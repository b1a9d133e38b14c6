//! Memory of a VM that is taken out of its file between the look at it and its pin.

use std::os::fd::{AsFd, OwnedFd};

use super::*;
use crate::rm::RmError;
use crate::rm::pinner::{Answer, Order, PIECE, PinContext};
use gpuvmk_pci::mapping::absent;

const PAGE: u64 = 4096;

fn blocks(file: &OwnedFd) -> u64 {
    u64::try_from(rustix::fs::fstat(file).unwrap().st_blocks).unwrap() * 512 / PAGE
}

#[test]
fn page_that_is_taken_out_just_before_the_pin_is_not_made_in_our_name() {
    absent::refuse_here().unwrap();
    let mock = Mock::new();
    let (device, ..) = open_device(&mock.kernel(), &HostPaths::default(), None).unwrap();
    let context = PinContext { takes_holes: false, ..context(&mock, &device) };
    let ram = create_memory_file(c"ram", 2 * PIECE).unwrap();
    let theirs = Mapping::of_file(ram.as_fd(), 0, 2 * PIECE, Access::ReadWrite).unwrap();
    theirs.populate(0, 2 * PIECE).unwrap();
    let pin = |index| {
        let file = Arc::new(ram.try_clone().unwrap());
        let key = ((1, 0, 0), index);
        match context.carry_out(Order::Pin { key, file, object: Handle(7) }) {
            Answer::Pinned(_, _, pinned) => pinned,
            Answer::Freed(..) => panic!("nothing was freed"),
        }
    };
    mock.state().punched = Some(ram.try_clone().unwrap());

    let error = pin(0).unwrap_err();

    assert_eq!(blocks(&ram), 1023, "the page was made: {error}");
    // The other piece has no hole.
    assert_eq!(pin(1).unwrap().size, PIECE);
    assert_eq!(blocks(&ram), 1023);
    // And where one is seen before, nothing is tried.
    mock.state().punched = None;
    assert!(matches!(pin(0), Err(RmError::Unfilled { start: 0, .. })));
}
