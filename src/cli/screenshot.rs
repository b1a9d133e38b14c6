//! `gpuvmk screenshot VM.toml OUT.png`: what a VM's monitor shows, as any viewer sees it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::net::SocketType;
use serde_json::json;

use super::output::CARRIED_OUT;
use crate::config::VmFile;
use crate::display::{Frame, Size, write_png};
use crate::host::socket_path::connect_trusted;

/// How long the back end may take for anything.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest name of a screen, and text of a refusal.
const MOST_TEXT: u32 = 4096;

/// Arguments of `gpuvmk screenshot`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpuvmk screenshot /etc/gpuvmk/vm1.toml vm1.png
  gpuvmk screenshot --socket /run/gpuvmk/vm1-viewers.sock vm1.png --json
The file must have `display` and a [viewers] section, and the VM's back end must run.")]
pub(super) struct Args {
    /// The VM's configuration file, and where to write; with --socket only the latter.
    #[arg(value_names = ["FILE", "OUTPUT"], num_args = 1..=2, required = true)]
    paths: Vec<PathBuf>,
    /// The socket itself, in place of a file that names it.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print what was written as one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (socket, output) = match (&args.socket, args.paths.as_slice()) {
        (Some(socket), [output]) => (socket.clone(), output),
        (None, [file, output]) => (socket_of(file)?, output),
        (None, _) => bail!("Give the VM's configuration file and a file to write, or --socket"),
        (Some(_), _) => bail!("Give a file to write, and no configuration file beside --socket"),
    };
    let said = || format!("Nobody serves at {}: is the VM's back end running?", socket.display());
    let stream = UnixStream::from(connect_trusted(&socket, SocketType::STREAM).with_context(said)?);
    stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)))?;
    let frame = picture(stream).with_context(|| format!("Cannot look at {}", socket.display()))?;
    let mut png = Vec::new();
    write_png(&frame, &mut png)?;
    fs::write(output, &png).with_context(|| format!("Cannot write {}", output.display()))?;
    let size = frame.size();
    let told = if args.json {
        let (width, height) = (size.width(), size.height());
        say!("{}", json!({ "ok": true, "width": width, "height": height, "bytes": png.len() }))
    } else {
        say!("{size}, {} bytes in {}", png.len(), output.display())
    };
    told.context(CARRIED_OUT)?;
    Ok(ExitCode::SUCCESS)
}

/// The socket that a VM's file names.
pub(super) fn socket_of(file: &Path) -> anyhow::Result<PathBuf> {
    match VmFile::load(file)?.viewers() {
        Some(spec) => Ok(spec.path.clone()),
        None => bail!("{} has no [viewers] section, so nobody can look", file.display()),
    }
}

/// One whole picture, by RFB 3.8 (RFC 6143): 32 bits a pixel, not packed.
fn picture(mut server: impl Read + Write) -> anyhow::Result<Frame> {
    let mut version = [0; 12];
    server.read_exact(&mut version).context("The back end hung up")?;
    ensure!(version.starts_with(b"RFB 003."), "It speaks no RFB");
    server.write_all(b"RFB 003.008\n")?;
    let [count] = bytes(&mut server)?;
    let mut kinds = vec![0; count.into()];
    server.read_exact(&mut kinds)?;
    if !kinds.contains(&1) {
        let why = if count == 0 { text(&mut server)? } else { "it wants a password".to_owned() };
        bail!("It refuses: {why}");
    }
    server.write_all(&[1])?;
    if u32::from_be_bytes(bytes(&mut server)?) != 0 {
        bail!("It refuses: {}", text(&mut server)?);
    }
    // Others may look at the same time.
    server.write_all(&[1])?;
    let [width_high, width_low, height_high, height_low] = bytes(&mut server)?;
    let size =
        Size::new(u16::from_be_bytes([width_high, width_low]), u16::from_be_bytes([height_high, height_low]));
    let _format: [u8; 16] = bytes(&mut server)?;
    text(&mut server)?;
    // SetPixelFormat: 32 bits, little-endian, true colour, red at 16, green at 8, blue at 0.
    server.write_all(&[0, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0])?;
    // SetEncodings: raw.
    server.write_all(&[2, 0, 0, 1, 0, 0, 0, 0])?;
    let mut frame = Frame::black(size).map_err(|size| anyhow::anyhow!("A picture of {size} is too large"))?;
    let mut request = vec![3, 0, 0, 0, 0, 0];
    request.extend([size.width(), size.height()].map(u16::to_be_bytes).as_flattened());
    server.write_all(&request)?;
    loop {
        let [kind] = bytes(&mut server)?;
        match kind {
            0 => break,
            // A bell, and text that was cut.
            2 => {}
            3 => {
                let _padding: [u8; 3] = bytes(&mut server)?;
                text(&mut server)?;
            }
            other => bail!("It says what was not asked for ({other})"),
        }
    }
    let [_, high, low] = bytes(&mut server)?;
    for _ in 0..u16::from_be_bytes([high, low]) {
        rectangle(&mut server, &mut frame)?;
    }
    Ok(frame)
}

