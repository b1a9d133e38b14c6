//! What the head shows, for somebody who looks: a value, taken from what has taken effect, and the way to the
//! bytes that it names.

use gpuvmk_chip::display::core::{self, CONTROL_CURSOR, CONTROL_CURSOR_COMPOSITION, PAIR, head};
use gpuvmk_chip::display::window::{self, COMPOSITION_CONTROL, COMPOSITION_FACTOR_SELECT as FACTORS};
use gpuvmk_chip::display::{ChannelKind, ChannelName, WINDOWS};
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_display::{
    Address, Blend, Cursor, CursorFormat, CursorSide, DestinationFactor, Format, Layout, Lut, LutEncoding,
    LutEntries, LutTable, MemoryName, Point, ReadBytes, ReadError, Scanout, Size, SourceFactor, Surface,
    Viewport, Window,
};
use gpuvmk_mmio_trap::PhysicalMemory;

use super::engine::{CORE, Display};
use super::methods::Methods;
use super::names::{ContextDma, NameError, Names};
use super::timing::Timing;

/// Bytes of a GOB's line, and the lines of a GOB.
const GOB_WIDTH: u32 = 64;
const GOB_HEIGHT: u64 = 8;
/// Bytes of a table of colours: a header, and the most entries, with the one that is only interpolated to.
const fn table_bytes(entries: LutEntries) -> u64 {
    // CAST: widening.
    0x20 + (entries.count() as u64 + 1) * 8
}

/// The number by which an aperture is named to those who compose.
const fn name_of(aperture: Aperture) -> MemoryName {
    MemoryName(match aperture {
        Aperture::Vram => 0,
        Aperture::SystemCoherent => 1,
        Aperture::SystemNonCoherent => 2,
    })
}

/// The function's memory, for those who compose: the same checks as for any access of the driver.
#[derive(Clone, Copy)]
pub struct HeadMemory<'a>(pub &'a dyn PhysicalMemory);

impl std::fmt::Debug for HeadMemory<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeadMemory")
    }
}

impl ReadBytes for HeadMemory<'_> {
    fn read(&self, address: Address, bytes: &mut [u8]) -> Result<(), ReadError> {
        let apertures = [Aperture::Vram, Aperture::SystemCoherent, Aperture::SystemNonCoherent];
        let aperture = apertures.into_iter().find(|aperture| name_of(*aperture) == address.memory);
        let physical = aperture.map(|aperture| PhysicalAddress { aperture, address: address.offset });
        if physical.is_some_and(|physical| self.0.read(physical, bytes)) {
            Ok(())
        } else {
            Err(ReadError { address, length: bytes.len() })
        }
    }
}

/// What looks up handles.
struct Lookup<'a> {
    memory: &'a dyn PhysicalMemory,
    names: Names,
}

impl Lookup<'_> {
    fn object(&self, channel: ChannelName, handle: u32) -> Result<ContextDma, NameError> {
        self.names.find(self.memory, channel, handle)
    }
}

/// A range of an object that begins at so many units of 256 bytes.
fn range(object: &ContextDma, units: u32, size: u64) -> Result<Address, NameError> {
    let at = object.at(u64::from(units) * 0x100, size)?;
    Ok(Address { memory: name_of(at.aperture), offset: at.address })
}

/// A size of two numbers in a word.
fn size(word: u32) -> Size {
    Size::new(PAIR::X.get_u16(word), PAIR::Y.get_u16(word))
}

/// A place of two numbers in a word, that may be negative.
fn point(word: u32) -> Point {
    let signed = |value: u16| i32::from(i16::from_le_bytes(value.to_le_bytes()));
    Point { x: signed(PAIR::X.get_u16(word)), y: signed(PAIR::Y.get_u16(word)) }
}

impl Display {
    /// What the head shows; none: it is not lit. What names no memory is not shown, and is counted.
    pub fn scanout(&mut self, memory: &dyn PhysicalMemory) -> Option<Scanout> {
        self.head.timing?;
        let core = &self.channels.get(&CORE)?.methods;
        let value = |method| core.armed(head(0, method));
        let (width, height) = Timing::visible(core, 0);
        let side = |pixels: u32| u16::try_from(pixels).unwrap_or(0);
        let mut shown = Scanout::black(Size::new(side(width), side(height)));
        shown.viewport = Viewport {
            input: size(value(core::HEAD_SET_VIEWPORT_SIZE_IN)),
            output: size(value(core::HEAD_SET_VIEWPORT_SIZE_OUT)),
            adjust: Point::default(),
        };
        let lookup = match Names::read(memory, self.instance) {
            Ok(names) => Lookup { memory, names },
            Err(error) => {
                self.refuse(CORE, error);
                return Some(shown);
            }
        };
        let mut refused = Vec::new();
        let mut windows: Vec<_> = (0..WINDOWS)
            .filter_map(|window| ChannelName::new(ChannelKind::Window, u32::try_from(window).ok()?))
            .filter(|name| self.owner(*name) == 0)
            .filter_map(|name| match self.window(name, &lookup).transpose()? {
                Ok(window) => Some(window),
                Err(error) => {
                    refused.push((name, error));
                    None
                }
            })
            .collect();
        // Those with a great depth are behind.
        windows.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
        shown.windows = windows.into_iter().map(|(_, window)| window).collect();
        match cursor(core, self.cursor.map_or(0, |cursor| cursor.armed), &lookup) {
            Ok(cursor) => shown.cursor = cursor,
            Err(error) => refused.push((CORE, error)),
        }
        match output_table(core, &lookup) {
            Ok(lut) => shown.lut = lut,
            Err(error) => refused.push((CORE, error)),
        }
        refused.into_iter().for_each(|(name, error)| self.refuse(name, error));
        Some(shown)
    }

