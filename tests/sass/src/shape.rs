//! Hand-made programs of control flow: what a warp's words and barriers hold, where calls and jumps go, local
//! memory at both ends. Random instances cannot have these, for where they lead to matters.
//!
//! Each ends by itself, and stores a word of each thread a slot. Threads that do not come to a store have 0
//! there.

mod assembler;
mod barriers;
mod control;
mod generic;
mod memory;
mod orders;
mod places;
mod recording;
mod states;
mod wary;
mod yields;

use gpuvmk_isa::{Arch, Operand, Word};

use crate::program::{CONSTANTS, PARAMETERS};
use crate::task::{FILLED, Launched, Task};
use crate::windows::Places;
use assembler::{Assembler, with_target};

pub use recording::{Difference, OfShape, Recording, record, table, unexpected};

/// The GPU and driver of which `tests/shapes.tsv.gz` has what it gave; none while nothing was recorded.
pub const RECORDED_ON: Option<&str> = Some("NVIDIA H200, driver 580.159.04");

/// Threads of a block: the second warp has sixteen.
const BLOCK: u32 = 48;
const GRID: u32 = 2;
/// Threads of all.
pub const THREADS: u32 = BLOCK * GRID;

/// Registers of a thread.
const REGISTERS: u16 = 40;

/// Where constant bank 0 has the address of the code, and of labels.
const AT_CODE: u16 = 0x100;
const AT_LABELS: u16 = 0x108;

/// Where it has where threads' windows of global memory begin, and generic addresses of shared and of local
/// memory.
const AT_GLOBAL: u16 = 0x1e0;
const AT_SHARED: u16 = 0x1e8;
const AT_LOCAL: u16 = 0x1f0;

/// Words of a place of a table.
const DISTANCE: u32 = 4;

/// A program.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    words: Vec<Word>,
    /// Words with an address of the code in them, and which instruction that is.
    absolute: Vec<(usize, usize)>,
    /// Instructions whose addresses are in constant bank 0.
    addresses: Vec<usize>,
    /// What is stored.
    slots: Vec<String>,
    local: (u32, u32),
    shared: u32,
}

