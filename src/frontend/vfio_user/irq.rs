//! Interrupt types: how many vectors there are, and `SET_IRQS`.

use super::interrupts::FrontendInterrupts;
use super::refusal::Refusal;
use super::resample::Resampler;
use super::wire::{self, command, irq};
use gpuvmk_pci::{PciFunction, header};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zerocopy::FromBytes;

/// Number of vectors of each interrupt type, from the function's configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct IrqCounts {
    intx: u32,
    msi: u32,
}

impl IrqCounts {
    pub(super) const fn of(&self, index: u32) -> u32 {
        match index {
            irq::INTX => self.intx,
            irq::MSI => self.msi,
            _ => 0,
        }
    }

    /// Looks at the interrupt pin and the MSI capability.
    pub(super) fn of_function(function: &dyn PciFunction) -> Self {
        Self { intx: header::has_line(function).into(), msi: header::msi_vectors(function) }
    }
}

/// The data part of a request.
enum Data {
    None,
    Bool(Vec<bool>),
    Event(Vec<OwnedFd>),
}

/// An action on a range of vectors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Mask,
    Unmask,
    Trigger,
}

/// The interrupts of one session.
#[derive(Debug)]
pub(super) struct Interrupts {
    pub(super) counts: IrqCounts,
    pub(super) sink: Arc<FrontendInterrupts>,
    /// Serves the line's unmask eventfd.
    resampler: Option<Resampler>,
}

impl Interrupts {
    pub(super) fn new(function: &dyn PciFunction) -> Self {
        let counts = IrqCounts::of_function(function);
        Self { counts, sink: Arc::new(FrontendInterrupts::new(counts.msi)), resampler: None }
    }

    pub(super) fn set(
        &mut self,
        function: &dyn PciFunction,
        body: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        let command = command::DEVICE_SET_IRQS;
        let size = body.len();
        let wrong_size = |expected| Refusal::BodySize { command, size, expected };
        let refuse =
            |field, value: u32, allowed| Refusal::Field { command, field, value: value.into(), allowed };
        let (request, flags_data) =
            wire::SetIrqs::read_from_prefix(body).map_err(|_| wrong_size("20 and data"))?;
        let wire::SetIrqs { flags, index, start, count, .. } = request;
        if (request.argsz as usize) < size_of::<wire::SetIrqs>() {
            return Err(refuse("argsz", request.argsz, "at least 20"));
        }
        if index >= irq::COUNT {
            return Err(refuse("index", index, "the device has interrupt types 0 to 2"));
        }
        let vectors = self.counts.of(index);
        if start.checked_add(count).is_none_or(|end| end > vectors) {
            return Err(refuse("start and count", count, "the interrupt type has fewer vectors"));
        }
        let action = match flags & !(irq::DATA_NONE | irq::DATA_BOOL | irq::DATA_EVENTFD) {
            irq::ACTION_MASK => Action::Mask,
            irq::ACTION_UNMASK => Action::Unmask,
            irq::ACTION_TRIGGER => Action::Trigger,
            _ => return Err(refuse("flags", flags, "exactly one action")),
        };
        let data_kind = flags & (irq::DATA_NONE | irq::DATA_BOOL | irq::DATA_EVENTFD);
        if data_kind != irq::DATA_EVENTFD && !fds.is_empty() {
            let allowed = "they come with eventfd data only";
            return Err(Refusal::Descriptors { command, count: fds.len(), allowed });
        }
        let data = match data_kind {
            irq::DATA_NONE if flags_data.is_empty() => Data::None,
            irq::DATA_BOOL if flags_data.len() == count as usize => {
                Data::Bool(flags_data.iter().map(|byte| *byte != 0).collect())
            }
            irq::DATA_EVENTFD if flags_data.is_empty() => {
                if !fds.is_empty() && fds.len() != count as usize {
                    let allowed = "one for each vector or none";
                    return Err(Refusal::Descriptors { command, count: fds.len(), allowed });
                }
                fds.iter().try_for_each(FrontendInterrupts::check_event)?;
                Data::Event(fds)
            }
            irq::DATA_NONE | irq::DATA_EVENTFD => return Err(wrong_size("20")),
            irq::DATA_BOOL => return Err(wrong_size("20 and a byte for each vector")),
            _ => return Err(refuse("flags", flags, "exactly one kind of data")),
        };
        match index {
            irq::INTX => self.set_intx(action, data, count, flags),
            _ => self.set_msi(function, action, data, start..start.saturating_add(count), flags),
        }
    }

    fn set_intx(&mut self, action: Action, data: Data, count: u32, flags: u32) -> Result<(), Refusal> {
        let selected = match &data {
            Data::None => count > 0,
            Data::Bool(bools) => bools.contains(&true),
            Data::Event(_) => false,
        };
        match (action, data) {
            (Action::Trigger, Data::None) if count == 0 => {
                self.resampler = None;
                self.sink.set_intx_event(None);
            }
            (Action::Trigger, Data::Event(mut fds)) => self.sink.set_intx_event(fds.pop()),
            (Action::Unmask, Data::Event(mut fds)) => {
                // The old thread ends before the new one starts.
                self.resampler = None;
                if let Some(fd) = fds.pop() {
                    let resampler = Resampler::start(fd, Arc::clone(&self.sink));
                    self.resampler = Some(resampler.map_err(Refusal::InterruptSetUp)?);
                }
            }
            (Action::Mask, Data::Event(_)) => {
                return Err(Refusal::Field {
                    command: command::DEVICE_SET_IRQS,
                    field: "flags",
                    value: flags.into(),
                    allowed: "the device tells nobody when its line is masked",
                });
            }
            (Action::Mask, _) if selected => self.sink.mask_intx(),
            (Action::Unmask, _) if selected => self.sink.unmask_intx(),
            (Action::Trigger, _) if selected => self.sink.trigger_intx(),
            (Action::Mask | Action::Unmask | Action::Trigger, Data::None | Data::Bool(_)) => {}
        }
        Ok(())
    }

    fn set_msi(
        &mut self,
        function: &dyn PciFunction,
        action: Action,
        data: Data,
        range: Range<u32>,
        flags: u32,
    ) -> Result<(), Refusal> {
        if action != Action::Trigger {
            return Err(Refusal::Field {
                command: command::DEVICE_SET_IRQS,
                field: "flags",
                value: flags.into(),
                allowed: "messages cannot be masked",
            });
        }
        match data {
            Data::None if range.is_empty() => {
                connect_message(function, None);
                self.sink.disable_msi();
            }
            Data::None => range.for_each(|vector| self.sink.trigger_msi(vector)),
            Data::Bool(bools) => {
                let selected = range.zip(bools).filter(|(_, selected)| *selected);
                selected.for_each(|(vector, _)| self.sink.trigger_msi(vector));
            }
            Data::Event(fds) => {
                let first = range.contains(&0);
                if first {
                    connect_message(function, None);
                }
                let events = fds.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
                range.zip(events).for_each(|(vector, event)| self.sink.set_msi_event(vector, event));
                if first {
                    connect_message(function, self.sink.first_msi_event());
                }
            }
        }
        Ok(())
    }

    /// Closes every descriptor of the client.
    pub(super) fn close(&mut self) {
        self.resampler = None;
        self.sink.close();
    }
}

/// Gives the eventfd of the first message to the function, if another process can send that message.
fn connect_message(function: &dyn PciFunction, event: Option<OwnedFd>) {
    if let Some(owner) = function.message_owner() {
        owner.connect_message(event);
    }
}