    /// The head that has a window.
    fn owner(&self, window: ChannelName) -> u32 {
        let core = self.channels.get(&CORE).map(|core| &core.methods);
        let word = core.map(|core| core.armed(core::window_set_control(window.instance)));
        word.map_or(u32::MAX, |word| core::WINDOW_CONTROL::OWNER.get(word))
    }

    /// What a window shows, with its depth; none: nothing.
    fn window(&self, name: ChannelName, lookup: &Lookup<'_>) -> Result<Option<(u32, Window)>, NameError> {
        let Some(channel) = self.channels.get(&name) else { return Ok(None) };
        let methods = &channel.methods;
        let handle = methods.armed(window::SET_CONTEXT_DMA_ISO);
        let format = window::PARAMS::FORMAT.get_u8(methods.armed(window::SET_PARAMS));
        let (Some(format), true) = (Format::of_code(format), handle != 0) else { return Ok(None) };
        let object = lookup.object(name, handle)?;
        let surface = surface(methods, format, &object)?;
        let immediate = ChannelName::new(ChannelKind::Immediate, name.instance);
        let immediate = immediate.and_then(|immediate| self.channels.get(&immediate));
        let to = immediate.map_or(0, |own| own.methods.armed(gpuvmk_chip::display::immediate::SET_POINT_OUT));
        let control = methods.armed(window::SET_COMPOSITION_CONTROL);
        let k1 = window::COMPOSITION_CONSTANT_ALPHA::K1;
        let factors = methods.armed(window::SET_COMPOSITION_FACTOR_SELECT);
        let blend = blend(
            k1.get_u8(methods.armed(window::SET_COMPOSITION_CONSTANT_ALPHA)),
            FACTORS::SRC_COLOR_FACTOR_MATCH_SELECT.get(factors),
            FACTORS::DST_COLOR_FACTOR_MATCH_SELECT.get(factors),
        );
        let window = Window {
            surface,
            from: point(methods.armed(window::SET_POINT_IN)),
            size: size(methods.armed(window::SET_SIZE_OUT)),
            to: point(to),
            lut: input_table(name, methods, lookup)?,
            blend,
        };
        Ok(Some((COMPOSITION_CONTROL::DEPTH.get(control), window)))
    }
}

/// A window's surface, all of which lies in its object.
fn surface(methods: &Methods, format: Format, object: &ContextDma) -> Result<Surface, NameError> {
    let pixels = size(methods.armed(window::SET_SIZE));
    let units = window::PLANAR_STORAGE::PITCH.get(methods.armed(window::SET_PLANAR_STORAGE));
    let lines = u64::from(pixels.height());
    let pitch = units * GOB_WIDTH;
    let (layout, lines) = if object.is_block_linear {
        let shift = window::STORAGE::BLOCK_HEIGHT.get_u8(methods.armed(window::SET_STORAGE)).min(5);
        let layout = Layout::Blocks { height_shift: shift, across: units };
        (layout, lines.next_multiple_of(GOB_HEIGHT << shift))
    } else {
        (Layout::Pitch(pitch), lines)
    };
    let offset = methods.armed(window::SET_OFFSET);
    let address = range(object, offset, u64::from(pitch).saturating_mul(lines))?;
    Ok(Surface { format, size: pixels, layout, address })
}

/// How what is in front lies on what is behind, by NVIDIA's numbers of factors. What they do not say here, is
/// that the former hides the latter.
const fn blend(k1: u8, source: u32, destination: u32) -> Blend {
    use FACTORS::{DST_COLOR_FACTOR_MATCH_SELECT as TO, SRC_COLOR_FACTOR_MATCH_SELECT as FROM};
    let source = match source {
        FROM::ZERO => SourceFactor::Zero,
        FROM::K1 => SourceFactor::K1,
        FROM::K1_TIMES_SRC => SourceFactor::K1TimesSource,
        _ => SourceFactor::One,
    };
    let destination = match destination {
        TO::ONE => DestinationFactor::One,
        TO::K1 => DestinationFactor::K1,
        TO::NEG_K1 => DestinationFactor::NegK1,
        TO::NEG_K1_TIMES_SRC => DestinationFactor::NegK1TimesSource,
        _ => DestinationFactor::Zero,
    };
    Blend { k1, source, destination }
}

