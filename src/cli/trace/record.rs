//! `gpuvmk trace record FILE.toml`: from a VM's back end, or from the aggregator, to files, which take turns.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::net::SocketType;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::output::CARRIED_OUT;
use crate::config::AnyConfig;
use crate::host::size::parse_size;
use crate::host::size::show_size;
use crate::host::socket_path::connect_trusted;
use crate::trace::block::{BLOCK_HEAD, BlockHead};
use crate::trace::header::{MAGIC, MOST_HEAD};

/// Arguments of `gpuvmk trace record`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpuvmk trace record /etc/gpuvmk/vm1.toml -o vm1.trace
  gpuvmk trace record vm1.toml -o vm1.trace --seconds 10 bar=0 op=read,write
  gpuvmk trace record vm1.toml -o vm1.trace --rotate 64M --keep 4
  gpuvmk trace record /etc/gpuvmk/gpu0.toml -o gpu0.trace
The file must have a [trace.socket]. Of a GPU it is recorded which VM had which engine, and how much work waited.
Conditions are those of `gpuvmk trace filter`; what they leave out is not recorded
at all. Recording ends with Ctrl-C, after --seconds, or with the process that is recorded. With --rotate a file that is full is renamed to
OUTPUT.1, the one before to OUTPUT.2, and so on; each is a trace of its own.")]
pub(super) struct Args {
    /// The configuration file of a VM or a GPU.
    #[arg(required_unless_present = "socket")]
    file: Option<PathBuf>,
    /// The socket itself, in place of a file that names it.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Where to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// End after so many seconds.
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Begin a new file after this size.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    rotate: Option<u64>,
    /// How many files there may be with --rotate, the present one included.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    keep: u32,
    /// Print what was written as one line of JSON.
    #[arg(long)]
    json: bool,
    /// What is wanted.
    #[arg(value_name = "CONDITION")]
    conditions: Vec<String>,
}

/// Smallest file of several.
const LEAST: u64 = 1 << 20;

fn size(text: &str) -> Result<u64, String> {
    let size = parse_size(text).ok_or_else(|| format!("`{text}` is not a size such as 64M"))?;
    if size >= LEAST { Ok(size) } else { Err(format!("at least {}", show_size(LEAST))) }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // With --socket, what stands in the file's place is the first condition.
    let mut conditions = args.conditions.clone();
    let path = match (&args.socket, &args.file) {
        (Some(socket), file) => {
            let first = file.as_ref().map(|word| word.to_string_lossy().into_owned());
            conditions.splice(0..0, first);
            socket.clone()
        }
        (None, Some(file)) => {
            let recorder = match AnyConfig::load(file)? {
                AnyConfig::Vm(vm) => vm.recorder().cloned(),
                AnyConfig::Gpu(gpu) => gpu.recorder,
            };
            match recorder {
                Some(spec) => spec.path,
                None => bail!("{} has no [trace.socket] section, so it cannot be recorded", file.display()),
            }
        }
        (None, None) => bail!("Give the configuration file of a VM or a GPU, or --socket"),
    };
    let said = || format!("Nobody serves at {}: is the VM's back end running?", path.display());
    // Before the recording becomes visible: from then on a signal ends it in good order.
    let signals = Signals::new([SIGINT, SIGTERM]).context("Cannot catch signals")?;
    let mut socket = UnixStream::from(connect_trusted(&path, SocketType::STREAM).with_context(said)?);
    hang_up_at(signals, &socket)?;
    socket.write_all(format!("{}\n", json!({ "conditions": conditions })).as_bytes())?;
    let head = head(&mut socket).with_context(|| format!("Cannot record at {}", path.display()))?;
    if let Some(seconds) = args.seconds {
        hang_up_after(Duration::from_secs(seconds), &socket)?;
    }

    let mut files = Files::create(&args.output, head, args.rotate, args.keep)?;
    while let Some(block) = block(&mut socket)? {
        files.write(&block)?;
    }
    let Files { blocks, entries, bytes, begun, .. } = files;
    let told = if args.json {
        let said =
            json!({ "ok": true, "blocks": blocks, "entries": entries, "bytes": bytes, "files": begun });
        say!("{said}")
    } else {
        say!("{entries} entries, {} in {begun} files", show_size(bytes))
    };
    told.context(CARRIED_OUT)?;
    Ok(ExitCode::SUCCESS)
}

/// Hangs up at a signal; what was recorded until then comes all the same.
fn hang_up_at(mut signals: Signals, socket: &UnixStream) -> anyhow::Result<()> {
    let theirs = socket.try_clone()?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            hang_up(&theirs);
        }
    });
    Ok(())
}

/// The same when the time is up.
fn hang_up_after(time: Duration, socket: &UnixStream) -> anyhow::Result<()> {
    let theirs = socket.try_clone()?;
    std::thread::spawn(move || {
        std::thread::sleep(time);
        hang_up(&theirs);
    });
    Ok(())
}

