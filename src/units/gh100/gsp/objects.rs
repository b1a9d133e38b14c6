//! The resource manager's objects: a tree for each client, by handles that the driver chooses.
//!
//! An object goes with its parent, and a channel also with its address space. How many there can be is limited, and
//! the tree's depth by what can be whose parent.

use std::collections::{BTreeMap, BTreeSet};

use crate::chip::gh100::gsp::status::Status;
use crate::chip::{Engine, PhysicalAddress};
use crate::units::gh100::gsp::channel::Token;

/// Objects of all clients at most.
pub const MAX_OBJECTS: usize = 16_384;
/// Objects of one client at most.
pub const MAX_OBJECTS_PER_CLIENT: usize = 4096;
/// Where the names begin that RM makes up (its RS_UNIQUE_HANDLE_BASE).
const NAMES_BEGIN: u32 = 0xcaf0_0000;

/// An object's full name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id {
    pub(super) client: u32,
    pub(super) handle: u32,
}

/// What can be the parent of what, and what a control is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Client,
    Device,
    Subdevice,
    AddressSpace,
    Channel,
    EngineObject,
    Event,
    Memory,
}

/// An address space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AddressSpace {
    /// The driver keeps the page tables, and says where by SET_PAGE_DIRECTORY.
    pub(super) external: bool,
    /// Where they are, once it did.
    pub(super) page_directory: Option<PhysicalAddress>,
    /// Channels that use it.
    pub(super) channels: BTreeSet<u32>,
}

/// What an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Client,
    Device,
    Subdevice,
    AddressSpace(AddressSpace),
    /// With the handle of its address space.
    Channel {
        token: Token,
        space: u32,
    },
    EngineObject {
        engine: Engine,
    },
    Event {
        index: u32,
    },
    Memory {
        pages: u32,
    },
}

impl Kind {
    /// Its type.
    pub(super) const fn of(&self) -> Type {
        match self {
            Self::Client => Type::Client,
            Self::Device => Type::Device,
            Self::Subdevice => Type::Subdevice,
            Self::AddressSpace(_) => Type::AddressSpace,
            Self::Channel { .. } => Type::Channel,
            Self::EngineObject { .. } => Type::EngineObject,
            Self::Event { .. } => Type::Event,
            Self::Memory { .. } => Type::Memory,
        }
    }
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) class: u32,
    pub(super) kind: Kind,
    parent: u32,
    children: BTreeSet<u32>,
}

/// All objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    clients: BTreeMap<u32, BTreeMap<u32, Object>>,
    total: usize,
}

impl Objects {
    /// Objects of all clients.
    pub(super) const fn len(&self) -> usize {
        self.total
    }

    /// An object.
    pub(super) fn get(&self, id: Id) -> Result<&Object, Status> {
        let client = self.clients.get(&id.client).ok_or(Status::InvalidClient)?;
        client.get(&id.handle).ok_or(Status::ObjectNotFound)
    }

    fn get_mut(&mut self, id: Id) -> Result<&mut Object, Status> {
        let client = self.clients.get_mut(&id.client).ok_or(Status::InvalidClient)?;
        client.get_mut(&id.handle).ok_or(Status::ObjectNotFound)
    }

    /// An address space.
    pub(super) fn space(&self, id: Id) -> Result<&AddressSpace, Status> {
        match self.get(id).map_err(|_| Status::InvalidObjectHandle)? {
            Object { kind: Kind::AddressSpace(space), .. } => Ok(space),
            _ => Err(Status::InvalidObjectHandle),
        }
    }

    /// An address space, to change.
    pub(super) fn space_mut(&mut self, id: Id) -> Result<&mut AddressSpace, Status> {
        match self.get_mut(id).map_err(|_| Status::InvalidObjectHandle)? {
            Object { kind: Kind::AddressSpace(space), .. } => Ok(space),
            _ => Err(Status::InvalidObjectHandle),
        }
    }

    /// The token of a channel.
    pub(super) fn channel(&self, id: Id) -> Result<Token, Status> {
        match self.get(id)? {
            Object { kind: Kind::Channel { token, .. }, .. } => Ok(*token),
            _ => Err(Status::InvalidObject),
        }
    }

    /// The parent of an object.
    pub(super) fn parent(&self, id: Id) -> Result<u32, Status> {
        self.get(id).map(|object| object.parent)
    }

    /// True when a client of that handle exists.
    pub(super) fn has_client(&self, handle: u32) -> bool {
        self.clients.contains_key(&handle)
    }

