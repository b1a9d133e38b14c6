//! Composed frames against a model that looks up every pixel by itself.

use proptest::prelude::*;

use super::blend::blended;
use super::pixel::{Colour, argb1555, argb8888, colour};
use super::table::Table;
use super::*;
use crate::scanout::{
    Address, Blend, CursorSide, DestinationFactor, Format, Layout, Lut, LutEncoding, LutEntries, LutTable,
    READ_MAX, ReadError, SourceFactor, Surface, Viewport,
};

/// A memory without end: what lies behind its bytes is their repetition.
struct Endless(Vec<u8>);

impl Endless {
    fn byte(&self, offset: u64) -> u8 {
        self.0[usize::try_from(offset % self.0.len() as u64).unwrap()]
    }
}

impl ReadBytes for Endless {
    fn read(&self, address: Address, bytes: &mut [u8]) -> Result<(), ReadError> {
        assert!(bytes.len() <= READ_MAX, "{} bytes at once", bytes.len());
        for (offset, byte) in (address.offset..).zip(bytes) {
            *byte = self.byte(offset);
        }
        Ok(())
    }
}

/// Bytes that do not repeat soon, and tables at two places.
fn memory() -> Endless {
    let mut state = 1_u32;
    let mut bytes: Vec<u8> = iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    })
    .take(99_991)
    .collect();
    for at in 0..=1024_u16 {
        let entry = 0x20 + usize::from(at) * 8;
        let identity = (at.min(1023) << 6).to_le_bytes();
        let inverse = (0xffff - (at.min(1023) << 6)).to_le_bytes();
        bytes[entry..entry + 6].copy_from_slice(&identity.repeat(3));
        bytes[10_000 + entry..10_000 + entry + 6].copy_from_slice(&inverse.repeat(3));
    }
    Endless(bytes)
}

/// The byte of a line of a surface.
fn surface_byte(memory: &Endless, surface: &Surface, line: u64, at: u64) -> u8 {
    let offset = match surface.layout {
        Layout::Pitch(pitch) => line * u64::from(pitch) + at,
        Layout::Blocks { height_shift, across } => {
            let height = 8 << height_shift;
            let block = line / height * u64::from(across) + at / 64;
            let gob = line % height / 8;
            let bit = |value: u64, from: u32, to: u32| (value >> from & 1) << to;
            let inside = (at % 16)
                | bit(line, 0, 4)
                | bit(line, 1, 5)
                | bit(at, 4, 6)
                | bit(line, 2, 7)
                | bit(at, 5, 8);
            block * height * 64 + gob * 512 + inside
        }
    };
    memory.byte(surface.address.offset + offset)
}

/// The colour of a window at a place of the viewport, if it is seen there.
fn window_colour(
    memory: &Endless,
    (window, table): (&Window, &Option<Table>),
    x: i64,
    y: i64,
) -> Option<Colour> {
    let inside = |x: i64, y: i64, size: Size| {
        (0..i64::from(size.width())).contains(&x) && (0..i64::from(size.height())).contains(&y)
    };
    let (x, y) = (x - i64::from(window.to.x), y - i64::from(window.to.y));
    let (column, line) = (x + i64::from(window.from.x), y + i64::from(window.from.y));
    if !inside(x, y, window.size) || !inside(column, line, window.surface.size) {
        return None;
    }
    let bytes = u64::from(window.surface.format.bytes());
    let (column, line) = (column.cast_unsigned(), line.cast_unsigned());
    let pixel: Vec<u8> = (column * bytes..(column + 1) * bytes)
        .map(|at| surface_byte(memory, &window.surface, line, at))
        .collect();
    let mut front = colour(window.surface.format, &pixel);
    if let Some(table) = table {
        front.rgb = table.apply(front.rgb);
    }
    Some(front)
}

fn cursor_colour(memory: &Endless, cursor: &Cursor, x: i64, y: i64) -> Option<Colour> {
    let side = i64::from(cursor.side.pixels());
    let (x, y) = (x - i64::from(cursor.to.x), y - i64::from(cursor.to.y));
    if !(0..side).contains(&x) || !(0..side).contains(&y) {
        return None;
    }
    let at = (y * side + x).cast_unsigned();
    let byte = |at: u64| memory.byte(cursor.address.offset + at);
    Some(match cursor.format {
        CursorFormat::Argb8888 => argb8888(u32::from_le_bytes([0, 1, 2, 3].map(|part| byte(at * 4 + part)))),
        CursorFormat::Argb1555 => argb1555(u16::from_le_bytes([0, 1].map(|part| byte(at * 2 + part)))),
    })
}

