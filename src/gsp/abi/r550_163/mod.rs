//! Firmware 550.163.01, as NVIDIA's own kernel modules of that version speak to it: layouts and numbers, with
//! NVIDIA's names, and the tables of what is answered.
//!
//! It differs from nouveau's versions in more than layouts. An allocation's parameters lie behind the length
//! of its message, and its result is the message's. The module makes clients of its own in the range where
//! firmware's own client has its handle elsewhere, has groups of channels and objects that two clients know,
//! and says of page tables in messages of their own.

#![allow(
    non_camel_case_types,
    non_snake_case,
    missing_docs,
    reason = "structs, fields and constants keep the names of NVIDIA's headers, which are their documentation"
)]

pub mod control;
mod controls;
pub mod events;
mod functions;
pub mod object;
pub mod static_info;
pub mod system_info;

use zerocopy::IntoBytes;

use super::Abi;
use super::common::objects;

/// Handle of firmware's own client. The module makes its own from 0xc1d00000 and from 0xc1e00000 on.
pub const INTERNAL_CLIENT: u32 = 0xc1f0_0004;

/// This version.
pub static ABI: Abi = Abi {
    version: control::VERSION,
    system_info: size_of::<system_info::GspSystemInfo>(),
    client_parameters: object::NV0000_ALLOC_PARAMETERS_SIZE,
    internal_client: INTERNAL_CLIENT,
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
