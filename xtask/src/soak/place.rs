//! A place for VMs: a vGPU, its device process, and whoever is there at the moment.

use std::time::{Duration, Instant};

use anyhow::Result;
use gpuvmk_control_client::TenantStatus;
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use super::census;
use super::deeds::{Deed, Then};
use super::visitor::{News, Visitor};
use super::world::{Cleanup, World};
use crate::cases::Guest;

/// How long a guest may take to boot until it works.
const BOOT: Duration = Duration::from_secs(120);
/// How long an order may take, and how long a guest may say nothing of its work.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long what a VM had is looked for after its end, before it counts as lost.
const GIVE_UP: Duration = Duration::from_secs(20);

/// Of how many VMs one is killed while it boots.
const KILLED_EARLY: u32 = 8;
/// Of how many departures one takes the device process along.
const REMOVED: u32 = 3;

/// What a place may do now.
#[derive(Debug, Clone, Copy)]
pub struct Mood {
    /// VMs are to go, and none is to come.
    pub closing: bool,
    /// There is room for another VM.
    pub room: bool,
    /// Nobody else's departure is being timed: what takes long may be done.
    pub calm: bool,
}

/// Who goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaver {
    /// QEMU; the tenant had been reset so often.
    Vm { resets: u64 },
    /// The device process.
    Backend,
}

/// What goes on at a place.
#[derive(Debug)]
enum State {
    Empty {
        until: Instant,
    },
    Booting {
        visitor: Visitor,
        since: Instant,
        kill_at: Option<Instant>,
    },
    Working {
        visitor: Visitor,
        until: Instant,
    },
    /// Told what to do, when the tenant had been reset so often.
    Told {
        visitor: Visitor,
        deed: Deed,
        since: Instant,
        resets: u64,
    },
    Leaving {
        leaver: Leaver,
        since: Instant,
    },
    Removed {
        until: Instant,
    },
}

/// A vGPU with its device process.
#[derive(Debug)]
pub struct Place {
    index: usize,
    guest: Guest,
    random: Xoshiro256PlusPlus,
    visits: u32,
    state: State,
}

impl Place {
    /// The place of the rig's GPU `index`, empty.
    pub fn new(index: usize, guest: Guest, random: Xoshiro256PlusPlus) -> Self {
        Self { index, guest, random, visits: 0, state: State::Empty { until: Instant::now() } }
    }

    /// Whether nobody is there, and the device process is.
    pub fn is_empty(&self) -> bool {
        matches!(self.state, State::Empty { .. })
    }

    /// Whether somebody is there.
    pub fn is_taken(&self) -> bool {
        matches!(self.state, State::Booting { .. } | State::Working { .. } | State::Told { .. })
    }

    /// Whether somebody's departure is being timed.
    pub fn is_leaving(&self) -> bool {
        matches!(self.state, State::Leaving { .. })
    }

    fn soon(&mut self, millis: std::ops::Range<u64>) -> Instant {
        Instant::now() + Duration::from_millis(self.random.random_range(millis))
    }

    fn empty(&mut self) -> State {
        State::Empty { until: self.soon(0..2000) }
    }

    /// Goes on.
    pub fn step(&mut self, world: &mut World<'_>, mood: Mood) -> Result<()> {
        let now = Instant::now();
        let state = std::mem::replace(&mut self.state, State::Empty { until: now });
        self.state = match state {
            State::Empty { until } if mood.room && mood.calm && now >= until => self.come(world)?,
            State::Removed { until } if mood.calm && (mood.closing || now >= until) => {
                world.rig.restart_device(self.index)?;
                self.empty()
            }
            State::Empty { .. } | State::Removed { .. } => state,
            State::Booting { visitor, since, kill_at } => self.boot(world, visitor, since, kill_at)?,
            State::Working { visitor, until } => self.work(world, visitor, until, mood.closing)?,
            State::Told { visitor, deed, since, resets } => {
                self.told(world, visitor, (deed, since), resets)?
            }
            State::Leaving { leaver, since } => self.leave(world, leaver, since, mood.calm)?,
        };
        Ok(())
    }

    fn come(&mut self, world: &mut World<'_>) -> Result<State> {
        self.visits += 1;
        let label = format!("{}-{:03}", self.guest.name, self.visits);
        let machine =
            world.workshop.start_with_orders(world.case, &label, &world.rig, &self.guest, self.index)?;
        world.counts.one("came");
        let early = self.random.random_range(0..KILLED_EARLY) == 0;
        let kill_at = early.then(|| self.soon(100..8000));
        Ok(State::Booting { visitor: Visitor::new(machine, label), since: Instant::now(), kill_at })
    }

    fn boot(
        &mut self,
        world: &mut World<'_>,
        mut visitor: Visitor,
        since: Instant,
        kill_at: Option<Instant>,
    ) -> Result<State> {
        for news in visitor.look()? {
            match news {
                News::Booted => world.counts.one("booted"),
                News::Ready => {
                    let until = self.soon(500..5000);
                    return Ok(State::Working { visitor, until });
                }
                News::Done(_) => {}
                News::Problem(what) => return self.failed(world, visitor, &what),
                News::Ended(why) => {
                    return self.failed(world, visitor, &format!("ended while it booted: {why:?}"));
                }
            }
        }
        if kill_at.is_some_and(|at| Instant::now() >= at) {
            world.counts.one("killed_while_booting");
            return self.kill(world, visitor);
        }
        if since.elapsed() > BOOT {
            return self.failed(world, visitor, "did not come up");
        }
        Ok(State::Booting { visitor, since, kill_at })
    }