/// The back end sees that we say no more, and completes the trace.
fn hang_up(socket: &UnixStream) {
    let _ = socket.shutdown(Shutdown::Write);
}

/// The head of the trace as it is in a file, or the error that came in its place.
fn head(from: &mut impl Read) -> anyhow::Result<Vec<u8>> {
    let mut head = vec![0; MAGIC.len() + 4];
    from.read_exact(&mut head).context("The back end hung up")?;
    if !head.starts_with(&MAGIC) {
        let mut rest = String::new();
        from.take(4096).read_to_string(&mut rest)?;
        let said = String::from_utf8_lossy(&head).into_owned() + &rest;
        let error = serde_json::from_str::<Value>(&said).ok();
        let why = error.as_ref().and_then(|error| error["error"].as_str());
        bail!("{}", why.unwrap_or("the answer is no trace"));
    }
    let length = head.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    ensure!(length <= MOST_HEAD, "The head of the trace is too long");
    let begin = head.len();
    head.resize(begin + length, 0);
    from.read_exact(head.get_mut(begin..).unwrap_or_default()).context("The back end hung up")?;
    Ok(head)
}

/// The next whole block; none at the end.
fn block(from: &mut impl Read) -> anyhow::Result<Option<(BlockHead, Vec<u8>)>> {
    let mut bytes = [0; BLOCK_HEAD];
    match from.read_exact(&mut bytes) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error).context("The back end hung up"),
    }
    let head = BlockHead::decode(&bytes).context("The back end sends what is no trace")?;
    let mut all = bytes.to_vec();
    all.resize(BLOCK_HEAD + usize::try_from(head.length).unwrap_or(0), 0);
    match from.read_exact(all.get_mut(BLOCK_HEAD..).unwrap_or_default()) {
        Ok(()) => Ok(Some((head, all))),
        // Killed in the middle of it: what came before is whole.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error).context("The back end hung up"),
    }
}

/// Files that take turns.
struct Files {
    path: PathBuf,
    head: Vec<u8>,
    file: File,
    size: u64,
    most: Option<u64>,
    keep: u32,
    blocks: u64,
    entries: u64,
    bytes: u64,
    begun: u64,
}

impl Files {
    fn create(path: &Path, head: Vec<u8>, most: Option<u64>, keep: u32) -> anyhow::Result<Self> {
        let file = begin(path, &head)?;
        let size = head.len() as u64;
        let path = path.to_owned();
        Ok(Self { path, head, file, size, most, keep, blocks: 0, entries: 0, bytes: size, begun: 1 })
    }

    fn write(&mut self, (head, block): &(BlockHead, Vec<u8>)) -> anyhow::Result<()> {
        let length = block.len() as u64;
        let full = self.most.is_some_and(|most| self.size.saturating_add(length) > most);
        if full && self.size > self.head.len() as u64 {
            turn(&self.path, self.keep)?;
            self.file = begin(&self.path, &self.head)?;
            self.size = self.head.len() as u64;
            self.bytes = self.bytes.saturating_add(self.size);
            self.begun = self.begun.saturating_add(1);
        }
        self.file.write_all(block).with_context(|| format!("Cannot write {}", self.path.display()))?;
        self.size = self.size.saturating_add(length);
        self.bytes = self.bytes.saturating_add(length);
        self.blocks = self.blocks.saturating_add(1);
        self.entries = self.entries.saturating_add(head.entries.into());
        Ok(())
    }
}

fn begin(path: &Path, head: &[u8]) -> anyhow::Result<File> {
    let created = File::create(path).and_then(|mut file| file.write_all(head).map(|()| file));
    created.with_context(|| format!("Cannot write {}", path.display()))
}

/// Renames the file that is full, and those before it; the oldest one beyond `keep` goes.
fn turn(path: &Path, keep: u32) -> anyhow::Result<()> {
    let numbered = |number: u32| match number {
        0 => path.to_owned(),
        number => {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        }
    };
    for number in (0..keep.saturating_sub(1)).rev() {
        let (from, to) = (numbered(number), numbered(number.saturating_add(1)));
        match fs::rename(&from, &to) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("Cannot rename {} to {}", from.display(), to.display()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_take_turns_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let mut files = Files::create(&path, b"head".to_vec(), Some(20), 3).unwrap();
        for number in 0..5_u8 {
            let head = BlockHead { length: 10, entries: 2, checksum: 0, base: 0 };
            files.write(&(head, vec![number; 12])).unwrap();
        }

        assert_eq!((files.begun, files.entries, files.bytes), (5, 10, 5 * 16));
        let read = |name: &str| fs::read(folder.path().join(name)).ok().map(|bytes| bytes[4]);
        assert_eq!([read("t"), read("t.1"), read("t.2"), read("t.3")], [Some(4), Some(3), Some(2), None]);
    }
}
