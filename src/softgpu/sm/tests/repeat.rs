//! One worker runs a grid the same way each time.

use std::sync::{Mutex, MutexGuard};

use super::kernels::{A, B, C, CODE, constants, launch, values};
use super::ram::Ram;
use crate::{Alone, Grid, Memory, MemoryFault, Progress, View, Width};

/// An access of memory: its address, the words that were moved, and the time that was read.
type Access = (u64, Vec<u32>);

/// Memory that writes down what is done to it, in its order.
struct Logged<'a> {
    ram: &'a Ram,
    log: Mutex<Vec<Access>>,
}

struct Look<'a>(&'a Logged<'a>, Box<dyn View + 'a>);

impl Look<'_> {
    fn log(&self) -> MutexGuard<'_, Vec<Access>> {
        self.0.log.lock().unwrap()
    }
}

impl Memory for Logged<'_> {
    fn view(&self) -> Box<dyn View + '_> {
        Box::new(Look(self, self.ram.view()))
    }
}

impl View for Look<'_> {
    fn load(&mut self, address: u64, words: &mut [u32]) -> Result<(), MemoryFault> {
        self.1.load(address, words)?;
        self.log().push((address, words.to_vec()));
        Ok(())
    }

    fn load_byte(&mut self, address: u64) -> Result<u8, MemoryFault> {
        let byte = self.1.load_byte(address)?;
        self.log().push((address, vec![byte.into()]));
        Ok(byte)
    }

    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), MemoryFault> {
        self.log().push((address, words.to_vec()));
        self.1.store(address, words)
    }

    fn store_byte(&mut self, address: u64, byte: u8) -> Result<(), MemoryFault> {
        self.log().push((address, vec![byte.into()]));
        self.1.store_byte(address, byte)
    }

    fn update(
        &mut self,
        address: u64,
        width: Width,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryFault> {
        let before = self.1.update(address, width, change)?;
        self.log().push((address, vec![crate::row::low(before), crate::row::low(before >> 32)]));
        Ok(before)
    }

    fn timer(&mut self) -> u64 {
        let time = self.1.timer();
        self.log().push((0, vec![crate::row::low(time)]));
        time
    }
}

/// What one worker does to memory, in slices of `slice` questions whether it may go on.
fn accesses(code: &[u8], registers: u16, words: &[u32], slice: u32) -> Vec<Access> {
    let count = 4096;
    let mut ram = Ram::default();
    ram.code(CODE, code);
    ram.map(A, &values(count, |index| index * 0.5));
    ram.map(B, &values(count, |index| index - 7.0));
    ram.map(C, &vec![0; count as usize]);
    let (blocks, block) = ([4, 4, 1], [16, 16, 1]);
    let launch = launch(blocks, block, registers, 3072, constants(blocks, block, &[A, B, C], words));
    let grid = Grid::new(launch).unwrap();
    let logged = Logged { ram: &ram, log: Mutex::default() };
    loop {
        let asked = std::sync::atomic::AtomicU32::new(0);
        let go_on = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < slice;
        match grid.run(&logged, &Alone, &go_on) {
            Progress::Paused => {}
            progress => {
                assert_eq!(progress, Progress::Done);
                return logged.log.into_inner().unwrap();
            }
        }
    }
}

#[test]
fn one_worker_does_the_same_in_the_same_order_each_time() {
    let product = include_bytes!("../../../../tests/kernels/sass/sm90/matrix_product.bin");
    for slice in [u32::MAX, 3] {
        let first = accesses(product, 32, &[64], slice);
        assert!(first.len() > 1000, "{} accesses", first.len());
        assert!(first == accesses(product, 32, &[64], slice), "in slices of {slice}");
    }
}
