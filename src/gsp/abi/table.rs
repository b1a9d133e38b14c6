//! The form of a version's tables of functions, classes and controls.
//!
//! Each row says of a number its name, what it is sent to, how large its parameters are, how it is answered,
//! and where that is known from. docs/controls.md is written from them ([`crate::document`]).

use super::display::DisplayCall;
pub use super::forms::{Fill, Read, Write};
pub use super::object_type::Type;
use super::status::Status;
use super::values::{
    AddressSpaceParameters, ChannelParameters, Devices, DisplayChannelParameters, FaultOfChannel, Graphics,
    Identity, InterruptVectors, MemoryInfo, MemorySystem, Names, PageDirectory, Parameters, PromoteContext,
    SuspendMemory, SuspendRegion,
};
use gpuvmk_chip::catalogue::ChipClasses;
use gpuvmk_chip::display::ChannelKind;
use gpuvmk_chip::nv::classes::Role;
use gpuvmk_chip::{Engine, EngineSet, PhysicalAddress};

/// Where the numbers, the layouts and the meaning of a call are known from.
pub type Source = &'static str;

/// An RPC function.
#[derive(Debug)]
pub struct Function {
    /// The number that a driver sends.
    pub number: u32,
    /// NVIDIA's name.
    pub name: &'static str,
    /// What it asks for.
    pub call: FunctionCall,
    /// The driver waits for an answer.
    pub is_answered: bool,
    /// What it does, in a sentence.
    pub doc: &'static str,
}

/// The call of an RPC function. Bodies are the same in all versions ([`super::common::calls`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionCall {
    /// A control of an object.
    Control,
    /// An object of a class.
    Allocate,
    /// An object, and what is below it, goes.
    Free,
    /// An object of a list of pages.
    AllocateMemory,
    /// The driver leaves.
    Unload,
    /// What the GPU is.
    StaticInfo,
    /// The top entry of a BAR's page tables.
    UpdateBarPde,
    /// The driver's facts about the host, in [`super::Abi::system_info`] bytes.
    SystemInfo,
    /// Registry keys.
    Registry,
    /// The driver's version, in words.
    GuestSystemInfo,
    /// One more name of an object, for another client.
    Duplicate,
    /// Where the page tables of an address space are.
    SetPageDirectory,
    /// They are there no more.
    UnsetPageDirectory,
}

/// The number of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassNumber {
    /// It is the same on all chips.
    Fixed(u32),
    /// The chip's class, or one of its classes, for this.
    Role(Role),
    /// It is the same on all chips that have a display engine.
    OfDisplay(u32),
    /// The chip's class for its display engine.
    DisplayRoot,
    /// The chip's class for such channels of its display engine, where that has heads.
    DisplayChannel(ChannelKind),
}

impl ClassNumber {
    /// Whether it says `class` on a chip with these classes.
    pub fn says(self, class: u32, chip: &ChipClasses) -> bool {
        match self {
            Self::Fixed(fixed) => fixed == class,
            Self::OfDisplay(fixed) => fixed == class && chip.display.is_some(),
            Self::DisplayRoot => chip.display.is_some_and(|root| root.number == class),
            Self::DisplayChannel(kind) => chip.heads.and_then(|heads| heads.channel(class)) == Some(kind),
            Self::Role(role) => {
                chip.for_tenants().iter().any(|known| known.number == class && known.role == role)
            }
        }
    }
}

/// A class of objects.
#[derive(Debug)]
pub struct Class {
    /// The number that a driver sends.
    pub number: ClassNumber,
    /// NVIDIA's name, or a word where chips have different classes for it.
    pub name: &'static str,
    /// The types that their parents can have.
    pub parents: &'static [Type],
    /// Bytes of parameters.
    pub size: usize,
    /// They can be left out.
    pub is_optional: bool,
    /// The type of its objects, and this version's layout of their parameters.
    pub parameters: ClassParameters,
    /// A description, in a sentence.
    pub doc: &'static str,
}

/// The type of a class's objects, and how parameters of the table's size are read.
#[derive(Clone, Copy, Debug)]
pub enum ClassParameters {
    /// A device.
    Device,
    /// A subdevice.
    Subdevice,
    /// An address space.
    AddressSpace(Read<AddressSpaceParameters>),
    /// A channel.
    Channel(Read<ChannelParameters>),
    /// An object of a copy engine; none: no engine has the number that was given.
    Copy(Read<Option<Engine>>),
    /// An object of the graphics engine.
    Graphics,
    /// An event, and what it is about.
    Event(Read<u32>),
    /// The display engine, or what its heads have in common.
    Display,
    /// A channel of the display engine.
    DisplayChannel(Read<DisplayChannelParameters>),
    /// A group of channels, with the handle of its address space or 0, and its engine.
    ChannelGroup(Read<(u32, Option<Engine>)>),
    /// A share of a group's contexts, with the handle of its address space or 0.
    ContextShare(Read<u32>),
    /// An object that carries nothing.
    Plain(Type),
}