/// A pixel of the raster. The tables are those of the windows, then that of the head.
fn pixel(memory: &Endless, scanout: &Scanout, tables: &[Option<Table>], x: u16, y: u16) -> u32 {
    let Viewport { input, output, adjust } = scanout.viewport;
    let place = |at: u16, raster: u16, input: u16, output: u16, adjust: i32| {
        let start = (i64::from(raster) - i64::from(output)) / 2 + i64::from(adjust);
        let at = i64::from(at) - start;
        let inside = (0..i64::from(output)).contains(&at);
        let from = inside.then(|| (2 * at + 1) * i64::from(input) / (2 * i64::from(output)));
        from.filter(|from| *from < i64::from(input))
    };
    let x = place(x, scanout.size.width(), input.width(), output.width(), adjust.x);
    let y = place(y, scanout.size.height(), input.height(), output.height(), adjust.y);
    let (Some(x), Some(y)) = (x, y) else { return 0 };
    let mut behind = scanout.background;
    for window in iter::zip(&scanout.windows, tables) {
        if let Some(front) = window_colour(memory, window, x, y) {
            behind = blended(window.0.blend, front, behind);
        }
    }
    if let Some(cursor) = &scanout.cursor
        && let Some(front) = cursor_colour(memory, cursor, x, y)
    {
        behind = blended(cursor.blend, front, behind);
    }
    if let Some(Some(table)) = tables.last() {
        behind = table.apply(behind);
    }
    let [red, green, blue] = behind.map(|part| u32::from(part >> 8));
    red << 16 | green << 8 | blue
}

fn luts() -> impl Strategy<Value = Lut> {
    let table = (
        prop::sample::select(vec![0_u64, 10_000, 33_333]),
        prop::sample::select(vec![LutEntries::Direct8, LutEntries::Direct10]),
        prop::sample::select(vec![LutEncoding::Half, LutEncoding::Fraction]),
        any::<bool>(),
    );
    let table = table.prop_map(|(offset, entries, encoding, interpolate)| {
        let address = Address { offset, ..Address::default() };
        Lut::Table(LutTable { address, entries, encoding, interpolate })
    });
    let identity = Lut::Table(LutTable {
        address: Address::default(),
        entries: LutEntries::Direct10,
        encoding: LutEncoding::Fraction,
        interpolate: true,
    });
    prop_oneof![2 => Just(Lut::Identity), 2 => Just(identity), 2 => table]
}

fn blends() -> impl Strategy<Value = Blend> {
    let over = Blend { k1: 0xff, source: SourceFactor::K1, destination: DestinationFactor::NegK1TimesSource };
    let any = (
        any::<u8>(),
        prop::sample::select(vec![SourceFactor::One, SourceFactor::K1, SourceFactor::K1TimesSource]),
        prop::sample::select(vec![
            DestinationFactor::Zero,
            DestinationFactor::One,
            DestinationFactor::K1,
            DestinationFactor::NegK1,
            DestinationFactor::NegK1TimesSource,
        ]),
    );
    let any = any.prop_map(|(k1, source, destination)| Blend { k1, source, destination });
    prop_oneof![2 => Just(Blend::OPAQUE), 2 => Just(over), 1 => any]
}

fn sizes(most: u16) -> impl Strategy<Value = Size> {
    (0..=most, 0..=most).prop_map(|(width, height)| Size::new(width, height))
}

fn points() -> impl Strategy<Value = Point> {
    let near = (-30_i32..40, -30_i32..40);
    let wild = (any::<i32>(), any::<i32>());
    prop_oneof![3 => Just((0, 0)), 3 => near, 1 => wild].prop_map(|(x, y)| Point { x, y })
}

prop_compose! {
    fn windows()(
        format in prop::sample::select(&Format::ALL[..]),
        surface in prop_oneof![Just(Size::new(40, 30)), sizes(60), Just(Size::new(u16::MAX, u16::MAX))],
        layout in prop_oneof![
            any::<u32>().prop_map(Layout::Pitch),
            (0_u32..1000).prop_map(Layout::Pitch),
            (0_u8..=5, 0_u32..12).prop_map(|(height_shift, across)| Layout::Blocks { height_shift, across }),
        ],
        offset in 0_u64..1 << 60,
        from in points(),
        size in prop_oneof![Just(Size::new(40, 30)), sizes(60), Just(Size::new(u16::MAX, u16::MAX))],
        to in points(),
        lut in luts(),
        blend in blends(),
    ) -> Window {
        let address = Address { offset, ..Address::default() };
        Window { surface: Surface { format, size: surface, layout, address }, from, size, to, lut, blend }
    }
}

prop_compose! {
    fn cursors()(
        offset in 0_u64..1 << 60,
        format in prop::sample::select(vec![CursorFormat::Argb8888, CursorFormat::Argb1555]),
        side in prop::sample::select(vec![CursorSide::Pixels32, CursorSide::Pixels64, CursorSide::Pixels256]),
        to in points(),
        blend in blends(),
    ) -> Cursor {
        Cursor { address: Address { offset, ..Address::default() }, format, side, to, blend }
    }
}

