//! A GPU, its aggregator and vGPUs in one process. Each file has what holds of one matter; they are one
//! program, since each that is linked with everything is built as long as most of these tests run.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests may fail as tests do"
)]

#[path = "../common/card.rs"]
mod card;
#[path = "../common/gsp_driver/mod.rs"]
mod gsp_driver;
#[path = "../common/gsp_queues.rs"]
mod gsp_queues;
#[path = "../common/hanging.rs"]
mod hanging;
#[path = "../common/scenarios.rs"]
mod scenarios;
#[path = "../common/soft_host.rs"]
mod soft_host;
#[path = "../common/tenant.rs"]
mod tenant;
#[path = "../common/tiny_driver/mod.rs"]
mod tiny_driver;

mod bar0;
mod card_init;
mod card_mediated;
mod card_memory;
mod hangs;
mod mediated_copy;
mod mediated_gsp;
mod messages;
mod native_copy;
mod own_load;
mod residue;
mod shared_gpu;
mod sleepers;
