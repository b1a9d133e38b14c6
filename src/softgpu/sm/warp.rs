//! A warp: its rows, and its lanes' groups, which converge at barriers.

mod barriers;
mod turns;
mod words;

use gpuvmk_isa::warp_state::{FIRST, MACTIVE, MEXITED, OPT_STACK, THREAD_STATE_LAST};

use self::barriers::Barriers;
use self::words::{GATHERS, RUNS, Words, YIELDED, stack, waits_at};
use crate::op::{Condition, POOL, Source, TRUE, UNIFORM_ROWS, ZERO_ROW};
use crate::row::{ALL, Kept, LANES, Row, ZERO, blend};

/// Instructions after which another group of a split warp runs, so that none is kept from running for good.
/// On an H200 a group runs until it waits, ends or yields, and compilers have it yield where it may wait for
/// another.
pub(crate) const TURN: u32 = 4096;

/// Lanes that run together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub pc: u64,
    pub mask: u32,
}

/// What a parked group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The other lanes of a convergence barrier.
    Convergence(u8),
    /// Lanes of a mask (WARPSYNC).
    Lanes(u32),
    /// The CTA.
    Cta(u8),
}

/// What a barrier with a reduction gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reduction {
    /// Lanes for which the predicate held.
    pub holds: u32,
    /// Lanes that arrived.
    pub arrived: u32,
    /// It was asked whether the predicate holds for all, not for one.
    pub of_all: bool,
}

/// A warp.
#[derive(Debug, Default)]
pub(crate) struct Warp {
    rows: Vec<Kept>,
    /// Uniform rows that were written, a bit each.
    uniform: u64,
    /// Registers have what another warp left.
    stale: bool,
    predicates: [u32; 16],
    /// The group that runs; no lanes if none can.
    pub group: Group,
    ready: Vec<Group>,
    parked: Vec<(Group, Wait)>,
    /// Lanes that could go on, and have let others run.
    yielded: u32,
    barriers: Barriers,
    /// Lanes that have not ended.
    pub live: u32,
    /// Instructions that it ran.
    pub count: u64,
    /// Those after which another group runs, if it is split.
    pub fairness: u32,
    /// Place in its CTA.
    pub index: u32,
    /// Result of the last reduction of a CTA barrier.
    pub reduction: Reduction,
    words: Words,
}

impl Warp {
    /// Makes it a warp of which nothing has run. Nothing of what it was stays.
    pub fn start(&mut self, registers: u16, entry: u64, threads: u32, index: u32) {
        let threads = threads.saturating_sub(index.saturating_mul(32));
        let lanes = if threads >= 32 { ALL } else { (1 << threads) - 1 };
        self.rows.resize(usize::from(UNIFORM_ROWS + registers), Kept(ZERO));
        self.stale = true;
        self.predicates = [0; 16];
        self.predicates[usize::from(TRUE)] = ALL;
        self.predicates[usize::from(TRUE) + 8] = ALL;
        self.group = Group { pc: entry, mask: lanes };
        self.ready.clear();
        self.parked.clear();
        self.yielded = 0;
        self.barriers.clear();
        self.live = lanes;
        self.count = 0;
        self.fairness = TURN;
        self.index = index;
        self.reduction = Reduction::default();
        self.words = Words::default();
    }

    /// To be called before each turn. Registers are zeroed before the first one, not earlier: they are used
    /// at once then, and stay in the processor's nearest cache.
    #[inline(always)]
    pub fn prepare(&mut self) {
        if std::mem::take(&mut self.stale) {
            self.clear();
        }
    }

    /// Makes all registers zero.
    fn clear(&mut self) {
        // Most programs use few uniform registers: those of others need no zeroing.
        let mut written = std::mem::take(&mut self.uniform);
        while written != 0 {
            if let Some(row) = self.rows.get_mut(written.trailing_zeros() as usize) {
                row.0 = ZERO;
            }
            written &= written - 1;
        }
        if let Some(registers) = self.rows.get_mut(usize::from(UNIFORM_ROWS)..) {
            registers.fill(Kept(ZERO));
        }
    }

    /// A row of the warp, or of a page's pool. One that is not there reads as zero.
    #[inline(always)]
    pub fn row<'a>(&'a self, pool: &'a [Kept], row: u16) -> &'a Row {
        let index = usize::from(row);
        let found = self.rows.get(index).or_else(|| pool.get(index.wrapping_sub(usize::from(POOL))));
        found.map_or(&ZERO, |row| &row.0)
    }

    /// A row of the warp.
    #[inline(always)]
    pub fn near(&self, row: u16) -> &Row {
        self.rows.get(usize::from(row)).map_or(&ZERO, |row| &row.0)
    }

    /// Uniform registers, and behind them those of the lanes.
    pub fn registers(&self) -> &[Kept] {
        &self.rows
    }

    /// Predicates, and behind them uniform ones.
    pub fn predicates(&self) -> &[u32; 16] {
        &self.predicates
    }

