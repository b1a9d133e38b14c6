//! Firmware 570.144: layouts and numbers, with NVIDIA's names, and the tables of what is answered.

#![allow(
    non_camel_case_types,
    non_snake_case,
    missing_docs,
    reason = "structs, fields and constants keep the names of NVIDIA's headers, which are their documentation"
)]

pub mod boot;
mod classes;
pub mod control;
mod controls;
pub mod events;
mod functions;
pub mod object;
pub mod static_info;

use zerocopy::IntoBytes;

use super::Abi;

/// This version.
pub static ABI: Abi = Abi {
    version: "570.144",
    system_info: functions::GSP_SYSTEM_INFO_SIZE,
    rm_arguments: size_of::<boot::GSP_ARGUMENTS_CACHED>(),
    client_parameters: object::NV0000_ALLOC_PARAMETERS_SIZE,
    functions: functions::FUNCTIONS,
    classes: classes::CLASSES,
    classes_source: classes::SOURCE,
    functions_source: functions::SOURCE,
    controls: controls::TABLES,
    static_info: |info| static_info::encode(info).as_bytes().to_vec(),
    rc_triggered: |event| events::rpc_rc_triggered_v17_02::from(event).as_bytes().to_vec(),
};
