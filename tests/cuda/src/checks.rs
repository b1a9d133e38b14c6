//! The checks, by name. Each has a context of its own, which ends with it; what asks least of the GPU comes
//! first, and nothing runs after a failure.

mod busy;
mod costs;
mod crowd;
mod graphs;
mod kernels;
mod latencies;
mod planes;
mod streams;
mod table;

use std::ffi::CStr;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use gpuvmk_report::{Figures, Outcome};
use serde_json::{Value, json};

use crate::driver::{
    Context, DeviceMemory, Driver, Event, ManagedMemory, Module, PinnedMemory, Shape, Stream,
};
use crate::options::Options;

type Check = fn(&Rc<Context>) -> Result<Figures>;

const CHECKS: [(&str, Check); 33] = [
    ("context", context),
    ("copy", copy),
    ("inside", inside),
    ("fill", fill),
    ("planes", planes::planes),
    ("pinned", pinned),
    ("events", events),
    ("sums", sums),
    ("cubin", cubin),
    ("streams", streams::streams),
    ("graph", kernels::graph),
    ("graphs", graphs::graphs),
    ("product", kernels::product),
    ("reduction", kernels::reduction),
    ("atomics", kernels::atomics),
    ("local", kernels::local),
    ("cooperative", kernels::cooperative),
    ("printf", kernels::printf),
    ("managed", managed),
    ("full", full),
    (FAULT, fault),
    (BUSY, busy::run),
    ("allocations", costs::allocations),
    ("launches", costs::launches),
    ("graph-launches", costs::graph_launches),
    ("table", table::small),
    ("table-full", table::full),
    ("crowd", crowd::full),
    ("crowd-small", crowd::small),
    ("latencies", latencies::launches),
    ("latencies-small", latencies::small_launches),
    ("copies", latencies::copies),
    ("touch", latencies::touch),
];

/// The check that ends its process's use of the GPU.
const FAULT: &str = "fault";
/// The check that ends when the program's input does, and is no part of all.
const BUSY: &str = "busy";

/// Those that are no part of all: the last ones are for others who count what they cost, or measure.
const APART: [&str; 13] = [
    FAULT,
    BUSY,
    "allocations",
    "launches",
    "graph-launches",
    "table",
    "table-full",
    "crowd",
    "crowd-small",
    "latencies",
    "latencies-small",
    "copies",
    "touch",
];

/// A kernel in CUDA's intermediate code.
const SUMS: &str = concat!(include_str!("sums.ptx"), "\0");
/// The same as machine code: `ptxas -arch sm_90 sums.ptx -o sums.cubin`, of CUDA 12.8.
const SUMS_CODE: &[u8] = include_bytes!("sums.cubin");

/// The checks of that name: one, or `all`.
pub fn group(name: &str) -> Result<Vec<&'static str>> {
    let names = CHECKS.map(|(name, _)| name);
    if name == "all" {
        return Ok(names.into_iter().filter(|name| !APART.contains(name)).collect());
    }
    let found = names.into_iter().find(|known| *known == name);
    Ok(vec![found.with_context(|| format!("There is no check '{name}'; there are {}", names.join(", ")))?])
}

/// Runs them.
pub fn run(options: &Options) -> Outcome {
    let mut outcome = Outcome::default();
    let driver = match open(options, &mut outcome.about) {
        Ok(driver) => driver,
        Err(error) => {
            outcome.trouble = Some(format!("{error:#}"));
            outcome.skipped.clone_from(&options.checks);
            return outcome;
        }
    };
    for (index, name) in options.checks.iter().enumerate() {
        let Some((name, check)) = CHECKS.iter().find(|(known, _)| known == name) else { continue };
        let start = Instant::now();
        let mut result = alone(&driver, options.gpu, *check);
        if let Ok(figures) = &mut result {
            figures.insert("ms".into(), (start.elapsed().as_secs_f64() * 1e3).round().into());
        }
        let failed = result.is_err();
        outcome.checks.push((name, result));
        if failed {
            outcome.skipped = options.checks.iter().skip(index + 1).copied().collect();
            break;
        }
    }
    outcome
}