    /// Both halves of a source of 64 bits.
    #[inline(always)]
    pub fn rows<'a>(&'a self, pool: &'a [Kept], source: Source) -> [&'a Row; 2] {
        [self.row(pool, source.row), self.row(pool, source.high)]
    }

    /// Writes lanes of a row. The zero row keeps nothing; false if there is no such row.
    #[inline(always)]
    pub fn put(&mut self, row: u16, value: &Row, mask: u32) -> bool {
        if row < UNIFORM_ROWS {
            if row == ZERO_ROW {
                return true;
            }
            self.uniform |= 1 << row;
        }
        let Some(to) = self.rows.get_mut(usize::from(row)) else { return false };
        blend(&mut to.0, value, mask);
        true
    }

    /// A register of the lanes, to be written.
    #[inline(always)]
    pub fn register(&mut self, row: u16) -> Option<&mut Row> {
        if row < UNIFORM_ROWS { None } else { self.rows.get_mut(usize::from(row)).map(|row| &mut row.0) }
    }

    /// Lanes for which a condition holds.
    #[inline(always)]
    pub fn lanes(&self, condition: Condition) -> u32 {
        let lanes = self.predicates[usize::from(condition.index) % 16];
        if condition.negate { !lanes } else { lanes }
    }

    /// Writes lanes of a predicate; the one that is true keeps nothing.
    #[inline(always)]
    pub fn put_predicate(&mut self, index: u8, value: u32, mask: u32) {
        if index & TRUE != TRUE {
            let to = &mut self.predicates[usize::from(index) % 16];
            *to = *to & !mask | value & mask;
        }
    }

    /// The participants of a convergence barrier, for the group that runs.
    pub fn barrier(&mut self, index: u8) -> &mut u32 {
        self.barriers.seen_by(index, self.group.mask)
    }

    /// BSSY: the group that runs meets at a convergence barrier.
    pub fn set_barrier(&mut self, index: u8) {
        self.barriers.set(index, self.group.mask, self.live);
    }

    /// BMOV: the group that runs writes a convergence barrier's participants.
    pub fn write_barrier(&mut self, index: u8, participants: u32) {
        self.barriers.write(index, participants, self.group.mask, self.live);
    }

    /// Lanes for which others wait: those that have not ended, and do not count as such.
    #[inline(always)]
    pub fn counted(&self) -> u32 {
        self.live & !self.words.hidden
    }

    /// A word of its state; none for one that is not known.
    pub fn word(&mut self, word: u8) -> Option<u32> {
        match word {
            MACTIVE => Some(self.group.mask),
            MEXITED => Some(!self.counted()),
            FIRST..=THREAD_STATE_LAST => Some(self.states(word - FIRST)),
            OPT_STACK => {
                let groups = self.ready.iter().filter(|group| group.mask & self.yielded == 0);
                Some(stack(groups.map(|group| group.mask)))
            }
            _ => None,
        }
    }

    /// A bit of each lane's state.
    fn states(&self, bit: u8) -> u32 {
        let run = self.ready.iter().map(|group| {
            let state = if group.mask & self.yielded == 0 { RUNS } else { YIELDED };
            (group.mask, state)
        });
        let waits = self.parked.iter().map(|(group, wait)| {
            let state = match wait {
                Wait::Convergence(barrier) => waits_at(*barrier),
                Wait::Lanes(_) => GATHERS,
                Wait::Cta(_) => RUNS,
            };
            (group.mask, state)
        });
        let has = |(lanes, state): (u32, u8)| if state >> bit & 1 == 1 { lanes } else { 0 };
        let runs = std::iter::once((self.group.mask, RUNS)).chain(run);
        runs.chain(waits).map(has).fold(0, |all, lanes| all | lanes)
    }

    /// Writes a word. False if this is not known to have a meaning: lanes that begin to run, or end, or come
    /// back, by it.
    pub fn set_word(&mut self, word: u8, value: u32) -> bool {
        match word {
            MACTIVE => value & self.live == self.group.mask,
            MEXITED => {
                let stays = value & self.group.mask == 0 && !value & !self.live == 0;
                if stays {
                    self.words.hidden = value & self.live;
                    self.release();
                }
                stays
            }
            // What lanes do is not changed by their states: they are put back as they were read.
            FIRST..=THREAD_STATE_LAST | OPT_STACK => true,
            _ => false,
        }
    }

    /// Splits `mask` off the running group: it goes on at `pc`, the others wait for their turn where they
    /// are.
    #[cfg(test)]
    pub fn branch(&mut self, pc: u64, mask: u32) {
        let rest = self.group.mask & !mask;
        if rest != 0 {
            self.ready.push(Group { pc: self.group.pc, mask: rest });
        }
        self.group = Group { pc, mask };
    }

    /// Lets `mask` of the running group go on at `pc` in its turn.
    pub fn part(&mut self, pc: u64, mask: u32) {
        self.ready.push(Group { pc, mask });
        self.group.mask &= !mask;
    }

    /// Parks the running group, and takes another one.
    pub fn park(&mut self, wait: Wait) {
        self.parked.push((self.group, wait));
        self.group.mask = 0;
        self.release();
        self.next();
    }

    /// Ends lanes.
    pub fn exit(&mut self, mask: u32) {
        self.live &= !mask;
        self.group.mask &= !mask;
        if !self.parked.is_empty() {
            self.release();
        }
        if self.group.mask == 0 {
            self.next();
        }
    }

    /// BSYNC: the running group, which stands behind it, waits for the others, or goes on with nobody to wait
    /// for. Those who have yielded meet nobody there.
    pub fn meet(&mut self, barrier: u8) {
        let group = self.group.mask;
        let participants = *self.barriers.seen_by(barrier, group);
        let missing = participants & self.counted() & !group & !self.yielded;
        if participants & group == 0 {
            // One that names others is a called function's, until it restores it.
            if !self.barriers.takes_excuse(barrier, group) {
                self.park(Wait::Convergence(barrier));
            }
        } else if missing != 0 {
            self.park(Wait::Convergence(barrier));
        } else {
            self.barriers.open(barrier, group, self.yielded);
        }
    }

    /// Removes lanes from a convergence barrier.
    pub fn leave(&mut self, barrier: u8, mask: u32) {
        *self.barriers.seen_by(barrier, mask) &= !mask;
        self.release();
    }

    /// Whether other groups wait for their turn.
    #[inline(always)]
    pub fn is_split(&self) -> bool {
        !self.ready.is_empty()
    }

    fn waiting(&self, wait: Wait) -> u32 {
        let of = |(group, what): &(Group, Wait)| if *what == wait { group.mask } else { 0 };
        self.parked.iter().map(of).fold(0, |all, mask| all | mask)
    }

    /// Makes ready who has waited long enough.
    fn release(&mut self) {
        let mut index = 0;
        while let Some((group, wait)) = self.parked.get(index).copied() {
            if group.mask & self.words.hidden != 0 {
                index += 1;
                continue;
            }
            let required = match wait {
                // A function that was called may use the same barrier for others, until it restores it.
                Wait::Convergence(barrier) => {
                    let participants = *self.barriers.seen_by(barrier, group.mask);
                    if participants & group.mask == 0 {
                        index += 1;
                        continue;
                    }
                    participants & self.counted() & !self.yielded
                }
                Wait::Lanes(mask) => mask & self.counted(),
                // The CTA wakes them.
                Wait::Cta(_) => {
                    index += 1;
                    continue;
                }
            };
            if required & !self.waiting(wait) == 0 {
                self.wake(wait, group.mask);
                index = 0;
            } else {
                index += 1;
            }
        }
    }

    /// Makes ready all that wait for something, as these lanes do; those that stand at the same instruction
    /// are one group then.
    pub fn wake(&mut self, wait: Wait, lanes: u32) {
        let mut groups: Vec<Group> = Vec::new();
        // A hidden group may wait for something of the same name, which means something else by now.
        let hidden = if matches!(wait, Wait::Cta(_)) { 0 } else { self.words.hidden };
        let participants = match wait {
            Wait::Convergence(barrier) => *self.barriers.seen_by(barrier, lanes),
            Wait::Lanes(_) | Wait::Cta(_) => ALL,
        };
        self.parked.retain(|(group, what)| {
            if *what != wait || group.mask & hidden != 0 || group.mask & participants == 0 {
                return true;
            }
            match groups.iter_mut().find(|other| other.pc == group.pc) {
                Some(other) => other.mask |= group.mask,
                None => groups.push(*group),
            }
            false
        });
        if let Wait::Convergence(barrier) = wait {
            let woken = groups.iter().fold(0, |all, group| all | group.mask);
            self.barriers.open(barrier, woken, self.yielded);
        }
        self.ready.append(&mut groups);
    }

    /// A barrier of the CTA has opened.
    pub fn barrier_opened(&mut self, barrier: u8, reduction: Option<Reduction>) {
        match self.parked[..] {
            // All its lanes wait together: most do.
            [(group, wait)] if group.mask == self.live && wait == Wait::Cta(barrier) && self.is_plain() => {
                self.parked.clear();
                self.group = group;
                self.yielded &= !group.mask;
            }
            _ => {
                self.wake(Wait::Cta(barrier), ALL);
                self.resume();
            }
        }
        self.reduction = reduction.unwrap_or(self.reduction);
    }

    /// Whether none of its lanes is hidden.
    fn is_plain(&self) -> bool {
        self.words.hidden == 0
    }

    /// Takes a group, if none runs.
    pub fn resume(&mut self) {
        if self.group.mask == 0 {
            self.next();
        }
    }

    /// The value of a lane that runs: the lowest one's.
    pub fn first_lane(mask: u32) -> usize {
        (mask.trailing_zeros() as usize).min(LANES - 1)
    }
}
