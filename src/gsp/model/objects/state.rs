//! The saved state of the objects.

use gpuvmk_chip::addr::{Chid, PAGE_SIZE};
use gpuvmk_chip::display::ChannelName;
use gpuvmk_chip::{Aperture, Engine, PhysicalAddress};
use gpuvmk_ordered::{OrderedMap, OrderedSet};
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use super::{AddressSpace, Id, Kind, Object, Objects, Type};
use crate::abi::Abi;
use crate::model::GspConfig;
use crate::model::token::Token;

/// Objects that there are in any case: the firmware's own.
const OWN: usize = 3;

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectState {
    /// Handle of its client.
    pub client: u32,
    /// Its own handle; a client's is that of the client.
    pub handle: u32,
    /// Handle of its parent; a client's is 0.
    pub parent: u32,
    /// Its class; a client's is 0.
    pub class: u32,
    /// What it is.
    pub kind: KindState,
}

/// What an object is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KindState {
    /// A client.
    Client,
    /// A device.
    Device,
    /// A subdevice.
    Subdevice,
    /// An address space.
    AddressSpace {
        /// The driver keeps the page tables.
        external: bool,
        /// Where they are.
        page_directory: Option<PhysicalAddress>,
        /// It only names the one that the device has of itself.
        #[serde(default, skip_serializing_if = "is_not")]
        of_device: bool,
    },
    /// A channel.
    Channel {
        /// Its runlist.
        runlist: u16,
        /// Its number there.
        chid: Chid,
        /// Handle of its address space.
        space: u32,
    },
    /// An object of an engine, on a channel.
    EngineObject {
        /// Engine.
        engine: Engine,
    },
    /// An event.
    Event {
        /// Notification index.
        index: u32,
    },
    /// A list of pages.
    Memory {
        /// Number of pages.
        pages: u32,
    },
    /// The display engine.
    Display,
    /// A channel of the display engine.
    DisplayChannel {
        /// Which one.
        name: ChannelName,
    },
    /// A group of channels.
    ChannelGroup {
        /// Handle of its address space, or 0.
        space: u32,
        /// The engine of its channels.
        engine: Option<Engine>,
    },
    /// A share of a group's contexts.
    ContextShare {
        /// Handle of its address space, or 0.
        space: u32,
    },
    /// An object that carries nothing: its class says what it is.
    Plain,
    /// One more name of another client's object.
    Duplicate {
        /// That client.
        client: u32,
        /// The object's handle there.
        handle: u32,
    },
}

/// The address space that a device has of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpaceState {
    /// Handle of the device's client.
    pub client: u32,
    /// Handle of the device.
    pub device: u32,
    /// Where its page tables are.
    pub page_directory: Option<PhysicalAddress>,
}

/// What is left out of a state where it is so.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_not(flag: &bool) -> bool {
    !*flag
}

impl KindState {
    fn of(kind: &Kind) -> Self {
        match kind {
            Kind::Client => Self::Client,
            Kind::Device => Self::Device,
            Kind::Subdevice => Self::Subdevice,
            // Its channels say that they use it.
            Kind::AddressSpace(AddressSpace { external, of_device, page_directory, channels: _ }) => {
                Self::AddressSpace {
                    external: *external,
                    page_directory: *page_directory,
                    of_device: *of_device,
                }
            }
            Kind::Channel { token: Token { runlist, chid }, space } => {
                Self::Channel { runlist: *runlist, chid: *chid, space: *space }
            }
            Kind::EngineObject { engine } => Self::EngineObject { engine: *engine },
            Kind::Event { index } => Self::Event { index: *index },
            Kind::Memory { pages } => Self::Memory { pages: *pages },
            Kind::Display => Self::Display,
            Kind::DisplayChannel { name } => Self::DisplayChannel { name: *name },
            Kind::ChannelGroup { space, engine } => Self::ChannelGroup { space: *space, engine: *engine },
            Kind::ContextShare { space } => Self::ContextShare { space: *space },
            Kind::Plain(_) => Self::Plain,
            Kind::Duplicate { of: Id { client, handle }, own: _ } => {
                Self::Duplicate { client: *client, handle: *handle }
            }
        }
    }

    /// `own`: what an object of its class is.
    const fn kind(&self, own: Type) -> Kind {
        match *self {
            Self::Client => Kind::Client,
            Self::Device => Kind::Device,
            Self::Subdevice => Kind::Subdevice,
            Self::AddressSpace { external, page_directory, of_device } => {
                let channels = OrderedSet::new();
                Kind::AddressSpace(AddressSpace { external, of_device, page_directory, channels })
            }
            Self::Channel { runlist, chid, space } => Kind::Channel { token: Token { runlist, chid }, space },
            Self::EngineObject { engine } => Kind::EngineObject { engine },
            Self::Event { index } => Kind::Event { index },
            Self::Memory { pages } => Kind::Memory { pages },
            Self::Display => Kind::Display,
            Self::DisplayChannel { name } => Kind::DisplayChannel { name },
            Self::ChannelGroup { space, engine } => Kind::ChannelGroup { space, engine },
            Self::ContextShare { space } => Kind::ContextShare { space },
            Self::Plain => Kind::Plain(own),
            Self::Duplicate { client, handle } => Kind::Duplicate { of: Id { client, handle }, own },
        }
    }
}

impl Objects {
    /// The state to save: all objects, by client and handle.
    pub(in super::super) fn state(&self) -> Vec<ObjectState> {
        // The total follows from the objects, and refused ones are reported before GSP is unlocked.
        let Self { limits: _, clients: _, total: _, refused: _, of_devices: _ } = self;
        let saved = |(Id { client, handle }, object): (Id, &Object)| {
            let Object { class, kind, parent, children: _ } = object;
            ObjectState { client, handle, parent: *parent, class: *class, kind: KindState::of(kind) }
        };
        self.iter().map(saved).collect()
    }