prop_compose! {
    fn scanouts()(
        size in prop_oneof![3 => Just(Size::new(40, 30)), 1 => sizes(50)],
        viewport in prop::option::weighted(0.2, (sizes(50), sizes(70), points())),
        background in prop_oneof![Just([0; 3]), any::<[u16; 3]>()],
        windows in prop::collection::vec(windows(), 0..3),
        cursor in prop::option::of(cursors()),
        lut in luts(),
    ) -> Scanout {
        let same = Viewport { input: size, output: size, adjust: Point::default() };
        let viewport = viewport.map_or(same, |(input, output, adjust)| Viewport { input, output, adjust });
        Scanout { size, viewport, background, windows, cursor, lut }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn every_pixel_is_as_the_model_has_it(scanouts in prop::collection::vec(scanouts(), 1..3)) {
        let memory = memory();
        let (mut composer, mut frame) = (Composer::default(), Frame::default());
        // What is left of one head's picture is not in the next one.
        for scanout in scanouts {
            let composed = composer.compose(&scanout, &memory, &mut frame).unwrap();
            prop_assert_eq!(composed, Composed::default());
            prop_assert_eq!(frame.size(), scanout.size);
            let luts = scanout.windows.iter().map(|window| window.lut).chain([scanout.lut]);
            let tables: Vec<_> = luts.map(|lut| Table::of(lut, &memory).0).collect();
            for y in 0..scanout.size.height() {
                for x in 0..scanout.size.width() {
                    let expected = pixel(&memory, &scanout, &tables, x, y);
                    let found = frame.line(y)[usize::from(x)];
                    prop_assert_eq!(found, expected, "{}, {}: {:06x} {:06x}", x, y, found, expected);
                }
            }
        }
    }
}

/// Memory of which only the first bytes can be read.
struct Short(u64);

impl ReadBytes for Short {
    fn read(&self, address: Address, bytes: &mut [u8]) -> Result<(), ReadError> {
        bytes.fill(0xff);
        let end = address.offset.checked_add(bytes.len() as u64);
        if end.is_some_and(|end| end <= self.0) {
            Ok(())
        } else {
            Err(ReadError { address, length: bytes.len() })
        }
    }
}

fn one_window(surface: Surface) -> Scanout {
    let window = Window {
        surface,
        from: Point::default(),
        size: surface.size,
        to: Point::default(),
        lut: Lut::Identity,
        blend: Blend::OPAQUE,
    };
    Scanout { windows: vec![window], ..Scanout::black(surface.size) }
}

#[test]
fn what_cannot_be_read_is_black_and_counted() {
    let size = Size::new(64, 24);
    let surface =
        Surface { format: Format::Xrgb8888, size, layout: Layout::Pitch(256), address: Address::default() };
    let mut frame = Frame::default();
    let compose = |surface, memory: &Short, frame: &mut Frame| {
        Composer::default().compose(&one_window(surface), memory, frame).unwrap().unread
    };
    assert_eq!(compose(surface, &Short(256 * 20), &mut frame), 4);
    assert_eq!(frame.pixels().iter().filter(|pixel| **pixel == 0xff_ffff).count(), 64 * 20);
    // Whole lines of blocks: two of 16 lines, of which the second one is not there.
    let blocks = Layout::Blocks { height_shift: 1, across: 4 };
    assert_eq!(compose(Surface { layout: blocks, ..surface }, &Short(256 * 16), &mut frame), 1);
    assert_eq!(frame.pixels().iter().filter(|pixel| **pixel == 0xff_ffff).count(), 64 * 16);
    // Addresses have an end.
    let last = Address { offset: u64::MAX - 256, ..Address::default() };
    assert_eq!(compose(Surface { address: last, ..surface }, &Short(u64::MAX), &mut frame), 23);
}

#[test]
fn picture_that_is_too_large_costs_nothing() {
    let mut frame = Frame::default();
    let sizes = [Size::new(4096, 1025), Size::new(4097, 1), Size::new(u16::MAX, u16::MAX)];
    for size in sizes {
        let scanout = Scanout::black(size);
        let composed = Composer::default().compose(&scanout, &Short(0), &mut frame);
        assert_eq!(composed, Err(ComposeError::TooLarge(size)));
        let inside = Viewport { input: size, output: Size::new(8, 8), adjust: Point::default() };
        let scanout = Scanout { viewport: inside, ..Scanout::black(Size::new(8, 8)) };
        let composed = Composer::default().compose(&scanout, &Short(0), &mut frame);
        assert_eq!(composed, Err(ComposeError::TooLarge(size)));
        assert_eq!(frame, Frame::default());
    }
}

#[test]
fn windows_beyond_the_last_are_not_shown() {
    let surface = Surface {
        format: Format::Xrgb8888,
        size: Size::new(4, 4),
        layout: Layout::Pitch(16),
        address: Address::default(),
    };
    let mut scanout = one_window(surface);
    let hidden = Surface { address: Address { offset: 1 << 40, ..Address::default() }, ..surface };
    let others = vec![scanout.windows[0].clone(); WINDOWS_MAX - 1];
    scanout.windows.extend(others);
    scanout.windows.extend(one_window(hidden).windows);
    let composed = Composer::default().compose(&scanout, &Short(1 << 20), &mut Frame::default());
    assert_eq!(composed, Ok(Composed { unread: 0 }));
}
