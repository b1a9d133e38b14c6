//! Takes a script from a trace.

use super::rules::{Rule, Section, SkipReason, rule};
use super::{MOST_STEPS, Script, Step};
use gpuvmk_chip::gf100;
use gpuvmk_chip::gf100::regs::falcon::CPU_CONTROL;
use gpuvmk_chip::gf100::regs::fecs::NV_PGRAPH_PRI_FECS_METHOD_PUSH::ADR;
use gpuvmk_chip::gf100::regs::fecs::{NV_PGRAPH_PRI_FECS_INTR_SET, NV_PGRAPH_PRI_FECS_METHOD_PUSH};
use gpuvmk_chip::gf100::regs::pce0::NV_PCE0_INTR_SET;
use gpuvmk_chip::gf100::regs::pce1::NV_PCE1_INTR_SET;
use gpuvmk_chip::gf100::regs::pgraph::NV_PGRAPH_STATUS;
use gpuvmk_chip::gf100::regs::pmc::{NV_PMC_BOOT_0, NV_PMC_ENABLE};
use gpuvmk_chip::gf100::regs::ptimer::{NV_PTIMER_TIME_0, NV_PTIMER_TIME_1};
use gpuvmk_chip::registers::Reg;
use gpuvmk_ordered::{OrderedMap, OrderedSet};
use gpuvmk_pci::Region;
use gpuvmk_trace::{Access, Direction, Entry, Event, Place};

/// FECS interrupt that has the context saved.
const REQUEST_SWITCH: u32 = NV_PGRAPH_PRI_FECS_INTR_SET::CHSW.mask();
/// A falcon's registers by which firmware comes by DMA: what is in a script would be an address.
const FALCON_DMA: [std::ops::RangeInclusive<u32>; 2] = [0x110..=0x11b, 0x610..=0x61f];
/// NV_PMC_ENABLE: PFIFO, which a driver has on while it drives.
const PFIFO: u32 = NV_PMC_ENABLE::PFIFO.mask();

/// Why a trace gives no script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoScript {
    /// Not what is known.
    #[error("the trace is of a card with NV_PMC_BOOT_0 {0:#010x}; only {name} has rules here", name = gf100::NAME)]
    Chip(u32),
    /// It does not begin with the card.
    #[error(
        "nobody read NV_PMC_BOOT_0 in this trace: record BAR0 from the start of the guest on (filter = [\"bar=0\"])"
    )]
    NoChip,
    /// The trace shows no driver at work.
    #[error("no driver switched PFIFO on in this trace (NV_PMC_ENABLE)")]
    NoDriver,
    /// The falcons were not started, or by DMA.
    #[error("{0} was not brought up in this trace: have the guest use it, so that its driver does")]
    NoGraphics(Section),
    /// Firmware is not in the trace.
    #[error("the driver had {0}'s firmware come by DMA, which is not in a trace of registers")]
    ByDma(Section),
    /// Longer than anything real.
    #[error("more than {MOST_STEPS} steps")]
    TooLong,
}

/// How many accesses were taken and left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Writes that are not in the script.
    pub skipped: OrderedMap<SkipReason, u64>,
    /// Registers in the script that the chip's tables do not have.
    pub undeclared: OrderedSet<u32>,
    /// Registers that no rule knows, which are not in it.
    pub unknown: OrderedSet<u32>,
}

/// The part of PGRAPH's initialisation that the trace is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Up to the start of its falcons.
    Starting,
    /// The falcons run.
    Started,
    /// A context is current, whose state is written.
    Golden,
    /// It was saved.
    Complete,
}

/// Reads of one register.
#[derive(Clone, Copy, Debug)]
struct Looks {
    reg: u32,
    before: Option<u32>,
    last: u32,
}

/// A trace under way.
#[derive(Debug)]
pub struct Recorder {
    script: Script,
    report: Report,
    boot_0: Option<u32>,
    phase: Phase,
    /// A copy engine whose start is being written, and those that are complete.
    copy: [CopyPhase; 2],
    looks: Option<Looks>,
    by_dma: Option<Section>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyPhase {
    Starting,
    Started,
    Complete,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            script: Script::default(),
            report: Report::default(),
            boot_0: None,
            phase: Phase::Starting,
            copy: [CopyPhase::Starting; 2],
            looks: None,
            by_dma: None,
        }
    }
}

impl Recorder {
    /// The next entry of a trace.
    pub fn step(&mut self, entry: &Entry) {
        let Event::Access(access) = &entry.event else { return };
        if access.place != Place::Region(Region::Bar(0)) || access.size != 4 {
            return;
        }
        let Ok(offset) = u32::try_from(access.offset) else { return };
        match access.direction {
            Direction::Read => self.read(offset, access),
            Direction::Write => self.write(offset, access.word()),
        }
    }

    /// The script, of a card with this PCI device.
    ///
    /// # Errors
    /// See [`NoScript`].
    pub fn finish(mut self, device: u16) -> Result<(Script, Report), NoScript> {
        self.settle();
        let boot_0 = self.boot_0.ok_or(NoScript::NoChip)?;
        if boot_0 != gf100::BOOT_0 {
            return Err(NoScript::Chip(boot_0));
        }
        if self.script.units & PFIFO == 0 {
            return Err(NoScript::NoDriver);
        }
        if self.phase != Phase::Complete {
            return Err(NoScript::NoGraphics(Section::Graphics));
        }
        if let Some(section) = self.by_dma {
            return Err(NoScript::ByDma(section));
        }
        if self.script.steps() > MOST_STEPS {
            return Err(NoScript::TooLong);
        }
        // Half a start is none.
        for (phase, section) in self.copy.into_iter().zip([Section::Copy0, Section::Copy1]) {
            if phase == CopyPhase::Starting {
                self.script.sections.remove(&section);
            }
        }
        (self.script.boot_0, self.script.device) = (boot_0, device);
        Ok((self.script, self.report))
    }

