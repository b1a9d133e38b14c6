//! The functions that are known: the same in all versions.

use super::rpc::*;
use crate::abi::table::{FunctionCall, Source, functions};

/// Where they are known from.
pub const SOURCE: Source =
    "open-gpu-kernel-modules rpc_global_enums.h, g_rpc-structures.h; nouveau gsp/rm/r535/rpc.c";

functions! {
    /// A control of an object; see below.
    NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, answered => FunctionCall::Control;
    /// Makes an object of a class; see below.
    NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC, answered => FunctionCall::Allocate;
    /// Frees an object and what is below it.
    NV_VGPU_MSG_FUNCTION_FREE, answered => FunctionCall::Free;
    /// Makes an object of a list of pages.
    NV_VGPU_MSG_FUNCTION_ALLOC_MEMORY, answered => FunctionCall::AllocateMemory;
    /// The driver leaves. In a suspend it comes back, and finds its objects as they were.
    NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER, answered => FunctionCall::Unload;
    /// What the GPU is: name, memory, BARs' page tables, firmware's own objects.
    NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO, answered => FunctionCall::StaticInfo;
    /// The top entry of a BAR's page tables.
    NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE, answered => FunctionCall::UpdateBarPde;
    /// What the driver knows of the host: nothing of it changes what a virtual GPU does.
    NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO, unanswered => FunctionCall::SystemInfo;
    /// Registry keys, which tune real firmware; there is nothing to tune.
    NV_VGPU_MSG_FUNCTION_SET_REGISTRY, unanswered => FunctionCall::Registry;
}
