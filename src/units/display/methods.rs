//! Methods of a channel: what was set, and what has taken effect.

use gpuvmk_chip::display::core::CONTROL_OUTPUT_RESOURCE;
use gpuvmk_chip::display::{ChannelKind, HEADS, core, immediate, window};
use gpuvmk_saved_state::{Check, StateError, Words};

/// The methods of a channel, by their byte offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Methods {
    assembly: Vec<u32>,
    armed: Vec<u32>,
}

/// Words of a channel's methods.
fn words(kind: ChannelKind) -> usize {
    let bytes = match kind {
        ChannelKind::Core => core::BYTES,
        ChannelKind::Window => window::BYTES,
        ChannelKind::Immediate => immediate::BYTES,
        // Its methods are registers.
        ChannelKind::Cursor => 0,
    };
    usize::try_from(bytes / 4).unwrap_or(0)
}

/// The place of a method.
fn place(method: u32) -> usize {
    usize::try_from(method / 4).unwrap_or(usize::MAX)
}

impl Methods {
    /// Nothing was set. Heads are said to send 24 bits a pixel: drivers look at that before they light one.
    pub fn new(kind: ChannelKind) -> Self {
        let none = vec![0; words(kind)];
        let mut new = Self { assembly: none.clone(), armed: none };
        if kind == ChannelKind::Core {
            let depth = CONTROL_OUTPUT_RESOURCE::PIXEL_DEPTH;
            let usual = depth.of(CONTROL_OUTPUT_RESOURCE::PIXEL_DEPTH::BPP_24_444);
            for number in 0..HEADS {
                let number = u32::try_from(number).unwrap_or(0);
                new.set(core::head(number, core::HEAD_SET_CONTROL_OUTPUT_RESOURCE), usual);
            }
            new.arm();
        }
        new
    }

    /// Sets a method. False: there is no such one.
    pub fn set(&mut self, method: u32, value: u32) -> bool {
        let slot = self.assembly.get_mut(place(method));
        let is_there = slot.is_some();
        if let Some(slot) = slot {
            *slot = value;
        }
        is_there
    }

    /// What was set last.
    pub fn assembled(&self, method: u32) -> u32 {
        self.assembly.get(place(method)).copied().unwrap_or(0)
    }

    /// What has taken effect.
    pub fn armed(&self, method: u32) -> u32 {
        self.armed.get(place(method)).copied().unwrap_or(0)
    }

    /// What was set takes effect.
    pub fn arm(&mut self) {
        self.armed.copy_from_slice(&self.assembly);
    }

    /// Both, to save.
    pub fn state(&self) -> [Words; 2] {
        let Self { assembly, armed } = self;
        [Words::of(assembly), Words::of(armed)]
    }

    /// Both, of a saved state.
    pub fn from_state(kind: ChannelKind, [assembly, armed]: [&Words; 2]) -> Result<Self, StateError> {
        let memory = |words_of: &Words, name| words_of.memory(Check("methods"), name, words(kind));
        Ok(Self { assembly: memory(assembly, "assembly")?, armed: memory(armed, "armed")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_takes_effect_when_it_is_armed() {
        let mut methods = Methods::new(ChannelKind::Window);
        assert!(methods.set(window::SET_SIZE, 7));
        assert_eq!((methods.assembled(window::SET_SIZE), methods.armed(window::SET_SIZE)), (7, 0));
        methods.arm();
        assert_eq!(methods.armed(window::SET_SIZE), 7);
        assert!(!methods.set(window::BYTES, 1));
        assert_eq!(methods.armed(u32::MAX), 0);
    }
}
