//! `attack`: a hostile guest. Carries out attacks by name, as the host asks for them, and says what it saw.
//!
//! The host writes a line with a name, a time in seconds and the number of the round to the report port, and
//! `end` when it has enough. Each attack is answered by three events: `attack-begin`, `attack-over` when it
//! stops, and `attack`, which tells what was seen, and whether the GPU could be used again after a reset. The
//! attacks themselves are listed in `gpuvmk-attacks`. Two names are no attacks: `busy` spins both processors
//! and leaves the GPU alone, which is what a victim under attack is measured against, and `works` only has
//! the GPU reset and used.
//!
//! The attacker has no kernel driver for the GPU: it drives it by its own ([`fermi`], [`gsp`]), through
//! mapped BARs ([`card`]), with everything that the GPU reads in memory of its own. Attacks through a stock
//! driver's ioctls load nouveau first, and stay with it ([`driver`]).

mod card;
mod driver;
mod fermi;
mod gsp;
mod machine;
mod memory;
mod random;
mod registers;
mod tool;
mod usual;
mod walks;
mod work;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk_attacks::{Attack, Target};
use serde_json::{Value, json};

use crate::cmdline::Plan;
use crate::dma_memory::DmaMemory;
use crate::programs::{Figures, Options};
use crate::report::Reports;
use card::Card;

pub use gpuvmk_attacks::Outcome;

/// Huge pages for what the GPU reads.
const HUGE_PAGES: usize = 24;
/// What stands in bits 28:20 of a chip's identification.
const FERMI: u32 = 0xc0;
/// Orders that are no attacks.
const BUSY: &str = "busy";
const WORKS: &str = "works";
/// What the host may take to look at the vGPU after an attack, before it is reset.
const LOOK: Duration = Duration::from_millis(100);

/// What an attacker saw.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What came of the attack.
    outcome: Outcome,
    /// The same in words.
    text: String,
}

impl Seen {
    fn new(outcome: Outcome, text: impl Into<String>) -> Self {
        Self { outcome, text: text.into() }
    }
}

/// When an attack's time is over.
#[derive(Debug, Clone, Copy)]
pub struct Time(Instant);

impl Time {
    /// Whether it is not.
    fn goes_on(self) -> bool {
        Instant::now() < self.0
    }

    /// The same after the GPU was brought up, which began then and is not of the attack's time: on a slow
    /// machine an attack would try nothing.
    fn after_bring_up(self, began: Instant) -> Self {
        Self(self.0 + began.elapsed())
    }
}

/// What an attack has at hand.
#[derive(Debug)]
pub struct Stage {
    card: Card,
    memory: DmaMemory,
    time: Time,
    /// How often the host has given this order before, where it counts.
    round: u32,
}

/// The lower half of a word.
fn low(word: u64) -> u32 {
    crate::push::split(word)[1]
}

/// An offset, as this 64-bit program counts them.
fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// How an attack is carried out.
type Means = fn(&mut Stage) -> Result<Seen>;

/// Attacks on one chip.
struct Arsenal {
    target: Target,
    /// The attack of a name.
    means: fn(&str) -> Option<Means>,
    /// Resets the GPU, brings it up and has it work.
    works: fn(&mut Stage) -> Result<()>,
}

const FERMI_ARSENAL: Arsenal = Arsenal { target: Target::Fermi, means: fermi::means, works: fermi::works };
const FSP_ARSENAL: Arsenal = Arsenal { target: Target::Gsp, means: gsp::by_fsp, works: gsp::works };
const FALCON_ARSENAL: Arsenal = Arsenal { target: Target::Gsp, means: gsp::by_falcons, works: gsp::works };

