//! The functions that this version has beside those of all.

use crate::abi::common::functions;
use crate::abi::common::rpc::*;
use crate::abi::table::{Function, FunctionCall, Source, functions};

/// Where they are known from.
pub const SOURCE: Source =
    "open-gpu-kernel-modules rpc_global_enums.h, g_rpc-structures.h, kernel/vgpu/nv/rpc.c";

/// All of them.
pub const TABLES: &[&[Function]] = &[functions::FUNCTIONS, FUNCTIONS];

functions! {
    /// The driver's version, in words. What it says goes back: there is nothing to agree on.
    NV_VGPU_MSG_FUNCTION_SET_GUEST_SYSTEM_INFO, answered => FunctionCall::GuestSystemInfo;
    /// Another client is to know an object too: an address space, a group of channels, or a share of its
    /// contexts.
    NV_VGPU_MSG_FUNCTION_DUP_OBJECT, answered => FunctionCall::Duplicate;
    /// Says where the page tables of an address space are that the driver keeps itself.
    NV_VGPU_MSG_FUNCTION_SET_PAGE_DIRECTORY, answered => FunctionCall::SetPageDirectory;
    /// Takes that back.
    NV_VGPU_MSG_FUNCTION_UNSET_PAGE_DIRECTORY, answered => FunctionCall::UnsetPageDirectory;
}