    fn work(
        &mut self,
        world: &mut World<'_>,
        mut visitor: Visitor,
        until: Instant,
        closing: bool,
    ) -> Result<State> {
        for news in visitor.look()? {
            match news {
                News::Problem(what) => return self.failed(world, visitor, &what),
                News::Booted => return self.failed(world, visitor, "booted again by itself"),
                News::Ended(why) => return self.failed(world, visitor, &format!("ended by itself: {why:?}")),
                News::Ready | News::Done(_) => {}
            }
        }
        if visitor.silent() > PATIENCE {
            return self.failed(world, visitor, "does not work any more");
        }
        if Instant::now() < until {
            return Ok(State::Working { visitor, until });
        }
        let deed = Deed::choose(&mut self.random, closing);
        world.counts.one(deed.name());
        log::info!("{}: {}", visitor.label(), deed.name());
        let resets = self.resets(world)?;
        visitor.suffer(deed)?;
        let since = Instant::now();
        match deed {
            Deed::QemuKilled => self.kill(world, visitor),
            Deed::BackendKilled => {
                if let Some(device) = world.rig.device(self.index) {
                    device.process().kill()?;
                }
                visitor.kill()?;
                world.take_leave(visitor);
                Ok(State::Leaving { leaver: Leaver::Backend, since })
            }
            _ => Ok(State::Told { visitor, deed, since, resets }),
        }
    }

    fn told(
        &mut self,
        world: &mut World<'_>,
        mut visitor: Visitor,
        (deed, since): (Deed, Instant),
        resets: u64,
    ) -> Result<State> {
        for news in visitor.look()? {
            match (news, deed.then()) {
                (News::Done(event), Then::Works(wanted)) if event == wanted => {
                    let until = self.soon(500..4000);
                    return Ok(State::Working { visitor, until });
                }
                (News::Booted, Then::Boots) => {
                    world.counts.one("booted");
                    return Ok(State::Booting { visitor, since: Instant::now(), kill_at: None });
                }
                (News::Ended(None), Then::Gone) => {
                    world.take_leave(visitor);
                    return Ok(State::Leaving { leaver: Leaver::Vm { resets }, since: Instant::now() });
                }
                (News::Problem(what), _) => return self.failed(world, visitor, &what),
                (News::Ended(why), _) => {
                    let what = format!("ended at '{}': {why:?}", deed.name());
                    return self.failed(world, visitor, &what);
                }
                (News::Booted | News::Ready | News::Done(_), _) => {}
            }
        }
        if since.elapsed() > PATIENCE {
            return self.failed(world, visitor, &format!("was not done with '{}'", deed.name()));
        }
        Ok(State::Told { visitor, deed, since, resets })
    }

    fn kill(&mut self, world: &mut World<'_>, mut visitor: Visitor) -> Result<State> {
        let resets = self.resets(world)?;
        let since = Instant::now();
        visitor.kill()?;
        world.take_leave(visitor);
        Ok(State::Leaving { leaver: Leaver::Vm { resets }, since })
    }

    /// Something is wrong with a VM: it has to go.
    fn failed(&mut self, world: &mut World<'_>, visitor: Visitor, what: &str) -> Result<State> {
        world.problems.push(format!("{}: {what}", visitor.label()));
        self.kill(world, visitor)
    }

    fn leave(&mut self, world: &mut World<'_>, leaver: Leaver, since: Instant, calm: bool) -> Result<State> {
        let tenant = world.tenant(self.guest.name)?;
        let gone = match (leaver, &tenant) {
            (Leaver::Vm { resets }, Some(tenant)) => is_clean(tenant, resets),
            (Leaver::Backend, tenant) => tenant.is_none(),
            (Leaver::Vm { .. }, None) => false,
        };
        if !gone && since.elapsed() < GIVE_UP {
            return Ok(State::Leaving { leaver, since });
        }
        if !gone {
            world.problems.push(format!(
                "{}: not cleaned up {GIVE_UP:?} after its VM's end: {tenant:?}",
                self.guest.name
            ));
        }
        let vram_mib = self.guest.vram_mib;
        world.cleanups.push(Cleanup { took: since.elapsed(), vram_mib });
        if leaver == Leaver::Backend {
            return Ok(State::Removed { until: self.soon(0..1500) });
        }
        if self.random.random_range(0..REMOVED) > 0 || !calm {
            return Ok(self.empty());
        }
        world.counts.one("removed");
        let since = Instant::now();
        if let Some(device) = world.rig.device(self.index) {
            world.problems.extend(device.stop()?);
        }
        Ok(State::Leaving { leaver: Leaver::Backend, since })
    }

    fn resets(&self, world: &mut World<'_>) -> Result<u64> {
        Ok(world.tenant(self.guest.name)?.map_or(0, |tenant| tenant.counters.resets))
    }
}

/// Whether a tenant whose VM has gone has nothing of it any more: it was reset, which includes its memory.
fn is_clean(tenant: &TenantStatus, resets: u64) -> bool {
    let nothing = tenant.channels == 0 && tenant.mapped_pages == 0 && tenant.memory == 0;
    tenant.state == "active" && nothing && census::spaces(tenant) == 0 && tenant.counters.resets > resets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_is_clean_once_it_was_reset_and_has_nothing() {
        let tenant = |state: &str, resets: u64, memory: u64| -> TenantStatus {
            serde_json::from_value(serde_json::json!({
                "name": "a", "state": state, "resets": resets, "memory": memory, "channels": 0,
            }))
            .unwrap()
        };
        assert!(is_clean(&tenant("active", 4, 0), 3));
        assert!(!is_clean(&tenant("active", 3, 0), 3), "the reset is still to come");
        assert!(!is_clean(&tenant("resetting", 4, 0), 3));
        assert!(!is_clean(&tenant("active", 4, 4096), 3));
    }
}
