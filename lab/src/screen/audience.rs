//! Whoever looks at a guest's monitor when the guest says that there is something to see.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

use super::picture::Picture;
use super::{console, pattern};
use crate::machine::Machine;
use crate::report::Report;
use crate::rig::Rig;

/// How long text may take: the kernel draws its console after it was written to, in pieces.
const DRAWN: Duration = Duration::from_secs(60);
/// How long nobody looks at text that is not there yet.
const AGAIN: Duration = Duration::from_millis(250);

/// What came of a look.
#[derive(Debug, Clone)]
pub struct Look {
    /// The picture.
    pub path: PathBuf,
    /// Its pixels.
    pub size: (usize, usize),
    /// Whether text was to be seen.
    pub is_text: bool,
    /// The lines that were read.
    pub text: Option<Vec<String>>,
    /// Why it is another picture than the guest said; none: it is that one.
    pub problem: Option<String>,
}

/// Looks at one guest's monitor, as often as the guest wants, and has it replaced by another one.
#[derive(Debug)]
pub struct Audience {
    gpuvmk: PathBuf,
    /// The VM's configuration file and name.
    config: PathBuf,
    name: String,
    /// The control socket of its aggregator.
    control: PathBuf,
    folder: PathBuf,
    /// Reports that were looked at.
    heard: usize,
    looks: Vec<Look>,
}

impl Audience {
    /// For the VM of GPU `index`, a mediated one; pictures go to `folder`.
    pub fn new(gpuvmk: &Path, rig: &Rig, index: usize, folder: &Path) -> Self {
        let [gpuvmk, folder] = [gpuvmk, folder].map(Path::to_owned);
        let (config, name, control) = (rig.config(index), rig.name(index).to_owned(), rig.control(index));
        Self { gpuvmk, config, name, control, folder, heard: 0, looks: Vec::new() }
    }

    /// What was seen so far.
    pub fn looks(&self) -> &[Look] {
        &self.looks
    }

    /// Looks, if the guest has said so since the last call, or changes what it wants changed, and lets it go
    /// on.
    ///
    /// # Errors
    /// No picture can be had, an operator's command is refused, or the guest takes no answer. A wrong picture
    /// is in [`Self::looks`].
    pub fn attend(&mut self, machine: &mut Machine) -> Result<()> {
        while let Some(report) = machine.reports().get(self.heard).cloned() {
            self.heard += 1;
            let Report::Event { name, fields } = report else { continue };
            match name.as_str() {
                "shown" => {
                    let look = self.look(&fields)?;
                    self.looks.push(look);
                    machine.order("seen")?;
                }
                "wants" => {
                    self.set(&fields)?;
                    machine.order("done")?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Has an operator set what the guest wants.
    fn set(&self, said: &Map<String, Value>) -> Result<()> {
        let settings = said.get("settings").and_then(Value::as_array).context("the guest wants nothing")?;
        let mut command = Command::new(&self.gpuvmk);
        command.args(["set", &self.name]).args(settings.iter().filter_map(Value::as_str));
        command.arg("--socket").arg(&self.control);
        let output = command.output().context("Cannot start gpuvmk set")?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "gpuvmk set ended with {}: {}", output.status, why.trim());
        Ok(())
    }

    fn look(&self, said: &Map<String, Value>) -> Result<Look> {
        let path = self.folder.join(format!("screen-{}.png", self.looks.len() + 1));
        let (begun, is_text) = (Instant::now(), said.contains_key("lines"));
        let (picture, compared) = loop {
            let picture = screenshot(&self.gpuvmk, &self.config, &path)?;
            let compared = if is_text {
                console::compare(&picture, said).map(Some)
            } else {
                pattern::compare(&picture, said).map(|()| None)
            };
            // A picture is there when its mode is set, or never.
            if compared.is_ok() || !is_text || begun.elapsed() > DRAWN {
                break (picture, compared);
            }
            thread::sleep(AGAIN);
        };
        let size = (picture.width, picture.height);
        let (text, problem) = match compared {
            Ok(text) => (text, None),
            Err(error) => (None, Some(format!("{}: {error:#}", path.display()))),
        };
        Ok(Look { path, size, is_text, text, problem })
    }
}

/// What `gpuvmk screenshot` writes of a VM.
fn screenshot(gpuvmk: &Path, config: &Path, path: &Path) -> Result<Picture> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    }
    let log = path.with_extension("log");
    let errors = File::create(&log).with_context(|| format!("Cannot create {}", log.display()))?;
    let status = Command::new(gpuvmk)
        .arg("screenshot")
        .args([config, path])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .status()
        .context("Cannot start gpuvmk screenshot")?;
    let why = || fs::read_to_string(&log).unwrap_or_default();
    ensure!(status.success(), "gpuvmk screenshot ended with {status}: {}", why().trim());
    let picture = Picture::read(path)?;
    // It has said nothing.
    let _ = fs::remove_file(&log);
    Ok(picture)
}
