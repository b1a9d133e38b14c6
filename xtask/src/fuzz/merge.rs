//! Takes the inputs worth keeping into the tree.
//!
//! libFuzzer picks a small set that reaches everything that all inputs together reach. Of these, a sample of
//! all lengths is kept as far as a target's room goes: the corpora are a place to start from, and the rest
//! can be found again. Inputs with names of their own (`seed-...`, `regression-...`) always stay.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gpuvmk_lab::process::Process;

use super::Place;
use super::build::Fuzzers;
use super::campaign::{create, fuzzer, wait};
use super::outcome::Ending;

/// Bytes that a target's corpus may have in the tree.
const ROOM: u64 = 24 << 10;
/// Inputs that it may have.
const INPUTS: usize = 80;
/// Longest time for a target.
const LIMIT: Duration = Duration::from_secs(1800);

/// Replaces `target`'s corpus in the tree.
pub fn run(fuzzers: &Fuzzers, place: &Place, target: &str) -> Result<()> {
    let (tree, found) = (place.corpus(target), place.found(target));
    let merged = place.work.join("merged").join(target);
    if merged.exists() {
        fs::remove_dir_all(&merged).with_context(|| format!("Cannot remove {}", merged.display()))?;
    }
    for folder in [&merged, &tree, &found] {
        fs::create_dir_all(folder).with_context(|| format!("Cannot make the folder {}", folder.display()))?;
    }
    let output = create(&place.log(&format!("{target}-merge")))?;
    let mut command = fuzzer(fuzzers, target);
    command
        .arg("-set_cover_merge=1")
        .args([&merged, &tree, &found])
        .stdout(output.try_clone()?)
        .stderr(output);
    match wait(Process::start(command, target)?, LIMIT)?.ending {
        Ending::By(status) if status.success() => {}
        Ending::By(status) => bail!("Merging the corpus of {target} ended with {status}"),
        Ending::Stuck => bail!("Merging the corpus of {target} took too long"),
    }
    let made = |name: &Path| name.file_name().is_some_and(|name| is_hash(&name.to_string_lossy()));
    for (_, file) in inputs(&tree)?.iter().filter(|(_, file)| made(file)) {
        fs::remove_file(file).with_context(|| format!("Cannot remove {}", file.display()))?;
    }
    let named: u64 = inputs(&tree)?.iter().map(|(size, _)| size).sum();
    let all = inputs(&merged)?;
    let mut room = ROOM.saturating_sub(named);
    let mut kept = 0;
    for (size, file) in all.iter().step_by(all.len().div_ceil(INPUTS).max(1)) {
        let Some(left) = room.checked_sub(*size) else { continue };
        let name = file.file_name().with_context(|| format!("{} has no name", file.display()))?;
        fs::copy(file, tree.join(name)).with_context(|| format!("Cannot copy {}", file.display()))?;
        (room, kept) = (left, kept + 1);
    }
    eprintln!("{target:22} {kept} of {} inputs, {} bytes are left", all.len(), room);
    Ok(())
}

/// True for names that libFuzzer gives: the input's SHA-1.
fn is_hash(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The files of a folder, shortest first.
fn inputs(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let failed = || format!("Cannot read the folder {}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        files.push((entry.metadata().with_context(failed)?.len(), entry.path()));
    }
    files.sort();
    Ok(files)
}
