//! A tenant's requests: whether it may ask for anything now, and who carries it out.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::output::Outcome;
use super::state::Machine;
use crate::protocol::{RefusalKind, Reply, Request};
use crate::report::FailSafeReason;
use crate::tenant::{ChannelShape, Job, Refusal, TenantState};
use gpuvmk_chip::addr::TenantId;

impl Machine {
    /// Carries out a request of a tenant. [`Request::Hello`] is not one: see [`Machine::admit`].
    pub fn request(
        &mut self,
        tenant: TenantId,
        request: Request,
        file: Option<OwnedFd>,
        now: Duration,
    ) -> Outcome {
        let result = self.dispatch(tenant, request, file, now);
        match result {
            Ok(outcome) => outcome,
            Err(refusal) => Outcome::Now(self.refuse(tenant, refusal, now)),
        }
    }

    /// Counts a refusal and makes the answer of it.
    pub fn refuse(&mut self, id: TenantId, refusal: Refusal, now: Duration) -> Reply {
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.counters.refusals = tenant.counters.refusals.saturating_add(1);
            if let Some(limit) = refusal.limit {
                tenant.limits.met(limit);
            }
            // Told for the first few and then ever more rarely: a guest decides how often.
            if tenant.counters.refusals.is_power_of_two() {
                log::warn!(
                    "{}: refused ({} so far): {}",
                    tenant.name,
                    tenant.counters.refusals,
                    refusal.message
                );
            }
        }
        if refusal.kind == RefusalKind::Protocol {
            self.violation(id, now);
        }
        Reply::Refused { kind: refusal.kind, message: refusal.message }
    }

    fn dispatch(
        &mut self,
        tenant: TenantId,
        request: Request,
        file: Option<OwnedFd>,
        now: Duration,
    ) -> Result<Outcome, Refusal> {
        if self.hardware.is_lost() {
            return Err(Refusal::new(RefusalKind::Hardware, "the physical GPU is lost"));
        }
        let owner = self.tenants.sender(tenant)?;
        if owner.state != TenantState::Active || owner.job.is_some() {
            return Err(Refusal::new(RefusalKind::Protocol, "the last request is being carried out"));
        }
        let harmless =
            matches!(request, Request::Reset { .. } | Request::DmaMap { .. } | Request::DmaUnmap { .. });
        if owner.fail_safe.is_some_and(|now| now.reason == FailSafeReason::MemoryLost) && !harmless {
            let text = "a page of the VM's memory could not be had: its file system is full, or no huge page is left";
            return Err(Refusal::new(RefusalKind::MemoryLost, text));
        }
        if owner.fail_safe.is_some() && !harmless {
            return Err(Refusal::new(RefusalKind::Protocol, "the VM is in fail-safe state until its reset"));
        }
        let carries_file = matches!(request, Request::DmaMap { .. });
        if carries_file != file.is_some() {
            return Err(Refusal::new(
                RefusalKind::Protocol,
                "guest memory comes with its file, and nothing else comes with one",
            ));
        }
        match request {
            Request::Hello(_) => {
                return Err(Refusal::new(RefusalKind::Protocol, "this connection is admitted already"));
            }
            Request::DmaMap { gpa, size, offset, writable } => {
                self.dma_map(tenant, gpa, size, offset, writable, file)?;
            }
            Request::DmaUnmap { gpa, size } => return self.dma_unmap(tenant, gpa, size, now),
            Request::CreateSpace(space) => self.create_space(tenant, space)?,
            Request::DestroySpace(space) => return self.destroy_space(tenant, space, now),
            Request::UpdateSpace { space, unmap, map } => {
                return self.update_space(tenant, space, &unmap, map, now);
            }
            Request::CreateChannel {
                channel,
                space,
                gpfifo,
                gpfifo_entries_log2,
                userd,
                engines,
                context_of,
            } => {
                let id = channel;
                let shape =
                    ChannelShape { id, space, gpfifo, gpfifo_entries_log2, userd, engines, context_of };
                return self.start_job(tenant, Job::Channel(shape), now);
            }
            Request::DestroyChannel(channel) => self.destroy_channel(tenant, channel, now)?,
            Request::CreateObject { channel, class, engine } => {
                self.create_object(tenant, channel, class, engine)?;
            }
            Request::SetEngines { channel, engines } => self.set_engines(tenant, channel, engines)?,
            Request::EnableChannel { channel, enabled } => self.enable_channel(tenant, channel, enabled)?,
            Request::SetRunlist(channels) => self.set_runlist(tenant, &channels)?,
            Request::Preempt(channel) => self.preempt(tenant, channel, now)?,
            Request::MessageEvent { .. } => {
                return Err(Refusal::new(RefusalKind::Protocol, "messages are sent by the service only"));
            }
            Request::Reset { scrub } => {
                self.reset(tenant, scrub, now)?;
                return Ok(Outcome::Later);
            }
        }
        Ok(Outcome::Now(Reply::Done))
    }
}
