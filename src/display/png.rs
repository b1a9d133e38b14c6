//! A frame as a PNG file.

use std::io;

use png::{BitDepth, ColorType, Compression, Encoder, EncodingError};
use thiserror::Error;

use super::frame::Frame;

/// Why a frame could not be written.
#[derive(Debug, Error)]
#[error("A picture of {size} cannot be written as PNG", size = .size)]
pub struct PngError {
    size: super::mode::Size,
    #[source]
    source: EncodingError,
}

/// Writes a frame as PNG: 8 bits a colour, no alpha.
///
/// # Errors
/// The frame has no pixels, or `to` takes no more.
pub fn write_png(frame: &Frame, to: impl io::Write) -> Result<(), PngError> {
    let size = frame.size();
    let mut encoder = Encoder::new(to, size.width().into(), size.height().into());
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Fast);
    let bytes: Vec<u8> = frame
        .pixels()
        .iter()
        .flat_map(|pixel| {
            let [_, rgb @ ..] = pixel.to_be_bytes();
            rgb
        })
        .collect();
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&bytes)?;
        writer.finish()
    });
    written.map_err(|source| PngError { size, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::Size;

    #[test]
    fn picture_is_read_back_as_it_was() {
        let mut frame = Frame::black(Size::new(300, 200)).unwrap();
        for y in 0..200_u16 {
            for (x, pixel) in (0..).zip(frame.line_mut(y)) {
                *pixel = (u32::from(y) * 7919 + x * 104_729) & 0xff_ffff;
            }
        }
        let mut file = Vec::new();
        write_png(&frame, &mut file).unwrap();
        let mut reader = png::Decoder::new(io::Cursor::new(file)).read_info().unwrap();
        let mut bytes = vec![0; 300 * 200 * 3];
        let info = reader.next_frame(&mut bytes).unwrap();
        assert_eq!((info.width, info.height, info.color_type), (300, 200, ColorType::Rgb));
        let pixels: Vec<u32> =
            bytes.chunks(3).map(|rgb| u32::from_be_bytes([0, rgb[0], rgb[1], rgb[2]])).collect();
        assert_eq!(pixels, frame.pixels());
    }

    #[test]
    fn frame_without_pixels_is_no_picture() {
        let error = write_png(&Frame::default(), &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "A picture of 0x0 cannot be written as PNG");
    }
}
