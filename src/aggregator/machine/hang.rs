//! Hangs: the watchdog's decisions are carried out, in steps that never wait.
//!
//! A channel that holds an engine for which others wait is preempted, and comes back when it is its turn. One
//! that does not leave in time, or makes no progress, is taken off for good. Destroying it resets the engine
//! if it still holds it; the contexts of all other channels are in memory, so they go on. Its guest gets the
//! error that its driver expects of such a channel. Each further hang makes its VM wait longer.
//!
//! A guest that destroys, preempts or leaves behind a channel which does not let go of its engine has made it
//! hang as well, and is charged for it.

use std::time::Duration;

use serde::Serialize;

use super::host_channels::Owner;
use super::state::Machine;
use crate::protocol::Event;
use crate::tenant::{ChannelState, Tenant};
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::{HostChannel, TenantId};
use gpuvmk_chip::channel_event::{self, ChannelStop, HangKind, StopCause};
use gpuvmk_scheduler::Suspension;
use gpuvmk_scheduler::hang::penalty::Record;
use gpuvmk_scheduler::hang::{Hang, Reason, Verdict, Watched};
use gpuvmk_scheduler::share::Rejection;

/// Result of an operator's reset of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reset {
    /// Name of the VM.
    pub vm: String,
    /// Channels that were taken off: those with unfinished work.
    pub channels: usize,
}

impl Machine {
    /// Shows the watchdog a sample: what runs on each engine, and how far each busy ring was finished.
    pub(super) fn watch(
        &mut self,
        now: Duration,
        engines: &[(Engine, Option<HostChannel>)],
        rings: &[(HostChannel, u32)],
    ) {
        let watched: Vec<Watched> = rings.iter().filter_map(|ring| self.watched(*ring)).collect();
        if watched.is_empty() {
            self.hangs.watchdog.rest();
            return;
        }
        for verdict in self.hangs.watchdog.observe(now, engines, &watched) {
            match verdict {
                Verdict::Ask(channel) => {
                    log::debug!("host channel {} is asked to leave its engine: others wait", channel.0);
                    self.hardware.preempt(channel);
                }
                Verdict::Hung(hang) => self.kill(hang, now),
            }
        }
    }

    fn watched(&self, (channel, gp_get): (HostChannel, u32)) -> Option<Watched> {
        let admitted = self.scheduler.may_run(channel)?;
        let Owner { tenant: vm, guest: Some(guest) } = self.channels.owner(channel)? else {
            return None;
        };
        let known = self.tenants.get(vm)?.channels.get(usize::from(guest.0))?.as_ref()?;
        Some(Watched { channel, vm, engines: known.engines, gp_get, admitted })
    }

    /// Destroys a hung channel, reports it to its guest, and adds a penalty to its VM.
    pub(super) fn kill(&mut self, hang: Hang, now: Duration) {
        let Hang { channel: host, vm, engine, mut reason } = hang;
        let Some(Owner { guest: Some(guest), .. }) = self.channels.owner(host) else { return };
        self.hangs.watchdog.forget(host);
        let Some(channel) = self.tenants.get_mut(vm).and_then(|tenant| tenant.channel(guest).ok()) else {
            return;
        };
        channel.state = ChannelState::Dead;
        let (space, preempted) = (channel.space, channel.preempt_by.take().is_some());
        self.scheduler.remove_channel(host);
        if let Err(error) = self.commit_runlist() {
            self.quarantine(vm, "taking a channel off the runlist", &error);
        }
        let resets = self.hardware.driver.engine_resets();
        if !self.destroy_host_channel(vm, host) {
            reason = Reason::EngineSilent;
            let space = self.tenants.get(vm).and_then(|tenant| tenant.space(space).ok());
            if let Some(space) = space {
                self.retired_spaces.withhold(space.handle);
            }
        }
        let reset = self.hardware.driver.engine_resets() != resets;
        let kind = if reason == Reason::StuckAcquire { HangKind::Acquire } else { HangKind::Engine };
        let cause = StopCause::Hang(channel_event::Hang { engine, kind });
        self.outbox.event(vm, Event::Stopped(ChannelStop { channel: guest, cause }));
        if preempted {
            self.outbox.event(vm, Event::Preempted(guest));
        }
        if reason == Reason::Operator {
            if reset {
                self.hangs.ledger.note_reset(vm);
            }
            return;
        }
        self.charge_hang(vm, &format!("channel {}", guest.0), reason, Some(engine), reset, now);
    }

    /// Takes the unfinished work of a VM off, as an operator ordered, and ends its penalty. Its guest gets
    /// the event of a hang for each channel.
    ///
    /// # Errors
    /// There is no such VM.
    pub fn reset_vm(&mut self, name: &str, now: Duration) -> Result<Reset, Rejection> {
        let vm = self.tenants.named(name)?;
        let channels = self.tenants.get(vm).into_iter().flat_map(Tenant::live_channels);
        let unfinished: Vec<_> = channels
            .filter(|(_, channel)| self.scheduler.may_run(channel.host).is_some())
            .map(|(_, channel)| (channel.host, channel.engines.engines().next().unwrap_or(Engine::Graphics)))
            .collect();
        for (channel, engine) in &unfinished {
            self.kill(Hang { channel: *channel, vm, engine: *engine, reason: Reason::Operator }, now);
        }
        self.hangs.ledger.clear_hangs(vm);
        self.scheduler.suspend(vm, Suspension::PENALTY, false);
        self.decide(now);
        log::warn!("{name}: an operator had {} channels taken off", unfinished.len());
        Ok(Reset { vm: name.to_owned(), channels: unfinished.len() })
    }

    /// Notes a hang of a VM, logs it, and makes the VM wait.
    pub(super) fn charge_hang(
        &mut self,
        vm: TenantId,
        what: &str,
        reason: Reason,
        engine: Option<Engine>,
        reset: bool,
        now: Duration,
    ) {
        let wait = self.hangs.ledger.note(vm, now);
        if reset {
            self.hangs.ledger.note_reset(vm);
        }
        let Record { hangs, .. } = self.hangs.ledger.record(vm);
        let name = self.tenants.get(vm).map_or("?", |tenant| tenant.name.as_str());
        let on = engine.map(|engine| format!(" on {engine:?}")).unwrap_or_default();
        let reset = if reset { "; the engine was reset" } else { "" };
        let wait_ms = wait.as_millis();
        // A VM decides how often, but no more often than its penalties allow.
        log::warn!(
            "{name}: {what}{on} hangs ({}) and was taken off{reset}; hang {hangs} of this VM, which waits {wait_ms} ms",
            reason.name()
        );
        if !wait.is_zero() {
            self.scheduler.suspend(vm, Suspension::PENALTY, true);
            self.decide(now);
        }
    }

    /// Resumes VMs that have waited long enough.
    pub(super) fn end_penalties(&mut self, now: Duration) {
        let released = self.hangs.ledger.released(now);
        for vm in &released {
            self.scheduler.suspend(*vm, Suspension::PENALTY, false);
        }
        if !released.is_empty() {
            self.decide(now);
        }
    }

    /// A channel was forced off that its guest had given up, or preempted: its engine may have been reset for
    /// it.
    pub(super) fn charge_forced(&mut self, vm: TenantId, resets: u64, now: Duration) {
        if self.hardware.driver.engine_resets() == resets {
            // It may have waited for another channel to leave.
            log::debug!("a channel that was given up did not leave the hardware in time, and held no engine");
            return;
        }
        self.charge_hang(vm, "a channel that it gave up", Reason::Unpreemptible, None, true, now);
    }
}
