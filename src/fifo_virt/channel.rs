//! The life of one guest channel, and what each step asks of the host side.
//!
//! ```text
//!            bind               start, block good           stop
//!   Free ------------> Bound ---------------------> Enabled ------> Ready
//!                        |  start, block bad           | fault        | start
//!                        v                             v              v
//!                    NotPlaced --- start, good --> Faulted ------> Enabled
//! ```
//!
//! The host channel is created at the first start, because only then the guest's instance block is complete,
//! and lives until the guest unbinds the channel number or binds it again. The block is read again at every
//! start: drivers stop a channel, change its context pointers, and start it again. Where more than the
//! engines changed, the host channel is replaced.

use super::instance::{InstanceBlock, InstanceError};
use gpuvmk_chip::{EngineSet, PhysicalAddress};

/// A channel with a host channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The guest's instance block.
    pub instance: PhysicalAddress,
    /// Its content when it was read last.
    pub block: InstanceBlock,
}

/// Why a bound channel has no host channel although it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPlaced {
    /// Its instance block is wrong.
    Instance(InstanceError),
    /// The host side did not take it.
    Refused,
}

/// State of a guest channel number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Channel {
    /// Not bound.
    #[default]
    Free,
    /// Bound, not started since.
    Bound {
        /// The guest's instance block.
        instance: PhysicalAddress,
    },
    /// Started in vain.
    NotPlaced {
        /// The guest's instance block.
        instance: PhysicalAddress,
        /// The reason.
        why: NotPlaced,
    },
    /// Has a host channel, stopped.
    Ready(Placed),
    /// Has a host channel, started.
    Enabled(Placed),
    /// Has a host channel that hardware stopped after a fault.
    Faulted(Placed),
}

/// An action on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The driver bound it to an instance block.
    Bind(PhysicalAddress),
    /// The driver unbound it.
    Unbind,
    /// The driver set the start bit; with what the instance block says now.
    Start(Result<InstanceBlock, InstanceError>),
    /// The driver cleared the start bit.
    Stop,
    /// Hardware stopped it.
    Fault,
    /// The host side did not take the last effect; it has no channel any more.
    Refused,
}

/// A step of the host side, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Create the host channel.
    Create(InstanceBlock),
    /// Destroy the host channel that was created with this.
    Destroy(InstanceBlock),
    /// Change the engines of the host channel.
    SetEngines(EngineSet),
    /// Set its start bit.
    Enable,
    /// Clear its start bit.
    Disable,
}

impl Channel {
    /// The next state, and what must be done to get there.
    #[must_use]
    pub fn step(self, input: Input) -> (Self, Vec<Effect>) {
        match input {
            Input::Bind(instance) => (Self::Bound { instance }, self.destroy()),
            Input::Unbind => (Self::Free, self.destroy()),
            Input::Start(block) => self.start(block),
            Input::Stop => match self {
                Self::Enabled(placed) | Self::Faulted(placed) => (Self::Ready(placed), vec![Effect::Disable]),
                Self::Free | Self::Bound { .. } | Self::NotPlaced { .. } | Self::Ready(_) => (self, vec![]),
            },
            Input::Fault => match self {
                Self::Enabled(placed) => (Self::Faulted(placed), vec![]),
                Self::Free
                | Self::Bound { .. }
                | Self::NotPlaced { .. }
                | Self::Ready(_)
                | Self::Faulted(_) => (self, vec![]),
            },
            Input::Refused => match self.instance() {
                Some(instance) => (Self::NotPlaced { instance, why: NotPlaced::Refused }, vec![]),
                None => (Self::Free, vec![]),
            },
        }
    }

    /// The guest's instance block, while the channel is bound.
    pub const fn instance(&self) -> Option<PhysicalAddress> {
        match self {
            Self::Free => None,
            Self::Bound { instance } | Self::NotPlaced { instance, .. } => Some(*instance),
            Self::Ready(placed) | Self::Enabled(placed) | Self::Faulted(placed) => Some(placed.instance),
        }
    }

    /// The host channel's facts, while there is one.
    pub const fn placed(&self) -> Option<&Placed> {
        match self {
            Self::Free | Self::Bound { .. } | Self::NotPlaced { .. } => None,
            Self::Ready(placed) | Self::Enabled(placed) | Self::Faulted(placed) => Some(placed),
        }
    }

