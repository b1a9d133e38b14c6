//! What is counted of GSP, for operators: over function resets, each of which makes a new one.

use gpuvmk_control_client::GspCounters;
use gpuvmk_gsp::{Counters, Gsp, Refusals};

/// What a GSP counted since it was made.
pub fn counters_of(gsp: &Gsp) -> GspCounters {
    let Counters {
        rpcs,
        rpcs_unknown,
        controls,
        controls_unknown,
        // Told by reason.
        refused: _,
        records_refused,
        sequence_gaps,
        continuations_refused,
        replies_dropped,
        events,
        events_dropped,
        channels_stopped,
        saves_refused,
        restores_refused,
        notes_lost,
    } = gsp.counters();
    let Refusals { unsupported, object, class, parameters, permission, state, resources, lost } =
        gsp.refusals();
    GspCounters {
        rpcs,
        controls,
        rpcs_unknown,
        controls_unknown,
        refused_unsupported: unsupported,
        refused_object: object,
        refused_class: class,
        refused_parameters: parameters,
        refused_permission: permission,
        refused_state: state,
        refused_resources: resources,
        refused_lost: lost,
        records_refused,
        sequence_gaps,
        continuations_refused,
        replies_dropped,
        events,
        events_dropped,
        channels_stopped,
        saves_refused,
        restores_refused,
        notes_lost,
    }
}
