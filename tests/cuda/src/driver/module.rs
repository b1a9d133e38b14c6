//! Modules, and launches of their kernels.
#![allow(unsafe_code, reason = "libcuda's functions are unsafe to call")]

use std::ffi::{CStr, c_void};
use std::rc::Rc;

use anyhow::{Result, ensure};

use super::{Context, Handle, Stream};

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

/// How many blocks of how many threads are launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The grid's width, height and depth.
    pub blocks: [u32; 3],
    /// A block's width, height and depth.
    pub threads: [u32; 3],
}

impl Module {
    /// From the text of CUDA's intermediate code, which the library compiles.
    pub fn load(context: &Rc<Context>, text: &CStr) -> Result<Self> {
        // SAFETY: the text ends with a zero.
        unsafe { Self::load_from(context, text.as_ptr().cast()) }
    }

    /// From a cubin: machine code, for the device as it is.
    pub fn load_code(context: &Rc<Context>, cubin: &'static [u8]) -> Result<Self> {
        ensure!(cubin.starts_with(b"\x7fELF"), "no cubin");
        // SAFETY: it is a whole file, whose header says how much of it there is.
        unsafe { Self::load_from(context, cubin.as_ptr().cast()) }
    }

    /// # Safety
    /// Code in a form that the library knows is there.
    unsafe fn load_from(context: &Rc<Context>, code: *const c_void) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place for the answer is borrowed over the call; the code is there by this function's
        // contract.
        let status = unsafe { (context.driver.functions.module_load_data)(&raw mut handle, code) };
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

impl Shape {
    /// So many blocks of so many threads, in a row.
    pub fn row(blocks: u32, threads: u32) -> Self {
        Self { blocks: [blocks, 1, 1], threads: [threads, 1, 1] }
    }
}

impl Kernel<'_> {
    /// Launches it in the usual stream. The kernel must take these parameters, 8 bytes each.
    pub fn launch(&self, shape: Shape, parameters: &[u64]) -> Result<()> {
        self.launch_by(shape, parameters, std::ptr::null_mut())
    }

    /// Launches it in a stream.
    pub fn launch_in(&self, stream: &Stream, shape: Shape, parameters: &[u64]) -> Result<()> {
        self.launch_by(shape, parameters, stream.handle())
    }

    /// Launches it in the usual stream as a grid whose blocks may wait for each other, since all of them run.
    pub fn launch_together(&self, shape: Shape, parameters: &[u64]) -> Result<()> {
        let mut places = places(parameters);
        let Shape { blocks, threads } = shape;
        let context = &self.module.context;
        // SAFETY: each place has as many bytes as the kernel takes there, which the library copies.
        let status = unsafe {
            (context.driver.functions.launch_cooperative_kernel)(
                self.handle,
                blocks[0],
                blocks[1],
                blocks[2],
                threads[0],
                threads[1],
                threads[2],
                0,
                std::ptr::null_mut(),
                places.as_mut_ptr(),
            )
        };
        context.driver.check("cuLaunchCooperativeKernel", status)
    }

    fn launch_by(&self, shape: Shape, parameters: &[u64], stream: Handle) -> Result<()> {
        let mut places = places(parameters);
        let Shape { blocks, threads } = shape;
        let context = &self.module.context;
        // SAFETY: each place has as many bytes as the kernel takes there, which the library copies; null is
        // no other form of the parameters.
        let status = unsafe {
            (context.driver.functions.launch_kernel)(
                self.handle,
                blocks[0],
                blocks[1],
                blocks[2],
                threads[0],
                threads[1],
                threads[2],
                0,
                stream,
                places.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        context.driver.check("cuLaunchKernel", status)
    }
}

/// Where each of the parameters is.
fn places(parameters: &[u64]) -> Vec<*mut c_void> {
    parameters.iter().map(|value| std::ptr::from_ref(value).cast_mut().cast()).collect()
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the handle is a module's, and is not used afterwards.
        let _ = unsafe { (self.context.driver.functions.module_unload)(self.handle) };
    }
}
