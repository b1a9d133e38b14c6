//! What viewers of a head send: any bytes, in pieces, while pictures of several sizes come and the viewer
//! takes what it gets at its own pace. Output stays within its bounds, and none is made that nobody asked
//! for.

use std::sync::LazyLock;
use std::time::Duration;

use gpuvmk_display::rfb::{NoInput, OUTPUT_MAX, Session};
use gpuvmk_display::{
    Address, Blend, Composer, FRAME_TIME, Format, Frame, Layout, Lut, Picture, Point, ReadBytes, ReadError,
    Scanout, Size, Surface, Tiles, Window,
};

/// Most bytes that a rectangle adds: 64 lines of the widest picture, and its head.
const RECTANGLE_MAX: usize = 64 * 4 * 200 + 1000;

/// Memory in which every byte is another one than its neighbours.
struct Numbers;

impl ReadBytes for Numbers {
    fn read(&self, address: Address, bytes: &mut [u8]) -> Result<(), ReadError> {
        for (offset, byte) in (address.offset..).zip(bytes) {
            // Stretches of one colour, of few and of many.
            *byte = if offset >> 12 & 1 == 0 { 7 } else { ((offset * 37) >> 3).to_le_bytes()[0] };
        }
        Ok(())
    }
}

/// Pictures of three sizes, one after another.
static PICTURES: LazyLock<Vec<Picture>> = LazyLock::new(|| {
    let mut tiles = Tiles::default();
    let sizes = [(130, 70), (130, 70), (64, 200), (200, 1)];
    let composed = (1..).zip(sizes).map(|(number, (width, height))| {
        let size = Size::new(width, height);
        let surface = Surface {
            format: Format::Xrgb8888,
            size,
            layout: Layout::Pitch(1024),
            address: Address { offset: number << 10, ..Address::default() },
        };
        let (from, to) = (Point::default(), Point::default());
        let window = Window { surface, from, size, to, lut: Lut::Identity, blend: Blend::OPAQUE };
        let scanout = Scanout { windows: vec![window], ..Scanout::black(size) };
        let mut frame = Frame::default();
        Composer::default().compose(&scanout, &Numbers, &mut frame).expect("a small picture");
        tiles.update(&frame, number);
        Picture { frame, tiles: tiles.clone(), number }
    });
    composed.collect()
});

/// Feeds a session. The first byte says whether the viewer greets as it should; then come steps: a byte that
/// says what happens, and the bytes that are said.
pub fn run(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else { return };
    let mut session = Session::new("fuzzed");
    if first & 1 == 0 {
        session.receive(b"RFB 003.008\n\x01\x01", &NoInput).expect("a greeting");
    }
    let (mut now, mut picture) = (Duration::ZERO, 0);
    while let Some((step, behind)) = rest.split_first() {
        rest = behind;
        let count = usize::from(step & 0x3f);
        match step >> 6 {
            0 | 1 => {
                let (said, behind) = rest.split_at(count.min(rest.len()));
                rest = behind;
                if session.receive(said, &NoInput).is_err() {
                    return;
                }
            }
            2 => {
                now += FRAME_TIME / 4 * u32::from(step & 7);
                // The newest picture only becomes newer.
                picture = (picture + usize::from(step >> 5 & 1)).min(PICTURES.len() - 1);
                let (wanted, before) = (session.wants_picture(), session.output().len());
                if let Some(picture) = PICTURES.get(picture) {
                    session.fill(picture, now);
                }
                let made = session.output().len() - before;
                assert!(wanted || made == 0, "{made} bytes that nobody asked for");
                assert!(session.output().len() < OUTPUT_MAX + RECTANGLE_MAX, "too much output");
            }
            _ => {
                let taken = session.output().len() * count / 0x3f;
                session.sent(taken, now);
            }
        }
    }
}