fn open(options: &Options, about: &mut Figures) -> Result<Rc<Driver>> {
    let start = Instant::now();
    let driver = Driver::load()?;
    about.insert("init_ms".into(), (start.elapsed().as_secs_f64() * 1e3).round().into());
    about.insert("cuda".into(), driver.version()?.into());
    let devices = driver.devices()?;
    about.insert("devices".into(), devices.into());
    ensure!(i32::from(options.gpu) < devices, "there are {devices} devices");
    let device = driver.about(options.gpu)?;
    about.insert("device".into(), device.name.into());
    about.insert("memory".into(), device.memory.into());
    about.insert("capability".into(), format!("{}.{}", device.capability.0, device.capability.1).into());
    about.insert("processors".into(), device.processors.into());
    Ok(driver)
}

/// A check with a context of its own.
fn alone(driver: &Rc<Driver>, gpu: u16, check: Check) -> Result<Figures> {
    let context = Context::create(driver, gpu)?;
    let figures = check(&context)?;
    if std::ptr::fn_addr_eq(check, fault as Check) {
        // What is lost says so once more.
        let _ = context.destroy();
    } else {
        context.destroy()?;
    }
    Ok(figures)
}

fn context(context: &Rc<Context>) -> Result<Figures> {
    context.synchronize()?;
    let (free, total) = context.memory_info()?;
    ensure!(free <= total && free > 0, "{free} of {total} bytes are free");
    Ok(figures(&[("free", free), ("total", total)]))
}

/// There and back, of sizes that are not whole pages as well.
fn copy(context: &Rc<Context>) -> Result<Figures> {
    const SIZES: [usize; 6] = [4, 100, 4096, 65_537, 1 << 20, (4 << 20) + 12];
    for size in SIZES {
        let memory = DeviceMemory::allocate(context, size)?;
        let sent = pattern(size, 1);
        memory.write(&sent)?;
        same(&memory.read()?, &sent).with_context(|| format!("{size} bytes"))?;
        memory.free()?;
    }
    Ok(figures(&[("bytes", SIZES.iter().sum())]))
}

/// From device to device.
fn inside(context: &Rc<Context>) -> Result<Figures> {
    const SIZE: usize = 3 << 20;
    let [one, two] = [(); 2].map(|()| DeviceMemory::allocate(context, SIZE));
    let (one, two) = (one?, two?);
    ensure!(one.address().abs_diff(two.address()) >= SIZE as u64, "two allocations overlap");
    let sent = pattern(SIZE, 2);
    one.write(&sent)?;
    two.fill_words(0)?;
    two.copy_from(&one)?;
    same(&two.read()?, &sent)?;
    same(&one.read()?, &sent).context("the source")?;
    Ok(figures(&[("bytes", SIZE)]))
}

fn fill(context: &Rc<Context>) -> Result<Figures> {
    const SIZE: usize = 1 << 20;
    const BYTES: usize = 1001;
    const WORD: u32 = 0x1234_5678;
    let memory = DeviceMemory::allocate(context, SIZE)?;
    memory.fill_words(WORD)?;
    let mut expected: Vec<u8> = std::iter::repeat_n(WORD.to_le_bytes(), SIZE / 4).flatten().collect();
    same(&memory.read()?, &expected).context("words")?;
    memory.fill_bytes(0xa5, BYTES)?;
    expected.iter_mut().take(BYTES).for_each(|byte| *byte = 0xa5);
    same(&memory.read()?, &expected).context("bytes")?;
    Ok(figures(&[("bytes", SIZE)]))
}

/// Pinned memory, copied by a stream.
fn pinned(context: &Rc<Context>) -> Result<Figures> {
    const SIZE: usize = 2 << 20;
    let stream = Stream::create(context)?;
    let memory = DeviceMemory::allocate(context, SIZE)?;
    let [there, back] = [(); 2].map(|()| PinnedMemory::allocate(context, SIZE));
    let (mut there, back) = (there?, back?);
    let sent = pattern(SIZE, 3);
    there.write(&sent)?;
    memory.write_later(&there, &stream)?;
    memory.read_later(&back, &stream)?;
    stream.synchronize()?;
    same(&back.read(), &sent)?;
    Ok(figures(&[("bytes", SIZE)]))
}

