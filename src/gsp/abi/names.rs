//! Names of RPC functions and of controls, for logs and traces: numbers say nothing to a reader.
//!
//! `functions.txt` has the functions of r570 in order of their numbers; `controls.txt` those controls of r570
//! that drivers send about engines, memory, channels and interrupts, by number.

/// Name of an RPC function.
pub fn function(number: u32) -> Option<&'static str> {
    include_str!("functions.txt").lines().nth(usize::try_from(number).ok()?)
}

/// Name of a control.
pub fn control(number: u32) -> Option<&'static str> {
    include_str!("controls.txt").lines().find_map(|line| {
        let (digits, name) = line.split_once(' ')?;
        (u32::from_str_radix(digits, 16) == Ok(number)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::common::rpc;
    use crate::abi::r570_144::control as numbers;

    #[test]
    fn functions_in_use_have_the_names_of_the_list() {
        for (number, name) in [
            (rpc::NV_VGPU_MSG_FUNCTION_ALLOC_MEMORY, "ALLOC_MEMORY"),
            (rpc::NV_VGPU_MSG_FUNCTION_FREE, "FREE"),
            (rpc::NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER, "UNLOADING_GUEST_DRIVER"),
            (rpc::NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO, "GET_GSP_STATIC_INFO"),
            (rpc::NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE, "UPDATE_BAR_PDE"),
            (rpc::NV_VGPU_MSG_FUNCTION_CONTINUATION_RECORD, "CONTINUATION_RECORD"),
            (rpc::NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO, "GSP_SET_SYSTEM_INFO"),
            (rpc::NV_VGPU_MSG_FUNCTION_SET_REGISTRY, "SET_REGISTRY"),
            (rpc::NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, "GSP_RM_CONTROL"),
            (rpc::NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC, "GSP_RM_ALLOC"),
        ] {
            assert_eq!(function(number), Some(name));
        }
        assert_eq!(function(0x1001), None);
    }

    #[test]
    fn controls_are_found_by_number_and_unknown_ones_are_not() {
        macro_rules! named {
            ($($name:ident)*) => { $(assert_eq!(control(numbers::$name), Some(stringify!($name)));)* };
        }
        named! {
            NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY
            NV0080_CTRL_CMD_DMA_UNSET_PAGE_DIRECTORY
            NV2080_CTRL_CMD_GPU_PROMOTE_CTX
            NV2080_CTRL_CMD_GPU_GET_FERMI_GPC_INFO
            NV2080_CTRL_CMD_GPU_GET_FERMI_TPC_INFO
            NV2080_CTRL_CMD_GPU_GET_CONSTRUCTED_FALCON_INFO
            NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION
            NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO
            NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE
            NV0080_CTRL_CMD_FB_GET_COMPBIT_STORE_INFO
            NV2080_CTRL_CMD_INTERNAL_MEMSYS_GET_STATIC_CONFIG
            NV2080_CTRL_CMD_INTERNAL_MEMSYS_PROGRAM_RAW_COMPRESSION_MODE
            NV2080_CTRL_CMD_INTERNAL_GCX_ENTRY_PREREQUISITE
            NV2080_CTRL_CMD_INTERNAL_FBSR_INIT
            NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING
            NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE
            NV2080_CTRL_CMD_GR_GET_ZCULL_INFO
            NV2080_CTRL_CMD_CE_GET_FAULT_METHOD_BUFFER_SIZE
            NV90F1_CTRL_CMD_VASPACE_COPY_SERVER_RESERVED_PDES
            NVA06F_CTRL_CMD_GPFIFO_SCHEDULE
            NVA06F_CTRL_CMD_BIND
            NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN
        }
        assert_eq!(control(0xdead_beef), None);
    }

    #[test]
    fn control_names_are_sorted_and_distinct() {
        let numbers: Vec<_> = include_str!("controls.txt").lines().map(|line| &line[..8]).collect();

        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
