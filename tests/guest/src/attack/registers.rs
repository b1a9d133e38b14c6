//! Rows 1 to 5 and 26 to 28: what registers let a guest see and change, on any chip.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::card::Card;
use super::random::Random;
use super::{Outcome, Seen, Time, low};

/// Row 1: `odd` are places in BAR0 that a handler is behind.
pub fn widths(card: &Card, time: Time, odd: &[usize]) -> Result<Seen> {
    let whole = card.reg(0);
    let mut accesses = 0u64;
    while time.goes_on() {
        let bytes = [0, 1, 2, 3].map(|at| card.bar0.load8(at).unwrap_or(0));
        ensure!(
            u32::from_le_bytes(bytes) == whole,
            "bytes of a register are {bytes:x?}, the word is {whole:x}"
        );
        let halves = [0, 2].map(|at| card.bar0.load16(at).map_or(0, u32::from));
        ensure!(halves[0] | halves[1] << 16 == whole, "halves of a register are {halves:x?}");
        ensure!(low(card.bar0.load64(0)?) == whole, "8 bytes from a register begin otherwise");
        for bar in [&card.bar0, &card.bar1, &card.bar3] {
            let end = bar.size();
            for place in odd.iter().copied().chain([end - 8, end - 9, end - 15]) {
                bar.load64(place)?;
                bar.load32(place)?;
                bar.load16(place)?;
                bar.store8(place, 0xa5)?;
                bar.store16(place, 0xa5a5)?;
                bar.store64(place, 0x5a5a_a5a5_5a5a_a5a5)?;
                accesses += 6;
            }
            bar.load8(end - 1)?;
            bar.store8(end - 1, 0xff)?;
        }
    }
    Ok(Seen::new(Outcome::Values, format!("{accesses} odd accesses, words and their parts agree")))
}

/// Row 2: half of the accesses go to `hot` ranges (start, bytes), where handlers are.
pub fn fuzz(card: &Card, time: Time, hot: &[(u32, u32)]) -> Seen {
    let mut random = Random::new(2);
    let count = u32::try_from(hot.len()).unwrap_or(0);
    let (mut reads, mut writes) = (0u64, 0u64);
    while time.goes_on() {
        let hot = hot.get(random.below(count) as usize).filter(|_| random.clone().below(2) == 0);
        let (start, size) = hot.copied().unwrap_or((0, 16 << 20));
        let place = start + random.below(size / 4) * 4;
        if random.below(3) == 0 {
            card.reg(place);
            reads += 1;
        } else {
            card.set(place, random.word() >> random.below(32));
            writes += 1;
        }
    }
    let outcome = if card.reg(0) == u32::MAX { Outcome::Quarantined } else { Outcome::Values };
    Seen::new(outcome, format!("{reads} reads and {writes} writes"))
}

/// Rows 3, 27 and 28: writes ones, zeros and random words; the identification must read on.
pub fn overwrite(card: &Card, time: Time, registers: &[u32]) -> Result<Seen> {
    let (whole, mut random) = (card.reg(0), Random::new(3));
    let (mut writes, mut kept) = (0u64, 0u64);
    while time.goes_on() {
        for register in registers {
            for value in [u32::MAX, 0, random.word()] {
                card.set(*register, value);
                writes += 1;
                kept += u64::from(card.reg(*register) == value);
            }
        }
        ensure!(card.reg(0) == whole, "the GPU does not answer any more");
    }
    Ok(Seen::new(Outcome::Values, format!("{writes} writes, {kept} of them read back")))
}

/// Row 4: what must read as before, whatever is written.
pub fn constants(card: &Card, time: Time, places: &[u32]) -> Result<Seen> {
    let look = || places.iter().map(|place| card.reg(*place)).collect::<Vec<u32>>();
    let (before, mut writes) = (look(), 0u64);
    while time.goes_on() {
        for (place, value) in places.iter().zip(&before) {
            card.set(*place, !value);
            writes += 1;
        }
        for ((place, before), now) in places.iter().zip(&before).zip(look()) {
            ensure!(now == *before, "register {place:#x}, a constant, went from {before:#x} to {now:#x}");
        }
    }
    Ok(Seen::new(Outcome::Values, format!("{writes} writes, nothing changed")))
}