    /// A name for an object that its maker gave none, as RM makes them up.
    pub(super) fn free_name(&self, client: u32) -> Result<u32, Status> {
        let taken = self.clients.get(&client).ok_or(Status::InvalidClient)?;
        (NAMES_BEGIN..)
            .take(MAX_OBJECTS_PER_CLIENT.saturating_add(1))
            .find(|name| *name != client && !taken.contains_key(name))
            .ok_or(Status::InsufficientResources)
    }

    /// Checks that a new object can have this name, this parent and room.
    pub(super) fn admit(&self, id: Id, parent: u32, parents: &[Type]) -> Result<(), Status> {
        let client = self.clients.get(&id.client).ok_or(Status::InvalidClient)?;
        if id.handle == 0 || id.handle == id.client {
            return Err(Status::InvalidObjectHandle);
        }
        if client.contains_key(&id.handle) {
            return Err(Status::InsertDuplicateName);
        }
        let parent = client.get(&parent).ok_or(Status::InvalidObjectParent)?;
        if !parents.contains(&parent.kind.of()) {
            return Err(Status::InvalidObjectParent);
        }
        if client.len() >= MAX_OBJECTS_PER_CLIENT || self.total >= MAX_OBJECTS {
            return Err(Status::InsufficientResources);
        }
        Ok(())
    }

    /// Adds a client.
    pub(super) fn add_client(&mut self, handle: u32) -> Result<(), Status> {
        if handle == 0 {
            return Err(Status::InvalidObjectHandle);
        }
        if self.clients.contains_key(&handle) {
            return Err(Status::InsertDuplicateName);
        }
        if self.total >= MAX_OBJECTS {
            return Err(Status::InsufficientResources);
        }
        let root = Object { class: 0, kind: Kind::Client, parent: 0, children: BTreeSet::new() };
        self.clients.insert(handle, BTreeMap::from([(handle, root)]));
        self.total = self.total.saturating_add(1);
        Ok(())
    }

    /// Adds an object that was admitted.
    pub(super) fn add(&mut self, id: Id, parent: u32, class: u32, kind: Kind) -> Result<(), Status> {
        let client = self.clients.get_mut(&id.client).ok_or(Status::InvalidClient)?;
        if let Kind::Channel { space, .. } = kind
            && let Some(Object { kind: Kind::AddressSpace(space), .. }) = client.get_mut(&space)
        {
            space.channels.insert(id.handle);
        }
        client.get_mut(&parent).ok_or(Status::InvalidObjectParent)?.children.insert(id.handle);
        client.insert(id.handle, Object { class, kind, parent, children: BTreeSet::new() });
        self.total = self.total.saturating_add(1);
        Ok(())
    }

    /// Takes an object and all that goes with it away; returns their kinds, children before parents.
    pub(super) fn remove(&mut self, id: Id) -> Result<Vec<Kind>, Status> {
        let client = self.clients.get_mut(&id.client).ok_or(Status::InvalidClient)?;
        if !client.contains_key(&id.handle) {
            return Err(Status::ObjectNotFound);
        }
        let order = order(client, id.handle);
        let mut kinds = Vec::with_capacity(order.len());
        for handle in order {
            let Some(object) = client.remove(&handle) else { continue };
            if let Some(parent) = client.get_mut(&object.parent) {
                parent.children.remove(&handle);
            }
            if let Kind::Channel { space, .. } = object.kind
                && let Some(Object { kind: Kind::AddressSpace(space), .. }) = client.get_mut(&space)
            {
                space.channels.remove(&handle);
            }
            kinds.push(object.kind);
        }
        if client.is_empty() {
            self.clients.remove(&id.client);
        }
        self.total = self.total.saturating_sub(kinds.len());
        Ok(kinds)
    }

    /// Takes everything away.
    pub(super) fn clear(&mut self) {
        self.clients.clear();
        self.total = 0;
    }
}

/// Handles of `root` and all that goes with it, children before parents.
fn order(client: &BTreeMap<u32, Object>, root: u32) -> Vec<u32> {
    // A channel is reached twice, from its device and from its address space: the first time counts, and is before
    // the end of either.
    let mut seen = BTreeSet::new();
    let mut done = Vec::new();
    let mut stack = vec![(root, false)];
    while let Some((handle, below)) = stack.pop() {
        if below {
            done.push(handle);
            continue;
        }
        let Some(object) = client.get(&handle) else { continue };
        if !seen.insert(handle) {
            continue;
        }
        stack.push((handle, true));
        if let Kind::AddressSpace(space) = &object.kind {
            stack.extend(space.channels.iter().map(|channel| (*channel, false)));
        }
        stack.extend(object.children.iter().map(|child| (*child, false)));
    }
    done
}