impl Class {
    /// What its objects are.
    pub const fn object(&self) -> Type {
        match self.parameters {
            ClassParameters::Device => Type::Device,
            ClassParameters::Subdevice => Type::Subdevice,
            ClassParameters::AddressSpace(_) => Type::AddressSpace,
            ClassParameters::Channel(_) => Type::Channel,
            ClassParameters::Copy(_) | ClassParameters::Graphics => Type::EngineObject,
            ClassParameters::Event(_) => Type::Event,
            ClassParameters::Display => Type::Display,
            ClassParameters::DisplayChannel(_) => Type::DisplayChannel,
            ClassParameters::ChannelGroup(_) => Type::ChannelGroup,
            ClassParameters::ContextShare(_) => Type::ContextShare,
            ClassParameters::Plain(own) => own,
        }
    }

    /// Reads parameters.
    ///
    /// # Errors
    /// They are not as long as the table says, or what they say has no meaning.
    pub fn read(&self, raw: &[u8]) -> Result<Parameters, Status> {
        if raw.len() != self.size && !(self.is_optional && raw.is_empty()) {
            return Err(Status::InvalidParamStruct);
        }
        Ok(match self.parameters {
            ClassParameters::Device => Parameters::Device,
            ClassParameters::Subdevice => Parameters::Subdevice,
            ClassParameters::AddressSpace(read) => Parameters::AddressSpace(read(raw)?),
            ClassParameters::Channel(read) => Parameters::Channel(read(raw)?),
            ClassParameters::Copy(read) => Parameters::Copy(read(raw)?),
            ClassParameters::Graphics => Parameters::Graphics,
            ClassParameters::Event(read) => Parameters::Event { index: read(raw)? },
            ClassParameters::Display => Parameters::Display,
            ClassParameters::DisplayChannel(read) => Parameters::DisplayChannel(read(raw)?),
            ClassParameters::ChannelGroup(read) => {
                let (space, engine) = read(raw)?;
                Parameters::ChannelGroup { space, engine }
            }
            ClassParameters::ContextShare(read) => Parameters::ContextShare { space: read(raw)? },
            ClassParameters::Plain(own) => Parameters::Plain(own),
        })
    }
}

/// A control.
#[derive(Debug)]
pub struct Control {
    /// The number that a driver sends.
    pub number: u32,
    /// NVIDIA's name.
    pub name: &'static str,
    /// The type of object that it is sent to.
    pub object: Type,
    /// Bytes of its parameters.
    pub size: usize,
    /// How it is answered.
    pub answer: Answer,
    /// Where it is known from.
    pub source: Source,
    /// What it does, in a sentence.
    pub doc: &'static str,
}

/// How a control is answered whose parameters have the right size and that names the right object.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// The model decides.
    Handler(ControlCall),
    /// The same bytes every time. They are as many as the parameters; a test holds the tables to that.
    Constant(&'static [u8]),
    /// All parameters are zero.
    Zeroes,
    /// The driver's own parameters, which say what is to be done: nothing has to be.
    Acknowledged,
}

impl Answer {
    /// The kind of answer, for the document.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Handler(_) => "handler",
            Self::Constant(_) => "constant",
            Self::Zeroes => "zeroes",
            Self::Acknowledged => "acknowledged",
        }
    }
}

