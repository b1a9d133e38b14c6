//! The virtual GSP's saved state. (What it keeps in the guest's memory over a suspension is another thing:
//! [`super::saved`].)
//!
//! Unlike there, nothing is allocated anew: the back has its channels, in their slots, and the guest's memory
//! is as it was. So nothing is asked of the back.

use crate::abi::values::Host;
use crate::abi::{self, VERSIONS};
use gpuvmk_ordered::OrderedSet;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use super::channel::{Channels, ChannelsState};
use super::config::GspConfig;
use super::counters::Counters;
use super::counters::Notes;
use super::display::{Display, DisplayBufferState};
use super::gsp::{Gsp, State};
use super::kernel_channels::{KernelChannels, KernelChannelsState};
use super::message::{Assembly, WaitingState};
use super::notifiers::{Notifiers, NotifiersState};
use super::objects::{DeviceSpaceState, Id, Kind, Object, ObjectState, Objects};
use super::queue::{Queues, QueuesState};
use super::refusals::Refusals;
use super::rm::Rm;
use super::shared_data::{SharedData, SharedDataState};

/// State of a [`Gsp`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GspState {
    /// Version of the firmware ABI that it speaks.
    pub firmware: String,
    /// What it does.
    pub phase: GspPhase,
    /// The queues, once it was booted.
    pub queues: Option<QueuesState>,
    /// An RPC of which more must follow.
    pub waiting: Option<WaitingState>,
    /// Objects, by client and handle.
    pub objects: Vec<ObjectState>,
    /// Channels.
    pub channels: ChannelsState,
    /// Counters since the function was reset.
    pub counters: Counters,
    /// Address spaces that devices have of themselves. Since NVIDIA's own driver is spoken to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_spaces: Vec<DeviceSpaceState>,
    /// What the driver said of the host. Since then, too.
    #[serde(default, skip_serializing_if = "is_default")]
    pub host: Host,
    /// The entry of BAR2's root directory that the driver gave.
    pub bar2_entry: u64,
    /// Bus address of what names the memory for a suspension.
    pub saved_at: Option<u64>,
    /// Where a driver has put the heap outside of the protected region. Since version 2 of the face's state.
    #[serde(default)]
    pub non_wpr_heap: u64,
    /// The checksum of what was written there, while GSP is still as it was then.
    pub kept: Option<u64>,
    /// Where push buffers are of the display engine's channels that are to be made. Since there are heads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub display_buffers: Vec<DisplayBufferState>,
    /// Channels of the driver's kernel. Since version 4, as what follows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kernel_channels: KernelChannelsState,
    /// Where the driver looks for errors of its channels.
    #[serde(default, skip_serializing_if = "is_default")]
    pub notifiers: NotifiersState,
    /// What programs read without asking.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shared_data: SharedDataState,
}

/// There is nothing to say.
fn is_default<T: Default + PartialEq>(state: &T) -> bool {
    *state == T::default()
}

/// What GSP does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GspPhase {
    /// Not booted, or unloaded.
    Off,
    /// Reads its queue.
    Running,
    /// Unloaded by a driver that will come back.
    Suspended,
}

impl Gsp {
    /// The state to save.
    pub fn state(&self) -> GspState {
        let Self { state, queues, assembly, rm, kept } = self;
        let Rm {
            // The configuration that it was made with.
            config: _,
            abi,
            objects,
            channels,
            kernel_channels,
            notifiers,
            shared_data,
            display,
            counters,
            // For operators, who count from when they look first.
            refusals: _,
            // For a log, which may have one twice.
            notes: _,
            host,
            bar2_entry,
            saved_at,
            non_wpr_heap,
            // There are some while an RPC is carried out.
            lost: _,
            now: _,
            effects: _,
        } = rm;
        GspState {
            firmware: abi.version.to_owned(),
            phase: match state {
                State::Off => GspPhase::Off,
                State::Running => GspPhase::Running,
                State::Suspended => GspPhase::Suspended,
            },
            queues: queues.as_ref().map(Queues::state),
            waiting: assembly.state(),
            objects: objects.state(),
            channels: channels.state(),
            counters: *counters,
            device_spaces: objects.device_spaces(),
            host: *host,
            bar2_entry: *bar2_entry,
            saved_at: *saved_at,
            non_wpr_heap: *non_wpr_heap,
            kept: *kept,
            display_buffers: display.buffers(),
            kernel_channels: kernel_channels.state(),
            notifiers: notifiers.state(),
            shared_data: shared_data.state(),
        }
    }

