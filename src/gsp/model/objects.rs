//! The resource manager's objects: a tree for each client, by handles that the driver chooses.
//!
//! An object goes with its parent, and a channel also with its address space. How many there can be is
//! limited, and the tree's depth by what can be whose parent.

mod spaces;
mod state;

pub(super) use crate::abi::object_type::Type;
use crate::abi::status::Status;
pub(super) use crate::abi::values::Id;
use crate::model::token::Token;
use gpuvmk_backend::ObjectUsage;
use gpuvmk_chip::display::ChannelName;
use gpuvmk_chip::{Engine, PhysicalAddress};
use gpuvmk_ordered::{OrderedMap, OrderedSet};
pub use state::{DeviceSpaceState, KindState, ObjectState};

/// How many objects there may be, those of the firmware's own included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectLimits {
    /// Of all clients.
    pub total: u32,
    /// Of one client, which is one itself.
    pub per_client: u32,
}

impl Default for ObjectLimits {
    /// A program that uses the GPU has some ten.
    fn default() -> Self {
        Self { total: 16_384, per_client: 4096 }
    }
}

impl ObjectLimits {
    /// Room for one more, of a client that has that many.
    fn check(self, total: usize, client: usize) -> Result<(), Status> {
        let below = |count: usize, limit: u32| u32::try_from(count).is_ok_and(|count| count < limit);
        if below(total, self.total) && below(client, self.per_client) {
            Ok(())
        } else {
            Err(Status::InsufficientResources)
        }
    }
}

/// Where the names begin that RM makes up (its RS_UNIQUE_HANDLE_BASE).
const NAMES_BEGIN: u32 = 0xcaf0_0000;

/// An address space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AddressSpace {
    /// The driver keeps the page tables, and says where by SET_PAGE_DIRECTORY.
    pub(super) external: bool,
    /// It only names the one that the device has of itself.
    pub(super) of_device: bool,
    /// Where they are, once it did.
    pub(super) page_directory: Option<PhysicalAddress>,
    /// Channels that use it.
    pub(super) channels: OrderedSet<u32>,
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
    Display,
    DisplayChannel {
        name: ChannelName,
    },
    /// With the handle of its address space, or 0, and the engine of its channels.
    ChannelGroup {
        space: u32,
        engine: Option<Engine>,
    },
    /// With the handle of its address space, or 0.
    ContextShare {
        space: u32,
    },
    /// An object that carries nothing.
    Plain(Type),
    /// One more name of another client's object, of that type. It does not keep the object: who names it is
    /// gone first, or has a name of nothing.
    Duplicate {
        of: Id,
        own: Type,
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
            Self::Display => Type::Display,
            Self::DisplayChannel { .. } => Type::DisplayChannel,
            Self::ChannelGroup { .. } => Type::ChannelGroup,
            Self::ContextShare { .. } => Type::ContextShare,
            Self::Plain(own) | Self::Duplicate { own, .. } => *own,
        }
    }
}

impl Kind {
    /// The channel of the display engine that it is.
    pub(super) const fn display_channel(&self) -> Option<ChannelName> {
        match self {
            Self::DisplayChannel { name } => Some(*name),
            _ => None,
        }
    }
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) class: u32,
    pub(super) kind: Kind,
    parent: u32,
    children: OrderedSet<u32>,
}

impl Object {
    /// The handle of its parent; a client's is 0.
    pub(super) const fn parent(&self) -> u32 {
        self.parent
    }
}

/// All objects.
#[derive(Debug)]
pub(super) struct Objects {
    limits: ObjectLimits,
    clients: OrderedMap<u32, OrderedMap<u32, Object>>,
    total: usize,
    /// Objects that were refused for lack of room, since the last report.
    refused: u32,
    /// Address spaces that devices have of themselves, where they have page tables.
    of_devices: OrderedMap<Id, AddressSpace>,
}

impl Objects {
    /// None yet.
    pub(super) const fn new(limits: ObjectLimits) -> Self {
        Self { limits, clients: OrderedMap::new(), total: 0, refused: 0, of_devices: OrderedMap::new() }
    }

    /// How far they are from their limit.
    pub(super) fn take_usage(&mut self) -> ObjectUsage {
        ObjectUsage {
            limit: self.limits.total,
            used: u32::try_from(self.total).unwrap_or(u32::MAX),
            refused: std::mem::take(&mut self.refused),
        }
    }

    /// Checks that there is room for one more.
    fn check_room(&mut self, client: usize) -> Result<(), Status> {
        let room = self.limits.check(self.total, client);
        if room.is_err() {
            self.refused = self.refused.saturating_add(1);
        }
        room
    }

    /// Objects of all clients.
    pub(super) const fn len(&self) -> usize {
        self.total
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Id, &Object)> {
        let of = |(client, objects): (&u32, _)| (*client, objects);
        self.clients.iter().map(of).flat_map(|(client, objects): (u32, &OrderedMap<u32, Object>)| {
            objects.iter().map(move |(handle, object)| (Id { client, handle: *handle }, object))
        })
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
            .take(taken.len().saturating_add(2))
            .find(|name| *name != client && !taken.contains_key(name))
            .ok_or(Status::InsufficientResources)
    }

    /// Checks that a new object can have this name, this parent and room.
    pub(super) fn admit(&mut self, id: Id, parent: u32, parents: &[Type]) -> Result<(), Status> {
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
        let of_client = client.len();
        self.check_room(of_client)
    }

    /// Adds a client.
    pub(super) fn add_client(&mut self, handle: u32) -> Result<(), Status> {
        if handle == 0 {
            return Err(Status::InvalidObjectHandle);
        }
        if self.clients.contains_key(&handle) {
            return Err(Status::InsertDuplicateName);
        }
        self.check_room(0)?;
        let root = Object { class: 0, kind: Kind::Client, parent: 0, children: OrderedSet::new() };
        self.clients.insert(handle, OrderedMap::from([(handle, root)]));
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
        client.insert(id.handle, Object { class, kind, parent, children: OrderedSet::new() });
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
            if object.kind == Kind::Device {
                self.of_devices.remove(&Id { handle, ..id });
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
        self.of_devices.clear();
        self.total = 0;
    }
}

/// Handles of `root` and all that goes with it, children before parents.
fn order(client: &OrderedMap<u32, Object>, root: u32) -> Vec<u32> {
    // A channel is reached twice, from its device and from its address space: the first time counts, and is
    // before the end of either.
    let mut seen = OrderedSet::new();
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
