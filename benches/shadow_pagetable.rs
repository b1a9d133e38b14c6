//! What a TLB flush costs: walking the tables of an address space and telling what changed.
//!
//! `cargo bench --bench shadow_pagetable`. A flush reads all tables of the space (264 KiB for each 128 MiB
//! that are mapped with small pages), so the time without changes is the price of reading and comparing them.
//! `flush` has the same against limits.

#![allow(clippy::expect_used, reason = "a bench that cannot go on panics")]

#[path = "flush/guest.rs"]
mod guest;

use divan::Bencher;
use gpuvmk::shadow_pagetable::Fermi;
use guest::{GIB, Guest, Layout, V2, V3, Written};

fn main() {
    divan::main();
}

const MAPPED: [u64; 5] = [1, 512, 8192, 65_536, GIB];
const CHANGED: [u64; 5] = [1, 64, 4096, 65_536, GIB];

#[divan::bench(types = [Fermi, V2, V3], args = MAPPED)]
fn flush_without_changes<F: Written>(bencher: Bencher<'_, '_>, mapped: u64) {
    let mut guest = Guest::<F>::new(mapped, Layout::Vram);
    guest.flush();
    bencher.bench_local(|| guest.flush());
}

/// The first of a gibibyte's pages are mapped elsewhere; that they are written is a part of what is measured.
#[divan::bench(args = CHANGED)]
fn flush_with_pages_changed(bencher: Bencher<'_, '_>, changed: u64) {
    flush_with_changes(bencher, changed, Layout::Vram, 1);
}

/// Pages all over a gibibyte are mapped elsewhere, each a run of its own.
#[divan::bench(args = CHANGED)]
fn flush_with_scattered_pages_changed(bencher: Bencher<'_, '_>, changed: u64) {
    flush_with_changes(bencher, changed, Layout::Scattered, GIB / changed);
}

fn flush_with_changes(bencher: Bencher<'_, '_>, changed: u64, layout: Layout, step: u64) {
    let mut guest = Guest::<Fermi>::new(GIB, layout);
    guest.flush();
    let mut round = 0;
    bencher.bench_local(|| {
        round += 1;
        guest.remap((0..changed).map(|page| page * step), round);
        guest.flush()
    });
}

/// Tables of a gibibyte, seen for the first time, and forgotten.
#[divan::bench(types = [Fermi, V2, V3], args = Layout::ALL)]
fn first_walk<F: Written>(bencher: Bencher<'_, '_>, layout: Layout) {
    let mut guest = Guest::<F>::new(GIB, layout);
    bencher.bench_local(|| {
        guest.flush();
        guest.forget();
    });
}
