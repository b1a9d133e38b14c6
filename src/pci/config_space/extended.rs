//! Extended capabilities: a chain of its own, from offset 0x100 on.

use super::draft::Draft;
use super::error::BuildError;
use super::layout::{errors, extended, resizable};
use super::{CONFIG_SIZE, CONVENTIONAL_SIZE};
use crate::RegionTable;

/// A capability of the extended chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedCapability {
    /// A BAR whose size can be chosen, of one size: the one that it has.
    ResizableBar {
        /// Which.
        bar: u8,
    },
    /// Advanced error reporting. No error is ever reported.
    ErrorReporting,
}

impl ExtendedCapability {
    const fn id(self) -> u16 {
        match self {
            Self::ResizableBar { .. } => resizable::ID,
            Self::ErrorReporting => errors::ID,
        }
    }

    const fn version(self) -> u32 {
        match self {
            Self::ResizableBar { .. } => resizable::VERSION,
            Self::ErrorReporting => errors::VERSION,
        }
    }

    const fn size(self) -> usize {
        match self {
            Self::ResizableBar { .. } => resizable::SIZE,
            Self::ErrorReporting => errors::SIZE,
        }
    }
}

/// Lays the chain out. Where the first capability is not at 0x100, an empty one there leads to it. Returns
/// how many bytes of configuration space there are.
pub(super) fn lay_out(
    draft: &mut Draft,
    list: &[(u16, ExtendedCapability)],
    regions: &RegionTable,
) -> Result<usize, BuildError> {
    // An empty capability is a header alone.
    let mut end = CONVENTIONAL_SIZE;
    let mut last = (CONVENTIONAL_SIZE, 0);
    for &(at, capability) in list {
        let refuse = |why| BuildError::ExtendedPlace { id: capability.id(), at, why };
        let start = usize::from(at);
        let is_first = start == CONVENTIONAL_SIZE && end == CONVENTIONAL_SIZE;
        let least = if is_first { start } else { end.max(CONVENTIONAL_SIZE + extended::HEADER) };
        if start < least || start % 4 != 0 {
            return Err(refuse("it must lie behind the one before it at a multiple of 4"));
        }
        end = start + capability.size();
        if end > CONFIG_SIZE {
            return Err(refuse("4 KiB end before"));
        }
        let (place, header) = last;
        draft.value32(place, header | u32::from(at) << extended::NEXT_SHIFT);
        let header = u32::from(capability.id()) | capability.version() << extended::VERSION_SHIFT;
        draft.value32(start, header);
        last = (start, header);
        match capability {
            ExtendedCapability::ResizableBar { bar } => {
                let size = regions.get(usize::from(bar)).map_or(0, |region| region.size);
                let size = resizable::size(size).ok_or(refuse("its BAR has no size that it can tell"))?;
                draft.value32(start + resizable::CAPABILITY, resizable::only(size));
                let control = u32::from(bar) | resizable::ONE_BAR | size << resizable::SIZE_SHIFT;
                draft.value32(start + resizable::CONTROL, control);
            }
            ExtendedCapability::ErrorReporting => {
                draft.clear32(start + errors::UNCORRECTABLE_STATUS, errors::UNCORRECTABLE);
                draft.writable32(start + errors::UNCORRECTABLE_MASK, errors::UNCORRECTABLE);
                draft.writable32(start + errors::UNCORRECTABLE_SEVERITY, errors::UNCORRECTABLE);
                draft.value32(start + errors::UNCORRECTABLE_SEVERITY, errors::SEVERITY_RESET);
                draft.clear32(start + errors::CORRECTABLE_STATUS, errors::CORRECTABLE);
                draft.writable32(start + errors::CORRECTABLE_MASK, errors::CORRECTABLE);
                draft.value32(start + errors::CORRECTABLE_MASK, errors::CORRECTABLE_MASK_RESET);
            }
        }
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::super::{Capability, ConfigSpace, ConfigSpaceBuilder, Identity};
    use super::*;
    use crate::{RegionInfo, RegionKind};

    fn builder() -> ConfigSpaceBuilder {
        let identity = Identity {
            vendor: 0x10de,
            device: 0x2330,
            revision: 0xa1,
            class: 0x03_0200,
            subsystem_vendor: 0x10de,
            subsystem: 1,
        };
        let mut regions = [RegionInfo::ABSENT; 8];
        regions[1] = RegionInfo { kind: RegionKind::Memory64Prefetch, size: 256 << 20 };
        regions[3] = RegionInfo { kind: RegionKind::Memory64Prefetch, size: 1 << 19 };
        ConfigSpaceBuilder::new(identity, regions).capability(0x40, Capability::PowerManagement)
    }

    fn read32(space: &ConfigSpace, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        space.read(offset, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    const BAR1: ExtendedCapability = ExtendedCapability::ResizableBar { bar: 1 };
    const ERRORS: ExtendedCapability = ExtendedCapability::ErrorReporting;

    #[test]
    fn chain_begins_with_an_empty_capability_where_the_first_lies_elsewhere() {
        let space = builder().extended(0x134, BAR1).extended(0x1b8, ERRORS).build().unwrap();

        assert_eq!(read32(&space, 0x100), 0x1340_0000);
        assert_eq!(read32(&space, 0x134), 0x1b81_0015);
        assert_eq!(read32(&space, 0x1b8), 0x0002_0001);
        assert_eq!((read32(&space, 0x138), read32(&space, 0x13c)), (0x1000, 0x821));
        assert_eq!(read32(&space, 0x1b8 + errors::SIZE as u64), 0);
    }

    #[test]
    fn first_capability_may_lie_where_the_chain_begins() {
        let space = builder().extended(0x100, ERRORS).extended(0x148, BAR1).build().unwrap();

        assert_eq!((read32(&space, 0x100), read32(&space, 0x148)), (0x1482_0001, 0x0001_0015));
    }

    #[test]
    fn masks_of_errors_are_stored_and_nothing_else_is() {
        let mut space = builder().extended(0x134, BAR1).extended(0x1b8, ERRORS).build().unwrap();
        for offset in (0x100..0x300).step_by(4) {
            space.write(offset, &[0xff; 4]).unwrap();
        }

        let masks = [0x1c0, 0x1c4, 0x1cc].map(|offset| read32(&space, offset));
        assert_eq!(masks, [0x0017_f010, 0x0017_f010, 0x31c1]);
        assert_eq!((read32(&space, 0x1bc), read32(&space, 0x1c8), read32(&space, 0x13c)), (0, 0, 0x821));
        space.reset();
        assert_eq!((read32(&space, 0x1c0), read32(&space, 0x1c4)), (0, 0x0006_2010));
        assert_eq!(read32(&space, 0x1cc), 0x2000);
    }

    #[test]
    fn places_that_are_none_are_refused() {
        let refused = |list: &[(u16, ExtendedCapability)]| {
            let add = |builder: ConfigSpaceBuilder, one: &(u16, _)| builder.extended(one.0, one.1);
            matches!(list.iter().fold(builder(), add).build(), Err(BuildError::ExtendedPlace { .. }))
        };

        assert!(refused(&[(0xfc, ERRORS)]) && refused(&[(0x102, ERRORS)]) && refused(&[(0xfc0, ERRORS)]));
        assert!(refused(&[(0x134, BAR1), (0x13c, ERRORS)]) && refused(&[(0x1b8, ERRORS), (0x134, BAR1)]));
        assert!(refused(&[(0x134, ExtendedCapability::ResizableBar { bar: 3 })]), "half a MiB");
        assert!(refused(&[(0x134, ExtendedCapability::ResizableBar { bar: 7 })]));
        assert!(refused(&[(0x100, BAR1), (0x100, ERRORS)]));
    }
}
