//! Firmware 535.261.03, as NVIDIA's own kernel modules of that version speak to it: layouts and numbers, with
//! NVIDIA's names, and the tables of what is answered.
//!
//! It is of the branch of nouveau's 535.113.01, and has some layouts from there. The modules tell of the host
//! in more bytes than nouveau does.

#![allow(
    non_camel_case_types,
    non_snake_case,
    missing_docs,
    reason = "structs, fields and constants keep the names of NVIDIA's headers, which are their documentation"
)]

pub mod control;
mod controls;
pub mod static_info;

use zerocopy::IntoBytes;

use super::Abi;
use super::common::objects;
use super::nvidia::{self, events, functions, object, system_info};

/// Bytes of `GspSystemInfo`.
pub const SYSTEM_INFO: usize = 0x2a0;

/// This version.
pub static ABI: Abi = Abi {
    version: control::VERSION,
    system_info: SYSTEM_INFO,
    client_parameters: object::NV0000_ALLOC_PARAMETERS_SIZE,
    internal_client: nvidia::INTERNAL_CLIENT,
    functions: functions::TABLES,
    functions_source: functions::SOURCE,
    classes: &[objects::CLASSES, object::CLASSES],
    classes_source: objects::SOURCE,
    controls: controls::TABLES,
    display: controls::DISPLAY,
    renamed: include_str!("renamed.txt"),
    host: system_info::decode,
    static_info: |info| static_info::encode(info).as_bytes().to_vec(),
    rc_triggered: |event| events::rpc_rc_triggered_v17_02::from(event).as_bytes().to_vec(),
    error_log: Some(|log| events::rpc_os_error_log_v17_00::from(log).as_bytes().to_vec()),
    resume_runs_channels: true,
    suspends: false,
    parameters_follow: true,
    result_is_status: true,
};
