//! `cargo xtask deb`: a Debian package with the program, units, man pages, completions, examples and
//! documentation. Made by dpkg-deb from a folder; nothing is installed here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::cache::source_tree;
use serde_json::json;

use crate::workshop;

/// Programs that `gpuvmk` becomes for some commands, which nobody else starts, and where the package has
/// them.
const COMPANIONS: [(&str, &str); 2] = [
    ("gpuvmk-gpu-bench", "usr/libexec/gpuvmk/gpuvmk-gpu-bench"),
    ("gpuvmk-shader", "usr/libexec/gpuvmk/gpuvmk-shader"),
];

/// Where the package goes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
    /// A folder for the package
    #[arg(long, value_name = "DIR", default_value = "target/debian")]
    out: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let package = build(&arguments.out)?;
    let bytes = fs::metadata(&package)?.len();
    println!("{} ({} KiB)", package.display(), bytes >> 10);
    if arguments.json {
        println!("{}", json!({ "ok": true, "package": package, "bytes": bytes }));
    }
    Ok(true)
}

/// Makes the package in `out`.
pub fn build(out: &Path) -> Result<PathBuf> {
    let program = workshop::build_gpuvmk()?;
    let out = if out.is_absolute() { out.to_owned() } else { source_tree().join(out) };
    let root = out.join("root");
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("Cannot empty {}", root.display()))?;
    }
    let stage = Stage { root: &root };
    stage.file(&program, "usr/bin/gpuvmk", 0o755)?;
    for (name, place) in COMPANIONS {
        stage.file(&workshop::build_program(name)?, place, 0o755)?;
    }
    for program in ["usr/bin/gpuvmk"].into_iter().chain(COMPANIONS.map(|(_, place)| place)) {
        check(Command::new("strip").arg(root.join(program)))?;
    }
    stage.tree("packaging/systemd", "usr/lib/systemd/system")?;
    stage.tree("packaging/sysusers", "usr/lib/sysusers.d")?;
    stage.tree("packaging/examples", "usr/share/doc/gpuvmk/examples")?;
    for folder in ["libvirt", "prometheus", "grafana"] {
        stage.tree(&format!("packaging/{folder}"), &format!("usr/share/doc/gpuvmk/examples/{folder}"))?;
    }
    stage.tree("docs", "usr/share/doc/gpuvmk")?;
    for file in ["README.md", "CHANGELOG.md"] {
        stage.file(&source_tree().join(file), &format!("usr/share/doc/gpuvmk/{file}"), 0o644)?;
    }
    stage.file(&source_tree().join("LICENSE"), "usr/share/doc/gpuvmk/copyright", 0o644)?;
    fs::create_dir_all(root.join("etc/gpuvmk"))?;
    stage.manuals(&program)?;
    stage.completions(&program)?;
    stage.no_migration(&program)?;
    stage.control(&program)?;
    let name = format!("gpuvmk_{}_amd64.deb", env!("CARGO_PKG_VERSION"));
    let package = out.join(name);
    check(Command::new("dpkg-deb").args(["--root-owner-group", "--build", "-Zxz"]).arg(&root).arg(&package))?;
    Ok(package)
}

/// The folder that becomes the package.
struct Stage<'a> {
    root: &'a Path,
}

