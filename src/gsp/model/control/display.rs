//! Controls of the display engine.

use crate::abi::display::DisplayCall;
use crate::abi::status::Status;
use crate::model::display::{ALL_HEADS, ALL_WINDOWS, HEAD_COUNT};
use crate::model::rm::Rm;

/// Carries a control out; `raw` becomes the answer. Without heads, counts and masks are 0, instance memory is
/// of no use, and what only heads have is not supported.
pub(super) fn display(rm: &mut Rm, call: DisplayCall, raw: &mut [u8]) -> Result<(), Status> {
    let has_heads = rm.config.heads().is_some();
    let mut count = |write: fn(&u32, &mut [u8]), value: u32| {
        raw.fill(0);
        write(&if has_heads { value } else { 0 }, raw);
        Ok(())
    };
    match call {
        DisplayCall::Windows(write) => count(write, ALL_WINDOWS),
        DisplayCall::HeadCount(write) => count(write, HEAD_COUNT),
        DisplayCall::HeadMask(write) => count(write, ALL_HEADS),
        DisplayCall::Outputs(write) => count(write, rm.display.monitor().outputs),
        DisplayCall::InstanceMemory(_) if !has_heads => {
            raw.fill(0);
            Ok(())
        }
        DisplayCall::InstanceMemory(read) => rm.display.set_instance_memory(&rm.config, read(raw)?),
        DisplayCall::Output(_) | DisplayCall::ChannelPush(_) if !has_heads => Err(Status::NotSupported),
        DisplayCall::Output(fill) => fill(&rm.display.monitor(), raw),
        DisplayCall::ChannelPush(read) => rm.display.set_buffer(&rm.config, read(raw)?),
    }
}
