//! Persistence mode: the driver keeps the GPU up between two programs, and boots no GSP for the second.
//!
//! A driver that shuts a GPU down gives its interrupt back, so the kernel's list of interrupts says whether
//! it has: without persistence mode there is none of the driver's between programs.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::super::{Figures, Options};
use super::{ask_smi, cuda_program, result};

const LIST: &str = "/proc/interrupts";

/// Switches it on, runs two CUDA programs, and switches it off.
pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    ensure!(!is_up()?, "the driver has the GPU up before anybody asked for that");
    ask_smi(&["-pm", "1"])?;
    let worked = programs(gpu);
    ask_smi(&["-pm", "0"])?;
    let figures = worked?;
    ensure!(!is_up()?, "the driver has the GPU up though nobody uses it");
    Ok(figures)
}

fn programs(gpu: usize) -> Result<Figures> {
    let mut figures = Figures::new();
    for number in 0..2 {
        ensure!(is_up()?, "the driver has shut the GPU down before program {number}");
        let output = cuda_program(gpu, "context")?.output().context("the CUDA program cannot be started")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let checks = result(&said);
        ensure!(checks.is_some(), "program {number} ended with {}: {}", output.status, said.trim());
        figures.insert(format!("program_{number}"), checks.unwrap_or_default());
    }
    ensure!(is_up()?, "the driver has shut the GPU down after the last program");
    let mode = ask_smi(&["--query-gpu=persistence_mode", "--format=csv,noheader"])?;
    ensure!(mode.trim() == "Enabled", "persistence mode is '{}'", mode.trim());
    Ok(figures)
}

/// Whether the driver has an interrupt.
fn is_up() -> Result<bool> {
    let list = fs::read_to_string(LIST).with_context(|| format!("cannot read {LIST}"))?;
    Ok(list.lines().any(has_interrupt))
}

fn has_interrupt(line: &str) -> bool {
    line.split_whitespace().next_back() == Some("nvidia")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupt_is_the_drivers_own() {
        assert!(has_interrupt(" 25:    0    1  PCI-MSI-0000:01:00.0   0-edge      nvidia"));
        assert!(!has_interrupt(" 24:    0    1  PCI-MSI-0000:00:01.0   0-edge      PCIe PME, nvidia-other"));
        assert!(!has_interrupt(""));
    }
}
