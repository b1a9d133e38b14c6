//! The same sums over and over until the program's input ends, for somebody who looks at the GPU meanwhile.

use std::ffi::CStr;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Result;
use gpuvmk_report::Figures;

use super::{SUMS, figures, pattern, same, sum};
use crate::driver::{Context, DeviceMemory, Module, Shape};

/// See the module.
pub fn run(context: &Rc<Context>) -> Result<Figures> {
    const COUNT: usize = 1 << 16;
    let module = Module::load(context, CStr::from_bytes_with_nul(SUMS.as_bytes())?)?;
    let kernel = module.kernel(c"vector_sum")?;
    let [one, two, result] = [(); 3].map(|()| DeviceMemory::allocate(context, COUNT * 4));
    let (one, two, result) = (one?, two?, result?);
    let inputs = [7, 8].map(|seed| pattern(COUNT * 4, seed));
    one.write(&inputs[0])?;
    two.write(&inputs[1])?;
    let ended = Arc::new(AtomicBool::new(false));
    let reader = Arc::clone(&ended);
    thread::spawn(move || {
        // An input that cannot be read has ended.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        reader.store(true, Ordering::Relaxed);
    });
    let mut launches = 0;
    while launches == 0 || !ended.load(Ordering::Relaxed) {
        let parameters = [one.address(), two.address(), result.address(), COUNT as u64];
        kernel.launch(Shape::row(32, 256), &parameters)?;
        context.synchronize()?;
        launches += 1;
    }
    same(&result.read()?, &sum(&inputs))?;
    Ok(figures(&[("launches", launches)]))
}
