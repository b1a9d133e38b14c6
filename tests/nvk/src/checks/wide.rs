//! Shaders that use more of the instruction set than those of [`super::compute`], on the same words each; and
//! a launch whose size is in memory. What they compute is exact, so the processor computes the same.

mod expected;

use std::rc::Rc;

use anyhow::Result;

use super::{Figures, compare, compute};
use crate::shaders;
use crate::vulkan::{Buffer, Commands, Device, Kernel, Place};

/// Invocations, and how many of them are a group.
const INVOCATIONS: usize = 4096;
const GROUP: usize = 64;
/// Words behind those of the invocations, which some of them read as well.
const MORE: usize = 16;
/// Results of an invocation, or of a group.
const RESULTS: usize = 8;

/// Whole numbers: bits, carries, products, quotients, shifts.
pub fn integers(device: &Rc<Device>) -> Result<Figures> {
    check(device, shaders::INTEGERS, expected::integers)
}

/// Floats: roundings, conversions, comparisons, halves.
pub fn floats(device: &Rc<Device>) -> Result<Figures> {
    check(device, shaders::FLOATS, expected::floats)
}

/// What the lanes of a subgroup tell each other.
pub fn subgroups(device: &Rc<Device>) -> Result<Figures> {
    check(device, shaders::SUBGROUPS, expected::subgroups)
}

/// Loops and conditions that lanes leave at different times, and memory of their own.
pub fn control(device: &Rc<Device>) -> Result<Figures> {
    check(device, shaders::CONTROL, expected::control)
}

/// Atomics in shared memory and in a buffer.
pub fn atomics(device: &Rc<Device>) -> Result<Figures> {
    let words = words();
    let groups: Vec<u32> = words[..INVOCATIONS].chunks(GROUP).flat_map(expected::atomics_of_group).collect();
    let right = [groups, expected::atomics_of_all(&words[..INVOCATIONS])].concat();
    let source = compute::on_gpu(device, &words)?;
    let result = Buffer::new(device, Place::Gpu, right.len())?;
    let kernel = Kernel::new(device, shaders::ATOMICS, &[&source, &result], &[])?;
    let mut commands = Commands::begin(device)?;
    commands.fill(&result, 0);
    commands.dispatch(&kernel, [groups_of(INVOCATIONS)?, 1, 1]);
    compute::compared(device, commands, &result, &right)
}

/// A launch of as many groups as memory says, and one of none.
pub fn indirect(device: &Rc<Device>) -> Result<Figures> {
    const SOME: usize = 21;
    let words = words();
    let right: Vec<u32> = (0..INVOCATIONS)
        .flat_map(|index| {
            let some = expected::control(&words, index, SOME);
            if index < SOME * GROUP { some } else { [compute::UNTOUCHED; RESULTS] }
        })
        .collect();
    let source = compute::on_gpu(device, &words)?;
    let result = Buffer::new(device, Place::Gpu, right.len())?;
    let kernel = Kernel::new(device, shaders::CONTROL, &[&source, &result], &[])?;
    let some = compute::on_gpu(device, &[u32::try_from(SOME)?, 1, 1])?;
    let none = compute::on_gpu(device, &[64, 0, 1])?;
    let mut commands = Commands::begin(device)?;
    commands.fill(&result, compute::UNTOUCHED);
    commands.dispatch_indirect(&kernel, &none);
    commands.dispatch_indirect(&kernel, &some);
    compute::compared(device, commands, &result, &right)
}

/// Runs a shader on all words, and compares its results.
fn check(
    device: &Rc<Device>,
    spirv: &[u8],
    expected: impl Fn(&[u32], usize, usize) -> [u32; RESULTS],
) -> Result<Figures> {
    let words = words();
    let groups = groups_of(INVOCATIONS)?;
    let right: Vec<u32> =
        (0..INVOCATIONS).flat_map(|index| expected(&words, index, INVOCATIONS / GROUP)).collect();
    let source = compute::on_gpu(device, &words)?;
    let result = Buffer::new(device, Place::Gpu, right.len())?;
    let kernel = Kernel::new(device, spirv, &[&source, &result], &[])?;
    let mut commands = Commands::begin(device)?;
    commands.fill(&result, compute::UNTOUCHED);
    commands.dispatch(&kernel, [groups, 1, 1]);
    compute::compared(device, commands, &result, &right)
}

fn words() -> Vec<u32> {
    let mut words: Vec<u32> = (0..INVOCATIONS + MORE).map(compare::pattern).collect();
    // Numbers at the ends of their range, and those that have no bit, or one.
    words[..8].copy_from_slice(&[0, 1, u32::MAX, 1 << 31, i32::MAX.cast_unsigned(), 2, 0, 0xffff]);
    words
}

fn groups_of(invocations: usize) -> Result<u32> {
    Ok(u32::try_from(invocations / GROUP)?)
}
