//! What `nvidia-smi` says of a GPU that a CUDA program uses: the program with its memory, and how busy the
//! GPU is.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::super::{Figures, Options};
use super::{ask_smi, cuda_program, result};

/// How long it may take until all is as it should be. The program compiles its kernel first.
const LIMIT: Duration = Duration::from_secs(300);

const APPS: [&str; 2] = ["--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"];
const GPU: [&str; 2] = [
    "--query-gpu=memory.total,memory.used,utilization.gpu,utilization.memory",
    "--format=csv,noheader,nounits",
];

/// What `nvidia-smi` said in one look; sizes in MiB, use in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// Memory of the program, if it is listed.
    program: Option<u64>,
    total: u64,
    used: u64,
    /// How busy the GPU and its memory are; none: the libraries do not learn it.
    gpu: Option<u64>,
    memory: Option<u64>,
}

/// Starts the program, looks until it is listed and the GPU busy, and ends it. It must not be listed then.
/// With `use=0`, it must not be said how busy the GPU is.
pub fn run(options: &Options) -> Result<Figures> {
    let expected: u64 = options.get("memory", 0)?;
    let told = options.get("use", 1_u8)? != 0;
    let mut command = cuda_program(options.gpu()?, "busy")?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("the CUDA program cannot be started")?;
    let pid = child.id();
    let seen = watch(pid, told);
    // Its input ends, and so does it.
    drop(child.stdin.take());
    let output = child.wait_with_output().context("the CUDA program cannot be waited for")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let seen = seen?;
    ensure!(result(&said).is_some(), "the CUDA program ended with {}: {}", output.status, said.trim());
    ensure!(expected == 0 || seen.total == expected, "the GPU has {} MiB, not {expected}", seen.total);
    ensure!([seen.gpu, seen.memory].iter().flatten().all(|percent| *percent <= 100), "{seen:?}");
    let after = look(pid)?;
    ensure!(after.program.is_none(), "it has ended, and is listed: {after:?}");
    Ok(Figures::from_iter([
        ("program_mib".to_owned(), json!(seen.program)),
        ("total_mib".to_owned(), seen.total.into()),
        ("used_mib".to_owned(), seen.used.into()),
        ("used_mib_after".to_owned(), after.used.into()),
        ("gpu_percent".to_owned(), json!(seen.gpu)),
        ("memory_percent".to_owned(), json!(seen.memory)),
    ]))
}

/// Looks until the program is listed with memory that is in use, and the GPU is busy, where that is `told`.
fn watch(pid: u32, told: bool) -> Result<Look> {
    let begin = Instant::now();
    loop {
        let seen = look(pid)?;
        ensure!(seen.gpu.is_some() == told && seen.memory.is_some() == told, "{seen:?}");
        let busy = seen.gpu.is_none_or(|percent| percent > 0);
        if seen.program.is_some_and(|mib| mib > 0 && mib <= seen.used) && busy {
            return Ok(seen);
        }
        ensure!(begin.elapsed() < LIMIT, "program {pid} is not listed, or the GPU not busy: {seen:?}");
    }
}

fn look(pid: u32) -> Result<Look> {
    parse(pid, &ask_smi(&APPS)?, &ask_smi(&GPU)?)
}

/// What stands for a number that is not known.
const UNKNOWN: &str = "[N/A]";

/// A look, of the lists of programs and of GPUs.
fn parse(pid: u32, apps: &str, gpu: &str) -> Result<Look> {
    let numbers = |line: &str| -> Result<Vec<Option<u64>>> {
        let number = |word: &str| {
            let word = word.trim();
            let known = (word != UNKNOWN).then(|| word.parse());
            known.transpose().with_context(|| format!("'{word}' is no number: {line}"))
        };
        line.split(',').map(number).collect()
    };
    let mut program = None;
    for line in apps.lines().filter(|line| !line.trim().is_empty()) {
        match numbers(line)?[..] {
            [Some(listed), Some(mib)] if listed == u64::from(pid) => program = Some(mib),
            [Some(_), Some(_)] => {}
            _ => anyhow::bail!("not a program and its memory: {line}"),
        }
    }
    let line = gpu.lines().next().unwrap_or_default();
    let &[Some(total), Some(used), gpu, memory] = &numbers(line)?[..] else {
        anyhow::bail!("not memory and use: {line}");
    };
    Ok(Look { program, total, used, gpu, memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_has_the_program_and_the_first_gpu() {
        let seen = parse(173, "12, 4\n173, 558\n", "2048, 580, 37, 2\n").unwrap();
        assert_eq!(seen, Look { program: Some(558), total: 2048, used: 580, gpu: Some(37), memory: Some(2) });
        assert_eq!(parse(9, "", "2048, 1, 0, 0\n").unwrap().program, None);
    }

    #[test]
    fn use_that_is_not_known_is_told_from_what_is_no_number() {
        let unknown = parse(1, "", "2048, 1, [N/A], [N/A]\n").unwrap();
        assert_eq!((unknown.gpu, unknown.memory, unknown.used), (None, None, 1));
        for line in ["2048, [N/A], 1, 1\n", "2048, 1, none, 0\n"] {
            assert!(parse(1, "", line).is_err(), "{line}");
        }
        let error = parse(1, "", "2048, 1, none, 0\n").unwrap_err();
        assert!(format!("{error:#}").contains("'none' is no number"), "{error:#}");
    }
}