    /// The address spaces that devices have of themselves.
    pub(in super::super) fn device_spaces(&self) -> Vec<DeviceSpaceState> {
        let state = |(id, space): (&Id, &AddressSpace)| DeviceSpaceState {
            client: id.client,
            device: id.handle,
            page_directory: space.page_directory,
        };
        self.of_devices.iter().map(state).collect()
    }

    /// Takes such ones from a saved state.
    ///
    /// # Errors
    /// There is no such device, or its page tables cannot be there.
    pub(in super::super) fn restore_device_spaces(
        &mut self,
        state: &[DeviceSpaceState],
        vram: u64,
    ) -> Result<(), StateError> {
        for DeviceSpaceState { client, device, page_directory } in state {
            let id = Id { client: *client, handle: *device };
            let is_device = self.get(id).is_ok_and(|object| object.kind == Kind::Device);
            let fits = page_directory.is_none_or(|directory| is_in_memory(directory, vram));
            Check("objects").that(is_device && fits && !self.of_devices.contains_key(&id), || {
                format!("{id:x?} has an address space of itself where none can be")
            })?;
            let space = AddressSpace { page_directory: *page_directory, ..AddressSpace::default() };
            self.of_devices.insert(id, space);
        }
        Ok(())
    }

    /// Objects in a saved state.
    ///
    /// # Errors
    /// There are more than the driver may have, one is there twice, or one is not what a driver can allocate
    /// at its place. The channels are checked elsewhere.
    pub(in super::super) fn from_state(
        state: &[ObjectState],
        config: &GspConfig,
        abi: &Abi,
    ) -> Result<Self, StateError> {
        let check = Check("objects");
        let most = |limit: u32| usize::try_from(limit).unwrap_or(usize::MAX).max(OWN);
        check.at_most("objects", state.len(), most(config.objects.total))?;
        let mut clients: OrderedMap<u32, OrderedMap<u32, Object>> = OrderedMap::new();
        let mut last = None;
        for ObjectState { client, handle, parent, class, kind } in state {
            let id = Id { client: *client, handle: *handle };
            check.that(last < Some(id) && *handle != 0, || format!("{id:x?} is not in its place"))?;
            last = Some(id);
            let own = abi.place_of(&config.classes(), *class).map_or(Type::Client, |(own, _)| own);
            let object =
                Object { class: *class, kind: kind.kind(own), parent: *parent, children: OrderedSet::new() };
            clients.entry(*client).or_default().insert(*handle, object);
        }
        for (client, objects) in &mut clients {
            check.at_most("objects of a client", objects.len(), most(config.objects.per_client))?;
            connect(check, config, abi, *client, objects)?;
        }
        Ok(Self {
            limits: config.objects,
            clients,
            total: state.len(),
            refused: 0,
            of_devices: OrderedMap::new(),
        })
    }
}

/// True where a page directory can be.
fn is_in_memory(directory: PhysicalAddress, vram: u64) -> bool {
    let PhysicalAddress { aperture, address } = directory;
    let end = address.checked_add(PAGE_SIZE);
    let inside = aperture != Aperture::Vram || end.is_some_and(|end| end <= vram);
    address.is_multiple_of(PAGE_SIZE) && inside
}

/// Checks each object of a client, and tells those that it goes with.
fn connect(
    check: Check,
    config: &GspConfig,
    abi: &Abi,
    client: u32,
    objects: &mut OrderedMap<u32, Object>,
) -> Result<(), StateError> {
    let all: Vec<_> = objects
        .iter()
        .map(|(handle, object)| (*handle, object.parent, object.class, object.kind.clone()))
        .collect();
    for (handle, parent, class, kind) in all {
        let problem = |why: &str| format!("{client:#x}:{handle:#x} of class {class:#06x} {why}");
        let own = kind.of();
        if own == Type::Client {
            check.that((handle, parent, class) == (client, 0, 0), || problem("is no client"))?;
            continue;
        }
        let holder = objects.get_mut(&parent).filter(|_| handle != client);
        let allowed = abi.place_of(&config.classes(), class).filter(|(made, _)| *made == own);
        let fits = holder.zip(allowed).filter(|(holder, (_, parents))| parents.contains(&holder.kind.of()));
        let Some((holder, _)) = fits else {
            return check.that(false, || problem("cannot be where it is"));
        };
        holder.children.insert(handle);
        match kind {
            Kind::Plain(own) => check.that(own.is_plain(), || problem("is not what its class is"))?,
            Kind::Duplicate { own, .. } => {
                check.that(own.is_shared(), || problem("is a name of what has one only"))?;
            }
            // A device's own.
            Kind::Channel { space: 0, .. } => {}
            Kind::Channel { space, .. } => {
                let device = match objects.get(&parent) {
                    Some(Object { kind: Kind::ChannelGroup { .. }, parent, .. }) => *parent,
                    _ => parent,
                };
                match objects.get_mut(&space) {
                    Some(Object { kind: Kind::AddressSpace(space), parent, .. }) if *parent == device => {
                        space.channels.insert(handle);
                    }
                    Some(Object { kind: Kind::Duplicate { own: Type::AddressSpace, .. }, .. }) => {}
                    _ => return check.that(false, || problem("has no address space")),
                }
            }
            Kind::AddressSpace(AddressSpace { page_directory: Some(directory), .. }) => {
                check.that(is_in_memory(directory, config.vram), || {
                    problem("has a page directory where none can be")
                })?;
            }
            _ => {}
        }
    }
    let root = objects.get(&client).is_some_and(|object| object.kind == Kind::Client);
    check.that(root, || format!("client {client:#x} is not there"))
}