/// Events of both kinds, and what they say of the time between them.
fn events(context: &Rc<Context>) -> Result<Figures> {
    const SIZE: usize = 1 << 20;
    let stream = Stream::create(context)?;
    let memory = DeviceMemory::allocate(context, SIZE)?;
    let host = PinnedMemory::allocate(context, SIZE)?;
    let mut times = Vec::new();
    for blocking in [false, true] {
        let [before, after] = [(); 2].map(|()| Event::create(context, blocking));
        let (before, after) = (before?, after?);
        before.record(&stream)?;
        memory.write_later(&host, &stream)?;
        after.record(&stream)?;
        after.synchronize()?;
        let time = after.since(&before)?;
        ensure!(time.is_finite() && time >= 0.0, "{time} ms between two events");
        times.push(json!(time));
    }
    stream.synchronize()?;
    Ok(Figures::from_iter([("between_ms".to_owned(), Value::from(times))]))
}

/// A kernel of ours, compiled in the guest by libcuda's own compiler.
fn sums(context: &Rc<Context>) -> Result<Figures> {
    let start = Instant::now();
    let module = Module::load(context, CStr::from_bytes_with_nul(SUMS.as_bytes())?)?;
    let compiled = start.elapsed();
    let mut found = vector_sum(context, &module)?;
    found.insert("compile_ms".into(), (compiled.as_secs_f64() * 1e3).round().into());
    Ok(found)
}

/// The same kernel as machine code.
fn cubin(context: &Rc<Context>) -> Result<Figures> {
    vector_sum(context, &Module::load_code(context, SUMS_CODE)?)
}

fn vector_sum(context: &Rc<Context>, module: &Module) -> Result<Figures> {
    const COUNT: usize = 100_003;
    let [one, two, result] = [(); 3].map(|()| DeviceMemory::allocate(context, COUNT * 4));
    let (one, two, result) = (one?, two?, result?);
    let inputs = [4, 5].map(|seed| pattern(COUNT * 4, seed));
    one.write(&inputs[0])?;
    two.write(&inputs[1])?;
    result.fill_words(0)?;
    let parameters = [one.address(), two.address(), result.address(), COUNT as u64];
    module.kernel(c"vector_sum")?.launch(Shape::row(37, 256), &parameters)?;
    context.synchronize()?;
    same(&result.read()?, &sum(&inputs))?;
    Ok(figures(&[("words", COUNT)]))
}

/// Memory that is brought to the device before a kernel uses it, and comes back by itself where this process
/// looks at it, or by request.
fn managed(context: &Rc<Context>) -> Result<Figures> {
    const COUNT: usize = 300_007;
    let module = Module::load(context, CStr::from_bytes_with_nul(SUMS.as_bytes())?)?;
    let kernel = module.kernel(c"vector_sum")?;
    let [one, two, result] = [(); 3].map(|()| ManagedMemory::allocate(context, COUNT * 4));
    let (mut inputs, mut result) = ([one?, two?], result?);
    for round in 0..2 {
        let sent = [80, 81].map(|seed| pattern(COUNT * 4, seed + 2 * round));
        for (memory, sent) in inputs.iter_mut().zip(&sent) {
            memory.write(sent)?;
            memory.to_device()?;
        }
        result.to_device()?;
        let [one, two] = inputs.each_ref().map(ManagedMemory::address);
        kernel.launch(Shape::row(29, 256), &[one, two, result.address(), COUNT as u64])?;
        if round == 1 {
            result.to_processor()?;
        }
        context.synchronize()?;
        same(&result.read(), &sum(&sent)).with_context(|| format!("round {round}"))?;
        same(&inputs[0].read(), &sent[0]).context("what was not written")?;
    }
    Ok(figures(&[("words", COUNT)]))
}

