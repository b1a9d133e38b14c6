//! Objects and channels as they are kept: each with what a driver would have to say to allocate it.

use super::encoding::{Reader, Writer};
use crate::abi::common::calls::MemoryListRequest;
use crate::abi::common::classes::NV01_ROOT;
use crate::abi::status::Status;
use crate::abi::table::{Class, ClassParameters};
use crate::abi::values::{AddressSpaceParameters, ChannelParameters, Parameters};
use crate::model::alloc;
use crate::model::channel::{Deferred, KeptState};
use crate::model::error::SavedError;
use crate::model::objects::{AddressSpace, Id, Kind, Object, Type};
use crate::model::rm::Rm;
use crate::model::token::Token;
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::Chid;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_ordered::OrderedMap;

const CLIENT: u8 = 1;
const DEVICE: u8 = 2;
const SUBDEVICE: u8 = 3;
const ADDRESS_SPACE: u8 = 4;
const CHANNEL: u8 = 5;
const ENGINE_OBJECT: u8 = 6;
const EVENT: u8 = 7;
const MEMORY: u8 = 8;
const DISPLAY: u8 = 9;
/// Never read.
const OTHER: u8 = 0xff;

/// Writes all objects but the firmware's own three, those that others need first.
pub(super) fn write(rm: &Rm, back: &dyn GspBackend, to: &mut Writer) {
    let mut all: Vec<(Id, &Object)> = rm.objects.iter().filter(|(id, _)| !rm.is_internal(*id)).collect();
    all.sort_by_key(|(id, object)| (rank(object.kind.of()), *id));
    // CAST: bounded by the limit of objects, a u32.
    to.u32(u32::try_from(all.len()).unwrap_or(u32::MAX));
    for (id, object) in all {
        let tag = match object.kind.of() {
            Type::Client => CLIENT,
            Type::Device => DEVICE,
            Type::Subdevice => SUBDEVICE,
            Type::AddressSpace => ADDRESS_SPACE,
            Type::Channel => CHANNEL,
            Type::EngineObject => ENGINE_OBJECT,
            Type::Event => EVENT,
            Type::Memory => MEMORY,
            Type::Display => DISPLAY,
            // No driver that has such objects is suspended.
            Type::DisplayChannel
            | Type::ChannelGroup
            | Type::ContextShare
            | Type::VirtualMemory
            | Type::BinaryApi
            | Type::Diagnostics
            | Type::Inforom
            | Type::I2c
            | Type::Debugger
            | Type::Software
            | Type::Retainer => OTHER,
        };
        to.u8(tag);
        [id.client, id.handle, object.parent(), object.class].into_iter().for_each(|word| to.u32(word));
        match &object.kind {
            Kind::Client | Kind::Device | Kind::Subdevice | Kind::Display => {}
            Kind::DisplayChannel { .. }
            | Kind::ChannelGroup { .. }
            | Kind::ContextShare { .. }
            | Kind::Plain(_)
            | Kind::Duplicate { .. } => {}
            Kind::AddressSpace(space) => write_space(space, to),
            Kind::Channel { token, space } => write_channel(rm, back, *token, *space, to),
            Kind::EngineObject { engine } => to.u32(engine.nv2080_type()),
            Kind::Event { index } => to.u32(*index),
            Kind::Memory { pages } => to.u32(*pages),
        }
    }
}

/// Parents before children, and address spaces before channels.
const fn rank(of: Type) -> u8 {
    match of {
        Type::Client => 0,
        Type::Device => 1,
        Type::Subdevice | Type::AddressSpace | Type::Memory | Type::Display => 2,
        Type::ChannelGroup | Type::DisplayChannel => 3,
        Type::ContextShare | Type::Channel => 4,
        Type::EngineObject => 5,
        Type::Event
        | Type::VirtualMemory
        | Type::BinaryApi
        | Type::Diagnostics
        | Type::Inforom
        | Type::I2c
        | Type::Debugger
        | Type::Software
        | Type::Retainer => 6,
    }
}

fn write_space(space: &AddressSpace, to: &mut Writer) {
    to.u8(space.external.into());
    let (aperture, address) = match space.page_directory {
        None => (0, 0),
        Some(directory) => {
            let aperture = match directory.aperture {
                Aperture::Vram => 1,
                Aperture::SystemCoherent => 2,
                Aperture::SystemNonCoherent => 3,
            };
            (aperture, directory.address)
        }
    };
    to.u8(aperture);
    to.u64(address);
}

fn write_channel(rm: &Rm, back: &dyn GspBackend, token: Token, space: u32, to: &mut Writer) {
    let kept = rm.channels.kept(back, token);
    to.u32(space);
    to.u16(token.chid.0);
    to.u32(kept.engine_type);
    to.u64(kept.userd);
    to.u64(kept.ring);
    to.u8(kept.ring_log2);
    to.u8(match kept.state {
        KeptState::Idle => 0,
        KeptState::Scheduled => 1,
        KeptState::Stopped => 2,
    });
    to.u32(kept.get);
    to.u32(kept.put);
}

