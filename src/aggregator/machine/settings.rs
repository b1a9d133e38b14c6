//! Settings that operators change while VMs work: parts of the GPU's time, and the policy. An order is
//! carried out as a whole, or not at all.

use std::time::Duration;

use gpuvmk_control_client::ShareStatus;
use serde::Serialize;

use super::state::Machine;
use super::status::share_status;
use crate::protocol::Event;
use gpuvmk_chip::addr::TenantId;
use gpuvmk_display::{Mode, ModeTextError};
use gpuvmk_scheduler::Suspension;
use gpuvmk_scheduler::policy::Settings;
use gpuvmk_scheduler::settings::GpuSetting;
use gpuvmk_scheduler::share::{Rejection, ShareSetting};

/// Settings that are no part of the GPU's time.
const PAUSED: &str = "paused";
/// The monitor of a VM.
pub const DISPLAY: &str = "display";
const DRAINING: &str = "draining";

fn yes_or_no(key: &str, value: &str) -> Result<bool, Rejection> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        other => Err(Rejection(format!("{key}={other}: {key} is yes or no"))),
    }
}

/// The monitor that is to be plugged in; none: none.
fn monitor(value: &str) -> Result<Option<Mode>, Rejection> {
    if value == "off" {
        return Ok(None);
    }
    let refused = |error: ModeTextError| Rejection(format!("{DISPLAY}={value}: {error}; or {DISPLAY}=off"));
    value.parse().map(Some).map_err(refused)
}

/// An operator's order: `key=value` each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Name of the VM; `None` means the GPU.
    pub vm: Option<String>,
    /// The changes, `key=value` each.
    pub settings: Vec<String>,
}

/// The settings that are in force after an order.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum EffectiveSettings {
    /// Of a VM.
    Vm {
        /// Name of the VM.
        vm: String,
        /// Its granted share.
        share: ShareStatus,
        /// Its work waits until an operator resumes it.
        paused: bool,
    },
    /// Of the GPU.
    Gpu {
        /// Name of the policy.
        policy: &'static str,
        /// Length of a turn in microseconds, if it is set.
        slice_us: Option<u64>,
        /// Period of credit in microseconds, if it is set.
        period_us: Option<u64>,
        /// No more VMs are admitted.
        draining: bool,
    },
}

impl Machine {
    /// Carries out an operator's order.
    ///
    /// # Errors
    /// A setting is unknown or out of range, there is no such VM, or the policy cannot keep what it would
    /// promise; nothing changes then.
    pub fn set(&mut self, order: &Order, now: Duration) -> Result<EffectiveSettings, Rejection> {
        let in_force = match &order.vm {
            Some(name) => self.set_share(name, &order.settings, now)?,
            None => self.set_policy(&order.settings)?,
        };
        self.decide(now);
        Ok(in_force)
    }

    fn set_share(
        &mut self,
        name: &str,
        settings: &[String],
        now: Duration,
    ) -> Result<EffectiveSettings, Rejection> {
        let id = self.tenants.named(name)?;
        let mut share = self.scheduler.share(id).ok_or_else(|| Rejection(format!("{name} is leaving")))?;
        let mut paused = self.is_paused(id);
        let (mut wishes, mut monitor) = (Vec::new(), None);
        for setting in settings {
            match setting.split_once('=') {
                Some((PAUSED, value)) => paused = yes_or_no(PAUSED, value)?,
                Some((DISPLAY, value)) => monitor = Some(self::monitor(value)?),
                _ => wishes.push(setting.parse::<ShareSetting>()?),
            }
        }
        share = wishes.iter().fold(share, |share, wish| share.with(*wish));
        self.scheduler.set_share(id, share)?;
        // It holds for this VM's holder, also when it comes back.
        if let Some(tenant) = self.tenants.get(id) {
            self.holder_records.order(&tenant.holder, &wishes, paused, now);
        }
        self.scheduler.suspend(id, Suspension::PAUSE, paused);
        if let Some(monitor) = monitor {
            // Its device back end does it, and says in its next report what is there then.
            let size = monitor.map(|mode| (mode.size().width(), mode.size().height()));
            self.outbox.event(id, Event::Monitor(size));
        }
        log::info!("{name}: {share}{}", if paused { ", paused" } else { "" });
        Ok(EffectiveSettings::Vm { vm: name.to_owned(), share: share_status(share), paused })
    }

    /// True if an operator has paused a VM.
    pub(super) fn is_paused(&self, vm: TenantId) -> bool {
        self.scheduler.suspension(vm).contains(Suspension::PAUSE)
    }

    fn set_policy(&mut self, settings: &[String]) -> Result<EffectiveSettings, Rejection> {
        let mut wanted = self.scheduler.settings();
        let mut draining = self.guests.is_draining();
        for setting in settings {
            match setting.split_once('=') {
                Some((DRAINING, value)) => draining = yes_or_no(DRAINING, value)?,
                _ => wanted = setting.parse::<GpuSetting>()?.apply(wanted),
            }
        }
        let (kind, settings) = wanted;
        self.scheduler.set_policy(kind, settings)?;
        if self.guests.set_draining(draining) {
            log::info!("{}", if draining { "no more VMs are admitted" } else { "VMs are admitted again" });
        }
        let Settings { slice, period } = settings;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let policy = self.scheduler.policy();
        log::info!("the policy is {policy} now (slice {slice:?}, period {period:?})");
        Ok(EffectiveSettings::Gpu {
            policy,
            slice_us: slice.map(micros),
            period_us: period.map(micros),
            draining,
        })
    }
}
