//! Pages that BAR3 shows at several places.

use super::*;

#[test]
fn page_at_several_places_is_alike_at_all_after_a_trapped_access() {
    let d = direct();
    let settle = || d.f.mediator.settle();
    d.f.write_u32(0x10_0000, 1);
    for page in [3, 5, 7] {
        d.show(page, vram(0x10_0000));
    }
    let places = |word: u64| [3, 5, 7].map(|page| d.bar3.read_u32(page * PAGE + word).unwrap());
    assert_eq!((places(0), d.not_shown()), ([1; 3], 0));
    // Each place has parts of its own, as drivers put several things into a page.
    for (word, page) in [(0, 3), (4, 5), (8, 7)] {
        d.bar3.write_u32(page * PAGE + word, 10 + page as u32).unwrap();
    }
    settle();
    assert_eq!([0, 4, 8].map(places), [[13; 3], [15; 3], [17; 3]]);
    assert_eq!([0, 4, 8].map(|word| d.read(0x10_0000 + word)), [13, 15, 17]);
    // By its address in VRAM, as tables are written by copy engines.
    d.f.write_u32(0x10_0004, 20);
    settle();
    assert_eq!(places(4), [20; 3]);
    // The one that is the home goes, with what was stored elsewhere since.
    d.bar3.write_u32(7 * PAGE + 12, 30).unwrap();
    d.hide(3);
    assert_eq!(d.read(0x10_000c), 30);
    d.bar3.write_u32(5 * PAGE, 31).unwrap();
    settle();
    assert_eq!((d.read(0x10_0000), places(0)), (31, [13, 31, 31]));
    // One that is not.
    d.bar3.write_u32(7 * PAGE, 32).unwrap();
    d.hide(7);
    assert_eq!((d.read(0x10_0000), d.bar3.read_u32(5 * PAGE)), (32, Ok(32)));
    d.bar3.write_u32(7 * PAGE, 33).unwrap();
    settle();
    assert_eq!(d.read(0x10_0000), 32, "the place shows nothing");
    d.hide(5);
    assert_eq!(d.vram.read_u32(0x10_0000), Ok(32));
    d.f.mediator.reset();
    settle();
}

#[test]
fn places_beyond_those_that_are_kept_alike_are_counted() {
    let d = direct();
    for page in 0..70 {
        d.write_entry(
            page,
            Pte { target: vram(0x10_0000), read_only: false, privileged: false, kind: 0 }.encode(),
        );
    }
    d.look();
    assert_eq!(d.not_shown(), 5);
    d.bar3.write_u32(64 * PAGE, 5).unwrap();
    d.bar3.write_u32(65 * PAGE + 4, 6).unwrap();
    d.f.mediator.settle();
    assert_eq!([0, 4].map(|word| d.read(0x10_0000 + word)), [5, 0]);
}
