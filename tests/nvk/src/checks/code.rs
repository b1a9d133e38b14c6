//! The machine code that the driver makes of each shader, looked at before any of it runs.
//!
//! A branch that leads out of its shader's code costs a channel, and the GPU may have other users. So this
//! comes before every launch, and works as well in front of a device that cannot run shaders. The code is
//! read as that of Hopper: on another GPU the check says nothing.

use std::rc::Rc;

use anyhow::{Context, Result, ensure};

use super::{Figures, sass};
use crate::shaders;
use crate::vulkan::{self, Buffer, Device, Place};

/// Every branch of every shader leads to an instruction of it.
pub fn branches(device: &Rc<Device>) -> Result<Figures> {
    let buffer = Buffer::new(device, Place::Gpu, 64)?;
    let mut counts = Figures::new();
    for shader in shaders::ALL {
        let (buffers, constants) = (vec![&buffer; shader.buffers], vec![0; shader.constants]);
        let kept = vulkan::kept(device, shader.spirv, &buffers, &constants)?;
        let count = sass::find(&kept)
            .and_then(sass::branches)
            .with_context(|| format!("the code of {}", shader.name))?;
        ensure!(count > 0 || !shader.branches, "the code of {} has no branch, but must have", shader.name);
        counts.insert(shader.name.into(), count.into());
    }
    Ok(counts)
}
