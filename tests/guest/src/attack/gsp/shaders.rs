//! Launches and macros that mean harm. Words of machine code are those that every version from Turing on
//! has; what differs is in the generation's row.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use gpuvmk_chip::gh100::methods::{compute, macros};
use gpuvmk_chip::mme::{Encoded, Operation, Register, fields};
use gpuvmk_chip::qmd::Qmd;
use gpuvmk_chip::qmd::layout::{Layout, Number};

use super::Rig;
use super::driver::{COMPUTE, Channel, THREED};
use crate::attack::tool::{End, HERE, HONEST, NOWHERE, Target, Tool};
use crate::attack::{Outcome, Seen, Stage, Time};
use crate::dma_memory::Piece;
use crate::push::{Commands, split};

/// Bytes at [`HERE`]: code, and a QMD behind it.
const BYTES: usize = 0x2000;
const QMD: usize = 0x1000;
/// How long work may take that does not end.
const PATIENCE: Duration = Duration::from_millis(150);
/// How long it may take to take it away.
const AWAY: Duration = Duration::from_secs(3);

/// EXIT.
const EXIT: u128 = 0x000f_ea00_0380_0000_0000_0000_0000_794d;
/// BAR.SYNC for 992 threads.
const BARRIER: u128 = 0x000f_ec00_0001_0000_0000_0000_0000_7b1d | 992 << 42;

/// Something to launch.
struct Harm {
    what: &'static str,
    code: Vec<u128>,
    qmd: Qmd,
    /// Address of the QMD.
    at: u64,
}

/// A launch of one block of 32 threads.
fn ordinary(layout: &Layout, code: &[u128]) -> Harm {
    let mut qmd = Qmd::new(layout).with(layout.registers, 32).with_number(layout.program, HERE);
    for field in layout.grid.into_iter().chain(layout.block) {
        qmd = qmd.with(field, 1);
    }
    qmd = qmd.with(layout.block[0], 32).with(layout.barriers, 1);
    Harm { what: "", code: code.to_vec(), qmd, at: HERE + QMD as u64 }
}

impl Harm {
    fn with(self, what: &'static str, change: impl FnOnce(Qmd) -> Qmd) -> Self {
        Self { what, qmd: change(self.qmd), ..self }
    }

    /// Puts it into memory. Returns the commands that launch it.
    fn place(&self, rig: &Rig<'_>, piece: Piece) -> Commands {
        let code = self.code.iter().flat_map(|word| word.to_le_bytes());
        let qmd = self.qmd.words().iter().flat_map(|word| word.to_le_bytes());
        for (start, bytes) in [(0, code.collect::<Vec<_>>()), (QMD, qmd.collect())] {
            for (at, word) in (start..).step_by(4).zip(bytes.as_chunks().0) {
                rig.gpu.memory.store32(piece, at, u32::from_le_bytes(*word));
            }
        }
        let [_, shifted] = split(self.at >> 8);
        let mut commands = Commands::new();
        let invalidate = compute::INVALIDATE_SHADER_CACHES::INSTRUCTION.mask();
        commands.methods(COMPUTE, compute::INVALIDATE_SHADER_CACHES.into(), &[invalidate]);
        commands.methods(COMPUTE, compute::SEND_PCAS_A.into(), &[shifted]);
        // Scheduled, and read anew: the bits of either form.
        commands.methods(COMPUTE, rig.gpu.generation.signal.into(), &[3]);
        commands
    }
}

/// A rig with a channel of the graphics engine beside its own, and memory at [`HERE`].
struct Shaders<'a> {
    rig: Rig<'a>,
    channel: Channel,
    piece: Piece,
}

impl<'a> Shaders<'a> {
    /// With the attack's time.
    fn timed(stage: &'a mut Stage) -> Result<(Self, Time)> {
        let (mut rig, time) = Rig::timed(stage)?;
        let piece = rig.take(BYTES)?;
        rig.map(HERE, Target::Memory(piece.physical), BYTES as u64)?;
        rig.flush();
        let channel = rig.gpu.compute_channel(&mut rig.space, 5)?;
        Ok((Self { rig, channel, piece }, time))
    }

    /// Has commands run, and the channel made anew. `None` when the vGPU is gone.
    fn try_out(&mut self, commands: &Commands, limit: Duration) -> Result<Option<End>> {
        let end = self.rig.gpu.run(&mut self.channel, commands, limit);
        if end == End::Lost {
            return Ok(None);
        }
        let start = Instant::now();
        self.rig.gpu.revive(&mut self.channel)?;
        ensure!(start.elapsed() < AWAY, "taking it away took {:?}", start.elapsed());
        Ok(Some(end))
    }

    fn ends_well(mut self) -> Result<()> {
        let end = self.rig.copies_honestly(0x5ade);
        ensure!(end == End::Done, "the honest channel ended with {end:?}");
        Ok(())
    }
}

