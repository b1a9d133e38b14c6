//! Programs of Debian's packages, unpacked in the cache beside the C library that they were built for; not
//! installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::apt::{self, Apt};
use crate::cache::Cache;

/// Debian 12.
const SUITE: &str = "bookworm";
/// Where its packages have the dynamic loader and libraries, from the root on.
const LOADER: &str = "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// What a program comes from.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// Its name, and that of its folder in the cache.
    pub name: &'static str,
    /// What is fetched, for people.
    pub about: &'static str,
    /// The packages.
    pub packages: &'static [&'static str],
    /// Whether everything that these depend on is fetched as well; else they must be all that is needed.
    pub dependencies: bool,
    /// The program, from the root on.
    pub program: &'static str,
    /// Folders with more of its libraries.
    pub libraries: &'static [&'static str],
    /// Files and folders that are not needed and large.
    pub unwanted: &'static [&'static str],
}

/// A program that can be run.
#[derive(Debug)]
pub(crate) struct DebianProgram {
    root: PathBuf,
    recipe: &'static Recipe,
}

impl DebianProgram {
    /// From the cache, fetched first if need be.
    pub fn obtain(cache: &Cache, recipe: &'static Recipe) -> Result<Self> {
        if let Some(root) = cache.entry(recipe.name, Some(SUITE)) {
            return Ok(Self { root, recipe });
        }
        let lock = cache.lock()?;
        let root = cache.entry_or_build(&lock, recipe.name, SUITE, |folder| {
            eprintln!("gpuvmk: fetching {}", recipe.about);
            let apt = Apt::set_up(cache)?;
            if recipe.dependencies {
                let files = apt.download_with_dependencies(recipe.packages, SUITE)?;
                apt::unpack(&files, folder, recipe.name)?;
                apt.drop_archives()?;
            } else {
                let downloads = folder.join("download");
                let packages: Vec<_> =
                    recipe.packages.iter().map(|package| format!("{package}/{SUITE}")).collect();
                let packages: Vec<_> = packages.iter().map(String::as_str).collect();
                let files = apt.download(&packages, &downloads)?;
                apt::unpack(&files, folder, recipe.name)?;
                fs::remove_dir_all(&downloads)?;
            }
            for unwanted in recipe.unwanted.iter().map(|unwanted| folder.join(unwanted)) {
                // A newer package may lack it.
                let _ =
                    if unwanted.is_dir() { fs::remove_dir_all(unwanted) } else { fs::remove_file(unwanted) };
            }
            Ok(())
        })?;
        Ok(Self { root, recipe })
    }

    /// Where its packages are unpacked.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The words that start it.
    pub fn words(&self) -> Result<Vec<String>> {
        let text = |path: &str| {
            let path = self.root.join(path);
            path.to_str().map(str::to_owned).context("the cache's folder has a name that is no text")
        };
        let folders = LIBRARIES.iter().chain(self.recipe.libraries);
        let libraries: Vec<_> = folders.map(|folder| text(folder)).collect::<Result<_>>()?;
        Ok(vec![text(LOADER)?, "--library-path".into(), libraries.join(":"), text(self.recipe.program)?])
    }

    /// Starts it with these arguments, in `folder`.
    pub fn command(&self, arguments: &[&str], folder: &Path) -> Result<Command> {
        let words = self.words()?;
        let (program, more) = words.split_first().context("no program")?;
        let mut command = Command::new(program);
        command.args(more).args(arguments).current_dir(folder).stdin(Stdio::null());
        Ok(command)
    }
}