/// The program.
pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    let plan = Plan::parse(&std::fs::read_to_string("/proc/cmdline")?);
    let port = plan.report.clone().context("the attacker needs a report port (gpuvmk.report)")?;
    let mut reports = Reports::to(Some(&port));
    let mut orders = BufReader::new(File::open(format!("/dev/{port}"))?);

    let mut stage = Some(Stage {
        card: Card::open(gpu)?,
        memory: DmaMemory::new(HUGE_PAGES).context("no huge pages")?,
        time: Time(Instant::now()),
        round: 0,
    });
    let arsenal = arsenal(stage.as_ref().map_or(0, |stage| stage.card.reg(0)))?;
    reports.event("attacker-ready", json!({}));
    let mut made = 0u32;
    loop {
        let mut line = String::new();
        ensure!(orders.read_line(&mut line)? > 0, "the host says nothing any more");
        let mut words = line.split_whitespace();
        let (Some(name), seconds, round) = (words.next(), words.next(), words.next()) else { continue };
        if name == "end" {
            break;
        }
        let time = Duration::from_secs_f64(seconds.and_then(|word| word.parse().ok()).unwrap_or(2.0));
        reports.event("attack-begin", json!({ "name": name }));
        if name == BUSY {
            work::by_two(Time(Instant::now() + time), 1024, |_| ());
            continue;
        }
        let seen = if name == WORKS {
            Ok(Seen::new(Outcome::Values, ""))
        } else if find(&arsenal, name)?.by_driver {
            // The kernel's driver takes the GPU over, for good. What the attacker left has to go: a GSP that
            // falcons boot is not booted twice.
            if let Some(stage) = stage.take() {
                stage.card.reset()?;
            }
            driver::make(driver::means(name).context("this attack is not known here")?, gpu, time)
        } else {
            let stage = stage.as_mut().context("nouveau has the GPU: raw attacks are over")?;
            stage.time = Time(Instant::now() + time);
            stage.round = round.and_then(|word| word.parse().ok()).unwrap_or(0);
            let means = (arsenal.means)(name).context("this attack is not known here")?;
            means(stage)
        };
        reports.event("attack-over", json!({ "name": name }));
        std::thread::sleep(LOOK);
        let works = match &mut stage {
            Some(stage) => (arsenal.works)(stage),
            None => driver::works(gpu),
        };
        reports.event("attack", result(name, seen, works));
        made += 1;
    }
    let mut figures = Figures::new();
    figures.insert("attacks".into(), made.into());
    Ok(figures)
}

/// What is told of an attack.
fn result(name: &str, seen: Result<Seen>, works: Result<()>) -> Value {
    let (outcome, text, error) = match seen {
        Ok(Seen { outcome, text }) => (Value::from(outcome.letter().to_string()), text, Value::Null),
        Err(error) => (Value::Null, String::new(), format!("{error:#}").into()),
    };
    let broken = works.err().map(|error| format!("{error:#}"));
    json!({ "name": name, "outcome": outcome, "seen": text, "error": error, "broken_afterwards": broken })
}

fn arsenal(identification: u32) -> Result<Arsenal> {
    match identification >> 20 & 0x1ff {
        FERMI => Ok(FERMI_ARSENAL),
        _ if gsp::is_booted_by_falcons(identification)? => Ok(FALCON_ARSENAL),
        _ => Ok(FSP_ARSENAL),
    }
}

fn find(arsenal: &Arsenal, name: &str) -> Result<&'static Attack> {
    let attack = gpuvmk_attacks::on(arsenal.target).iter().find(|attack| attack.name == name);
    attack.with_context(|| format!("there is no attack '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_attack_can_be_made() {
        for arsenal in [FERMI_ARSENAL, FSP_ARSENAL, FALCON_ARSENAL] {
            for attack in gpuvmk_attacks::on(arsenal.target) {
                let by_driver = driver::means(attack.name).is_some();
                assert_eq!(by_driver, attack.by_driver, "{}", attack.name);
                assert!(by_driver || (arsenal.means)(attack.name).is_some(), "{}", attack.name);
            }
        }
    }

    #[test]
    fn failed_attack_is_told_without_an_outcome() {
        let told = result("widths", Err(anyhow::anyhow!("why")), Ok(()));
        assert_eq!((&told["outcome"], &told["error"]), (&Value::Null, &Value::from("why")));
        let told = result("widths", Ok(Seen::new(Outcome::Refused, "no")), Err(anyhow::anyhow!("dead")));
        assert_eq!((&told["outcome"], &told["broken_afterwards"]), (&"R".into(), &"dead".into()));
    }
}