    fn read(&mut self, offset: u32, access: &Access) {
        let value = access.word();
        if offset == NV_PMC_BOOT_0.0 {
            self.boot_0.get_or_insert(value);
        }
        // Between two looks drivers look at the clock.
        if [NV_PTIMER_TIME_0.0, NV_PTIMER_TIME_1.0].contains(&offset) {
            return;
        }
        match &mut self.looks {
            Some(looks) if looks.reg == offset => {
                if looks.last != value {
                    looks.before = Some(looks.last);
                }
                looks.last = value;
            }
            _ => {
                self.settle();
                self.looks = Some(Looks { reg: offset, before: None, last: value });
            }
        }
    }

    /// Writes down what was waited for.
    fn settle(&mut self) {
        let Some(Looks { reg, before, last: value }) = self.looks.take() else { return };
        let mask = match before {
            Some(before) => before ^ value,
            // Whether PGRAPH is at rest is always waited for; a look may have been enough.
            None if reg == NV_PGRAPH_STATUS.0 && value == 0 => u32::MAX,
            None => return,
        };
        if let Some(section) = self.section(reg) {
            self.keep(section, Step::Wait { reg: Reg(reg), mask, value });
        }
    }

    /// The open part that a register belongs to.
    fn section(&self, offset: u32) -> Option<Section> {
        let of_graphics = match self.phase {
            Phase::Starting => Some(Section::Graphics),
            Phase::Golden => Some(Section::Golden),
            Phase::Started | Phase::Complete => None,
        };
        match rule(offset) {
            Rule::Skip(_) => None,
            Rule::Graphics => of_graphics,
            Rule::Keep(Section::Copy0) => (self.copy[0] != CopyPhase::Complete).then_some(Section::Copy0),
            Rule::Keep(Section::Copy1) => (self.copy[1] != CopyPhase::Complete).then_some(Section::Copy1),
            Rule::Keep(section) => (self.phase != Phase::Complete).then_some(section),
        }
    }

    fn write(&mut self, offset: u32, value: u32) {
        self.settle();
        self.follow(offset, value);
        match (rule(offset), self.section(offset)) {
            (Rule::Skip(why), _) => {
                *self.report.skipped.entry(why).or_default() += 1;
                if why == SkipReason::Unknown {
                    self.report.unknown.insert(offset);
                }
            }
            (_, None) => *self.report.skipped.entry(SkipReason::Later).or_default() += 1,
            (_, Some(section)) => {
                if let Some(falcon) = falcon(section)
                    && offset
                        .checked_sub(falcon)
                        .is_some_and(|at| FALCON_DMA.iter().any(|dma| dma.contains(&at)))
                {
                    self.by_dma.get_or_insert(section);
                }
                self.keep(section, Step::Write { reg: Reg(offset), value });
                self.started(offset, value);
            }
        }
    }

    fn keep(&mut self, section: Section, step: Step) {
        let (Step::Write { reg, .. } | Step::Wait { reg, .. }) = step;
        if gf100::regs::index().definition(reg).is_none() {
            self.report.undeclared.insert(reg.0);
        }
        if self.script.steps() <= MOST_STEPS {
            self.script.sections.entry(section).or_default().push(step);
        }
    }

    /// Where a write begins or ends a part that it does not belong to.
    fn follow(&mut self, offset: u32, value: u32) {
        if offset == NV_PMC_ENABLE.0 && self.phase != Phase::Complete {
            self.script.units |= value;
        }
        self.phase = match self.phase {
            // A context is current: its golden state is written next.
            Phase::Started if offset == NV_PGRAPH_PRI_FECS_METHOD_PUSH.0 && value == ADR::SET_CHAN => {
                Phase::Golden
            }
            Phase::Golden if offset == NV_PGRAPH_PRI_FECS_INTR_SET.0 && value == REQUEST_SWITCH => {
                Phase::Complete
            }
            phase => phase,
        };
        for (copy, base) in self.copy.iter_mut().zip([NV_PCE0_INTR_SET.0, NV_PCE1_INTR_SET.0]) {
            // Accesses right after its start belong to it.
            let elsewhere = !(base..base.saturating_add(0x1000)).contains(&offset);
            if *copy == CopyPhase::Started && elsewhere {
                *copy = CopyPhase::Complete;
            }
        }
    }

    /// Where a write that was kept starts a falcon.
    fn started(&mut self, offset: u32, value: u32) {
        if !CPU_CONTROL::START.is_set(value) {
            return;
        }
        let fecs = NV_PGRAPH_PRI_FECS_INTR_SET.0;
        if offset == fecs.wrapping_add(CPU_CONTROL) && self.phase == Phase::Starting {
            self.phase = Phase::Started;
        }
        for (copy, base) in self.copy.iter_mut().zip([NV_PCE0_INTR_SET.0, NV_PCE1_INTR_SET.0]) {
            if offset == base.wrapping_add(CPU_CONTROL) {
                *copy = CopyPhase::Started;
            }
        }
    }
}

/// The falcon whose firmware a section has.
fn falcon(section: Section) -> Option<u32> {
    match section {
        Section::Graphics => Some(NV_PGRAPH_PRI_FECS_INTR_SET.0),
        Section::Copy0 => Some(NV_PCE0_INTR_SET.0),
        Section::Copy1 => Some(NV_PCE1_INTR_SET.0),
        Section::Board | Section::Golden => None,
    }
}