/// A name, and what makes a program.
type Made = (&'static str, fn(&mut Assembler));

/// After one that stops no other one runs: those that are surest come first.
const SHAPES: &[Made] = &[
    ("words", states::together),
    ("words_after_exit", states::after_exit),
    ("words_in_branches", states::in_branches),
    ("words_exit_in_branch", states::exit_in_branch),
    ("words_in_loop", states::in_loop),
    ("words_guarded", states::guarded),
    ("words_gathered", states::gathered),
    ("barriers_nested", barriers::nested),
    ("barriers_in_branches", barriers::in_branches),
    ("barriers_taken", barriers::taken),
    ("barriers_left", barriers::left),
    ("barriers_ended", barriers::ended),
    ("barriers_written", barriers::written),
    ("barriers_values", barriers::values),
    ("barriers_saved", barriers::saved),
    ("places_here", places::here),
    ("places_call", places::call),
    ("places_call_each", places::call_each),
    ("places_call_at", places::call_at),
    ("places_call_near", places::call_near),
    ("places_jump", places::jump),
    ("places_table", places::table),
    ("places_table_of_warp", places::table_of_warp),
    ("places_divergent", places::divergent),
    ("places_any", places::any),
    ("orders_branch", orders::branch),
    ("orders_nested", orders::nested),
    ("orders_in_a_row", orders::in_a_row),
    ("orders_places", orders::places),
    ("orders_guarded", orders::guarded),
    ("orders_yields", orders::yields),
    ("orders_turns", orders::turns),
    ("orders_waiting", orders::waiting),
    ("orders_gathering", orders::gathering),
    ("orders_ending", orders::ending),
    ("orders_divergent", orders::divergent),
    ("places_uniform", places::uniform),
    ("local_negative", memory::negative),
    ("words_lanes_written", states::lanes_written),
    ("generic_global", generic::global),
    ("generic_shared", generic::shared),
    ("generic_local", generic::local),
    ("generic_local_high", generic::local_high),
    ("generic_offsets", generic::offsets),
    ("generic_spaces", generic::spaces),
    ("generic_atomics_global", generic::atomics_global),
    ("generic_atomics_shared", generic::atomics_shared),
    ("generic_atomics_told", generic::atomics_told),
    ("generic_lanes", generic::lanes),
    ("generic_below_shared", generic::below_shared),
    ("generic_below_local", generic::below_local),
    ("generic_distributed", generic::distributed_shared),
    ("yields_waited_for", yields::while_waited_for),
    ("yields_sleep_waited_for", yields::sleep_while_waited_for),
    ("yields_before", yields::before),
    ("yields_sleep_before", yields::sleep_before),
    ("yields_of_three", yields::of_three),
    ("yields_gathered", yields::gathered),
    ("yields_in_a_loop", yields::in_a_loop),
];

const WARY: &[Made] = &[
    ("wary_local_below", memory::below),
    ("wary_converged", places::converged),
    ("wary_words_of_traps", wary::of_traps),
    ("wary_words_written_back", wary::written_back),
    ("wary_words_hidden", wary::hidden),
];

fn made(from: &[Made]) -> Vec<Shape> {
    let one = |(name, make): &Made| {
        let mut assembler = Assembler::default();
        make(&mut assembler);
        assembler.end(name)
    };
    from.iter().map(one).collect()
}

/// The programs that do nothing but what compiled code does, or NVIDIA's at a kernel's start.
#[must_use]
pub fn shapes() -> Vec<Shape> {
    made(SHAPES)
}

/// Those of which nobody knows that they end.
#[must_use]
pub fn wary() -> Vec<Shape> {
    made(WARY)
}

impl Shape {
    /// What each slot is. Words that are stored: the first slot's of all threads, then the second one's.
    #[must_use]
    pub fn slots(&self) -> &[String] {
        &self.slots
    }

    /// Its machine code, where it lies at `code`.
    #[must_use]
    pub fn code(&self, code: u64) -> Vec<u8> {
        let mut words = self.words.clone();
        for (index, target) in &self.absolute {
            words[*index] = with_target(words[*index], Operand::Absolute(address(code, *target)));
        }
        words.iter().flat_map(|word| word.0.to_le_bytes()).collect()
    }

    fn constants(&self, places: &Places) -> Vec<u8> {
        let mut bytes = vec![0; CONSTANTS];
        let labels = self.addresses.iter().map(|index| address(places.code, *index));
        let at = (usize::from(AT_LABELS)..).step_by(8);
        let parameters = usize::from(PARAMETERS);
        let numbers = [(usize::from(AT_CODE), places.code), (parameters, places.inputs)];
        let windows = [
            (AT_GLOBAL.into(), places.windows),
            (AT_SHARED.into(), places.shared_window),
            (AT_LOCAL.into(), places.local_window),
        ];
        for (at, number) in
            numbers.into_iter().chain(windows).chain([(parameters + 8, places.outputs)]).chain(at.zip(labels))
        {
            if let Some(place) = bytes.get_mut(at..at + 8) {
                place.copy_from_slice(&number.to_le_bytes());
            }
        }
        bytes
    }
}

/// The address of an instruction.
fn address(code: u64, index: usize) -> u64 {
    code + index as u64 * 16
}

impl Launched for Shape {
    fn task(&self, places: &Places) -> Task {
        Task {
            arch: Arch::Sm90,
            code: self.code(places.code),
            registers: REGISTERS,
            shared: self.shared,
            barriers: 0,
            local: self.local.0,
            local_high: self.local.1,
            grid: GRID,
            block: BLOCK,
            banks: vec![(0, self.constants(places))],
            variables: Vec::new(),
            inputs: vec![0; 16],
            stored: self.slots.len() * THREADS as usize,
            filled: FILLED,
        }
    }
}
