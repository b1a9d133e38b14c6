//! The saved state of a window's tables in the Fermi format.

use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::gf100::mmu::{LargePages, VA_MAX};
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use super::{FermiTables, Root};

/// State of [`FermiTables`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FermiTablesState {
    /// Where they begin.
    pub root: FermiRootState,
    /// Large pages are 64 KiB instead of 128 KiB.
    pub large_pages_64k: bool,
}

/// Where tables begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FermiRootState {
    /// There are none: offsets are VRAM addresses.
    Physical,
    /// At a page directory.
    Virtual {
        /// It; none when the instance block could not be read.
        directory: Option<PhysicalAddress>,
        /// Last address of the space.
        limit: u64,
    },
}

impl FermiTables {
    /// The state to save.
    pub const fn state(&self) -> FermiTablesState {
        let Self { root, large_pages } = self;
        let root = match *root {
            Root::Physical => FermiRootState::Physical,
            Root::Virtual { directory, limit } => FermiRootState::Virtual { directory, limit },
        };
        FermiTablesState { root, large_pages_64k: matches!(large_pages, LargePages::K64) }
    }

    /// The tables in a saved state.
    ///
    /// # Errors
    /// They begin where no instance block can say.
    pub fn from_state(state: &FermiTablesState) -> Result<Self, StateError> {
        let check = Check("window");
        let root = match state.root {
            FermiRootState::Physical => Root::Physical,
            FermiRootState::Virtual { directory, limit } => {
                check.that(limit <= VA_MAX, || format!("limit is {limit:#x}, behind {VA_MAX:#x}"))?;
                if let Some(PhysicalAddress { address, .. }) = directory {
                    check.that(address <= VA_MAX && address.is_multiple_of(PAGE_SIZE), || {
                        format!("a page directory is at {address:#x}")
                    })?;
                }
                Root::Virtual { directory, limit }
            }
        };
        Ok(Self { root, large_pages: LargePages::from_64k(state.large_pages_64k) })
    }
}

#[cfg(test)]
mod tests {
    use gpuvmk_chip::Aperture;
    use gpuvmk_saved_state::testing::{corrupted_states_are_refused_or_taken_as_they_are, through_text};

    use super::*;

    #[test]
    fn tables_are_where_they_were() {
        let directory = PhysicalAddress { aperture: Aperture::SystemCoherent, address: 0x12_3456_7000 };
        for root in [
            Root::Physical,
            Root::Virtual { directory: None, limit: VA_MAX },
            Root::Virtual { directory: Some(directory), limit: 0xffff },
        ] {
            for large_pages in [LargePages::K64, LargePages::K128] {
                let tables = FermiTables { root, large_pages };
                assert_eq!(FermiTables::from_state(&through_text(&tables.state())).unwrap(), tables);
                let check = |state: &_| FermiTables::from_state(state);
                corrupted_states_are_refused_or_taken_as_they_are(
                    &tables.state(),
                    200,
                    check,
                    FermiTables::state,
                );
            }
        }
    }

    #[test]
    fn directory_that_no_instance_block_names_is_refused() {
        for address in [1, 0x1800, VA_MAX + 1, u64::MAX] {
            let directory = Some(PhysicalAddress { aperture: Aperture::Vram, address });
            let root = FermiRootState::Virtual { directory, limit: 0 };
            let error =
                FermiTables::from_state(&FermiTablesState { root, large_pages_64k: false }).unwrap_err();
            assert!(error.to_string().contains("a page directory is at"), "{error}");
        }
    }
}
