//! `gpuvmk-shader`: shaders without a card. `gpuvmk shader` starts it: the daemons' program has nothing of
//! it.

mod argument;
mod disassembly;
mod run;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use gpuvmk_companion::{RunOptions, ShaderCommand};
use gpuvmk_isa::Arch;

use gpuvmk_shader::cubin::{self, Cubin};

/// Disassemble shaders' machine code, and run kernels on a software GPU.
#[derive(Debug, Parser)]
#[command(name = "gpuvmk-shader", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: ShaderCommand,
}

fn main() -> ExitCode {
    sigpipe::reset();
    let done = match Cli::parse().command {
        ShaderCommand::Disasm { file, arch, kernel } => disassemble(&file, arch, kernel.as_deref()),
        ShaderCommand::Run(options) => run_kernel(&options),
    };
    done.unwrap_or_else(|error| {
        // Where standard error takes nothing, the exit status tells.
        let _ = writeln!(io::stderr(), "gpuvmk: {error:#}");
        ExitCode::FAILURE
    })
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("Cannot read {}", file.display()))
}

fn read_cubin(file: &Path, bytes: &[u8]) -> Result<Cubin> {
    Cubin::read(bytes).with_context(|| format!("{} is no cubin that can be read", file.display()))
}

fn disassemble(file: &Path, arch: Option<u16>, kernel: Option<&str>) -> Result<ExitCode> {
    let bytes = read(file)?;
    let text = if cubin::is_elf(&bytes) {
        let cubin = read_cubin(file, &bytes)?;
        if let Some(number) = arch
            && number != cubin.arch.number()
        {
            bail!("{} is of SM {}, not of SM {number}", file.display(), cubin.arch.number());
        }
        if let Some(name) = kernel {
            cubin.find(name).with_context(|| format!("{} is not printed", file.display()))?;
        }
        disassembly::cubin(&cubin, kernel)
    } else {
        let Some(number) = arch else {
            bail!("{} is no ELF file: raw machine code needs --arch, such as --arch 90", file.display());
        };
        let arch = Arch::from_number(number).with_context(|| {
            let known = Arch::ALL.map(|arch| arch.number().to_string()).join(", ");
            format!("There is no SM {number}; those that are known are {known}")
        })?;
        disassembly::text(arch, &bytes)
    };
    io::stdout().write_all(text.as_bytes()).context("Cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn run_kernel(options: &RunOptions) -> Result<ExitCode> {
    let bytes = read(&options.file)?;
    let cubin = read_cubin(&options.file, &bytes)?;
    let kernel =
        cubin.kernel(&options.kernel).with_context(|| format!("{} cannot be run", options.file.display()))?;
    let found = run::run(cubin.arch, kernel, options)?;
    let mut text: String = found.findings.iter().map(|line| format!("{line}\n")).collect();
    text.push_str(&format!(
        "{}: {} instructions of warps, {} CTAs\n",
        kernel.name,
        found.instructions,
        options.grid.iter().map(|size| u64::from(*size)).product::<u64>()
    ));
    io::stdout().write_all(text.as_bytes()).context("Cannot write to standard output")?;
    Ok(if found.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
