//! What a head's planes can show, and its tables of colours.

use anyhow::{Context, Result};

use super::abi::arguments;
use super::modeset::{Screen, address, ioctl};
use crate::sys::{self, Direction, IoctlArgument};

const SET_CLIENT_CAP: u64 = 0x0d;
const GETCRTC: u64 = 0xa1;
const GETPROPERTY: u64 = 0xaa;
const GETPLANERESOURCES: u64 = 0xb5;
const GETPLANE: u64 = 0xb6;
const OBJ_GETPROPERTIES: u64 = 0xb9;
const OBJ_SETPROPERTY: u64 = 0xba;
const CREATEPROPBLOB: u64 = 0xbd;
/// The type of a head among objects.
const CRTC: u32 = 0xcccc_cccc;
/// A client that wants to see all planes.
const UNIVERSAL_PLANES: u64 = 2;
const MOST: usize = 64;

arguments! {
    /// `drm_set_client_cap`.
    ClientCap = 16 { capability: u64, value: u64 }

    /// `drm_mode_get_plane_res`.
    PlaneResources = 16 { planes: u64, count: u32, pad: u32 }

    /// `drm_mode_get_plane`.
    Plane = 32 { plane: u32, crtc: u32, fb: u32, crtcs: u32, gamma: u32, count: u32, formats: u64 }

    /// `drm_mode_crtc`, of which the first part counts here.
    CrtcState = 104 { connectors: u64, count: u32, crtc: u32, fb: u32, place: [u32; 2], gamma: u32, more: [u32; 18] }

    /// `drm_mode_obj_get_properties`.
    Properties = 32 { ids: u64, values: u64, count: u32, object: u32, kind: u32, pad: u32 }

    /// `drm_mode_get_property`.
    Property = 64 { values: u64, enums: u64, id: u32, flags: u32, name: [u8; 32], counts: [u32; 2] }

    /// `drm_mode_create_blob`.
    CreateBlob = 16 { data: u64, length: u32, blob: u32 }

    /// `drm_mode_obj_set_property`.
    SetProperty = 24 { value: u64, id: u32, object: u32, kind: u32, pad: u32 }
}

/// A table of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Of what surfaces have.
    Input,
    /// Of what is sent to the monitor.
    Output,
}

impl Table {
    const fn name(self) -> &'static str {
        match self {
            Self::Input => "DEGAMMA_LUT",
            Self::Output => "GAMMA_LUT",
        }
    }
}

impl Screen {
    /// Formats that the plane can have that shows the picture of the mode; one must be set.
    pub fn formats(&self) -> Result<Vec<u32>> {
        let mut all = ClientCap { capability: UNIVERSAL_PLANES, value: 1 };
        sys::drm_ioctl(&self.file, Direction::Write, SET_CLIENT_CAP, &mut all).context("SET_CLIENT_CAP")?;
        let shown = self.state()?.fb;
        let mut planes = [0u32; MOST];
        let mut found = PlaneResources { planes: address(&mut planes), count: u32::try_from(MOST)?, pad: 0 };
        ioctl(&self.file, "GETPLANERESOURCES", GETPLANERESOURCES, &mut found)?;
        for plane in planes.into_iter().take(usize::try_from(found.count)?) {
            let mut formats = [0u32; MOST];
            let mut about = Plane {
                plane,
                count: u32::try_from(MOST)?,
                formats: address(&mut formats),
                ..Plane::default()
            };
            ioctl(&self.file, "GETPLANE", GETPLANE, &mut about)?;
            let count = usize::try_from(about.count)?;
            if (about.crtc, about.fb) == (self.crtc, shown) {
                return Ok(formats.get(..count).context("a plane of too many formats")?.to_vec());
            }
        }
        anyhow::bail!("no plane shows the picture of the mode")
    }

    /// Sets a table of colours of the head: what becomes of red, green and blue, by the value's number. None:
    /// they stay what they are.
    pub fn set_table(&self, table: Table, entries: Option<&[[u16; 3]]>) -> Result<()> {
        let (mut ids, mut values) = ([0u32; MOST], [0u64; MOST]);
        let mut about = Properties {
            ids: address(&mut ids),
            values: address(&mut values),
            count: u32::try_from(MOST)?,
            object: self.crtc,
            kind: CRTC,
            ..Properties::default()
        };
        ioctl(&self.file, "OBJ_GETPROPERTIES", OBJ_GETPROPERTIES, &mut about)?;
        let count = usize::try_from(about.count)?;
        let id = ids.into_iter().take(count).find(|id| self.is_property(*id, table.name()).unwrap_or(false));
        let id = id.with_context(|| format!("the head has no {}", table.name()))?;
        let blob = entries.map(|entries| self.blob(entries)).transpose()?.unwrap_or(0);
        let mut set = SetProperty { value: blob.into(), id, object: self.crtc, kind: CRTC, pad: 0 };
        ioctl(&self.file, "OBJ_SETPROPERTY", OBJ_SETPROPERTY, &mut set).context(table.name())
    }

    fn is_property(&self, id: u32, name: &str) -> Result<bool> {
        let mut about = Property { id, ..Property::default() };
        ioctl(&self.file, "GETPROPERTY", GETPROPERTY, &mut about)?;
        Ok(about.name.split(|byte| *byte == 0).next() == Some(name.as_bytes()))
    }

    /// Hands a table over. It goes with the file.
    fn blob(&self, entries: &[[u16; 3]]) -> Result<u32> {
        let mut words: Vec<[u16; 4]> =
            entries.iter().map(|[red, green, blue]| [*red, *green, *blue, 0]).collect();
        let length = u32::try_from(words.len() * size_of::<[u16; 4]>())?;
        let mut blob = CreateBlob { data: address(&mut words), length, blob: 0 };
        ioctl(&self.file, "CREATEPROPBLOB", CREATEPROPBLOB, &mut blob)?;
        Ok(blob.blob)
    }

    fn state(&self) -> Result<CrtcState> {
        let mut state = CrtcState { crtc: self.crtc, ..CrtcState::default() };
        ioctl(&self.file, "GETCRTC", GETCRTC, &mut state)?;
        Ok(state)
    }
}
