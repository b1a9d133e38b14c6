//! `network`: this guest's network and a folder of its host's work, while its GPU copies, and work again
//! after what serves them was killed. The host's side is in `host/network.rs`; both make the same contents.

use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::child::Other;
use super::{Figures, Options};
use crate::{net, sys};

/// Where the host serves, and where this guest does.
pub const HOST_PORT: u16 = 8000;
pub const GUEST_PORT: u16 = 80;
/// The folder's name.
pub const TAG: &str = "data";
/// Bytes of what is fetched, of what is served, and of the folder's big file.
pub const FETCHED: usize = 4 << 20;
pub const SERVED: usize = 2 << 20;
pub const BIG: usize = 12 << 20;
/// Small files of the folder, and how many lie in each folder below it.
pub const SMALL: usize = 10_000;
pub const A_FOLDER: usize = 500;
/// The big file, and what this guest writes.
pub const BIG_NAME: &str = "big";
pub const WRITTEN: &str = "written";
const PLACE: &str = "/shared";
/// How long what was killed may take to come back.
const COMES_BACK: Duration = Duration::from_secs(60);

/// Bytes that nobody has by chance, by a number.
pub fn content(number: u64, size: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// A small file: where below the folder, and what is in it.
pub fn small(number: usize) -> (String, Vec<u8>) {
    (format!("{}/{number}", number / A_FOLDER), content(number as u64, number * 7 % 3000))
}

/// Options: `small`, how many of the small files are compared, from all of their folders; `kills`, whether
/// what serves them is killed.
pub fn run(options: &Options) -> Result<Figures> {
    let count: usize = options.get("small", SMALL)?;
    let kills: bool = options.get("kills", true)?;
    let mut figures = Figures::new();
    let end = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&end);
    let copies = thread::spawn(move || copy_until(&stop));
    let done = all(count, kills, &mut figures);
    end.store(true, Ordering::SeqCst);
    let copied = copies.join().map_err(|_| anyhow!("copying ended by a panic"))?;
    done?;
    figures.insert("copy_runs".into(), copied.context("the GPU meanwhile")?.into());
    Ok(figures)
}

