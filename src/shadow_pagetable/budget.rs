//! How much a guest's page tables may cost: memory for snapshots and tables to visit, for all address spaces
//! of a VM together.
//!
//! A hostile directory can name thousands of tables, all of them the same memory. Each counts as a separate
//! table, so that neither time nor memory of a walk exceeds the limits.

/// Bytes of a table that are copied, compared and kept at a time.
pub(super) const PIECE: usize = 4096;

/// Limits for all address spaces of one VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tables, directories included. Every synchronisation reads all tables of a space.
    pub tables: usize,
    /// Bytes of table contents kept; pages of a table that are all empty cost nothing.
    pub snapshot_bytes: usize,
}

impl Limits {
    /// Room for 1024 tables (with Fermi's small pages 128 GiB of virtual range) and 8 Mi mapped pages.
    pub const DEFAULT: Self = Self { tables: 1024, snapshot_bytes: 64 << 20 };

    /// For formats whose tables cover 2 MiB each ([`Gmmu`](gpuvmk_chip::gmmu::Gmmu)): 64 GiB of small pages.
    pub const SMALL_TABLES: Self = Self { tables: 1 << 15, snapshot_bytes: 128 << 20 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Why a walk stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalkRefusal {
    /// Too many tables.
    #[error("The guest's GPU page tables name more than {limit} tables")]
    Tables {
        /// How many were allowed.
        limit: usize,
    },
    /// Too much content.
    #[error("The guest's GPU page tables hold more than {limit} bytes of entries")]
    SnapshotBytes {
        /// How many were allowed.
        limit: usize,
    },
}

/// Places for contents that are kept when those go, 2 MiB: address spaces come and go with channels, and to
/// get memory from the kernel costs more than to follow what is put there.
const MOST_SPARE: usize = 512;

/// The used part of [`Limits`].
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    tables: usize,
    snapshot_bytes: usize,
    /// Places of a piece each, with whatever was there last.
    spare: Vec<Box<[u8]>>,
}

impl Budget {
    /// What may be used.
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Nothing used yet.
    pub const fn new(limits: Limits) -> Self {
        Self { limits, tables: 0, snapshot_bytes: 0, spare: Vec::new() }
    }

    /// Tables in use.
    pub const fn tables(&self) -> usize {
        self.tables
    }

    /// Bytes of snapshots in use.
    pub const fn snapshot_bytes(&self) -> usize {
        self.snapshot_bytes
    }

    pub(super) fn take_table(&mut self) -> Result<(), WalkRefusal> {
        if self.tables >= self.limits.tables {
            return Err(WalkRefusal::Tables { limit: self.limits.tables });
        }
        self.tables += 1;
        Ok(())
    }

    pub(super) fn give_table(&mut self) {
        self.tables = self.tables.saturating_sub(1);
    }

    pub(super) fn take_bytes(&mut self, bytes: usize) -> Result<(), WalkRefusal> {
        match self.snapshot_bytes.checked_add(bytes) {
            Some(sum) if sum <= self.limits.snapshot_bytes => {
                self.snapshot_bytes = sum;
                Ok(())
            }
            _ => Err(WalkRefusal::SnapshotBytes { limit: self.limits.snapshot_bytes }),
        }
    }

    /// A place for the contents of a piece; what is in it is anything.
    pub(super) fn take_place(&mut self) -> Box<[u8]> {
        self.spare.pop().unwrap_or_else(|| vec![0; PIECE].into_boxed_slice())
    }

    /// Takes a place back that is not needed any more.
    pub(super) fn give_place(&mut self, place: Box<[u8]>) {
        if place.len() == PIECE && self.spare.len() < MOST_SPARE {
            self.spare.push(place);
        }
    }

    pub(super) fn give_bytes(&mut self, bytes: usize) {
        self.snapshot_bytes = self.snapshot_bytes.saturating_sub(bytes);
    }
}
