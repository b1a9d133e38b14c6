//! The types of the resource manager's objects.

/// What an object is: what it can be below, and what controls can be sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Who asks: the root of a tree of objects.
    Client,
    /// The GPU for a client.
    Device,
    /// One GPU of a device.
    Subdevice,
    /// An address space.
    AddressSpace,
    /// A channel.
    Channel,
    /// The object by which a channel uses an engine.
    EngineObject,
    /// An event.
    Event,
    /// A list of pages.
    Memory,
    /// The display engine.
    Display,
    /// A channel of the display engine.
    DisplayChannel,
    /// Channels that are scheduled together.
    ChannelGroup,
    /// A share of a group's contexts.
    ContextShare,
    /// A range of virtual addresses.
    VirtualMemory,
    /// Access to controls of closed libraries.
    BinaryApi,
    /// Diagnostics.
    Diagnostics,
    /// The board's InfoROM.
    Inforom,
    /// I2C buses.
    I2c,
    /// A debugger of an engine's object.
    Debugger,
    /// Methods of a channel that firmware carries out.
    Software,
    /// What keeps a channel.
    Retainer,
}

impl Type {
    /// Objects of it carry nothing.
    pub const fn is_plain(self) -> bool {
        matches!(
            self,
            Self::VirtualMemory
                | Self::BinaryApi
                | Self::Diagnostics
                | Self::Inforom
                | Self::I2c
                | Self::Debugger
                | Self::Software
                | Self::Retainer
        )
    }

    /// More than one client can have a name of such an object.
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::AddressSpace | Self::ChannelGroup | Self::ContextShare)
    }
}
