//! Channels that are taken off their engines, and when that is looked at.

use super::{Channels, Leaving, Run, Slot};
use crate::budget::CALL;
use crate::rm::device::{Device, Doorbell};
use crate::{Budget, GpuError};
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_host::clock::Clock;

/// Results of preemptions.
#[derive(Debug, Default)]
pub struct Preemptions {
    /// Channels that are off.
    pub left: Vec<HostChannel>,
    /// True while others have to be checked.
    pub more: bool,
}

/// When a preemption is looked at for the first time, and how rarely in the end, in nanoseconds.
const FIRST_LOOK: u64 = 200_000;
const LAST_LOOK: u64 = 10_000_000;

impl Channels {
    /// Begins to take a channel off its engine. True when it is off already. It may not run until it is known
    /// to have left: else hardware would take up its next work between two looks, and a channel with long
    /// work would seem to stay.
    ///
    /// # Errors
    /// No such channel, or the driver refuses.
    pub fn preempt(
        &mut self,
        device: &Device,
        doorbell: &Doorbell,
        channel: HostChannel,
        now: u64,
    ) -> Result<bool, GpuError> {
        let slot = self.slot(channel)?;
        match slot.run {
            _ if slot.leaving.is_some() => Ok(false),
            Run::Running => {
                slot.leaving = Some(Leaving { due: now, wait: FIRST_LOOK });
                self.apply(device, doorbell)?;
                self.slot(channel)?.channel.group().begin_preemption(device)?;
                Ok(false)
            }
            Run::New | Run::Held => Ok(true),
        }
    }

    /// Checks whether preempted channels have left their engines, for as long as the budget lasts. Each is
    /// checked ever more rarely. Those that have may run again.
    pub fn look_at_preemptions(
        &mut self,
        device: &Device,
        doorbell: &Doorbell,
        clock: &dyn Clock,
        budget: &mut Budget,
    ) -> Preemptions {
        let mut seen = Preemptions::default();
        let now = clock.now();
        let due = |slot: &Slot| slot.leaving.filter(|leaving| leaving.due <= now).map(|leaving| leaving.due);
        // The one that waits longest is first.
        let mut order: Vec<_> =
            self.slots.iter().filter_map(|(number, slot)| Some((due(slot)?, *number))).collect();
        order.sort_unstable();
        for (_, number) in order {
            if budget.is_spent() {
                break;
            }
            let Some(slot) = self.slots.get_mut(&number) else { continue };
            let Some(Leaving { wait, .. }) = slot.leaving else { continue };
            budget.spend(CALL);
            let off = slot.channel.group().is_preempted(device);
            let off = off.unwrap_or_else(|error| {
                log::warn!("whether channel {} has left its engine cannot be told: {error}", number.0);
                false
            });
            if off {
                slot.leaving = None;
                seen.left.push(number);
            } else {
                // The caller gives up after a while and destroys the channel.
                let wait = wait.saturating_mul(2).min(LAST_LOOK);
                slot.leaving = Some(Leaving { due: clock.now().saturating_add(wait), wait });
            }
        }
        if !seen.left.is_empty()
            && let Err(error) = self.apply(device, doorbell)
        {
            log::error!("channels that were preempted do not run again: {error}");
        }
        seen.more = self.slots.values().any(|slot| slot.leaving.is_some());
        seen
    }
}
