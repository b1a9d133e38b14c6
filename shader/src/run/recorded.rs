//! Kernels of our own whose results an H200 gave, run.
//!
//! `tests/sass/kernels` has their source, the cubin that nvcc made of it for SM 9.0, and sums of what each
//! kernel stored.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use super::*;
use gpuvmk_sass::random::Random;
use gpuvmk_sass::recorded::sum;
use gpuvmk_shader::cubin::Cubin;

const CUBIN: &[u8] = include_bytes!("../../../tests/sass/kernels/sm90.cubin.gz");
const SUMS: &str = include_str!("../../../tests/sass/kernels/h200.tsv");

/// Words of each kernel's input and of its output.
const WORDS: usize = 65_536;

/// Words of a sum.
const PART: usize = 4096;

/// The words that each kernel reads.
fn input() -> Vec<u8> {
    let mut random = Random::new(1);
    (0..WORDS).flat_map(|_| random.word().to_le_bytes()).collect()
}

/// What a kernel stores into `folder`'s file, or why it stores nothing.
fn stored(cubin: &Cubin, name: &str, folder: &Path) -> Result<Vec<u32>> {
    let (from, to) = (folder.join("in"), folder.join(name));
    let options = RunOptions {
        file: "sm90.cubin".into(),
        kernel: name.to_owned(),
        grid: [4, 1, 1],
        block: [128, 1, 1],
        shared: 0,
        arg: vec![
            format!("zero:{}>{}", WORDS * 4, to.display()),
            format!("file:{}", from.display()),
            format!("u32:{WORDS}"),
        ],
        trace: false,
        check: false,
    };
    run(cubin.arch, cubin.kernel(name)?, &options)?;
    Ok(words_of(&fs::read(&to)?))
}

/// Sums are of what the H200 stored: they change with a recording only.
#[test]
fn kernels_store_what_an_h200_stored() {
    let mut cubin = Vec::new();
    flate2::read::GzDecoder::new(CUBIN).read_to_end(&mut cubin).unwrap();
    let cubin = Cubin::read(&cubin).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in"), input()).unwrap();
    let mut different = String::new();
    let mut names: Vec<_> = cubin.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    for line in SUMS.lines() {
        let (name, sums) = line.split_once('\t').unwrap();
        let sums: Vec<u64> = sums.split('\t').map(|sum| u64::from_str_radix(sum, 16).unwrap()).collect();
        assert_eq!(sums.len(), WORDS / PART);
        names.retain(|one| *one != name);
        match stored(&cubin, name, folder.path()) {
            Err(error) => writeln!(different, "{name}: {error:#}").unwrap(),
            Ok(words) => {
                let parts = words.chunks(PART).zip(&sums).enumerate();
                let parts: Vec<_> =
                    parts.filter_map(|(part, (w, s))| (sum(w) != *s).then_some(part)).collect();
                if !parts.is_empty() {
                    writeln!(different, "{name}: parts {parts:?} of {PART} words differ").unwrap();
                }
            }
        }
    }
    assert!(names.is_empty(), "without recorded results: {names:?}");
    assert!(different.is_empty(), "{different}");
}