/// Reads and allocates all of them.
pub(super) fn read(rm: &mut Rm, back: &dyn GspBackend, from: &mut Reader<'_>) -> Result<(), SavedError> {
    // The driver lets channels run again when it has put everything else in its place.
    rm.channels.hold(back, true).map_err(|_| SavedError::Meaningless("a hold of no channels"))?;
    let mut positions = OrderedMap::new();
    // Each is checked before the next is read: a number that lies costs nothing.
    for _ in 0..from.u32()? {
        read_one(rm, back, from, &mut positions)?;
    }
    rm.channels.set_positions(positions);
    Ok(())
}

fn read_one(
    rm: &mut Rm,
    back: &dyn GspBackend,
    from: &mut Reader<'_>,
    positions: &mut OrderedMap<Token, (u32, u32)>,
) -> Result<(), SavedError> {
    let tag = from.u8()?;
    let id = Id { client: from.u32()?, handle: from.u32()? };
    let (parent, class) = (from.u32()?, from.u32()?);
    let refused = |status| SavedError::Object { client: id.client, handle: id.handle, class, status };
    // Its type by its class must be the type that it was kept as, or bytes of one kind would be read as
    // another's.
    let make = |rm: &mut Rm, own: Type, parameters: &dyn Fn(ClassParameters) -> Parameters| {
        let wanted = alloc::Wanted { id, parent, class };
        let checked = |known: &Class| {
            let is_own = known.object() == own;
            is_own.then(|| parameters(known.parameters)).ok_or(Status::InvalidClass)
        };
        alloc::allocate(rm, back, wanted, checked).map_err(refused)
    };
    match tag {
        CLIENT if class == NV01_ROOT => alloc::client(rm, id).map_err(refused),
        CLIENT => Err(refused(Status::InvalidClass)),
        DEVICE => make(rm, Type::Device, &|_| Parameters::Device),
        SUBDEVICE => make(rm, Type::Subdevice, &|_| Parameters::Subdevice),
        ADDRESS_SPACE => {
            let external = from.u8()? != 0;
            let own = AddressSpaceParameters { external, of_device: false };
            make(rm, Type::AddressSpace, &|_| Parameters::AddressSpace(own))?;
            let aperture = match from.u8()? {
                0 => None,
                1 => Some(Aperture::Vram),
                2 => Some(Aperture::SystemCoherent),
                3 => Some(Aperture::SystemNonCoherent),
                _ => return Err(SavedError::Meaningless("an aperture")),
            };
            let address = from.u64()?;
            aperture.map_or(Ok(()), |aperture| {
                rm.keep_directory(id, PhysicalAddress { aperture, address }).map_err(refused)
            })
        }
        CHANNEL => {
            let space = from.u32()?;
            let kept = read_channel(from)?;
            make(rm, Type::Channel, &|_| Parameters::Channel(channel_parameters(space, &kept)))?;
            let token = rm.objects.channel(id).map_err(refused)?;
            rm.channels.keep(back, token, kept.state).map_err(refused)?;
            if kept.ring != 0 {
                positions.insert(token, (kept.get, kept.put));
            }
            Ok(())
        }
        ENGINE_OBJECT => {
            let engine = Engine::of_nv2080_type(from.u32()?);
            make(rm, Type::EngineObject, &|known| match known {
                ClassParameters::Copy(_) => Parameters::Copy(engine),
                _ => Parameters::Graphics,
            })
        }
        EVENT => {
            let index = from.u32()?;
            make(rm, Type::Event, &|_| Parameters::Event { index })
        }
        DISPLAY => make(rm, Type::Display, &|_| Parameters::Display),
        MEMORY => {
            let list = MemoryListRequest { id, device: parent, class, pages: from.u32()? };
            alloc::memory_list(rm, list).map_err(refused)
        }
        _ => Err(SavedError::Meaningless("the kind of an object")),
    }
}

fn read_channel(from: &mut Reader<'_>) -> Result<Deferred, SavedError> {
    let (chid, engine_type, userd, ring) = (Chid(from.u16()?), from.u32()?, from.u64()?, from.u64()?);
    let ring_log2 = from.u8()?;
    let state = match from.u8()? {
        0 => KeptState::Idle,
        1 => KeptState::Scheduled,
        2 => KeptState::Stopped,
        _ => return Err(SavedError::Meaningless("a channel's state")),
    };
    let (get, put) = (from.u32()?, from.u32()?);
    if ring_log2 > 31 || get >= 1 << ring_log2 || put >= 1 << ring_log2 {
        return Err(SavedError::Meaningless("a place in a ring"));
    }
    Ok(Deferred { chid, engine_type, userd, ring, ring_log2, state, get, put })
}

/// The parameters with which a driver would allocate that channel.
fn channel_parameters(space: u32, kept: &Deferred) -> ChannelParameters {
    ChannelParameters {
        space,
        engine: Engine::of_nv2080_type(kept.engine_type),
        chid: Some(kept.chid),
        ring: kept.ring,
        entries: 1 << kept.ring_log2,
        userd: Some(PhysicalAddress { aperture: Aperture::Vram, address: kept.userd }),
        ..ChannelParameters::default()
    }
}
