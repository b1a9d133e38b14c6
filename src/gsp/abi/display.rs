//! Calls of controls of the display engine, and the layouts of their parameters.

use super::forms::{Fill, Read, Write};
use super::values::{ChannelPush, InstanceMemory, Monitor};

/// A control of the display engine. Answers that count are 0 where it has no heads; what only heads have is
/// not supported there.
#[derive(Clone, Copy, Debug)]
pub enum DisplayCall {
    /// Says where channels' objects are; none: in no memory that can be used.
    InstanceMemory(Read<Option<InstanceMemory>>),
    /// Which windows there are, a bit each.
    Windows(Write<u32>),
    /// How many heads there are.
    HeadCount(Write<u32>),
    /// Which heads there are, a bit each.
    HeadMask(Write<u32>),
    /// Which outputs there are, a bit each.
    Outputs(Write<u32>),
    /// About an output, and the monitor there.
    Output(Fill<Monitor>),
    /// Says where a channel's push buffer is.
    ChannelPush(Read<ChannelPush>),
}
