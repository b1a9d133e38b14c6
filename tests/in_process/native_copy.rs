//! The tiny driver on a bare software GPU: what the mediated tests compare with.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;

use crate::scenarios;
use gpuvmk::pci::PciFunction;
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};

fn gpu() -> Arc<dyn PciFunction> {
    SoftGpu::new(SoftGpuConfig { vram: 64 << 20, ..SoftGpuConfig::default() }).unwrap()
}

#[test]
fn copies_on_every_engine_move_the_bytes() {
    scenarios::copies_on_every_engine(gpu());
}

#[test]
fn end_of_each_copy_is_one_message() {
    scenarios::copies_that_end_with_a_message(gpu(), 20);
}

#[test]
fn fault_stops_its_channel_and_no_other() {
    scenarios::fault_stops_its_channel_only(gpu());
}

#[test]
fn stale_translation_lives_until_the_flush() {
    scenarios::flush_changes_what_engines_reach(gpu());
}

#[test]
fn channel_number_can_be_used_again() {
    scenarios::channel_number_is_used_again(gpu());
}

#[test]
fn context_pointer_may_be_written_while_the_channel_runs() {
    scenarios::context_pointer_is_written_while_the_channel_runs(gpu());
}

#[test]
fn reset_and_a_second_bring_up_work() {
    scenarios::reset_and_again(gpu());
}
