//! GSP in a saved state: what the other tests say is so when it is saved and restored before each call.

use super::driver::{Driver, RESTORES};
use super::probe::{channel, client, set_page_directory};
use super::{boot, channels, config, events, objects, probe, queues, saved};
use crate::model::saved_state::{KindState, ObjectState};
use crate::model::{Gsp, GspState};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_saved_state::testing::corrupted_states_are_refused_or_taken_as_they_are;

const CLIENT: u32 = 0xc1d0_0000;

/// Tests in which a driver makes calls, but for those that look at notes, and at what was refused and not
/// told yet, which are not in a state. These are so for drivers of all versions.
pub const SAME: [fn(); 62] = [
    channels::parameters_that_no_channel_can_have_are_refused,
    channels::channel_without_a_page_directory_is_refused,
    channels::channel_numbers_are_unique_on_a_runlist_and_free_for_another,
    channels::channel_without_a_fixed_number_gets_the_first_that_is_free,
    channels::slots_run_out_and_come_back,
    channels::refusals_of_the_back_reach_the_driver_and_leave_nothing,
    channels::objects_of_a_graphics_channel_are_those_that_nvk_asks_for,
    channels::objects_without_a_name_are_given_one_each_and_go_with_their_channel,
    channels::objects_of_engines_that_the_channel_does_not_have_are_refused,
    channels::binding_takes_engines_of_the_channels_runlist_only,
    channels::scheduling_goes_to_the_back_both_ways,
    channels::every_way_to_free_takes_the_channel_from_the_back_once,
    channels::page_directory_in_use_cannot_be_replaced,
    channels::page_directories_must_lie_in_memory,
    channels::promoting_needs_a_channel_and_a_possible_number_of_buffers,
    objects::handles_are_unique_within_a_client_and_not_between_clients,
    objects::parents_must_exist_and_be_of_the_right_type,
    objects::parameters_longer_than_the_rpc_are_refused,
    objects::freeing_an_object_frees_what_is_below_it_and_nothing_else,
    objects::handle_of_a_freed_object_can_be_used_again,
    objects::firmwares_own_objects_cannot_be_freed,
    objects::one_client_can_have_so_many_objects_and_no_more,
    objects::usual_limits_leave_room_for_hundreds_of_programs,
    objects::controls_need_their_object_and_their_size,
    objects::unknown_functions_are_answered_and_counted,
    objects::memory_lists_must_be_as_long_as_they_say,
    objects::second_boot_finds_nothing_of_the_first,
    queues::calls_of_every_size_wrap_around_the_queue_many_times,
    queues::large_rpc_arrives_in_pieces_and_is_answered_in_pieces,
    queues::rpc_that_fills_one_record_exactly_is_not_waited_for,
    queues::continuation_of_nothing_is_counted_and_not_answered,
    queues::rpc_whose_continuation_does_not_come_is_given_up_for_the_next,
    queues::rpc_larger_than_any_answer_can_be_is_refused_at_once,
    queues::record_without_an_rpc_header_is_skipped,
    queues::sizes_that_contradict_each_other_are_refused,
    queues::element_numbers_that_jump_are_counted_once_and_taken,
    queues::write_pointer_outside_the_queue_is_refused,
    queues::read_pointer_outside_the_message_queue_counts_as_a_full_one,
    queues::memory_that_goes_away_stops_the_queue_without_an_answer,
    queues::page_table_is_not_read_again_after_the_boot,
    events::stopped_channel_has_no_doorbell_and_does_not_run_again,
    events::late_stop_of_a_freed_channel_does_not_reach_its_successor,
    events::slots_without_a_channel_say_nothing,
    events::event_that_does_not_fit_is_dropped_and_counted,
    events::nothing_is_told_to_a_driver_that_sleeps,
    probe::graphics_units_are_answered_for_each_cluster,
    probe::device_table_has_a_copy_engine_on_the_graphics_runlist_and_lone_ones,
    probe::engines_that_are_not_configured_are_in_no_table,
    probe::bar2_root_is_handed_to_the_face_and_another_level_is_refused,
    probe::bar1_root_is_written_where_the_driver_was_told_it_is,
    probe::golden_context_is_made_and_freed_without_a_channel_at_the_back,
    probe::whole_probe_ends_with_two_running_channels_and_unloads_cleanly,
    boot::boot_drains_the_queue_and_tells_that_it_is_done,
    boot::message_queue_gets_the_header_that_drivers_expect,
    boot::arguments_outside_memory_are_told_with_their_address,
    boot::contradicting_arguments_are_refused_and_a_later_boot_works,
    boot::queue_headers_of_another_shape_are_refused,
    boot::resume_without_a_suspend_is_refused,
    boot::chips_that_falcons_boot_have_the_driver_run_a_sequence_before_they_are_ready,
    boot::resumed_gsp_has_nothing_run,
    boot::doorbells_before_the_boot_and_after_unloading_do_nothing,
    probe::buffer_for_methods_that_faulted_is_a_page,
];