/// More memory than there is, which is refused and harms nothing.
fn full(context: &Rc<Context>) -> Result<Figures> {
    const SIZE: usize = 1 << 40;
    let refused = DeviceMemory::allocate(context, SIZE).err().context("2^40 bytes were allocated")?;
    ensure!(refused.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY"), "{refused:#}");
    let before = context.memory_info()?.0;
    let kept = DeviceMemory::allocate(context, 4 << 20)?;
    let sent = pattern(4096, 6);
    kept.write(&sent)?;
    same(kept.read()?.get(..4096).unwrap_or_default(), &sent)?;
    kept.free()?;
    let after = context.memory_info()?.0;
    ensure!(before == after, "{before} bytes were free, and {after} are");
    Ok(figures(&[("free", after)]))
}

/// A kernel that stores where no memory is: its context is lost and says why, and the next one works.
fn fault(context: &Rc<Context>) -> Result<Figures> {
    const NOWHERE: u64 = 0x10_0000_0000;
    let module = Module::load(context, CStr::from_bytes_with_nul(SUMS.as_bytes())?)?;
    let input = DeviceMemory::allocate(context, 4096)?;
    module
        .kernel(c"vector_sum")?
        .launch(Shape::row(1, 32), &[input.address(), input.address(), NOWHERE, 32])?;
    let start = Instant::now();
    let said = context.synchronize().err().context("a store to nowhere was not noticed")?.to_string();
    ensure!(said.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{said}");
    let noticed = (start.elapsed().as_secs_f64() * 1e3).round();
    Ok(Figures::from_iter([("noticed_ms".to_owned(), noticed.into()), ("error".to_owned(), said.into())]))
}

/// The words of two lists, added up.
fn sum(lists: &[Vec<u8>; 2]) -> Vec<u8> {
    let sums = words(&lists[0]).into_iter().zip(words(&lists[1])).map(|(one, two)| one.wrapping_add(two));
    bytes(sums)
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn bytes(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn figures(pairs: &[(&str, usize)]) -> Figures {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect()
}

/// Bytes that no copy of another place, size or seed has.
fn pattern(size: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) ^ 0x85eb_ca6b;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..size.div_ceil(4)).flat_map(|_| word()).collect();
    bytes.truncate(size);
    bytes
}

/// An error that says how many bytes differ, and where the first does.
fn same(found: &[u8], expected: &[u8]) -> Result<()> {
    ensure!(found.len() == expected.len(), "{} bytes instead of {}", found.len(), expected.len());
    let mut wrong = found.iter().zip(expected).enumerate().filter(|(_, (found, expected))| found != expected);
    let Some((at, (first, wanted))) = wrong.next() else { return Ok(()) };
    anyhow::bail!(
        "{} of {} bytes are wrong, the first at {at:#x}: {first:#04x} instead of {wanted:#04x}",
        wrong.count() + 1,
        found.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_differ_are_counted_and_the_first_is_named() {
        same(&[1, 2, 3], &[1, 2, 3]).unwrap();
        let error = same(&[1, 9, 9], &[1, 2, 3]).unwrap_err().to_string();
        assert!(error.starts_with("2 of 3 bytes") && error.contains("0x1: 0x09 instead of 0x02"), "{error}");
        assert!(same(&[1], &[1, 2]).is_err());
    }

    #[test]
    fn pattern_has_its_size_and_is_another_for_another_seed() {
        assert_eq!(pattern(5, 1).len(), 5);
        assert_eq!(pattern(8, 1)[..5], pattern(5, 1));
        assert_ne!(pattern(8, 1), pattern(8, 2));
    }

    #[test]
    fn check_is_known_by_its_name() {
        assert_eq!(group("copy").unwrap(), ["copy"]);
        assert_eq!(group("all").unwrap().len(), CHECKS.len() - APART.len());
        assert!(group("other").unwrap_err().to_string().contains("context, copy"));
    }
}
