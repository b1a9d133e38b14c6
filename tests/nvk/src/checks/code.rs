//! The machine code that the driver makes of each shader, looked at before any of it runs.
//!
//! A branch that leads out of its shader's code costs a channel, and the GPU may have other users. So this
//! comes before every launch, and works as well in front of a device that cannot run shaders.

use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use gpuvmk_isa::Arch;

use super::{Figures, sass};
use crate::shaders::{self, Shader};
use crate::vulkan::{self, Buffer, Device, Place};

/// Every word of every shader is an instruction, and every branch leads to one of the same shader.
pub fn branches(device: &Rc<Device>, arch: Arch) -> Result<Figures> {
    of(device, arch, &shaders::ALL)
}

/// The same of those of the group `wide`.
pub fn wide(device: &Rc<Device>, arch: Arch) -> Result<Figures> {
    of(device, arch, &shaders::WIDE)
}

fn of(device: &Rc<Device>, arch: Arch, all: &[Shader]) -> Result<Figures> {
    let buffer = Buffer::new(device, Place::Gpu, 64)?;
    let mut counts = Figures::new();
    for shader in all {
        let (buffers, constants) = (vec![&buffer; shader.buffers], vec![0; shader.constants]);
        let kept = vulkan::kept(device, shader.spirv, &buffers, &constants)?;
        let count = sass::find(&kept)
            .and_then(|code| sass::branches(code, arch))
            .with_context(|| format!("the code of {}", shader.name))?;
        ensure!(count > 0 || !shader.branches, "the code of {} has no branch, but must have", shader.name);
        counts.insert(shader.name.into(), count.into());
    }
    Ok(counts)
}
