//! Firmware 535.113.01: layouts and numbers, with NVIDIA's names, and the tables of what is answered, as far
//! as they are its own.
//!
//! nouveau speaks it on Turing, Ampere and Ada: the only version of Linux 6.7 to 6.15, and the second choice
//! of later ones.

#![allow(
    non_camel_case_types,
    non_snake_case,
    missing_docs,
    reason = "structs, fields and constants keep the names of NVIDIA's headers, which are their documentation"
)]

pub mod control;
pub(super) mod controls;
pub mod events;
pub mod object;
pub mod static_info;

use zerocopy::IntoBytes;

use super::Abi;
use super::common::{functions, objects};
use super::values::Host;

/// This version.
pub static ABI: Abi = Abi {
    version: "535.113.01",
    system_info: 0x298,
    client_parameters: object::NV0000_ALLOC_PARAMETERS_SIZE,
    internal_client: objects::INTERNAL_CLIENT,
    functions: &[functions::FUNCTIONS],
    functions_source: functions::SOURCE,
    classes: &[objects::CLASSES, object::CLASSES],
    classes_source: objects::SOURCE,
    controls: controls::TABLES,
    display: controls::DISPLAY,
    renamed: include_str!("renamed.txt"),
    host: |_| Host::default(),
    static_info: |info| static_info::encode(info).as_bytes().to_vec(),
    rc_triggered: |event| events::rpc_rc_triggered_v17_02::from(event).as_bytes().to_vec(),
    error_log: None,
    resume_runs_channels: true,
    suspends: true,
    parameters_follow: false,
    result_is_status: false,
};
