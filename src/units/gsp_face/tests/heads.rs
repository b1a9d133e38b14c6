//! A function's head, and the monitor that operators plug in there.

use super::*;
use crate::gsp_face::{HeadConfig, hal};
use gpuvmk_chip::Chip;

fn function(head: Option<HeadConfig>) -> (GspFunction<FakeGspBack>, Arc<FakeGspBack>) {
    let back = Arc::new(back(VRAM));
    let config = GspFaceConfig { head, ..GspFaceConfig::of(hal::of(Chip::AD104).unwrap()) };
    (GspFunction::new(back.clone(), config).unwrap(), back)
}

fn monitor(function: &GspFunction<FakeGspBack>) -> [u64; 3] {
    let face = function.counters();
    [face.heads, face.monitor_width, face.monitor_height]
}

#[test]
fn operators_plug_in_other_monitors_and_none() {
    let mode = Some("640x480".parse().unwrap());
    let (function, back) = function(Some(HeadConfig { name: "vm1".into(), mode }));
    assert_eq!(monitor(&function), [1, 640, 480]);
    function.take_counters_changed();
    for (size, wanted, is_news) in [
        (Some((640, 480)), [1, 640, 480], false),
        (Some((1280, 800)), [1, 1280, 800], true),
        // No monitor prefers these, whoever says so.
        (Some((0, 1)), [1, 1280, 800], false),
        (Some((u16::MAX, u16::MAX)), [1, 1280, 800], false),
        (None, [1, 0, 0], true),
        (None, [1, 0, 0], false),
        (Some((1920, 1080)), [1, 1920, 1080], true),
    ] {
        back.events().monitor(size);
        assert_eq!((monitor(&function), function.take_counters_changed()), (wanted, is_news), "{size:?}");
    }
    function.reset();
    assert_eq!(monitor(&function), [1, 1920, 1080], "a reset unplugs nothing");
}

#[test]
fn function_without_a_head_has_no_monitor() {
    let (function, back) = function(None);
    back.events().monitor(Some((1280, 800)));
    assert_eq!(monitor(&function), [0; 3]);
}
