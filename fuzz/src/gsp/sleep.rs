//! A driver that suspends GSP and hands what was kept back, as it is or changed, to the same GSP or another
//! one.

use gpuvmk::gsp::abi::common::suspend::{GSP_FW_SR_META_MAGIC, GSP_FW_SR_META_REVISION, GspFwSRMeta};
use gpuvmk::gsp::{BootError, Gsp, GspConfig};
use gpuvmk_backend::testing::FakeGspBack;
use zerocopy::{FromZeros, IntoBytes};

use super::rpc::Driver;
use super::{BASE, rpc};
use crate::gsp_queues::{Queues, Ram as _};
use crate::input::Input;

/// Where the driver has the memory, between the boot arguments and the queues.
const META: u64 = 0x4000;
const FIRST: u64 = 0x5000;
const SECOND: u64 = 0x6000;
const THIRD: u64 = 0x7000;
const DATA: u64 = 0x8000;
const PAGES: u64 = 7;
/// Places in it that are worth writing nonsense to.
const PLACES: [u64; 8] = [META, META + 16, META + 24, FIRST, SECOND, THIRD, DATA + 16, DATA + 32];
/// Before what is kept: magic, version, 0, length and checksum.
const HEADER: usize = 32;

/// Suspends GSP.
pub(super) fn suspend(driver: Driver, gsp: &mut Gsp, back: &FakeGspBack, queues: &mut Queues) {
    let mut meta = GspFwSRMeta::new_zeroed();
    meta.magic = GSP_FW_SR_META_MAGIC;
    meta.revision = GSP_FW_SR_META_REVISION;
    meta.sysmemAddrOfSuspendResumeData = BASE + FIRST;
    meta.sizeOfSuspendResumeData = PAGES * 0x1000;
    back.put(META, meta.as_bytes());
    back.put(FIRST, &(BASE + SECOND).to_le_bytes());
    back.put(SECOND, &(BASE + THIRD).to_le_bytes());
    for page in 0..PAGES {
        back.put(THIRD + 8 * page, &(BASE + DATA + 0x1000 * page).to_le_bytes());
    }
    for record in rpc::suspension(driver, BASE + META) {
        let record = record(queues);
        queues.push(back, &record);
        gsp.commands(back, 0);
        queues.read_all(back);
    }
    // Some drivers say where only when the processor stops; that nothing was suspended is no fault of theirs.
    if driver.abi.resume_runs_channels
        && let Err(error) = gsp.keep(back, BASE + META)
    {
        drop(error.to_string());
    }
}

/// Resumes it, or another one.
pub(super) fn resume(
    input: &mut Input<'_>,
    gsp: &mut Gsp,
    config: GspConfig,
    back: &FakeGspBack,
    queues: &mut Queues,
) {
    if input.flag() {
        *gsp = Gsp::new(config);
        back.power_off();
    }
    match input.below(4) {
        0 => {}
        1 => back.put(input.near(&PLACES), input.bytes(16)),
        _ => change(input, back),
    }
    match gsp.resume(back, BASE + META) {
        Ok(_) => {}
        Err(BootError::Saved(error)) => {
            drop(error.to_string());
            assert_eq!(gsp.objects(), 0, "something is left of a state that was refused");
            assert!(back.live().is_empty(), "channels are left of a state that was refused");
        }
        Err(other) => panic!("{other}"),
    }
    if input.flag() {
        for record in rpc::toggles() {
            let record = record(queues);
            queues.push(back, &record);
        }
        gsp.commands(back, 0);
    }
}

/// Changes what is kept, and makes its checksum right.
fn change(input: &mut Input<'_>, back: &FakeGspBack) {
    let mut state = vec![0; usize::try_from(PAGES).unwrap_or(0) * 0x1000];
    back.get(DATA, &mut state);
    let (header, body) = state.split_at_mut(HEADER);
    let mut word = [0; 8];
    word.copy_from_slice(&header[16..24]);
    let length = usize::try_from(u64::from_le_bytes(word)).unwrap_or(usize::MAX).min(body.len());
    for _ in 0..=input.below(4) {
        let at = usize::from(input.u16()) % length.max(1);
        let bytes = input.bytes(8);
        body.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
    }
    let length = if input.below(8) == 7 { usize::from(input.u16()).min(body.len()) } else { length };
    let sum = body[..length]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    header[16..24].copy_from_slice(&(length as u64).to_le_bytes());
    header[24..32].copy_from_slice(&sum.to_le_bytes());
    back.put(DATA, &state);
}
