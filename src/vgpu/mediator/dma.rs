//! The guest's system memory: mapped for this process and for the physical GPU, and unmapped from both.

use std::time::Instant;

use super::{Mediator, fail_safe_reason, is_lost};
use crate::control::{ChannelControl, Control};
use crate::guest_ram::Range;
use crate::host::Host;
use crate::placement::WINDOW_GPA;
use crate::status::FailSafe;
use gpuvmk_aggregator::link::LinkError;
use gpuvmk_aggregator::protocol::{RefusalKind, Request};
use gpuvmk_chip::addr::Gpa;
use gpuvmk_pci::{DmaError, DmaMapping};

impl<C: ChannelControl> Mediator<C> {
    /// Makes a range reachable, here and for the physical GPU.
    pub(super) fn give_memory(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        let DmaMapping { iova, size, writable, .. } = mapping;
        let refused = |source| DmaError::Backing { iova, size, source };
        let mut control = self.control();
        let connection = self.connection();
        let host = self.host(&connection);
        let file = match &mapping.backing {
            None => None,
            Some(backing) => Some((control.ram.keep(backing).map_err(refused)?, backing.offset)),
        };
        // Both sides must have the same ranges: a range that this side refuses is not announced.
        self.system.map(mapping)?;
        let range = Range { iova, size, writable, file };
        if !is_lost(&control.state) {
            match self.announce(&range, &host) {
                // The guest goes on; the range is announced to a new aggregator at the next reset.
                Ok(()) | Err(LinkError::Lost(_)) => {}
                Err(error) => {
                    self.system.unmap(iova, size)?;
                    return Err(refused(std::io::Error::other(error)));
                }
            }
        }
        control.ram.insert(range);
        Ok(())
    }

    /// Takes what is there of `[iova, iova + size)` away.
    pub(super) fn take_memory_between(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        let mut result = Ok(());
        self.take_memory(|control| match control.ram.inside(iova, size) {
            Ok(ranges) => ranges,
            Err(error) => {
                result = Err(error);
                Vec::new()
            }
        });
        result
    }

    /// Announces a range to the aggregator.
    pub(super) fn announce(&self, range: &Range, host: &Host<'_>) -> Result<(), LinkError> {
        let Some((file, offset)) = &range.file else { return Ok(()) };
        let file = file.try_clone().map_err(|error| LinkError::Refused {
            kind: RefusalKind::Exhausted,
            message: format!("No descriptor is left here: {error}"),
        })?;
        let request = Request::DmaMap {
            gpa: Gpa(range.iova),
            size: range.size,
            offset: *offset,
            writable: range.writable,
        };
        host.request_with(&request, Some(file))
    }

    /// Takes the ranges that `pick` names away, in their order and with none of those between the first and
    /// the last left out: first from the shadow, then from the aggregator, then here.
    pub(super) fn take_memory(&self, pick: impl FnOnce(&Control<C>) -> Vec<Range>) {
        let mut control = self.control();
        let connection = self.connection();
        let host = self.host(&connection);
        let start = Instant::now();
        let mut failure = None;
        let picked = pick(&control);
        for range in &picked {
            if !connection.link.is_ending()
                && fail_safe_reason(&mut control, &connection.events, &host).is_none()
                && let Err(reason) = control.spaces.evict(range.iova, range.size, &host)
            {
                failure = Some(reason.to_string());
                control.fail(reason, start, &host);
            }
        }
        // One request, however many there are: each takes its way to another process and back.
        for (gpa, size) in announced(&picked) {
            if connection.link.is_ending() || is_lost(&control.state) {
                break;
            }
            if let Err(error) = host.request(&Request::DmaUnmap { gpa, size }) {
                let reason = FailSafe::from(error);
                failure = Some(reason.to_string());
                control.fail(reason, start, &host);
            }
        }
        for range in &picked {
            if let Err(error) = self.system.unmap(range.iova, range.size) {
                log::error!("Guest memory that was announced cannot be taken away: {error}");
            }
            control.ram.remove(range);
        }
        // The process is ending: no one needs the announcement.
        if connection.link.is_ending() {
            return;
        }
        if failure.is_some() {
            connection.link.report(&self.report(&control));
        }
        drop(control);
        if let Some(reason) = failure {
            connection.events.report_lost(&reason);
        }
    }
}

/// The parts of the address space that cover all announced ranges: from the first to the last, below and
/// above the window's memory, which stays.
fn announced(ranges: &[Range]) -> impl Iterator<Item = (Gpa, u64)> {
    let hull = |above: bool| {
        let mut known =
            ranges.iter().filter(move |range| range.file.is_some() && (range.iova >= WINDOW_GPA) == above);
        let first = known.next()?;
        let last = known.next_back().unwrap_or(first);
        Some((Gpa(first.iova), last.end().checked_sub(first.iova)?))
    };
    [hull(false), hull(true)].into_iter().flatten()
}
