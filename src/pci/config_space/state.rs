//! A configuration space's saved state.

use gpuvmk_saved_state::{Bytes, Check, StateError};
use serde::{Deserialize, Serialize};

use super::ConfigSpace;
use super::layout::{self, status};

/// State of a [`ConfigSpace`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigSpaceState {
    /// The first 256 bytes, and those up to the end of the last extended capability, as they are read.
    pub value: Bytes,
}

impl ConfigSpaceState {
    /// Where the chain of capabilities begins, by which layouts can be told apart.
    pub fn first_capability(&self) -> Option<u8> {
        self.value.0.get(layout::CAPABILITIES_POINTER).copied()
    }
}

impl ConfigSpace {
    /// The state to save.
    pub fn state(&self) -> ConfigSpaceState {
        // All but the value is given with the function's identity.
        let Self {
            value,
            reset_value: _,
            writable: _,
            write_1_to_clear: _,
            capabilities: _,
            bar_kinds: _,
            reset_capable: _,
        } = self;
        ConfigSpaceState { value: Bytes(value.clone()) }
    }

    /// The space `built` for the function, in a saved state.
    ///
    /// # Errors
    /// The state is of another function: a read-only bit has another value there.
    pub fn from_state(state: &ConfigSpaceState, mut built: Self) -> Result<Self, StateError> {
        let check = Check("configuration space");
        let bytes = &state.value.0;
        check.exactly("value", bytes.len(), built.value.len())?;
        let mut value = vec![0; built.value.len()];
        let places = value.iter_mut().zip(bytes).zip(built.reset_value.iter().zip(&built.writable));
        for (((place, byte), (reset, writable)), position) in places.zip(0..) {
            let device = if position == status::OFFSET { status::INTERRUPT_LOW_BYTE } else { 0 };
            check.that((byte ^ reset) & !(writable | device) == 0, || {
                format!(
                    "the byte at {position:#04x} is {byte:#04x}, and this function has {reset:#04x} there"
                )
            })?;
            *place = *byte;
        }
        built.value = value;
        Ok(built)
    }
}

#[cfg(test)]
mod tests {
    use gpuvmk_saved_state::testing::{corrupted_states_are_refused_or_taken_as_they_are, through_text};

    use super::super::{Capability, ConfigSpaceBuilder, Identity};
    use super::*;
    use crate::{RegionInfo, RegionKind};

    fn space(device: u16) -> ConfigSpace {
        let identity = Identity {
            vendor: 0x10de,
            device,
            revision: 0xa1,
            class: 0x03_0200,
            subsystem_vendor: 0x10de,
            subsystem: 1,
        };
        let mut regions = [RegionInfo::ABSENT; 8];
        regions[0] = RegionInfo { kind: RegionKind::Memory32, size: 16 << 20 };
        ConfigSpaceBuilder::new(identity, regions)
            .capability(0x60, Capability::PowerManagement)
            .capability(0x68, Capability::Msi)
            .build()
            .unwrap()
    }

    fn used() -> ConfigSpace {
        let mut used = space(0x2330);
        used.write(4, &[6, 4]).unwrap();
        used.write(0x10, &0xfe00_0000u32.to_le_bytes()).unwrap();
        used.write(0x6a, &[1, 0, 0, 0xe0, 0xfe]).unwrap();
        used.set_interrupt_status(true);
        used
    }

    #[test]
    fn state_is_what_was_written_and_the_interrupt() {
        let used = used();
        let again = ConfigSpace::from_state(&through_text(&used.state()), space(0x2330)).unwrap();
        assert_eq!((again.state(), again.control()), (used.state(), used.control()));
        assert_eq!(again.bar_base(0), Some(0xfe00_0000));
        let (mut then, mut now) = ([0; 64], [0; 64]);
        used.read(0, &mut then).unwrap();
        again.read(0, &mut now).unwrap();
        assert_eq!(then, now);
        let mut again = again;
        again.reset();
        assert_eq!(again.state(), space(0x2330).state());
    }

    #[test]
    fn state_of_another_function_is_refused() {
        let error = ConfigSpace::from_state(&used().state(), space(0x2331)).unwrap_err();
        assert!(
            error.to_string().contains("the byte at 0x02 is 0x30, and this function has 0x31"),
            "{error}"
        );
    }

    #[test]
    fn corrupted_states_are_refused() {
        corrupted_states_are_refused_or_taken_as_they_are(
            &used().state(),
            500,
            |state| ConfigSpace::from_state(state, space(0x2330)),
            ConfigSpace::state,
        );
    }
}