/// Has the GPU copy now and again, with a fourth of the processor at most. How often it did.
fn copy_until(stop: &AtomicBool) -> Result<u32> {
    let mut runs = 0;
    while !stop.load(Ordering::SeqCst) {
        let start = Instant::now();
        Other::start("copy", &["largest=65537".to_owned()])?.finish()?;
        runs += 1;
        let rest = start.elapsed() * 3;
        let start = Instant::now();
        while start.elapsed() < rest && !stop.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(runs)
}

fn all(count: usize, kills: bool, figures: &mut Figures) -> Result<()> {
    let begin = Instant::now();
    net::up("lo")?;
    let lease = net::configure(&net::card()?)?;
    step(begin, "an address");
    figures.insert("address".into(), lease.address.to_string().into());
    serve()?;
    let rate = fetched(lease.router).context("fetching from the host")?;
    figures.insert("fetched_mib_s".into(), rate.into());
    step(begin, "fetched");
    ask(lease.router, "/back").context("serving the host")?;
    step(begin, "served");
    fs::create_dir_all(PLACE).context("cannot make a folder")?;
    sys::mount("virtiofs", TAG, PLACE).context("cannot mount the folder")?;
    step(begin, "mounted");
    compare_small(count, figures)?;
    step(begin, "small files");
    let start = Instant::now();
    compare_big()?;
    figures.insert("big_file_mib_s".into(), rate_of(BIG, start).into());
    let mut file = File::create(Path::new(PLACE).join(WRITTEN)).context("cannot write to the folder")?;
    file.write_all(&content(4, SERVED))
        .and_then(|()| file.sync_all())
        .context("cannot write to the folder")?;
    drop(file);
    ask(lease.router, "/written").context("what was written to the folder")?;
    sys::unmount(PLACE).context("cannot unmount the folder")?;
    step(begin, "written");
    if kills { killed(begin, lease.router, figures) } else { Ok(()) }
}

fn compare_small(count: usize, figures: &mut Figures) -> Result<()> {
    let start = Instant::now();
    for number in (0..SMALL).step_by(SMALL / count.clamp(1, SMALL)) {
        let (path, wanted) = small(number);
        let found = fs::read(Path::new(PLACE).join(&path)).with_context(|| format!("cannot read {path}"))?;
        ensure!(found == wanted, "{path} is not what it was made");
    }
    figures.insert("small_files".into(), count.into());
    figures.insert("small_files_s".into(), seconds(start).into());
    Ok(())
}

/// Both back ends end, and others take their place.
fn killed(begin: Instant, host: Ipv4Addr, figures: &mut Figures) -> Result<()> {
    // Another one of the folder's is mounted.
    ask(host, "/kill/virtiofsd")?;
    let start = Instant::now();
    sys::mount("virtiofs", TAG, PLACE).context("cannot mount the folder again")?;
    figures.insert("folder_back_s".into(), seconds(start).into());
    compare_big().context("after its back end was killed")?;
    step(begin, "the folder again");
    // The network's, which takes the answer with it.
    let _ = net::fetch(host, HOST_PORT, "/kill/passt");
    let start = Instant::now();
    while let Err(error) = fetched(host) {
        ensure!(start.elapsed() < COMES_BACK, "the network does not come back: {error:#}");
        thread::sleep(Duration::from_millis(200));
    }
    figures.insert("network_back_s".into(), seconds(start).into());
    ask(host, "/back").context("serving the host again")?;
    let killed = String::from_utf8_lossy(&net::fetch(host, HOST_PORT, "/killed")?).into_owned();
    ensure!(killed.trim() == "2", "{killed} back ends were killed");
    step(begin, "the network again");
    sys::unmount(PLACE).context("cannot unmount the folder")
}

/// Says how far it is, for who looks at a console on which nothing more comes.
fn step(since: Instant, what: &str) {
    eprintln!("network: {what} after {} s", seconds(since));
}

/// Fetches the host's content; MiB a second.
fn fetched(host: Ipv4Addr) -> Result<f64> {
    let start = Instant::now();
    let found = net::fetch(host, HOST_PORT, "/content")?;
    let rate = rate_of(found.len(), start);
    ensure!(found == content(1, FETCHED), "what was fetched is not what is served");
    Ok(rate)
}

/// Has the host do something, which must go well.
fn ask(host: Ipv4Addr, path: &str) -> Result<()> {
    net::fetch(host, HOST_PORT, path).map(|_| ()).with_context(|| path.to_owned())
}

/// Serves whoever comes.
fn serve() -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", GUEST_PORT)).context("cannot listen")?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Err(error) = net::answer(stream, |_| Ok(content(2, SERVED))) {
                eprintln!("network: {error:#}");
            }
        }
    });
    Ok(())
}

fn compare_big() -> Result<()> {
    let found = fs::read(Path::new(PLACE).join(BIG_NAME)).context("cannot read the big file")?;
    ensure!(found == content(3, BIG), "the big file is not what it was made");
    Ok(())
}

/// With two digits.
fn seconds(start: Instant) -> f64 {
    (start.elapsed().as_secs_f64() * 100.0).round() / 100.0
}

fn rate_of(bytes: usize, start: Instant) -> f64 {
    // CAST: megabytes.
    (bytes as f64 / 1_048_576.0 / start.elapsed().as_secs_f64() * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_the_same_on_both_sides_and_differ_by_number() {
        assert_eq!(content(3, 100), content(3, 200)[..100]);
        assert_ne!(content(3, 100), content(4, 100));
        assert_eq!((small(1234).0.as_str(), small(1234).1.len()), ("2/1234", 1234 * 7 % 3000));
    }
}