/// Those with calls that only drivers of the usual version make, or answers that only they understand.
const USUAL: [fn(); 16] = [
    channels::holding_all_channels_back_spares_those_that_do_not_run,
    objects::saving_needs_memory_that_was_listed,
    events::stopped_channel_is_told_by_number_engine_and_fault,
    saved::what_is_kept_is_taken_by_another_process_twice_in_a_row,
    saved::work_that_was_submitted_and_not_begun_follows,
    saved::channel_whose_place_cannot_be_found_again_is_told_as_stopped,
    saved::gsp_that_was_not_reset_goes_on_as_it_is,
    saved::what_is_handed_over_counts_and_not_what_the_process_has,
    saved::memory_that_goes_away_before_the_end_leaves_gsp_running,
    saved::what_is_not_what_was_kept_is_refused_with_a_reason_and_leaves_nothing,
    saved::objects_beyond_the_limits_of_the_one_who_takes_them_are_refused,
    saved::boot_from_the_start_is_possible_after_a_refusal,
    probe::static_info_names_memory_handles_and_the_page_tables_of_the_bars,
    probe::interrupt_table_has_gsp_and_every_engine,
    probe::context_buffers_and_zcull_are_answered,
    probe::suspend_and_resume_keep_channels_and_hold_them_back_in_between,
];

#[test]
fn gsp_that_is_restored_before_each_call_does_what_it_did() {
    for test in SAME.into_iter().chain(USUAL) {
        RESTORES.set(Some(0));
        test();
    }
    RESTORES.set(None);
}

/// A GSP with a client that has channels, one of them without a ring.
fn in_use() -> GspState {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);
    assert_eq!(set_page_directory(&mut driver, CLIENT, 0x1000), 0);
    for (handle, engine, ring) in [(0xf1, 1, 0x1000), (0xf2, 10, 0x2000), (0xf3, 1, 0)] {
        let parameters = channel(engine, handle & 7, ring, 0x1000 * u64::from(handle));
        assert_eq!(driver.alloc(CLIENT, probe::DEVICE, handle, 0xc86f, &parameters), 0);
    }
    driver.gsp.state()
}

#[test]
fn states_with_mistakes_are_refused() {
    corrupted_states_are_refused_or_taken_as_they_are(
        &in_use(),
        2_000,
        |state| Gsp::from_state(state, config()),
        Gsp::state,
    );
}

#[test]
fn objects_that_no_driver_can_have_are_refused_by_their_names() {
    let refused = |change: &dyn Fn(&mut GspState)| {
        let mut state = in_use();
        change(&mut state);
        Gsp::from_state(&state, config()).unwrap_err().to_string()
    };
    let channel = |state: &mut GspState| {
        let of = |object: &ObjectState| matches!(object.kind, KindState::Channel { .. });
        state.objects.iter().position(of).unwrap()
    };
    assert!(refused(&|state| state.objects.reverse()).contains("is not in its place"));
    assert!(
        refused(&|state| {
            let at = channel(state);
            state.objects[at].parent = CLIENT;
        })
        .contains("0xc1d00000:0xf1 of class 0xc86f cannot be where it is")
    );
    assert!(
        refused(&|state| {
            let at = channel(state);
            state.objects.remove(at);
        })
        .contains("there are channels without objects")
    );
    assert!(
        refused(&|state| state.channels.channels[2].slot = Some(GuestChannel(0))).contains("taken twice")
    );
    assert!(
        refused(&|state| state.channels.channels[0].slot = Some(GuestChannel(8)))
            .contains("no driver can have")
    );
    assert!(refused(&|state| state.channels.channels[0].userd = 256 << 20).contains("no driver can have"));
    assert!(refused(&|state| state.queues.as_mut().unwrap().read = 63).contains("they are at 63"));
    assert!(refused(&|state| state.queues = None).contains("its queues are None"));
    assert!(refused(&|state| state.firmware = "1.0".to_owned()).contains("it spoke version \"1.0\""));
    let mut fewer = config();
    fewer.objects.per_client = 4;
    let error = Gsp::from_state(&in_use(), fewer).unwrap_err().to_string();
    assert!(error.contains("objects of a client has 7 entries, of at most 4"), "{error}");
}
