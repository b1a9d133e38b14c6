//! Debian's Chromium without a window, which opens pages as their readers do.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cache::Cache;
use crate::debian_program::{DebianProgram, Recipe};
use crate::process::Process;

/// Where the program and its resources lie: it looks for these beside the file that is running.
const FOLDER: &str = "usr/lib/chromium";
const PROGRAM: &str = "usr/lib/chromium/chromium-headless-shell";

static RECIPE: Recipe = Recipe {
    name: "chromium",
    about: "Chromium's headless shell, which looks at reports (160 MB)",
    packages: &["chromium-headless-shell"],
    dependencies: true,
    program: PROGRAM,
    libraries: &["usr/lib/x86_64-linux-gnu/pulseaudio"],
    // Drivers for GPUs that it does not use, and the compiler that these need.
    unwanted: &[
        "usr/lib/chromium/libVkLayer_khronos_validation.so",
        "usr/lib/x86_64-linux-gnu/dri",
        "usr/lib/x86_64-linux-gnu/libLLVM-15.so.1",
        "usr/lib/x86_64-linux-gnu/libz3.so.4",
        "usr/share/doc",
    ],
};

/// How long a page may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The browser.
#[derive(Debug)]
pub struct Chromium {
    program: DebianProgram,
}

impl Chromium {
    /// From the cache, fetched first if need be.
    pub fn obtain(cache: &Cache) -> Result<Self> {
        Ok(Self { program: DebianProgram::obtain(cache, &RECIPE)? })
    }

    /// Opens a page, runs what it has of scripts, and returns it as it is then, as HTML. Nothing is reachable
    /// from it: what it would fetch from elsewhere is not there. What the browser writes goes to `folder`.
    pub fn open(&self, page: &Path, folder: &Path) -> Result<String> {
        let page = page.canonicalize().with_context(|| format!("There is no {}", page.display()))?;
        let folder = folder.canonicalize().with_context(|| format!("There is no {}", folder.display()))?;
        let (starter, profile) = (self.starter(&folder)?, folder.join("chromium-profile"));
        let (html, log) = (folder.join("chromium.html"), folder.join("chromium.log"));
        let mut command = Command::new(&starter);
        command
            .args(["--headless", "--no-sandbox", "--no-zygote", "--disable-gpu", "--window-size=1200,900"])
            // Nobody answers there.
            .arg("--proxy-server=127.0.0.1:9")
            .arg(format!("--browser-subprocess-path={}", starter.display()))
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("--dump-dom")
            // Fonts are its own packages', whatever this machine has.
            .env("FONTCONFIG_SYSROOT", self.program.root())
            .arg(format!("file://{}", page.display()))
            .stdin(Stdio::null())
            .stdout(File::create(&html).with_context(|| format!("Cannot create {}", html.display()))?)
            .stderr(File::create(&log).with_context(|| format!("Cannot create {}", log.display()))?);
        let status = Process::start(command, "Chromium")?.wait(PATIENCE)?;
        let _ = fs::remove_dir_all(&profile);
        let status = status.with_context(|| format!("Chromium did not end within {PATIENCE:?}"))?;
        ensure!(status.success(), "Chromium ended with {status}; what it said is in {}", log.display());
        fs::read_to_string(&html).with_context(|| format!("Cannot read {}", html.display()))
    }

    /// A script that starts it: the browser starts processes of its own by one path.
    fn starter(&self, folder: &Path) -> Result<PathBuf> {
        let words = self.program.words()?;
        let [loader, option, libraries, program] = words.as_slice() else {
            anyhow::bail!("Chromium is started in another way than it was")
        };
        // The file that is running is the loader: where that lies resources are looked for.
        let beside = self.program.root().join(FOLDER).join("loader");
        if !beside.exists() {
            fs::copy(loader, &beside).with_context(|| format!("Cannot write {}", beside.display()))?;
        }
        let starter = folder.join("chromium");
        let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
        let line = [beside.to_string_lossy().as_ref(), option, libraries, program].map(quoted).join(" ");
        fs::write(&starter, format!("#!/bin/sh\nexec {line} \"$@\"\n")).context("Cannot write a script")?;
        fs::set_permissions(&starter, fs::Permissions::from_mode(0o755))?;
        Ok(starter)
    }
}
