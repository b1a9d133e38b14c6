//! Instructions, one after the other.

mod atomic;
mod bindless;
mod context;
mod control;
mod convert;
mod cross;
mod double;
mod float;
mod half;
mod integer;
mod memory;
mod phase;
mod quick;
mod special;
mod sums;
mod tensor;

use gpuvmk_isa::Opcode as O;

pub(crate) use context::{Context, Turn};
use context::{Flow, INSTRUCTION};
pub(crate) use memory::touched;
pub(crate) use quick::run as quick_run;

use crate::fault::{Cause, Exception};
use crate::op::Op;
use crate::program::{PAGE, Page};
use crate::row::{ALL, Kept};
use crate::warp::{TURN, Warp};

/// Runs instructions that have forms of their own: see [`quick::run`].
pub(crate) type Quickly = fn(&mut Warp, &mut Context<'_>, &Page, u64, u32) -> Result<u32, Cause>;

/// Runs a warp while it stays in a page of code. What is left are its instructions, and those of its group.
/// Where all lanes run together, `quickly` runs those that it can.
///
/// # Errors
/// Why it cannot go on. The group's place is that of the instruction.
#[inline(always)]
pub(crate) fn in_page(
    warp: &mut Warp,
    context: &mut Context<'_>,
    page: &Page,
    base: u64,
    [left, fairness]: &mut [u32; 2],
    quickly: Quickly,
) -> Result<Option<Turn>, Cause> {
    let pool = &page.pool[..];
    loop {
        let offset = warp.group.pc.wrapping_sub(base);
        if offset >= PAGE || warp.group.mask == 0 {
            return Ok(None);
        }
        if *left == 0 {
            return Ok(Some(Turn::Quantum));
        }
        let index = usize::try_from(offset / INSTRUCTION).unwrap_or(usize::MAX);
        if warp.group.mask == ALL && !warp.is_split() && offset.is_multiple_of(INSTRUCTION) {
            let ran = quickly(warp, context, page, base, *left)?;
            if ran > 0 {
                *left -= ran;
                continue;
            }
        }
        *left -= 1;
        if warp.is_split() {
            *fairness -= 1;
            if *fairness == 0 {
                *fairness = TURN;
                warp.rotate();
                continue;
            }
        }
        if !offset.is_multiple_of(INSTRUCTION) {
            return Err(Cause::Exception(Exception::MisalignedPc));
        }
        let (op, bindless) = match page.op(index) {
            Some(Ok(found)) => found,
            Some(Err(cause)) => return Err(cause),
            None => return Ok(None),
        };
        warp.count += 1;
        let guard = warp.lanes(op.guard) & warp.group.mask;
        let mask = match (op.uniform, guard) {
            (true, 1..) => ALL,
            _ => guard,
        };
        let own;
        let (op, pool) = match bindless {
            Some(found) if mask != 0 => match bindless::prepare(warp, context, found, pool, mask)? {
                Some(prepared) => {
                    own = prepared;
                    (&own.0, &own.1[..])
                }
                None => {
                    warp.group.pc = warp.group.pc.wrapping_add(INSTRUCTION);
                    continue;
                }
            },
            _ => (op, pool),
        };
        match step(warp, context, op, pool, mask)? {
            Flow::Next => warp.group.pc = warp.group.pc.wrapping_add(INSTRUCTION),
            Flow::Set => {}
            Flow::Arrived(arrival) => return Ok(Some(Turn::Arrived(arrival))),
        }
    }
}

#[inline(always)]
fn step(
    warp: &mut Warp,
    context: &mut Context<'_>,
    op: &Op,
    pool: &[Kept],
    mask: u32,
) -> Result<Flow, Cause> {
    // Branches, ends and barriers know what no lanes are.
    if mask == 0 && !control::is_control(op.opcode) {
        return Ok(Flow::Next);
    }
    match op.opcode {
        O::Mov | O::Umov | O::Sel | O::Usel | O::Prmt | O::Uprmt | O::Iadd3 | O::Uiadd3 | O::Viadd => {
            integer::run(warp, op, pool, mask)?;
        }
        O::Imad | O::ImadWide | O::ImadHi | O::Uimad | O::UimadWide | O::UimadHi => {
            integer::multiply(warp, op, pool, mask)?;
        }
        O::Isetp | O::Uisetp | O::Plop3 | O::Uplop3 => integer::predicates(warp, op, pool, mask)?,
        O::Lea | O::Ulea | O::Lop3 | O::Ulop3 | O::Shf | O::Ushf | O::Iabs | O::Popc | O::Upopc => {
            integer::bits(warp, op, pool, mask)?;
        }
        O::Flo | O::Uflo | O::Brev | O::Ubrev | O::Bmsk | O::Ubmsk | O::Sgxt | O::Usgxt => {
            integer::bits(warp, op, pool, mask)?;
        }
        O::Vabsdiff | O::Vabsdiff4 => integer::differences(warp, op, pool, mask)?,
        O::VimnmxU16x2 | O::VimnmxS16x2 => integer::pick_halves(warp, op, pool, mask)?,
        O::Imnmx | O::Vimnmx | O::Uvimnmx | O::Viaddmnmx => integer::pick(warp, op, pool, mask)?,
        O::Idp4a | O::Idp2a | O::Idp2aHi => integer::dot(warp, op, pool, mask)?,
        O::P2r | O::R2p => integer::packed_predicates(warp, op, pool, mask)?,
        O::Fadd | O::Fmul | O::Ffma | O::Fmnmx | O::Fsel | O::Fset | O::Fsetp | O::Fchk | O::Mufu => {
            float::run(warp, op, pool, mask)?;
        }
        O::Dadd | O::Dmul | O::Dfma | O::Dsetp => double::run(warp, op, pool, mask)?,
        O::Hadd2 | O::Hfma2 | O::Hfma2Mma | O::Hmul2 | O::Hmnmx2 | O::Hsetp2 | O::Hset2 => {
            half::run(warp, op, pool, mask)?;
        }
        O::F2f | O::F2i | O::I2f | O::I2fp | O::Frnd | O::F2fp => convert::run(warp, op, pool, mask)?,
        O::Ldg | O::Ld | O::Lds | O::Ldl => memory::load(warp, context, op, pool, mask)?,
        O::Stg | O::St | O::Sts | O::Stl => memory::store(warp, context, op, pool, mask)?,
        O::Ldsm => memory::matrices(warp, context, op, pool)?,
        O::Stsm => memory::store_matrices(warp, context, op, pool)?,
        O::Ldgsts => memory::copy(warp, context, op, pool, mask)?,
        O::Qspc => memory::space(warp, context, op, pool, mask)?,
        O::Ldc | O::Uldc | O::Ldcu => memory::constant(warp, context, op, pool, mask)?,
        O::Atomg
        | O::AtomgCas
        | O::Red
        | O::Redg
        | O::Atom
        | O::AtomCas
        | O::Atoms
        | O::AtomsCas
        | O::AtomsPopcInc => {
            atomic::run(warp, context, op, pool, mask)?;
        }
        O::AtomsArrive | O::SyncsExch | O::SyncsArrive | O::SyncsPhasechk => {
            phase::run(warp, context, op, pool, mask)?;
        }
        O::Vote | O::Voteu | O::Match | O::Redux | O::Shfl | O::R2ur | O::Elect | O::Fswzadd => {
            cross::run(warp, op, pool, mask)?;
        }
        O::Hmma | O::Imma | O::Bmma | O::Dmma | O::Movm => tensor::run(warp, op, pool)?,
        O::S2r | O::S2ur | O::Cs2r | O::Cs2ur => special::run(warp, context, op, mask)?,
        O::B2r => control::reduced(warp, op, mask)?,
        _ => return control::run(warp, op, pool, mask),
    }
    Ok(Flow::Next)
}