/// A table of colours: its object's handle, and where in it.
fn table(
    channel: ChannelName,
    (handle, units): (u32, u32),
    (mode, interpolate): (u32, bool),
    encoding: LutEncoding,
    lookup: &Lookup<'_>,
) -> Result<Lut, NameError> {
    let entries = match mode {
        core::OLUT_CONTROL::MODE::DIRECT8 => LutEntries::Direct8,
        core::OLUT_CONTROL::MODE::DIRECT10 => LutEntries::Direct10,
        _ => return Ok(Lut::Identity),
    };
    if handle == 0 {
        return Ok(Lut::Identity);
    }
    let object = lookup.object(channel, handle)?;
    let address = range(&object, units, table_bytes(entries))?;
    Ok(Lut::Table(LutTable { address, entries, encoding, interpolate }))
}

/// The table of colours of a window's input.
fn input_table(name: ChannelName, methods: &Methods, lookup: &Lookup<'_>) -> Result<Lut, NameError> {
    let control = methods.armed(window::SET_ILUT_CONTROL);
    let at = (methods.armed(window::SET_CONTEXT_DMA_ILUT), methods.armed(window::SET_OFFSET_ILUT));
    let how = (window::ILUT_CONTROL::MODE.get(control), window::ILUT_CONTROL::INTERPOLATE.is_set(control));
    table(name, at, how, LutEncoding::Half, lookup)
}

/// The table of colours of the head's output.
fn output_table(core: &Methods, lookup: &Lookup<'_>) -> Result<Lut, NameError> {
    let value = |method| core.armed(head(0, method));
    let control = value(core::HEAD_SET_OLUT_CONTROL);
    let at = (value(core::HEAD_SET_CONTEXT_DMA_OLUT), value(core::HEAD_SET_OFFSET_OLUT));
    let how = (core::OLUT_CONTROL::MODE.get(control), core::OLUT_CONTROL::INTERPOLATE.is_set(control));
    table(CORE, at, how, LutEncoding::Fraction, lookup)
}

/// The head's cursor, with its hot spot at `spot`.
fn cursor(core: &Methods, spot: u32, lookup: &Lookup<'_>) -> Result<Option<Cursor>, NameError> {
    let value = |method| core.armed(head(0, method));
    let control = value(core::HEAD_SET_CONTROL_CURSOR);
    let handle = value(core::HEAD_SET_CONTEXT_DMA_CURSOR);
    let format = match CONTROL_CURSOR::FORMAT.get(control) {
        CONTROL_CURSOR::FORMAT::A8R8G8B8 => CursorFormat::Argb8888,
        CONTROL_CURSOR::FORMAT::A1R5G5B5 => CursorFormat::Argb1555,
        _ => return Ok(None),
    };
    if handle == 0 || !CONTROL_CURSOR::ENABLE.is_set(control) {
        return Ok(None);
    }
    let side = match CONTROL_CURSOR::SIZE.get(control) {
        CONTROL_CURSOR::SIZE::W32_H32 => CursorSide::Pixels32,
        CONTROL_CURSOR::SIZE::W64_H64 => CursorSide::Pixels64,
        CONTROL_CURSOR::SIZE::W128_H128 => CursorSide::Pixels128,
        _ => CursorSide::Pixels256,
    };
    let bytes = match format {
        CursorFormat::Argb8888 => 4,
        CursorFormat::Argb1555 => 2,
    };
    let pixels = u64::from(side.pixels()) * u64::from(side.pixels());
    let object = lookup.object(CORE, handle)?;
    let address = range(&object, value(core::HEAD_SET_OFFSET_CURSOR), pixels * bytes)?;
    let composition = value(core::HEAD_SET_CONTROL_CURSOR_COMPOSITION);
    let blend = blend(
        CONTROL_CURSOR_COMPOSITION::K1.get_u8(composition),
        CONTROL_CURSOR_COMPOSITION::CURSOR_COLOR_FACTOR_SELECT.get(composition),
        CONTROL_CURSOR_COMPOSITION::VIEWPORT_COLOR_FACTOR_SELECT.get(composition),
    );
    let Point { x, y } = point(spot);
    let hot = |field: gpuvmk_chip::registers::Field| i32::from(field.get_u8(control));
    let to = Point { x: x - hot(CONTROL_CURSOR::HOT_SPOT_X), y: y - hot(CONTROL_CURSOR::HOT_SPOT_Y) };
    Ok(Some(Cursor { address, format, side, to, blend }))
}