impl Stage<'_> {
    fn write(&self, to: &str, contents: &[u8], mode: u32) -> Result<()> {
        let path = self.root.join(to);
        let folder = path.parent().context("a file in a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("Cannot create {}", folder.display()))?;
        fs::write(&path, contents).with_context(|| format!("Cannot write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .with_context(|| format!("Cannot set the mode of {}", path.display()))
    }

    fn file(&self, from: &Path, to: &str, mode: u32) -> Result<()> {
        let contents = fs::read(from).with_context(|| format!("Cannot read {}", from.display()))?;
        self.write(to, &contents, mode)
    }

    /// All files of a folder of the source tree, and below.
    fn tree(&self, from: &str, to: &str) -> Result<()> {
        let folder = source_tree().join(from);
        for entry in fs::read_dir(&folder).with_context(|| format!("Cannot list {}", folder.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let (from, to) = (format!("{from}/{name}"), format!("{to}/{name}"));
            if entry.file_type()?.is_dir() {
                self.tree(&from, &to)?;
            } else {
                self.file(&entry.path(), &to, 0o644)?;
            }
        }
        Ok(())
    }

    fn manuals(&self, program: &Path) -> Result<()> {
        let folder = self.root.join("usr/share/man/man1");
        fs::create_dir_all(&folder)?;
        check(Command::new(program).args(["generate", "man", "--out"]).arg(&folder))?;
        let pages: Vec<PathBuf> = fs::read_dir(&folder)?.flatten().map(|entry| entry.path()).collect();
        check(Command::new("gzip").args(["-9n"]).args(pages))
    }

    fn completions(&self, program: &Path) -> Result<()> {
        for (shell, place) in [
            ("bash", "usr/share/bash-completion/completions/gpuvmk"),
            ("zsh", "usr/share/zsh/vendor-completions/_gpuvmk"),
            ("fish", "usr/share/fish/vendor_completions.d/gpuvmk.fish"),
        ] {
            let text = output(Command::new(program).args(["generate", "completions", shell]))?;
            self.write(place, &text, 0o644)?;
        }
        Ok(())
    }

    /// The image that libvirt's example names.
    fn no_migration(&self, program: &Path) -> Result<()> {
        let folder = self.root.join("usr/share/gpuvmk");
        fs::create_dir_all(&folder)?;
        let file = folder.join("no-migration.vdi");
        check(Command::new(program).args(["generate", "no-migration", "--out"]).arg(&file))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).context("Cannot set its mode")
    }

    fn control(&self, program: &Path) -> Result<()> {
        let glibc = newest_glibc(&fs::read(program)?).context("the program needs no C library")?;
        let kib = size(self.root)? >> 10;
        let control = format!(
            "Package: gpuvmk\nVersion: {}\nArchitecture: amd64\nSection: admin\nPriority: optional\n\
             Maintainer: gpuvmk <gpuvmk@localhost>\nInstalled-Size: {kib}\n\
             Depends: libc6 (>= {glibc}), libgcc-s1\nRecommends: qemu-system-x86 (>= 1:10.1)\n\
             Description: one NVIDIA GPU for many virtual machines\n \
             Shares one physical NVIDIA GPU, or a software GPU, among KVM/QEMU guests, each with its\n \
             stock and unmodified driver.\n",
            env!("CARGO_PKG_VERSION")
        );
        self.write("DEBIAN/control", control.as_bytes(), 0o644)?;
        let script = "#!/bin/sh\nset -e\nif [ \"$1\" = configure ] && [ -d /run/systemd/system ]; then\n    \
                      systemd-sysusers gpuvmk.conf\n    systemctl daemon-reload\nfi\n";
        self.write("DEBIAN/postinst", script.as_bytes(), 0o755)
    }
}

fn size(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        sum += if entry.file_type()?.is_dir() { size(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(sum)
}

/// The newest version of the C library that a program names (`GLIBC_2.34`).
fn newest_glibc(program: &[u8]) -> Option<String> {
    let names = program.split(|byte| *byte == 0).filter_map(|name| name.strip_prefix(b"GLIBC_"));
    let numbers = |name: &[u8]| -> Option<(u32, u32)> {
        let (major, minor) = std::str::from_utf8(name).ok()?.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    };
    let (major, minor) = names.filter_map(numbers).max()?;
    Some(format!("{major}.{minor}"))
}

fn check(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("Cannot start {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{name} failed: {}", said.trim());
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_c_library_that_is_named_counts() {
        let program = b"x\0GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0y";
        assert_eq!(newest_glibc(program).as_deref(), Some("2.34"));
        assert_eq!(newest_glibc(b"nothing"), None);
    }
}
