//! Mode setting by raw ioctls (`drm_mode.h`): a connector, its modes, buffers in VRAM that are shown, flips,
//! a cursor.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::abi::arguments;
use crate::sys::{self, Direction, IoctlArgument, Mapping};

const GETRESOURCES: u64 = 0xa0;
const SETCRTC: u64 = 0xa2;
const CURSOR: u64 = 0xa3;
const GETCONNECTOR: u64 = 0xa7;
const ADDFB: u64 = 0xae;
const PAGE_FLIP: u64 = 0xb0;
const CREATE_DUMB: u64 = 0xb2;
const MAP_DUMB: u64 = 0xb3;
/// `PAGE_FLIP`: an event tells when it is done.
const FLIP_EVENT: u32 = 1;
/// `CURSOR`: a picture, a place.
const CURSOR_BO: u32 = 1;
const CURSOR_MOVE: u32 = 2;
/// Type of an event that tells of a flip.
const EVENT_FLIP: u32 = 2;
const CONNECTED: u32 = 1;
const MOST: usize = 64;

arguments! {
    /// `drm_mode_card_res`.
    Resources = 64 {
        fbs: u64, crtcs: u64, connectors: u64, encoders: u64,
        count_fbs: u32, count_crtcs: u32, count_connectors: u32, count_encoders: u32,
        size: [u32; 4],
    }

    /// `drm_mode_modeinfo`.
    Mode = 68 {
        clock: u32,
        hdisplay: u16, horizontal: [u16; 4],
        vdisplay: u16, vertical: [u16; 4],
        vrefresh: u32, flags: u32, kind: u32,
        name: [u8; 32],
    }

    /// `drm_mode_get_connector`.
    Connector = 80 {
        encoders: u64, modes: u64, properties: u64, values: u64,
        count_modes: u32, count_properties: u32, count_encoders: u32,
        encoder: u32, connector: u32, kind: u32, number: u32, connection: u32,
        size_mm: [u32; 2], subpixel: u32, pad: u32,
    }

    /// `drm_mode_crtc`.
    Crtc = 104 {
        connectors: u64, count_connectors: u32, crtc: u32, fb: u32, place: [u32; 2], gamma: u32, valid: u32,
        mode: Mode,
    }

    /// `drm_mode_fb_cmd`.
    AddFb = 28 { fb: u32, width: u32, height: u32, pitch: u32, bpp: u32, depth: u32, handle: u32 }

    /// `drm_mode_create_dumb`.
    CreateDumb = 32 { height: u32, width: u32, bpp: u32, flags: u32, handle: u32, pitch: u32, size: u64 }

    /// `drm_mode_map_dumb`.
    MapDumb = 16 { handle: u32, pad: u32, offset: u64 }

    /// `drm_mode_crtc_page_flip`.
    PageFlip = 24 { crtc: u32, fb: u32, flags: u32, reserved: u32, user: u64 }

    /// `drm_mode_cursor`.
    CursorCall = 28 { flags: u32, crtc: u32, x: i32, y: i32, width: u32, height: u32, handle: u32 }
}

/// A connector that has a monitor, the head that drives it, and the monitor's modes.
#[derive(Debug)]
pub struct Screen {
    pub(super) file: File,
    pub(super) crtc: u32,
    connector: u32,
    /// The monitor's modes, the preferred one first.
    pub modes: Vec<Mode>,
}

/// A buffer that can be shown.
#[derive(Debug)]
pub struct Picture {
    fb: u32,
    handle: u32,
    /// Bytes from line to line.
    pub pitch: usize,
    /// The CPU's view of it.
    pub pixels: Mapping,
}

/// The address of something that the kernel reads or fills.
pub(super) fn address<T>(of: &mut [T]) -> u64 {
    // CAST: pointers have 64 bits here.
    of.as_mut_ptr() as u64
}

impl Screen {
    /// The screen of the card number `gpu`.
    pub fn open(gpu: usize) -> Result<Self> {
        let path = format!("/dev/dri/card{gpu}");
        let file = File::options().read(true).write(true).open(Path::new(&path));
        let file = file.with_context(|| format!("cannot open {path}"))?;
        let (mut crtcs, mut connectors) = ([0u32; MOST], [0u32; MOST]);
        let most = u32::try_from(MOST)?;
        let mut found = Resources {
            crtcs: address(&mut crtcs),
            connectors: address(&mut connectors),
            count_crtcs: most,
            count_connectors: most,
            ..Resources::default()
        };
        ioctl(&file, "GETRESOURCES", GETRESOURCES, &mut found)?;
        ensure!(
            (found.count_crtcs, found.count_connectors) == (1, 1),
            "not one head and one connector: {found:?}"
        );
        let mut modes = [Mode::default(); MOST];
        let connector = connectors[0];
        let mut about = Connector { connector, ..Connector::default() };
        // The first call has the monitor asked.
        ioctl(&file, "GETCONNECTOR", GETCONNECTOR, &mut about)?;
        about =
            Connector { connector, modes: address(&mut modes), count_modes: most, ..Connector::default() };
        ioctl(&file, "GETCONNECTOR", GETCONNECTOR, &mut about)?;
        ensure!(about.connection == CONNECTED, "no monitor is connected");
        let count = usize::try_from(about.count_modes)?.min(MOST);
        ensure!(count > 0, "the monitor has no modes");
        Ok(Self { file, crtc: crtcs[0], connector, modes: modes[..count].to_vec() })
    }

