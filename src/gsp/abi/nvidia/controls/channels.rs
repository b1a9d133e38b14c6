//! Controls of channels and groups of them.

use crate::abi::common::control::{parameters, put};
use crate::abi::nvidia::control::{
    NV_PFB_PRI_MMU_FAULT_INFO, NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS,
    NV2080_CTRL_INTERNAL_FIFO_GET_NUM_CHANNELS_PARAMS,
};
use crate::abi::nvidia::numbers::numbers;
use crate::abi::table::{Answer, ControlCall, controls};
use crate::abi::values::FaultOfChannel;
use gpuvmk_chip::AccessKind;

numbers! {
    NVA06C_CTRL_CMD_GPFIFO_SCHEDULE = 0xa06c_0101, 2;
    NVA06C_CTRL_CMD_SET_TIMESLICE = 0xa06c_0103, 8;
    NVA06C_CTRL_CMD_PREEMPT = 0xa06c_0105, 8;
    NVA06C_CTRL_CMD_INTERNAL_PROMOTE_FAULT_METHOD_BUFFERS = 0xa06c_010a, 88;
    NVA06F_CTRL_CMD_STOP_CHANNEL = 0xa06f_0112, 1;
    NV2080_CTRL_CMD_GPU_EVICT_CTX = 0x2080_012c, 20;
    NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE = 0x2080_1210, 32;
    NV2080_CTRL_CMD_INTERNAL_FIFO_GET_NUM_CHANNELS = 0x2080_0a61, 8;
    NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK = 0x83de_0309, 4;
    NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES = 0x83de_030c, 4824;
}

controls! {
    source "open-gpu-kernel-modules ctrla06c.h, ctrla06f, ctrl2080gr.h, ctrl2080internal.h, ctrl83dedebug.h";
    /// Lets the channels of a group run, or holds them back.
    NVA06C_CTRL_CMD_GPFIFO_SCHEDULE on ChannelGroup, size::NVA06C_CTRL_CMD_GPFIFO_SCHEDULE
        => Answer::Handler(ControlCall::ScheduleGroup(|raw| Ok(parameters::<[u8; 2]>(raw)[0] != 0)));
    /// How long a group runs at a time: the scheduler's own affair.
    NVA06C_CTRL_CMD_SET_TIMESLICE on ChannelGroup, size::NVA06C_CTRL_CMD_SET_TIMESLICE => Answer::Acknowledged;
    /// Takes a group off its engine for the moment.
    NVA06C_CTRL_CMD_PREEMPT on ChannelGroup, size::NVA06C_CTRL_CMD_PREEMPT => Answer::Acknowledged;
    /// Where methods that faulted are kept. None fault.
    NVA06C_CTRL_CMD_INTERNAL_PROMOTE_FAULT_METHOD_BUFFERS on ChannelGroup,
        size::NVA06C_CTRL_CMD_INTERNAL_PROMOTE_FAULT_METHOD_BUFFERS => Answer::Acknowledged;
    /// Holds a channel back that is about to go.
    NVA06F_CTRL_CMD_STOP_CHANNEL on Channel, size::NVA06F_CTRL_CMD_STOP_CHANNEL
        => Answer::Handler(ControlCall::ScheduleChannel(|_| Ok(false)));
    /// Takes a graphics context's buffers back. The GPU behind has its own.
    NV2080_CTRL_CMD_GPU_EVICT_CTX on Subdevice, size::NV2080_CTRL_CMD_GPU_EVICT_CTX => Answer::Acknowledged;
    /// How graphics work is interrupted: the GPU behind's own affair.
    NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE on Subdevice, size::NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE
        => Answer::Acknowledged;
    /// How many channels a runlist can have.
    NV2080_CTRL_CMD_INTERNAL_FIFO_GET_NUM_CHANNELS on Subdevice, size::NV2080_CTRL_CMD_INTERNAL_FIFO_GET_NUM_CHANNELS
        => Answer::Handler(ControlCall::RunlistChannels(put_channels));
    /// Which exceptions a debugger hears of.
    NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK on Debugger, size::NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK
        => Answer::Acknowledged;
    /// Which errors multiprocessors report, and the fault that ended a channel's context. A fault is all that
    /// is known: no multiprocessor reports what it did.
    NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES on Debugger,
        size_of::<NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS>()
        => Answer::Handler(ControlCall::FaultOfChannel {
            read: |raw| Ok(parameters::<NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS>(raw).hTargetChannel),
            write: put_fault,
        });
}

fn put_fault(fault: &Option<FaultOfChannel>, raw: &mut [u8]) {
    use NV_PFB_PRI_MMU_FAULT_INFO::{ACCESS_TYPE, FAULT_TYPE, VALID};
    let info = fault.map_or(0, |fault| {
        let access = match fault.access {
            AccessKind::Read => ACCESS_TYPE::VIRT_READ,
            AccessKind::Write => ACCESS_TYPE::VIRT_WRITE,
        };
        FAULT_TYPE.of(fault.fault_type) | ACCESS_TYPE.of(access) | VALID.of(1)
    });
    let asked: NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS = parameters(raw);
    put(
        raw,
        &NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS {
            smErrorStateArray: [[0; 6]; 100],
            mmuFaultInfo: info,
            mmuFault_valid: fault.is_some().into(),
            mmuFault_faultInfo: info,
            ..asked
        },
    );
}

fn put_channels(count: &u32, raw: &mut [u8]) {
    let asked: NV2080_CTRL_INTERNAL_FIFO_GET_NUM_CHANNELS_PARAMS = parameters(raw);
    put(raw, &NV2080_CTRL_INTERNAL_FIFO_GET_NUM_CHANNELS_PARAMS { numChannels: *count, ..asked });
}
