//! What lies in `/host` of a machine that is a host itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::cache::{Cache, source_tree};
use gpuvmk_lab::initramfs::ImageFile;
use gpuvmk_lab::qemu;
use serde_json::Value;

/// gpuvmk, with the libraries that it was linked with.
pub fn gpuvmk(path: &Path) -> Result<Vec<ImageFile>> {
    let mut files = vec![program("gpuvmk", path)?];
    for (name, path) in libraries(path)? {
        files.push(ImageFile { program: true, ..file(&format!("lib/{name}"), read(&path)?) });
    }
    Ok(files)
}

/// A program that was linked with some of the libraries that gpuvmk was linked with.
pub fn program(name: &str, path: &Path) -> Result<ImageFile> {
    Ok(ImageFile { program: true, ..file(name, stripped(path)?) })
}

/// Builds a test of gpuvmk's; where it is.
pub fn test_program(name: &str) -> Result<PathBuf> {
    let output = Command::new(env!("CARGO"))
        .current_dir(source_tree())
        .args([
            "test",
            "--quiet",
            "--no-run",
            "--message-format",
            "json",
            // Of one package alone, dependencies have other features, and all is built once more.
            "--workspace",
            "--test",
            name,
        ])
        .stderr(Stdio::inherit())
        .output()
        .context("Cannot run cargo")?;
    ensure!(output.status.success(), "The test {name} does not build: cargo ended with {}", output.status);
    let messages = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let built = messages.filter_map(Result::ok).find_map(|message| {
        let is_it = message["target"]["name"] == name;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    });
    built.with_context(|| format!("Cargo does not say where the test {name} is"))
}

/// Debian's QEMU with what it needs, in `qemu`.
pub fn qemu() -> Result<Vec<ImageFile>> {
    let root = qemu::fetched(&Cache::open()?)?;
    let needed = qemu::needed_files(&root)?.into_iter();
    let place = |path: PathBuf| -> Result<ImageFile> {
        Ok(ImageFile {
            path: Path::new("host/qemu").join(&path),
            contents: read(&root.join(path))?,
            program: true,
        })
    };
    needed.map(place).collect()
}

/// A file that is no program.
pub fn file(name: &str, contents: Vec<u8>) -> ImageFile {
    ImageFile { path: Path::new("host").join(name), contents, program: false }
}

/// What is in a file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("Cannot read {}", path.display()))
}

/// The program without what only debuggers read, where there is a `strip`.
fn stripped(gpuvmk: &Path) -> Result<Vec<u8>> {
    let folder = tempfile_folder()?;
    let target = folder.join("gpuvmk");
    let done = Command::new("strip").args(["--strip-debug", "-o"]).arg(&target).arg(gpuvmk).status();
    let read_from = if done.is_ok_and(|status| status.success()) { target.as_path() } else { gpuvmk };
    let bytes = fs::read(read_from).with_context(|| format!("Cannot read {}", read_from.display()))?;
    fs::remove_dir_all(&folder).with_context(|| format!("Cannot remove {}", folder.display()))?;
    Ok(bytes)
}

fn tempfile_folder() -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("gpuvmk-strip-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    Ok(folder)
}

/// The libraries that a program was linked with, and the loader, by name.
fn libraries(program: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("Cannot run ldd")?;
    ensure!(output.status.success(), "ldd does not know what {} needs", program.display());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut found = BTreeMap::new();
    // `libc.so.6 => /lib/.../libc.so.6 (0x...)`, and `/lib64/ld-linux-x86-64.so.2 (0x...)`.
    for path in text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from) {
        if let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) {
            found.insert(name, path);
        }
    }
    Ok(found)
}