    /// A GSP in a saved state, over a back that has its channels.
    ///
    /// # Errors
    /// It speaks another version of the ABI, has queues and was not booted, has a channel without an object
    /// or the other way round, or a part refuses its state.
    pub fn from_state(state: &GspState, config: GspConfig) -> Result<Self, StateError> {
        let check = Check("GSP");
        let inside = |error: StateError| error.within("GSP");
        let abi = abi::by_version(&state.firmware);
        check.that(abi.is_some(), || {
            let known: Vec<_> = VERSIONS.iter().map(|abi| abi.version).collect();
            format!("it spoke version {:?}, and speaks {}", state.firmware, known.join(", "))
        })?;
        let abi = abi.unwrap_or(abi::usual());
        check.that(state.queues.is_some() == (state.phase != GspPhase::Off), || {
            format!("it is {:?}, and its queues are {:?}", state.phase, state.queues)
        })?;
        check.that(state.kept.is_none() || state.phase == GspPhase::Suspended, || {
            format!("it is {:?}, and in the memory for a suspension", state.phase)
        })?;
        let mut objects = Objects::from_state(&state.objects, &config, abi).map_err(inside)?;
        objects.restore_device_spaces(&state.device_spaces, config.vram).map_err(inside)?;
        let channels = Channels::from_state(&state.channels, &config).map_err(inside)?;
        agree(check, &config, &objects, &channels)?;
        let kernel_channels =
            KernelChannels::from_state(&state.kernel_channels, &objects, &channels).map_err(inside)?;
        let notifiers = Notifiers::from_state(&state.notifiers, &channels).map_err(inside)?;
        let queues = state.queues.as_ref().map(Queues::from_state).transpose().map_err(inside)?;
        Ok(Self {
            state: match state.phase {
                GspPhase::Off => State::Off,
                GspPhase::Running => State::Running,
                GspPhase::Suspended => State::Suspended,
            },
            queues,
            assembly: Assembly::from_state(state.waiting.as_ref()).map_err(inside)?,
            rm: Rm {
                config,
                abi,
                objects,
                channels,
                kernel_channels,
                notifiers,
                shared_data: SharedData::from_state(&state.shared_data),
                display: Display::of_buffers(&state.display_buffers).map_err(inside)?,
                counters: state.counters,
                refusals: Refusals::default(),
                notes: Notes::default(),
                host: state.host,
                bar2_entry: state.bar2_entry,
                saved_at: state.saved_at,
                non_wpr_heap: state.non_wpr_heap,
                lost: Vec::new(),
                now: 0,
                effects: Vec::new(),
            },
            kept: state.kept,
        })
    }
}

/// Checks that each channel has one object, that what runs has page tables, and that objects are of engines
/// that their channel has.
fn agree(check: Check, config: &GspConfig, objects: &Objects, channels: &Channels) -> Result<(), StateError> {
    let mut named = OrderedSet::new();
    for (id, object) in objects.iter() {
        let problem = |why: &str| format!("{:#x}:{:#x} {why}", id.client, id.handle);
        match &object.kind {
            Kind::Channel { token, space } => {
                let has_tables = objects.directory_of_channel(id, *space).is_some();
                let is_new = named.insert(*token);
                check.that(is_new && (has_tables || !channels.has_ring(*token)), || {
                    problem("is a channel that another object is, or without page tables")
                })?;
            }
            Kind::EngineObject { engine } => {
                let on = objects.channel(Id { handle: Object::parent(object), ..id });
                let has = on.is_ok_and(|token| channels.has_engine(token, *engine));
                check.that(has && config.engines.contains((*engine).into()), || {
                    problem("is of an engine that its channel has not")
                })?;
            }
            _ => {}
        }
    }
    check.that(channels.tokens().eq(named), || {
        "there are channels without objects, or none for one".to_owned()
    })
}