/// A control's call to the model, and this version's layout of its parameters. Bytes that are not written go
/// back unchanged.
#[derive(Clone, Copy, Debug)]
pub enum ControlCall {
    /// Lets a channel run, or holds it back.
    ScheduleChannel(Read<bool>),
    /// Binds a channel to an engine; none: no engine has that number.
    BindChannel(Read<Option<Engine>>),
    /// The token that the driver writes to the doorbell for a channel.
    WorkSubmitToken(Write<u32>),
    /// Holds all channels back, or lets them run again.
    HoldChannels(Read<bool>),
    /// Gives a channel's graphics context its buffers.
    PromoteContext(Read<PromoteContext>),
    /// Whether a fault ended the context of a channel, and which.
    FaultOfChannel {
        /// The channel's handle.
        read: Read<u32>,
        /// The fault.
        write: Write<Option<FaultOfChannel>>,
    },
    /// Where programs read utilisation without asking: the bus address of a record of a time, and percents of
    /// the GPU and of its memory. None: nowhere.
    SharedUtilization(Read<Option<u64>>),
    /// Whether any program wants that.
    WantUtilization(Read<bool>),
    /// Which graphics processing clusters there are, a bit each.
    GpcMask(Write<u32>),
    /// Which texture clusters a graphics processing cluster has, a bit each.
    TpcMask {
        /// The cluster's number.
        read: Read<u32>,
        /// The mask.
        write: Write<u32>,
    },
    /// How large each buffer of a graphics context is, in bytes; it is aligned to as much.
    ContextBuffers(Write<u32>),
    /// Bytes of a copy engine's buffer for methods that faulted.
    FaultMethodBuffer(Write<u32>),
    /// The engines.
    Devices {
        /// The first that is wanted.
        read: Read<u32>,
        /// A page of them.
        write: Write<Devices>,
    },
    /// The vectors of the interrupt tree.
    Interrupts(Write<Vec<InterruptVectors>>),
    /// Asks for events of a subdevice. False: the action has no meaning.
    SetNotification(Read<bool>),
    /// Says where the page tables of an address space are.
    SetPageDirectory(Read<PageDirectory>),
    /// Takes that back for the address space of a handle.
    UnsetPageDirectory(Read<u32>),
    /// Shows the page directory of the address space that it is sent to.
    CopyServerReservedPdes(Read<PhysicalAddress>),
    /// Says where what a suspension keeps goes.
    SuspendMemory(Read<SuspendMemory>),
    /// Says what of VRAM a suspension keeps.
    SuspendRegion(Read<SuspendRegion>),
    /// Switches raw compression.
    RawCompression(Read<bool>),
    /// Properties of the memory system.
    MemorySystem(Write<MemorySystem>),
    /// Lets the channels of a group run, or holds them back.
    ScheduleGroup(Read<bool>),
    /// How many channels a runlist can have.
    RunlistChannels(Write<u32>),
    /// What the GPU is on the bus.
    Identity(Write<Identity>),
    /// What it is called.
    Names(Write<Names>),
    /// Its identity (UUID), in one of several forms.
    Uuid(Fill<[u8; 16]>),
    /// What the graphics engine has.
    Graphics(Write<Graphics>),
    /// Properties of VRAM, by number.
    MemoryInfo(Fill<MemoryInfo>),
    /// Properties of an engine, by number.
    Engines(Fill<EngineSet>),
    /// A control of the display engine.
    Display(DisplayCall),
    /// An answer that follows from the question alone.
    Computed(fn(&mut [u8]) -> Result<(), Status>),
}

/// Declares functions: number by its name, whether the driver waits for an answer, what it asks for.
macro_rules! functions {
    ($($(#[doc = $doc:literal])+ $name:ident, $answered:ident => $call:expr;)+) => {
        pub static FUNCTIONS: &[$crate::abi::table::Function] = &[$($crate::abi::table::Function {
            number: $name,
            name: stringify!($name),
            call: $call,
            is_answered: functions!(@ $answered),
            doc: concat!($($doc),+),
        },)+];
    };
    (@ answered) => { true };
    (@ unanswered) => { false };
}
pub(super) use functions;

/// Declares classes: `class` with the number by its name (`display` for one of a display engine), `role`
/// with what the chip has a class for, or `channel` with what a display channel drives, what they can be
/// below, bytes of parameters and whether they can be left out, what objects are and how parameters are
/// read.
macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $kind:ident $name:ident below $parents:expr,
        $size:expr, $presence:ident => $parameters:expr;)+) => {
        pub static CLASSES: &[$crate::abi::table::Class] = &[$($crate::abi::table::Class {
            number: classes!(@ $kind $name),
            name: stringify!($name),
            parents: $parents,
            size: $size,
            is_optional: classes!(@ $presence),
            parameters: $parameters,
            doc: concat!($($doc),+),
        },)+];
    };
    (@ class $name:ident) => { $crate::abi::table::ClassNumber::Fixed($name) };
    (@ display $name:ident) => { $crate::abi::table::ClassNumber::OfDisplay($name) };
    (@ channel $name:ident) => {
        $crate::abi::table::ClassNumber::DisplayChannel(gpuvmk_chip::display::ChannelKind::$name)
    };
    (@ role DisplayRoot) => { $crate::abi::table::ClassNumber::DisplayRoot };
    (@ role $name:ident) => {
        $crate::abi::table::ClassNumber::Role(gpuvmk_chip::nv::classes::Role::$name)
    };
    (@ optional) => { true };
    (@ needed) => { false };
}
pub(super) use classes;

/// Declares controls: number by its name, object, bytes of parameters, answer.
///
/// ```text
/// controls! {
///     source "open-gpu-kernel-modules ctrl2080gpu.h; nouveau r570/gr.c";
///     /// What it asks, in a sentence.
///     NV2080_CTRL_CMD_GPU_GET_FERMI_GPC_INFO on Subdevice, 4 => Answer::Handler(ControlCall::GpcMask(put));
/// }
/// ```
macro_rules! controls {
    ($(
        source $source:literal;
        $($(#[doc = $doc:literal])+ $name:ident on $object:ident, $size:expr => $answer:expr;)+
    )+) => {
        pub static CONTROLS: &[$crate::abi::table::Control] = &[$($($crate::abi::table::Control {
            number: $name,
            name: stringify!($name),
            object: $crate::abi::table::Type::$object,
            size: $size,
            answer: $answer,
            source: $source,
            doc: concat!($($doc),+),
        },)+)+];
    };
}
pub(super) use controls;
