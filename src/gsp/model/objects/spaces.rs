//! Address spaces: whose they are, where their page tables are, and which channels are in them.
//!
//! A name of one can stand for another client's, or for that which a device has of itself. The place of an
//! address space is the full name of the object that holds it: its own, or the device's.

use super::{AddressSpace, Id, Kind, Object, Objects, Type};
use crate::abi::status::Status;
use crate::model::token::Token;
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_ordered::OrderedSet;

/// The address space that a device has of itself before anything is known of it.
static UNKNOWN: AddressSpace =
    AddressSpace { external: false, of_device: false, page_directory: None, channels: OrderedSet::new() };

impl Objects {
    /// Page directories of address spaces that channels use, each once.
    pub(in super::super) fn directories(&self) -> OrderedSet<PhysicalAddress> {
        let of = |(_, object): (Id, &Object)| match &object.kind {
            Kind::AddressSpace(space) if !space.channels.is_empty() => space.page_directory,
            _ => None,
        };
        self.iter().filter_map(of).collect()
    }

    /// Where the address space is that a name stands for: it may be another client's, or a device's own.
    pub(in super::super) fn place_of_space(&self, id: Id) -> Result<Id, Status> {
        match self.get(id).map_err(|_| Status::InvalidObjectHandle)? {
            Object { kind: Kind::AddressSpace(AddressSpace { of_device: true, .. }), parent, .. } => {
                Ok(Id { handle: *parent, ..id })
            }
            Object { kind: Kind::AddressSpace(_), .. } => Ok(id),
            // A name of a name is none: who makes one gets that of the object.
            Object { kind: Kind::Duplicate { of, own: Type::AddressSpace }, .. } => match self.get(*of) {
                Ok(Object {
                    kind: Kind::AddressSpace(AddressSpace { of_device: true, .. }), parent, ..
                }) => Ok(Id { handle: *parent, ..*of }),
                Ok(Object { kind: Kind::AddressSpace(_), .. }) => Ok(*of),
                _ => Err(Status::InvalidObjectHandle),
            },
            _ => Err(Status::InvalidObjectHandle),
        }
    }

    /// The handle of the address space of a share of the group's contexts, or 0.
    pub(in super::super) fn space_of_share(&self, id: Id, group: u32) -> Result<u32, Status> {
        match self.get(id).map_err(|_| Status::InvalidObjectHandle)? {
            Object { kind: Kind::ContextShare { space }, parent, .. } if *parent == group => Ok(*space),
            _ => Err(Status::InvalidObjectHandle),
        }
    }

    /// An address space, at its place.
    pub(in super::super) fn space(&self, id: Id) -> Result<&AddressSpace, Status> {
        match self.get(id).map_err(|_| Status::InvalidObjectHandle)? {
            Object { kind: Kind::AddressSpace(space), .. } => Ok(space),
            Object { kind: Kind::Device, .. } => Ok(self.of_devices.get(&id).unwrap_or(&UNKNOWN)),
            _ => Err(Status::InvalidObjectHandle),
        }
    }

    /// An address space, at its place, to change.
    pub(in super::super) fn space_mut(&mut self, id: Id) -> Result<&mut AddressSpace, Status> {
        if matches!(self.get(id), Ok(Object { kind: Kind::Device, .. })) {
            return Ok(self.of_devices.entry(id).or_default());
        }
        match self.get_mut(id).map_err(|_| Status::InvalidObjectHandle)? {
            Object { kind: Kind::AddressSpace(space), .. } => Ok(space),
            _ => Err(Status::InvalidObjectHandle),
        }
    }

    /// Where the page tables of a channel are whose address space has that handle; 0: the device's own.
    pub(in super::super) fn directory_of_channel(&self, id: Id, space: u32) -> Option<PhysicalAddress> {
        let place = match space {
            0 => Id { handle: self.device_of(Id { handle: self.parent(id).ok()?, ..id }).ok()?, ..id },
            handle => self.place_of_space(Id { handle, ..id }).ok()?,
        };
        self.space(place).ok()?.page_directory
    }

    /// The handle of the device of which a channel's parent is, or is part.
    pub(in super::super) fn device_of(&self, parent: Id) -> Result<u32, Status> {
        match self.get(parent)? {
            Object { kind: Kind::ChannelGroup { .. }, parent, .. } => Ok(*parent),
            _ => Ok(parent.handle),
        }
    }

    /// The group of a channel, if it is in one.
    pub(in super::super) fn group_of(&self, token: Token) -> Option<Id> {
        let is_it = |kind: &Kind| matches!(kind, Kind::Channel { token: other, .. } if *other == token);
        let (id, channel) = self.iter().find(|(_, object)| is_it(&object.kind))?;
        let group = Id { handle: channel.parent(), ..id };
        matches!(self.get(group).ok()?.kind, Kind::ChannelGroup { .. }).then_some(group)
    }

    /// The channels of a group.
    pub(in super::super) fn channels_of(&self, group: Id) -> Result<Vec<Token>, Status> {
        let children = &self.get(group)?.children;
        Ok(children.iter().filter_map(|handle| self.channel(Id { handle: *handle, ..group }).ok()).collect())
    }
}