    fn destroy(&self) -> Vec<Effect> {
        self.placed().map(|placed| Effect::Destroy(placed.block)).into_iter().collect()
    }

    fn start(self, block: Result<InstanceBlock, InstanceError>) -> (Self, Vec<Effect>) {
        let Some(instance) = self.instance() else { return (self, vec![]) };
        let block = match block {
            Ok(block) => block,
            Err(why) => return (Self::NotPlaced { instance, why: NotPlaced::Instance(why) }, self.destroy()),
        };
        let enabled = Self::Enabled(Placed { instance, block });
        let (old, mut effects) = match self {
            Self::Free => return (self, vec![]),
            Self::Bound { .. } | Self::NotPlaced { .. } => {
                return (enabled, vec![Effect::Create(block), Effect::Enable]);
            }
            Self::Enabled(old) if old.block == block => return (enabled, vec![]),
            Self::Ready(old) => (old, vec![]),
            // Hardware left the start bit of a channel that it stopped.
            Self::Enabled(old) | Self::Faulted(old) => (old, vec![Effect::Disable]),
        };
        if old.block == block {
            effects.push(Effect::Enable);
        } else if old.block.same_but_engines(&block) {
            effects.extend([Effect::SetEngines(block.engines), Effect::Enable]);
        } else {
            effects = vec![Effect::Destroy(old.block), Effect::Create(block), Effect::Enable];
        }
        (enabled, effects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::Aperture;
    use gpuvmk_chip::addr::{GpuVa, GuestVram};

    const I: PhysicalAddress = PhysicalAddress { aperture: Aperture::Vram, address: 0x1000 };
    const J: PhysicalAddress = PhysicalAddress { aperture: Aperture::Vram, address: 0x2000 };
    const BAD: InstanceError = InstanceError::Signature(0);

    fn block() -> InstanceBlock {
        InstanceBlock {
            page_directory: PhysicalAddress { aperture: Aperture::Vram, address: 0x10_0000 },
            userd: GuestVram(0x3000),
            gpfifo: GpuVa(0x4_0000),
            gpfifo_entries_log2: 10,
            engines: EngineSet::empty(),
        }
    }

    #[test]
    fn transition_table_holds() {
        let b = block();
        let graphics = InstanceBlock { engines: EngineSet::GRAPHICS, ..b };
        let moved = InstanceBlock { gpfifo: GpuVa(0x8_0000), ..b };
        let placed = Placed { instance: I, block: b };
        let bound = Channel::Bound { instance: I };
        let unfit = Channel::NotPlaced { instance: I, why: NotPlaced::Instance(BAD) };
        let refused = Channel::NotPlaced { instance: I, why: NotPlaced::Refused };
        let (ready, enabled, faulted) =
            (Channel::Ready(placed), Channel::Enabled(placed), Channel::Faulted(placed));
        let enabled_with = |block| Channel::Enabled(Placed { instance: I, block });
        use Effect::{Create, Destroy, Disable, Enable, SetEngines};
        let replace = vec![Destroy(b), Create(moved), Enable];

        let table: Vec<(Channel, Input, Channel, Vec<Effect>)> = vec![
            (Channel::Free, Input::Bind(I), bound, vec![]),
            (Channel::Free, Input::Unbind, Channel::Free, vec![]),
            (Channel::Free, Input::Start(Ok(b)), Channel::Free, vec![]),
            (Channel::Free, Input::Start(Err(BAD)), Channel::Free, vec![]),
            (Channel::Free, Input::Stop, Channel::Free, vec![]),
            (Channel::Free, Input::Fault, Channel::Free, vec![]),
            (Channel::Free, Input::Refused, Channel::Free, vec![]),
            (bound, Input::Bind(J), Channel::Bound { instance: J }, vec![]),
            (bound, Input::Unbind, Channel::Free, vec![]),
            (bound, Input::Start(Ok(b)), enabled, vec![Create(b), Enable]),
            (bound, Input::Start(Err(BAD)), unfit, vec![]),
            (bound, Input::Stop, bound, vec![]),
            (bound, Input::Fault, bound, vec![]),
            (bound, Input::Refused, refused, vec![]),
            (unfit, Input::Bind(J), Channel::Bound { instance: J }, vec![]),
            (unfit, Input::Unbind, Channel::Free, vec![]),
            (unfit, Input::Start(Ok(b)), enabled, vec![Create(b), Enable]),
            (unfit, Input::Start(Err(BAD)), unfit, vec![]),
            (unfit, Input::Stop, unfit, vec![]),
            (unfit, Input::Fault, unfit, vec![]),
            (unfit, Input::Refused, refused, vec![]),
            (ready, Input::Bind(J), Channel::Bound { instance: J }, vec![Destroy(b)]),
            (ready, Input::Unbind, Channel::Free, vec![Destroy(b)]),
            (ready, Input::Start(Ok(b)), enabled, vec![Enable]),
            (
                ready,
                Input::Start(Ok(graphics)),
                enabled_with(graphics),
                vec![SetEngines(EngineSet::GRAPHICS), Enable],
            ),
            (ready, Input::Start(Ok(moved)), enabled_with(moved), replace.clone()),
            (ready, Input::Start(Err(BAD)), unfit, vec![Destroy(b)]),
            (ready, Input::Stop, ready, vec![]),
            (ready, Input::Fault, ready, vec![]),
            (ready, Input::Refused, refused, vec![]),
            (enabled, Input::Bind(I), bound, vec![Destroy(b)]),
            (enabled, Input::Unbind, Channel::Free, vec![Destroy(b)]),
            (enabled, Input::Start(Ok(b)), enabled, vec![]),
            (
                enabled,
                Input::Start(Ok(graphics)),
                enabled_with(graphics),
                vec![Disable, SetEngines(EngineSet::GRAPHICS), Enable],
            ),
            (enabled, Input::Start(Ok(moved)), enabled_with(moved), replace.clone()),
            (enabled, Input::Start(Err(BAD)), unfit, vec![Destroy(b)]),
            (enabled, Input::Stop, ready, vec![Disable]),
            (enabled, Input::Fault, faulted, vec![]),
            (enabled, Input::Refused, refused, vec![]),
            (faulted, Input::Bind(J), Channel::Bound { instance: J }, vec![Destroy(b)]),
            (faulted, Input::Unbind, Channel::Free, vec![Destroy(b)]),
            (faulted, Input::Start(Ok(b)), enabled, vec![Disable, Enable]),
            (faulted, Input::Start(Ok(moved)), enabled_with(moved), replace),
            (faulted, Input::Start(Err(BAD)), unfit, vec![Destroy(b)]),
            (faulted, Input::Stop, ready, vec![Disable]),
            (faulted, Input::Fault, faulted, vec![]),
            (faulted, Input::Refused, refused, vec![]),
        ];

        for (state, input, next, effects) in table {
            assert_eq!(state.step(input), (next, effects), "{state:?} {input:?}");
        }
    }

    #[test]
    fn host_channel_is_created_and_destroyed_in_turn_whatever_happens() {
        // Every sequence of four inputs: Create only without, everything else only with a host channel.
        let b = block();
        let moved = InstanceBlock { userd: GuestVram(0x5000), ..b };
        let inputs = [
            Input::Bind(I),
            Input::Unbind,
            Input::Start(Ok(b)),
            Input::Start(Ok(moved)),
            Input::Start(Err(BAD)),
            Input::Stop,
            Input::Fault,
        ];
        let count = inputs.len();
        for sequence in 0..count.pow(5) {
            let (mut channel, mut exists, mut rest) = (Channel::Free, false, sequence);
            for _ in 0..5 {
                let (next, effects) = channel.step(inputs[rest % count]);
                rest /= count;
                for effect in effects {
                    match effect {
                        Effect::Create(_) => assert!(!std::mem::replace(&mut exists, true)),
                        Effect::Destroy(_) => assert!(std::mem::take(&mut exists)),
                        Effect::SetEngines(_) | Effect::Enable | Effect::Disable => assert!(exists),
                    }
                }
                channel = next;
                assert_eq!(channel.placed().is_some(), exists);
            }
        }
    }
}
