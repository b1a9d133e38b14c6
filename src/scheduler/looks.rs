//! Looks at engines: when they are due, and what they show of who is done, who waits, and who used how much.

use std::time::Duration;

use super::Scheduler;
use super::channel::Look;
use super::list::List;
use super::policy::Admission;
use super::sampling::{SHARED_WINDOW, Seen};
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_observe::latency::Times;

impl Scheduler {
    /// Notes how late the caller is for looks and decisions that are due.
    pub fn note_lateness(&mut self, now: Duration) {
        if let Some(late) = self.next_due().and_then(|due| now.checked_sub(due)) {
            self.lateness.note_nanos(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// How late looks and decisions came, in nanoseconds, since the policy was set.
    pub fn lateness(&self) -> Times {
        self.lateness.summary()
    }

    /// True when a sample is due.
    pub fn sample_due(&self, now: Duration) -> bool {
        // Whether a turn goes on may depend on what was used of it.
        let cut = self.lists.values().filter(|list| list.cuts_turns()).filter_map(|list| list.review);
        self.look_due().chain(cut).any(|due| now >= due)
    }

    pub(super) fn look_due(&self) -> impl Iterator<Item = Duration> {
        self.sampler.due().into_iter().chain(self.recheck).chain(self.leaving.map(|leaving| leaving.look))
    }

    /// Hardware notified that some work is done: the VM that has an engine may not need it any more.
    pub fn work_done(&mut self) {
        if self.is_contended() && self.recheck.is_none() {
            self.recheck = Some(self.last_look.saturating_add(self.pace().recheck));
        }
    }

    /// True when a VM waits, or would if the policy decided now.
    fn is_contended(&self) -> bool {
        let contended =
            |list: &List| list.admission != Admission::All || list.cuts_turns() && list.is_shared();
        self.lists.values().any(contended)
    }

    /// True when a VM that wakes up may get an engine at once because it is no longer used. Then engines are
    /// looked at first: work whose end was not notified counts as work until a look.
    pub fn looks_at_wakeups(&self) -> bool {
        self.lists.values().any(|list| list.cuts_turns() && (list.is_waited_for() || list.is_shared()))
    }

    /// True when a policy asked to look again by now.
    pub fn review_due(&self, now: Duration) -> bool {
        self.lists.values().any(|list| list.review.is_some_and(|review| now >= review))
    }

    /// Takes a sample: which channel each engine runs, how long engines have worked where hardware counts it,
    /// and how far each busy channel's ring was fetched.
    pub fn sample(
        &mut self,
        now: Duration,
        engines: &[(Engine, Option<HostChannel>)],
        times: &[(Engine, Duration)],
        mut progress: impl FnMut(HostChannel) -> Option<u32>,
    ) {
        let pace = self.pace();
        for (channel, state) in self.channels.iter_mut().filter(|(_, state)| state.busy()) {
            let fetched = progress(*channel);
            let before = std::mem::replace(&mut state.fetched, fetched);
            state.moved = before.is_some() && fetched.is_some() && before != fetched;
            if state.may_run() {
                state.could_run = Some(now);
            }
        }
        self.meter(now, engines, times);
        self.last_look = now;
        if self.sampler.due().is_some_and(|due| now >= due) {
            for sampled in self.sampler.look(now, running(engines)) {
                self.charge(&sampled);
            }
        }
        let mut undecided = false;
        for vm in self.vms.values_mut() {
            vm.accounts.values_mut().for_each(|account| account.depth = 0);
        }
        let leaving = self.leaving(engines);
        let made_over = now.saturating_add(pace.settle).saturating_add(self.next_follow(now));
        let mut idle = Vec::new();
        for (channel, state) in self.channels.iter_mut().filter(|(_, state)| state.busy()) {
            let fetched = state.fetched;
            let on = |engine: Engine| engines.iter().find(|(other, _)| *other == engine);
            let look = Look {
                running: engines.iter().any(|(_, running)| *running == Some(*channel)),
                fetched: fetched.is_none_or(|get| get == state.gp_put),
                engine_idle: on(state.engine).is_none_or(|(_, running)| running.is_none()),
                made_over: leaving.contains(state.engine.into()).then_some(made_over),
            };
            if let Some(account) =
                self.vms.get_mut(&state.vm).and_then(|vm| vm.accounts.get_mut(&state.engine))
            {
                account.depth = account.depth.saturating_add(fetched.map_or(0, |get| state.depth(get)));
            }
            let before = state.ready();
            if !state.note(look, now, pace) {
                undecided |= state.listed && state.undecided();
                continue;
            }
            self.relist = true;
            if let Some(list) = self.lists.get_mut(&state.engine) {
                match (before, state.ready()) {
                    (true, false) => list.less(state.vm),
                    (false, true) => list.more(state.vm),
                    _ => {}
                }
            }
            if !state.busy() {
                idle.push(*channel);
            }
        }
        for _ in &idle {
            self.one_less_busy();
        }
        self.unheard.extend(idle);
        self.recheck = self.next_recheck(undecided, now, engines).map(|after| now.saturating_add(after));
    }

    /// How long after `now` to look again, in addition to random looks, because a VM waits.
    fn next_recheck(
        &self,
        undecided: bool,
        now: Duration,
        engines: &[(Engine, Option<HostChannel>)],
    ) -> Option<Duration> {
        let recheck = self.pace().recheck;
        if undecided && self.is_contended() {
            return Some(recheck);
        }
        let waits = |(_, list): &(&Engine, &List)| list.cuts_turns() && list.is_waited_for();
        let works = |engine: &Engine| engines.iter().any(|(other, runs)| other == engine && runs.is_some());
        let after = |(engine, list): (&Engine, &List)| match works(engine) {
            // Short work is over soon: checking costs little beside the work.
            true => now.saturating_sub(list.since).clamp(recheck, SHARED_WINDOW),
            // It has not begun yet, or is done already.
            false => recheck,
        };
        self.lists.iter().filter(waits).map(after).min()
    }

    /// Another VM is going to run: charges the known time that `engines` ran until now.
    pub fn cut(
        &mut self,
        now: Duration,
        engines: &[(Engine, Option<HostChannel>)],
        times: &[(Engine, Duration)],
    ) {
        self.channels.values_mut().for_each(|state| state.moved = false);
        self.meter(now, engines, times);
        for sampled in self.sampler.cut(now, &running(engines)) {
            self.charge(&sampled);
        }
    }

    fn one_less_busy(&mut self) {
        self.busy_channels = self.busy_channels.saturating_sub(1);
        if self.busy_channels == 0
            && let Some(sampled) = self.sampler.end()
        {
            self.charge(&sampled);
        }
    }
}

fn running(engines: &[(Engine, Option<HostChannel>)]) -> Vec<Seen> {
    engines.iter().filter_map(|(engine, channel)| channel.map(|channel| (*engine, channel))).collect()
}