/// Row 5: the mirror of configuration space at `base`.
pub fn mirror(card: &Card, time: Time, base: u32) -> Result<Seen> {
    let before: Vec<u32> = (0..16).map(|word| card.reg(base + word * 4)).collect();
    let identity = || [0, 8, 0x2c].map(|offset| card.config(offset).unwrap_or(0));
    let (whole, mut rounds) = (identity(), 0u64);
    while time.goes_on() {
        for word in 0..0x200 {
            card.set(base + word * 4, 0xffff_ffff);
        }
        for (word, value) in (0..).zip(&before) {
            card.set(base + word * 4, *value);
        }
        ensure!(identity() == whole, "the identity is {:x?} instead of {whole:x?}", identity());
        rounds += 1;
    }
    Ok(Seen::new(Outcome::Values, format!("{rounds} times all of it overwritten, identity unchanged")))
}

/// Row 26: with no work of its own, the attacker must see nothing move.
///
/// A notification of finished work is told a tenth of a second late to a guest that hardly waits for it
/// (docs/threat-model.md): one of the time before this attack, when the driver had work, may still come.
pub fn watch(card: &Card, time: Time, places: &[u32]) -> Result<Seen> {
    thread::sleep(Duration::from_millis(300));
    let first: Vec<u32> = places.iter().map(|place| card.reg(*place)).collect();
    let mut looks = 0u64;
    while time.goes_on() {
        for (place, first) in places.iter().zip(&first) {
            let now = card.reg(*place);
            ensure!(
                now == *first,
                "register {place:#x} went from {first:#x} to {now:#x} while nothing was done here"
            );
        }
        looks += 1;
    }
    Ok(Seen::new(Outcome::Values, format!("{} registers looked at {looks} times, none moved", places.len())))
}

/// What a window keeps that shows nothing of anybody's. One that is mapped has memory of its own behind it,
/// the same whatever it is to show; what is kept by what it should not show is another thing behind each
/// setting.
#[derive(Debug, Default)]
pub struct OwnMemory {
    kept: BTreeMap<u64, u64>,
    is_there: bool,
}

impl OwnMemory {
    /// `found` was read at a place, now that the window is set to show `what`.
    pub fn expect(&mut self, place: u64, found: u64, what: &dyn std::fmt::Display) -> Result<()> {
        let Some(kept) = self.kept.remove(&place) else { return Ok(()) };
        ensure!(found == kept, "{kept:#x} was kept somewhere: {found:#x} is read {what}");
        self.is_there = true;
        Ok(())
    }

    /// `value` was stored at a place, and `read` is what is read there then.
    pub fn stored(&mut self, place: u64, value: u64, read: u64) {
        if read == value {
            self.kept.insert(place, value);
        }
    }

    /// The window showed something else meanwhile.
    pub fn forget(&mut self) {
        self.kept.clear();
    }

    /// It kept something, whatever it was set to show.
    pub const fn is_there(&self) -> bool {
        self.is_there
    }
}

/// Row 7: a window onto VRAM of `step` bytes, whose register takes addresses in steps of 64 KiB; it must
/// neither show nor keep anything at the places that `settings` name.
pub fn window(
    card: &Card,
    time: Time,
    (register, view): (u32, u32),
    settings: impl Fn(&mut Random) -> Vec<u32>,
) -> Result<Seen> {
    let mut random = Random::new(7);
    let (mut looks, mut values) = (0u32, BTreeSet::new());
    let mut own = OwnMemory::default();
    while time.goes_on() {
        for setting in settings(&mut random) {
            card.set(register, setting);
            for place in [0, 4, 0xf_fff8, random.below(0x3_fffe) * 4] {
                let found = [card.reg(view + place), card.reg(view + place + 4)];
                ensure!(found != gpuvmk_attacks::VICTIM_MARK, "the victim's mark in window {setting:#x}");
                own.expect(place.into(), found[0].into(), &format_args!("behind window {setting:#x}"))?;
                values.insert(found[0]);
                looks += 1;
                let value = 0xbad_0000 | looks & 0xffff;
                card.set(view + place, value);
                own.stored(place.into(), value.into(), card.reg(view + place).into());
            }
        }
    }
    values.retain(|value| value >> 16 != 0xbad);
    let shown: Vec<String> = values.iter().take(4).map(|value| format!("{value:#x}")).collect();
    let own = if own.is_there() { "; the window has memory of its own" } else { "" };
    Ok(Seen::new(
        Outcome::Values,
        format!("{looks} looks beyond the partition, all read {}{own}", shown.join(" or ")),
    ))
}