/// A rectangle of a picture.
fn rectangle(server: &mut impl Read, frame: &mut Frame) -> anyhow::Result<()> {
    let head: [u8; 12] = bytes(server)?;
    let (words, _) = head.as_chunks::<2>();
    let word = |at: usize| words.get(at).copied().map_or(0, u16::from_be_bytes);
    let (x, y, width, height) = (usize::from(word(0)), word(1), usize::from(word(2)), word(3));
    ensure!((word(4), word(5)) == (0, 0), "It sends an encoding that was not asked for");
    let size = frame.size();
    let fits = x + width <= size.width().into() && u32::from(y) + u32::from(height) <= size.height().into();
    ensure!(fits, "It sends more than the picture has");
    let mut line = vec![0; width * 4];
    for at in y..y + height {
        server.read_exact(&mut line).context("The back end hung up")?;
        let (pixels, _) = line.as_chunks::<4>();
        for (to, from) in frame.line_mut(at).iter_mut().skip(x).zip(pixels) {
            *to = u32::from_le_bytes(*from) & 0xff_ffff;
        }
    }
    Ok(())
}

fn bytes<const COUNT: usize>(server: &mut impl Read) -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    server.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A text with its length before it.
fn text(server: &mut impl Read) -> anyhow::Result<String> {
    let length = u32::from_be_bytes(bytes(server)?);
    ensure!(length <= MOST_TEXT, "It says too much");
    let mut text = vec![0; usize::try_from(length)?];
    server.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::rfb::{NoInput, Server, Settings};
    use crate::display::{
        Address, Format, Head, Layout, Lut, MemoryName, Point, ReadBytes, ReadError, Scanout,
    };
    use crate::display::{Blend, Surface, Watch, Window};
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;

    /// Pixels whose colours say where they are.
    struct Shown;

    const SIZE: Size = Size::new(320, 200);

    impl ReadBytes for Shown {
        fn read(&self, address: Address, bytes: &mut [u8]) -> Result<(), ReadError> {
            for (at, byte) in (address.offset..).zip(bytes) {
                *byte = (at / 4).to_le_bytes()[(at % 4) as usize];
            }
            Ok(())
        }
    }

    impl Head for Shown {
        fn scanout(&self) -> Scanout {
            let address = Address { memory: MemoryName(0), offset: 0 };
            let surface =
                Surface { format: Format::Xrgb8888, size: SIZE, layout: Layout::Pitch(1280), address };
            let (from, to) = (Point::default(), Point::default());
            let window = Window { surface, from, size: SIZE, to, lut: Lut::Identity, blend: Blend::OPAQUE };
            Scanout { windows: vec![window], ..Scanout::black(SIZE) }
        }
    }

    #[test]
    fn picture_is_that_of_the_head_pixel_for_pixel() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("viewers.sock");
        let watch = Arc::new(Watch::start(Arc::new(Shown)).unwrap());
        let listener = UnixListener::bind(&path).unwrap();
        let _server = Server::start(listener, watch, Box::new(NoInput), Settings::new("vm1")).unwrap();
        let frame = picture(UnixStream::connect(&path).unwrap()).unwrap();
        assert_eq!(frame.size(), SIZE);
        assert!((0..).zip(frame.pixels()).all(|(at, pixel)| *pixel == at));
    }

    #[test]
    fn servers_that_send_what_was_not_asked_for_are_refused() {
        struct Said(io::Cursor<Vec<u8>>);
        impl Read for Said {
            fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
                self.0.read(bytes)
            }
        }
        impl Write for Said {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let hello = |size: [u8; 4], more: &[u8]| {
            let mut said = b"RFB 003.008\n\x01\x01\0\0\0\0".to_vec();
            said.extend(size);
            said.extend([0; 16]);
            said.extend([0, 0, 0, 1, b'x']);
            said.extend(more);
            said
        };
        for (said, why) in [
            (b"SSH-2.0-abcd".to_vec(), "speaks no RFB"),
            (b"RFB 003.008\n\x01\x02".to_vec(), "password"),
            (b"RFB 003.008\n\0\0\0\0\x02no".to_vec(), "no"),
            (hello([255; 4], &[]), "too large"),
            (hello([0, 2, 0, 2], &[9]), "not asked for (9)"),
            (hello([0, 2, 0, 2], &[0, 0, 0, 1, 0, 1, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0]), "more than the picture"),
            (hello([0, 2, 0, 2], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 16]), "encoding"),
        ] {
            let error = format!("{:#}", picture(Said(io::Cursor::new(said))).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }
}
