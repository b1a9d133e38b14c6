//! Compiles `cuda/kernels.cu` with NVIDIA's nvcc and writes each kernel's machine code, and what a launch
//! must know of it, to `sass/`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use gpuvmk_kernels::fingerprint;
use gpuvmk_kernels::target::{self, Target};

/// Compiles the kernels for every version of the SM that there is a target for.
#[derive(Debug, Parser)]
#[command(
    after_help = "Example:\n  cargo run -p gpuvmk-kernels --features generate -- --nvcc /usr/local/cuda/bin/nvcc"
)]
struct Args {
    /// NVIDIA's compiler driver.
    #[arg(long, default_value = "nvcc")]
    nvcc: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join("cuda/kernels.cu");
    let sass = root.join("sass");
    let cubin = sass.join("kernels.cubin");
    let mut table = String::from("// Made by `generate` from cuda/kernels.cu; do not edit.\n\n");
    let fingerprint = fingerprint(&std::fs::read(&source)?);
    writeln!(table, "/// Fingerprint of the source.\npub const SOURCE: u64 = {fingerprint:#x};")?;
    for Target { sm, .. } in [&target::SM75, &target::SM86, &target::SM89, &target::SM90] {
        let status = Command::new(&args.nvcc)
            .args(["-cubin", "-O3", &format!("-gencode=arch=compute_{sm},code=sm_{sm}"), "-o"])
            .args([&cubin, &source])
            .status()
            .with_context(|| {
                format!("Cannot run {}; give NVIDIA's compiler with --nvcc", args.nvcc.display())
            })?;
        ensure!(status.success(), "nvcc failed: {status}");
        let bytes = std::fs::read(&cubin)?;
        std::fs::remove_file(&cubin)?;
        std::fs::create_dir_all(sass.join(format!("sm{sm}")))?;
        table += &extract(&bytes, &sass, *sm)?;
    }
    std::fs::write(sass.join("table.rs"), table)?;
    Ok(())
}

/// A section of a cubin. (General ELF readers stumble over its program headers.)
struct Section<'a> {
    name: String,
    size: u64,
    info: u32,
    data: &'a [u8],
}

/// The sections of a 64-bit ELF file.
fn sections(file: &[u8]) -> Result<Vec<Section<'_>>> {
    let slice = |offset: u64, size: u64| -> Result<&[u8]> {
        let start = usize::try_from(offset)?;
        let end = start.checked_add(usize::try_from(size)?).context("a size beyond all bounds")?;
        file.get(start..end).context("the cubin is cut off")
    };
    let number = |offset: u64, size: u64| -> Result<u64> {
        Ok(slice(offset, size)?.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    ensure!(slice(0, 5)? == b"\x7fELF\x02", "the cubin is no 64-bit ELF file");
    let (table, count, names) = (number(0x28, 8)?, number(0x3c, 2)?, number(0x3e, 2)?);
    let header = |index: u64| table + index * 64;
    let strings = number(header(names) + 0x18, 8)?;
    let mut found = Vec::new();
    for index in 0..count {
        let at = header(index);
        let name =
            file.get(usize::try_from(strings + number(at, 4)?)?..).context("a name outside the cubin")?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let (kind, size) = (number(at + 4, 4)?, number(at + 0x20, 8)?);
        // Sections without bits have a size all the same.
        let data = if kind == 8 || kind == 0x7000_000a {
            &[]
        } else {
            slice(number(at + 0x18, 8)?, size).unwrap_or(&[])
        };
        found.push(Section {
            name: String::from_utf8_lossy(name).into_owned(),
            size,
            info: u32::try_from(number(at + 0x2c, 4)?)?,
            data,
        });
    }
    Ok(found)
}

/// EIATTR_REGCOUNT: symbol, and registers of a thread.
const REGISTER_COUNT: u8 = 0x2f;
/// EIATTR_NUM_BARRIERS.
const BARRIERS: u8 = 0x4c;

/// The attributes of an `.nv.info` section: kind and value.
fn attributes(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    while let [format, kind, low, high, rest @ ..] = bytes {
        // Formats 1 to 3 have their value in the two bytes; format 4 has its size there.
        let size = if *format == 4 { usize::from(u16::from_le_bytes([*low, *high])) } else { 0 };
        let (long, next) = rest.split_at(size.min(rest.len()));
        found.push((*kind, if *format == 4 { long } else { &bytes[2..4] }));
        bytes = next;
    }
    found
}

/// Writes the code of every kernel, and gives the table that names them.
fn extract(cubin: &[u8], sass: &Path, sm: u8) -> Result<String> {
    let sections = sections(cubin)?;
    let size =
        |name: &str| sections.iter().find(|section| section.name == name).map_or(0, |section| section.size);
    let data =
        |name: &str| sections.iter().find(|section| section.name == name).map_or(&[][..], |found| found.data);
    let mut kernels = Vec::new();
    for section in &sections {
        let Some(name) = section.name.strip_prefix(".text.").map(str::to_owned) else { continue };
        let own = attributes(data(&format!(".nv.info.{name}")));
        let all = attributes(data(".nv.info"));
        // The low bits of sh_info name the kernel's symbol, as the attributes of the whole file do.
        let symbol = (section.info & 0xff_ffff).to_le_bytes();
        let register_count = |(kind, value): &(u8, &[u8])| {
            (*kind == REGISTER_COUNT)
                .then(|| value.strip_prefix(&symbol))?
                .and_then(|count| count.first().copied())
        };
        let registers = all.iter().find_map(register_count);
        let registers = registers.with_context(|| format!("{name} has no register count"))?;
        let barriers =
            own.iter().find(|(kind, _)| *kind == BARRIERS).and_then(|(_, value)| value.first().copied());
        let barriers = barriers.unwrap_or(0);
        std::fs::write(sass.join(format!("sm{sm}/{name}.bin")), section.data)?;
        let shared = size(&format!(".nv.shared.{name}"));
        let constants = size(&format!(".nv.constant0.{name}"));
        ensure!(constants > 0, "{name} has no constant bank 0");
        kernels.push((name, registers, shared, barriers, constants));
    }
    kernels.sort();
    let mut table = String::new();
    writeln!(
        table,
        "\n/// The kernels for SM {}.{}.\npub const SM{sm}: Kernels = Kernels {{",
        sm / 10,
        sm % 10
    )?;
    for (name, registers, shared, barriers, constants) in kernels {
        writeln!(
            table,
            "    {name}: Kernel {{\n        target: &target::SM{sm},\n        name: \"{name}\",\n        code: \
             include_bytes!(\"../sass/sm{sm}/{name}.bin\"),\n        registers: {registers},\n        \
             shared: {shared},\n        barriers: {barriers},\n        constants: {constants},\n    }},"
        )?;
    }
    writeln!(table, "}};")?;
    Ok(table)
}