    /// A buffer of 32 bits a pixel.
    pub fn picture(&self, width: u32, height: u32) -> Result<Picture> {
        let mut made = CreateDumb { width, height, bpp: 32, ..CreateDumb::default() };
        ioctl(&self.file, "CREATE_DUMB", CREATE_DUMB, &mut made)?;
        let CreateDumb { pitch, handle, .. } = made;
        let mut shown = AddFb { width, height, pitch, bpp: 32, depth: 24, handle, ..AddFb::default() };
        ioctl(&self.file, "ADDFB", ADDFB, &mut shown)?;
        let mut place = MapDumb { handle, ..MapDumb::default() };
        ioctl(&self.file, "MAP_DUMB", MAP_DUMB, &mut place)?;
        let pixels = Mapping::new(&self.file, place.offset, usize::try_from(made.size)?)?;
        Ok(Picture { fb: shown.fb, handle, pitch: usize::try_from(pitch)?, pixels })
    }

    /// Shows a picture in a mode.
    pub fn set_mode(&self, mode: Mode, picture: &Picture) -> Result<()> {
        self.show(mode, picture.fb)
    }

    /// Shows a framebuffer in a mode.
    pub(super) fn show(&self, mode: Mode, fb: u32) -> Result<()> {
        let mut connectors = [self.connector];
        let mut crtc = Crtc {
            connectors: address(&mut connectors),
            count_connectors: 1,
            crtc: self.crtc,
            fb,
            valid: 1,
            mode,
            ..Crtc::default()
        };
        ioctl(&self.file, "SETCRTC", SETCRTC, &mut crtc)
    }

    /// Shows another picture from the next frame on, and waits for it: the frame's number, and its time in
    /// microseconds.
    pub fn flip(&mut self, picture: &Picture) -> Result<(u32, u64)> {
        let (crtc, fb) = (self.crtc, picture.fb);
        let mut flip = PageFlip { crtc, fb, flags: FLIP_EVENT, user: 77, ..PageFlip::default() };
        ioctl(&self.file, "PAGE_FLIP", PAGE_FLIP, &mut flip)?;
        let mut event = [0; 32];
        self.file.read_exact(&mut event).context("no event of a flip")?;
        let (words, _) = event.as_chunks::<4>();
        let word = |at: usize| u32::from_le_bytes(words[at]);
        if (word(0), word(1), word(2)) != (EVENT_FLIP, 32, 77) {
            bail!("the event is not of the flip: {event:x?}");
        }
        Ok((word(6), u64::from(word(4)) * 1_000_000 + u64::from(word(5))))
    }

    /// Shows a cursor of 64 by 64 pixels at a place.
    pub fn cursor(&self, picture: &Picture, x: i32, y: i32) -> Result<()> {
        let (crtc, handle) = (self.crtc, picture.handle);
        let mut call =
            CursorCall { flags: CURSOR_BO | CURSOR_MOVE, crtc, x, y, width: 64, height: 64, handle };
        ioctl(&self.file, "CURSOR", CURSOR, &mut call)
    }

    /// Moves the cursor.
    pub fn move_cursor(&self, x: i32, y: i32) -> Result<()> {
        let mut call = CursorCall { flags: CURSOR_MOVE, crtc: self.crtc, x, y, ..CursorCall::default() };
        ioctl(&self.file, "CURSOR", CURSOR, &mut call)
    }

    /// Shows no cursor any more.
    pub fn hide_cursor(&self) -> Result<()> {
        let mut call = CursorCall { flags: CURSOR_BO, crtc: self.crtc, ..CursorCall::default() };
        ioctl(&self.file, "CURSOR", CURSOR, &mut call)
    }
}

pub(super) fn ioctl<T: IoctlArgument>(
    file: &File,
    what: &'static str,
    number: u64,
    argument: &mut T,
) -> Result<()> {
    sys::drm_ioctl(file, Direction::ReadWrite, number, argument).context(what)
}
