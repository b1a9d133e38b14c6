//! The cache folder: everything fetched or built once, each entry complete or absent.
//!
//! An entry is a folder that appears by `rename`, so a run that was interrupted half-way leaves nothing that
//! looks finished. Runs at the same time take turns through one lock file; the lock is the kernel's
//! (`flock`), so it goes away with its process. Nothing here is ever fetched again while it is in place: a
//! second run needs no network.

use std::env;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

/// The file inside an entry that holds the key it was built for.
const STAMP: &str = ".complete";
/// How long an entry stays that nobody uses and that another one was made beside.
const UNUSED: Duration = Duration::from_secs(24 * 3600);

/// The folder that keeps packages, kernels, initramfs images and guest programs.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// Held while the cache is filled; another run waits until it is dropped.
#[derive(Debug)]
pub struct CacheLock {
    _file: File,
}

impl Cache {
    /// Opens the cache at `GPUVMK_CACHE`, or at `.cache` in the source tree.
    pub fn open() -> Result<Self> {
        let root = match env::var_os("GPUVMK_CACHE") {
            Some(path) if !path.is_empty() => PathBuf::from(path),
            _ => source_tree().join(".cache"),
        };
        Self::at(root)
    }

    /// Opens (and creates) the cache at `root`.
    pub fn at(root: impl AsRef<Path>) -> Result<Self> {
        let root = root.as_ref();
        fs::create_dir_all(root).with_context(|| {
            format!(
                "Cannot create the cache folder {}: set GPUVMK_CACHE to a folder that can be written",
                root.display()
            )
        })?;
        let root = root.canonicalize().with_context(|| format!("Cannot resolve {}", root.display()))?;
        Ok(Self { root })
    }

    /// Where the cache lies.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path inside the cache.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// Waits for the cache's lock.
    pub fn lock(&self) -> Result<CacheLock> {
        let path = self.path("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("Cannot open the cache's lock file {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("gpuvmk: waiting for another run that fills {}", self.root.display());
                file.lock().with_context(|| format!("Cannot lock {}", path.display()))?;
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("Cannot lock {}", path.display()));
            }
        }
        Ok(CacheLock { _file: file })
    }

    /// The entry `name` if it is complete; with `key`, only if it was built for that key.
    pub fn entry(&self, name: impl AsRef<Path>, key: Option<&str>) -> Option<PathBuf> {
        let path = self.path(name);
        let found = fs::read_to_string(path.join(STAMP)).ok()?;
        (key.is_none() || key == Some(found.as_str())).then_some(path)
    }

    /// The entry `name` for `key`: as it is, or built by `build` in a fresh folder that then takes its place.
    ///
    /// The caller holds the lock, so that two runs do not build the same entry.
    pub fn entry_or_build(
        &self,
        lock: &CacheLock,
        name: impl AsRef<Path>,
        key: &str,
        build: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        match self.entry(name.as_ref(), Some(key)) {
            Some(path) => Ok(path),
            None => self.replace(lock, name, key, build),
        }
    }

    /// The entry `name`, made by `build` in a fresh folder that takes the place of what was there.
    pub fn replace(
        &self,
        _lock: &CacheLock,
        name: impl AsRef<Path>,
        key: &str,
        build: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let name = name.as_ref();
        let place = self.path(name);
        let Some(file_name) = place.file_name() else {
            bail!("The cache entry '{}' has no name", name.display())
        };
        let mut partial_name = file_name.to_os_string();
        partial_name.push(".partial");
        let partial = place.with_file_name(partial_name);
        remove(&partial)?;
        fs::create_dir_all(&partial).with_context(|| format!("Cannot create {}", partial.display()))?;
        build(&partial)?;
        fs::write(partial.join(STAMP), key)
            .with_context(|| format!("Cannot write the stamp in {}", partial.display()))?;
        remove(&place)?;
        fs::rename(&partial, &place)
            .with_context(|| format!("Cannot move {} into place", partial.display()))?;
        Ok(place)
    }
}

impl Cache {
    /// Removes what begins with `prefix` and was not touched for a day: entries that have the hash of their
    /// contents in their names, which several source trees at one cache keep side by side.
    pub fn drop_unused(&self, _lock: &CacheLock, prefix: &str) -> Result<()> {
        for entry in
            fs::read_dir(&self.root).with_context(|| format!("Cannot list {}", self.root.display()))?
        {
            let entry = entry?;
            let stamp = entry.path().join(STAMP);
            let old = fs::metadata(&stamp).and_then(|stamp| stamp.modified());
            let old = old.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > UNUSED));
            if old && entry.file_name().to_string_lossy().starts_with(prefix) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Notes that an entry is in use.
    pub fn touch(&self, name: impl AsRef<Path>) {
        // For tidiness only: one that cannot be marked may be made anew one day.
        let stamp = File::options().append(true).open(self.path(name).join(STAMP));
        let _ = stamp.and_then(|stamp| stamp.set_modified(SystemTime::now()));
    }
}

/// The root of the source tree that this library was built from.
pub fn source_tree() -> PathBuf {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    lab.parent().unwrap_or(lab).to_path_buf()
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("Cannot remove {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache")).unwrap();
        (folder, cache)
    }

    #[test]
    fn built_entry_is_not_built_again_for_the_same_key() {
        let (_folder, cache) = cache();
        let lock = cache.lock().unwrap();
        let build = |path: &Path| Ok(fs::write(path.join("file"), "one")?);
        let path = cache.entry_or_build(&lock, "thing", "v1", build).unwrap();
        let again = cache.entry_or_build(&lock, "thing", "v1", |_| bail!("built twice")).unwrap();
        assert_eq!(path, again);
        assert_eq!(fs::read_to_string(again.join("file")).unwrap(), "one");
    }

    #[test]
    fn entry_for_another_key_is_replaced_as_a_whole() {
        let (_folder, cache) = cache();
        let lock = cache.lock().unwrap();
        cache.entry_or_build(&lock, "thing", "v1", |path| Ok(fs::write(path.join("old"), "")?)).unwrap();
        let path =
            cache.entry_or_build(&lock, "thing", "v2", |path| Ok(fs::write(path.join("new"), "")?)).unwrap();
        assert!(path.join("new").exists());
        assert!(!path.join("old").exists());
    }

    #[test]
    fn only_what_nobody_used_for_a_day_is_dropped() {
        let (_folder, cache) = cache();
        let lock = cache.lock().unwrap();
        for name in ["image-old", "image-used", "image-new", "other-old"] {
            cache.entry_or_build(&lock, name, "v1", |_| Ok(())).unwrap();
        }
        for name in ["image-old", "image-used", "other-old"] {
            let stamp = File::options().append(true).open(cache.path(name).join(STAMP)).unwrap();
            stamp.set_modified(SystemTime::now() - 2 * UNUSED).unwrap();
        }
        cache.touch("image-used");

        cache.drop_unused(&lock, "image-").unwrap();

        let left = |name: &str| cache.entry(name, None).is_some();
        assert_eq!(
            ["image-old", "image-used", "image-new", "other-old"].map(left),
            [false, true, true, true]
        );
    }

    #[test]
    fn failed_build_leaves_no_entry() {
        let (_folder, cache) = cache();
        let lock = cache.lock().unwrap();
        let result = cache.entry_or_build(&lock, "thing", "v1", |path| {
            fs::write(path.join("half"), "")?;
            bail!("interrupted")
        });
        assert!(result.is_err());
        assert_eq!(cache.entry("thing", None), None);
    }
}
