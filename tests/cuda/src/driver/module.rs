//! Modules, and launches of their kernels.
#![allow(unsafe_code, reason = "libcuda's functions are unsafe to call")]

use std::ffi::{CStr, c_void};
use std::rc::Rc;

use anyhow::Result;

use super::{Context, Handle};

/// Code in a context.
#[derive(Debug)]
pub struct Module {
    context: Rc<Context>,
    handle: Handle,
}

/// A function that can be launched, as long as its module is there.
#[derive(Debug)]
pub struct Kernel<'a> {
    module: &'a Module,
    handle: Handle,
}

impl Module {
    /// From the text of CUDA's intermediate code, which the library compiles.
    pub fn load(context: &Rc<Context>, text: &CStr) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place for the answer is borrowed over the call; the text ends with a zero.
        let status =
            unsafe { (context.driver.functions.module_load_data)(&raw mut handle, text.as_ptr().cast()) };
        context.driver.check("cuModuleLoadData", status)?;
        Ok(Self { context: Rc::clone(context), handle })
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &CStr) -> Result<Kernel<'_>> {
        let mut handle = std::ptr::null_mut();
        let functions = &self.context.driver.functions;
        // SAFETY: the place for the answer is borrowed over the call; the name ends with a zero.
        let status = unsafe { (functions.module_get_function)(&raw mut handle, self.handle, name.as_ptr()) };
        self.context.driver.check("cuModuleGetFunction", status)?;
        Ok(Kernel { module: self, handle })
    }
}

impl Kernel<'_> {
    /// Launches so many blocks of so many threads. The kernel must take these parameters, 8 bytes each.
    pub fn launch(&self, blocks: u32, threads: u32, parameters: &[u64]) -> Result<()> {
        let mut places: Vec<*mut c_void> =
            parameters.iter().map(|value| std::ptr::from_ref(value).cast_mut().cast()).collect();
        let context = &self.module.context;
        let none = std::ptr::null_mut();
        // SAFETY: each place has as many bytes as the kernel takes there, which the library copies; null is
        // the usual stream, and no other form of the parameters.
        let status = unsafe {
            (context.driver.functions.launch_kernel)(
                self.handle,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                none,
                places.as_mut_ptr(),
                none.cast(),
            )
        };
        context.driver.check("cuLaunchKernel", status)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the handle is a module's, and is not used afterwards.
        let _ = unsafe { (self.context.driver.functions.module_unload)(self.handle) };
    }
}
