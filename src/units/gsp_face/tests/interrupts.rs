//! Notifications on their way to the driver, by message and by line, and what a handler does.

use super::*;
use gpuvmk_backend::InterruptInterest;
use gpuvmk_chip::{Engine, EngineSet};

/// Reads as nouveau's handler does until it knows the leaf; returns top and leaf 1.
fn handler_start(gpu: &Gpu) -> (u32, u32) {
    gpu.wr(0xb8_1610, 0xf);
    (gpu.rd(0xb8_1600), gpu.rd(0xb8_1004))
}

#[test]
fn notification_sends_one_message_until_the_handler_rearms() {
    let gpu = Gpu::new();
    let sink = gpu.listen(true, &[1]);
    let events = gpu.back.events();
    events.non_stall(Engine::COPY0);
    events.non_stall(Engine::Graphics);
    assert_eq!(sink.taken(), [Signal::Message]);
    assert_eq!(handler_start(&gpu), (1, 3));
    gpu.wr(0xb8_1004, 3);
    gpu.wr(0xb8_1608, 0xf);
    assert_eq!(sink.taken(), []);
    events.non_stall(Engine::COPY0);
    assert_eq!(sink.taken(), [Signal::Message]);
}

#[test]
fn what_comes_while_the_handler_runs_is_sent_at_rearm() {
    let gpu = Gpu::new();
    let sink = gpu.listen(true, &[1]);
    let events = gpu.back.events();
    events.non_stall(Engine::COPY0);
    sink.taken();
    assert_eq!(handler_start(&gpu), (1, 2));
    gpu.wr(0xb8_1004, 2);
    events.non_stall(Engine::COPY1);
    assert_eq!(sink.taken(), []);
    gpu.wr(0xb8_1608, 0xf);
    assert_eq!(sink.taken(), [Signal::Message]);
    assert_eq!(handler_start(&gpu), (1, 4));
}

#[test]
fn level_that_falls_by_clearing_the_leaf_rises_again_with_a_message() {
    let gpu = Gpu::new();
    let sink = gpu.listen(true, &[1]);
    gpu.back.events().non_stall(Engine::COPY0);
    gpu.wr(0xb8_1004, 2);
    gpu.back.events().non_stall(Engine::COPY0);
    assert_eq!(sink.taken(), [Signal::Message, Signal::Message]);
}

#[test]
fn vector_that_is_not_enabled_waits() {
    let gpu = Gpu::new();
    let sink = gpu.listen(true, &[]);
    gpu.back.events().non_stall(Engine::COPY0);
    assert_eq!(sink.taken(), []);
    assert_eq!((gpu.rd(0xb8_1600), gpu.rd(0xb8_1004)), (0, 2));
    gpu.wr(0xb8_1204, 2);
    assert_eq!(sink.taken(), [Signal::Message]);
    gpu.wr(0xb8_1404, 2);
    assert_eq!(gpu.rd(0xb8_1204), 0);
}

#[test]
fn end_of_work_that_the_driver_has_masked_is_brought_when_it_looks_or_enables_it() {
    let gpu = Gpu::new();
    let interest = |gpu: &Gpu| gpu.back.ends.interest().unwrap();
    let keep = |engine| gpu.back.ends.keep(engine);
    assert_eq!(interest(&gpu), InterruptInterest::Masked, "everything is masked at first");
    let sink = gpu.listen(true, &[1]);
    assert!(
        matches!(interest(&gpu), InterruptInterest::Message(engines) if engines.contains(EngineSet::GRAPHICS))
    );

    // The vectors of two engines go one by one; others are no matter.
    gpu.wr(0xb8_1200, 1);
    gpu.wr(0xb8_1404, !6);
    assert_eq!(interest(&gpu), InterruptInterest::Message(EngineSet::COPY0 | EngineSet::COPY1));
    gpu.wr(0xb8_1404, 6);
    assert_eq!(interest(&gpu), InterruptInterest::Masked);

    keep(Engine::Graphics);
    assert_eq!(gpu.rd(0xb8_1004), 1);
    keep(Engine::COPY0);
    assert_eq!(gpu.rd(0xb8_1600), 0, "nothing of it is enabled");
    assert!(!gpu.back.ends.any(), "but it was asked for");
    // What is cleared is also what was on its way.
    keep(Engine::COPY1);
    gpu.wr(0xb8_1004, 7);
    assert_eq!((gpu.rd(0xb8_1004), sink.taken()), (0, vec![]));

    keep(Engine::COPY1);
    gpu.wr(0xb8_1204, 4);
    assert_eq!((interest(&gpu), sink.taken()), (InterruptInterest::Wake, vec![Signal::Message]));
    gpu.function.reset();
    assert_eq!(interest(&gpu), InterruptInterest::Masked);
}

#[test]
fn handler_finds_a_message_that_the_back_sent_as_if_the_function_had() {
    let gpu = Gpu::new();
    let sink = gpu.listen(true, &[1]);
    for _ in 0..3 {
        assert!(matches!(gpu.back.ends.interest(), Some(InterruptInterest::Message(_))));
        gpu.back.ends.post(Engine::COPY0);
        assert_eq!(sink.taken(), [], "the function does not know yet");
        assert_eq!(handler_start(&gpu), (1, 2));
        gpu.wr(0xb8_1004, 2);
        gpu.wr(0xb8_1608, 0xf);
        assert_eq!(sink.taken(), [Signal::Sent]);
    }
    // It is known at any access that has to do with it: here the end of the handler, which finds more to
    // tell.
    gpu.back.ends.post(Engine::COPY0);
    gpu.wr(0xb8_1608, 0xf);
    assert_eq!(sink.taken(), [Signal::Sent, Signal::Message]);
    // No message is due where the top lets nothing through.
    gpu.wr(0xb8_1610, 0xf);
    assert_eq!(gpu.back.ends.interest(), Some(InterruptInterest::Wake));
    gpu.back.events().unsent();
    assert_eq!(sink.taken(), [Signal::Message], "one that could not be sent is sent here");
}

#[test]
fn no_message_without_bus_mastering_and_one_when_it_comes() {
    let gpu = Gpu::new();
    let sink = gpu.listen(true, &[1]);
    gpu.config_wr(4, &[2, 0]);
    gpu.back.events().non_stall(Engine::Graphics);
    assert_eq!(sink.taken(), []);
    gpu.config_wr(4, &[6, 0]);
    assert_eq!(sink.taken(), [Signal::Message]);
}

#[test]
fn line_follows_the_level_where_there_are_no_messages() {
    let gpu = Gpu::new();
    let sink = gpu.listen(false, &[1]);
    gpu.back.events().non_stall(Engine::Graphics);
    assert_eq!(gpu.config_rd(4) & 1 << 19, 1 << 19);
    gpu.wr(0xb8_1610, 0xf);
    gpu.wr(0xb8_1608, 0xf);
    gpu.wr(0xb8_1004, 1);
    let [up, down] = [Signal::Line(true), Signal::Line(false)];
    assert_eq!(sink.taken(), [up, down, up, down]);
    assert_eq!(gpu.config_rd(4) & 1 << 19, 0);
}

#[test]
fn reset_takes_what_was_pending() {
    let gpu = Gpu::new();
    let sink = gpu.listen(false, &[1]);
    gpu.back.events().non_stall(Engine::Graphics);
    gpu.function.reset();
    assert_eq!(sink.taken(), [Signal::Line(true), Signal::Line(false)]);
    assert_eq!((gpu.rd(0xb8_1004), gpu.rd(0xb8_1204), gpu.rd(0xb8_1608)), (0, 0, 0));
}