/// What must be stopped.
fn abuses(layout: &Layout) -> Vec<Harm> {
    let of = |code: &[u128]| ordinary(layout, code);
    let [low, high] = layout.local;
    let huge = |field: Number| move |qmd: Qmd| qmd.with_number(field, 0xff_fff0);
    let mut harms = vec![
        of(&[u128::MAX]).with("words that are no code", |qmd| qmd),
        of(&[EXIT]).with("code that is not mapped", |qmd| qmd.with_number(layout.program, NOWHERE)),
        of(&[EXIT]).with("much low local memory", huge(low)),
        of(&[EXIT]).with("much high local memory", huge(high)),
        of(&[EXIT]).with("many threads", |qmd| qmd.with(layout.block[1], 64)),
        of(&[EXIT]).with("many registers", |qmd| qmd.with(layout.registers, 0x1ff)),
        of(&[EXIT]).with("many barriers", |qmd| qmd.with(layout.barriers, 31)),
        of(&[EXIT]).with("much shared memory", |qmd| qmd.with_number(layout.shared, 0x3_ff80)),
        of(&[EXIT]).with("an unknown version", |qmd| qmd.with(layout.version_fields[0], 9)),
    ];
    let nowhere = of(&[EXIT]).with("a description that is not mapped", |qmd| qmd);
    harms.push(Harm { at: NOWHERE, ..nowhere });
    if let Some(release) = layout.releases.first() {
        harms.push(of(&[EXIT]).with("a semaphore that is not mapped", |qmd| {
            qmd.with(release.enable, 1).with_number(release.address, NOWHERE)
        }));
    }
    harms
}

/// Launches that must not be.
pub fn abuse(stage: &mut Stage) -> Result<Seen> {
    let (mut shaders, time) = Shaders::timed(stage)?;
    let harms = abuses(shaders.rig.gpu.generation.launch);
    let mut tried = 0u64;
    while time.goes_on() {
        for harm in &harms {
            let commands = harm.place(&shaders.rig, shaders.piece);
            match shaders.try_out(&commands, HONEST)? {
                Some(end) if end.stopped() => tried += 1,
                Some(end) => bail!("{} ended with {end:?}", harm.what),
                None => bail!("the vGPU was taken away for {}", harm.what),
            }
        }
    }
    shaders.ends_well()?;
    Ok(Seen::new(Outcome::Quarantined, format!("{tried} launches, each stopped its channel")))
}

/// A macro that jumps to itself.
fn endless_macro(class: u32) -> Commands {
    let zero = u16::from(Register::Zero.number());
    let registers = [fields::PREDICATE].into_iter().chain(fields::DESTINATION);
    let registers = registers.chain(fields::SOURCES.into_iter().flatten());
    let group = registers.fold(Encoded::default(), |group, bits| group.with(bits, zero));
    // As every branch of a condition that holds, and of no distance.
    let branch = u16::try_from(Operation::ALL.iter().position(|one| *one == Operation::Beq).unwrap_or(0));
    let group = group.with(fields::OPERATION[0], branch.unwrap_or(0)).with(fields::IMMEDIATE[0], 1 << 15);
    let mut commands = Commands::new();
    commands.methods(THREED, 0, &[class]);
    commands.methods(THREED, macros::LOAD_MME_START_ADDRESS_RAM_POINTER.into(), &[0, 0]);
    commands.methods(THREED, macros::LOAD_MME_INSTRUCTION_RAM_POINTER.into(), &[0]);
    commands.repeated(THREED, macros::LOAD_MME_INSTRUCTION_RAM.into(), &group.words());
    commands.methods(THREED, macros::CALL_MME.into(), &[0]);
    commands
}

/// What need not end.
fn endless(layout: &Layout, branch: u128) -> Vec<Harm> {
    let of = |code: &[u128]| ordinary(layout, code);
    let mut harms = vec![
        of(&[branch]).with("an endless loop", |qmd| qmd),
        of(&[branch])
            .with("a million blocks", |qmd| qmd.with(layout.grid[0], 1 << 20).with(layout.block[0], 1024)),
        of(&[BARRIER, EXIT]).with("a barrier", |qmd| qmd),
    ];
    if let Some(dependent) = layout.dependents.first() {
        harms.push(of(&[EXIT]).with("a description that launches itself", |qmd| {
            let qmd = qmd.with(dependent.enable, 1).with(dependent.pointer, (HERE + QMD as u64) >> 8);
            dependent.action.map_or_else(|| qmd.clone(), |action| qmd.clone().with(action, 1))
        }));
    }
    harms
}

/// Launches and macros without an end, taken away again.
pub fn hangs(stage: &mut Stage) -> Result<Seen> {
    let (mut shaders, time) = Shaders::timed(stage)?;
    let generation = shaders.rig.gpu.generation;
    let harms = endless(generation.launch, generation.branch);
    let (mut tried, mut stopped) = (0u64, 0u64);
    while time.goes_on() {
        let launches: Vec<_> = harms.iter().map(|harm| (harm.what, Some(harm))).collect();
        for (what, harm) in launches.into_iter().chain([("an endless macro", None)]) {
            let commands = match harm {
                Some(harm) => harm.place(&shaders.rig, shaders.piece),
                None => endless_macro(generation.threed),
            };
            match shaders.try_out(&commands, PATIENCE)? {
                Some(End::Done) => bail!("{what} ended"),
                Some(end) => stopped += u64::from(end.stopped()),
                None => {
                    return Ok(Seen::new(
                        Outcome::Quarantined,
                        format!("the vGPU was taken away for {what}"),
                    ));
                }
            }
            tried += 1;
        }
    }
    shaders.ends_well()?;
    let outcome = if stopped == tried { Outcome::Quarantined } else { Outcome::Limited };
    Ok(Seen::new(outcome, format!("{tried} that do not end, {stopped} stopped, the others taken away")))
}
