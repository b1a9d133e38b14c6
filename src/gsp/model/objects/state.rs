//! The saved state of the objects.

use std::collections::{BTreeMap, BTreeSet};

use gpuvmk_chip::addr::{Chid, PAGE_SIZE};
use gpuvmk_chip::{Aperture, Engine, PhysicalAddress};
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
}

impl KindState {
    fn of(kind: &Kind) -> Self {
        match kind {
            Kind::Client => Self::Client,
            Kind::Device => Self::Device,
            Kind::Subdevice => Self::Subdevice,
            // Its channels say that they use it.
            Kind::AddressSpace(AddressSpace { external, page_directory, channels: _ }) => {
                Self::AddressSpace { external: *external, page_directory: *page_directory }
            }
            Kind::Channel { token: Token { runlist, chid }, space } => {
                Self::Channel { runlist: *runlist, chid: *chid, space: *space }
            }
            Kind::EngineObject { engine } => Self::EngineObject { engine: *engine },
            Kind::Event { index } => Self::Event { index: *index },
            Kind::Memory { pages } => Self::Memory { pages: *pages },
            Kind::Display => Self::Display,
        }
    }

    const fn kind(&self) -> Kind {
        match *self {
            Self::Client => Kind::Client,
            Self::Device => Kind::Device,
            Self::Subdevice => Kind::Subdevice,
            Self::AddressSpace { external, page_directory } => {
                Kind::AddressSpace(AddressSpace { external, page_directory, channels: BTreeSet::new() })
            }
            Self::Channel { runlist, chid, space } => Kind::Channel { token: Token { runlist, chid }, space },
            Self::EngineObject { engine } => Kind::EngineObject { engine },
            Self::Event { index } => Kind::Event { index },
            Self::Memory { pages } => Kind::Memory { pages },
            Self::Display => Kind::Display,
        }
    }
}

impl Objects {
    /// The state to save: all objects, by client and handle.
    pub(in super::super) fn state(&self) -> Vec<ObjectState> {
        // The total follows from the objects, and refused ones are reported before GSP is unlocked.
        let Self { limits: _, clients: _, total: _, refused: _ } = self;
        let saved = |(Id { client, handle }, object): (Id, &Object)| {
            let Object { class, kind, parent, children: _ } = object;
            ObjectState { client, handle, parent: *parent, class: *class, kind: KindState::of(kind) }
        };
        self.iter().map(saved).collect()
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
        let mut clients: BTreeMap<u32, BTreeMap<u32, Object>> = BTreeMap::new();
        let mut last = None;
        for ObjectState { client, handle, parent, class, kind } in state {
            let id = Id { client: *client, handle: *handle };
            check.that(last < Some(id) && *handle != 0, || format!("{id:x?} is not in its place"))?;
            last = Some(id);
            let object =
                Object { class: *class, kind: kind.kind(), parent: *parent, children: BTreeSet::new() };
            clients.entry(*client).or_default().insert(*handle, object);
        }
        for (client, objects) in &mut clients {
            check.at_most("objects of a client", objects.len(), most(config.objects.per_client))?;
            connect(check, config, abi, *client, objects)?;
        }
        Ok(Self { limits: config.objects, clients, total: state.len(), refused: 0 })
    }
}

/// Checks each object of a client, and tells those that it goes with.
fn connect(
    check: Check,
    config: &GspConfig,
    abi: &Abi,
    client: u32,
    objects: &mut BTreeMap<u32, Object>,
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
        let allowed = abi.place_of(config.hal.classes(), class).filter(|(made, _)| *made == own);
        let fits = holder.zip(allowed).filter(|(holder, (_, parents))| parents.contains(&holder.kind.of()));
        let Some((holder, _)) = fits else {
            return check.that(false, || problem("cannot be where it is"));
        };
        holder.children.insert(handle);
        match kind {
            Kind::Channel { space, .. } => {
                let space = objects.get_mut(&space).filter(|object| object.parent == parent);
                let Some(Object { kind: Kind::AddressSpace(space), .. }) = space else {
                    return check.that(false, || problem("has no address space"));
                };
                space.channels.insert(handle);
            }
            Kind::AddressSpace(AddressSpace { page_directory: Some(directory), .. }) => {
                let PhysicalAddress { aperture, address } = directory;
                let end = address.checked_add(PAGE_SIZE);
                let inside = aperture != Aperture::Vram || end.is_some_and(|end| end <= config.vram);
                check.that(address.is_multiple_of(PAGE_SIZE) && inside, || {
                    problem("has a page directory where none can be")
                })?;
            }
            _ => {}
        }
    }
    let root = objects.get(&client).is_some_and(|object| object.kind == Kind::Client);
    check.that(root, || format!("client {client:#x} is not there"))
}
