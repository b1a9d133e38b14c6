//! A function's messages by its capabilities: MSI, or MSI-X with its table in a BAR.

use super::KvmError;
use super::messages::{Destination, Messages};
use gpuvmk_pci::header::{self, MSIX_ENTRY, Message};
use gpuvmk_pci::{PciFunction, Region};

/// Most vectors of a function that a machine takes; it has a thousand for all.
const MOST: u16 = 128;

/// Number of vectors that a function has, by either capability.
pub(super) fn vectors(function: &dyn PciFunction) -> u32 {
    match header::msix(function) {
        Some(table) => table.vectors.min(MOST).into(),
        None => header::msi_vectors(function),
    }
}

/// Has all messages go where configuration space and the table say.
pub(super) fn follow(function: &dyn PciFunction, messages: &Messages) -> Result<(), KvmError> {
    messages.route(0..MOST, || destination(function))
}

/// The same after an access to `[offset, offset + size)` of a region, which may have changed an entry of the
/// table.
pub(super) fn follow_write(
    function: &dyn PciFunction,
    messages: &Messages,
    table: Option<(Region, u64)>,
    (region, offset, size): (Region, u64, usize),
) -> Result<(), KvmError> {
    let Some((_, begin)) = table.filter(|(of, _)| *of == region) else { return Ok(()) };
    let end = begin + MSIX_ENTRY * u64::from(MOST);
    let Some(last) = offset.checked_add(size as u64).filter(|last| begin < *last && offset < end) else {
        return Ok(());
    };
    let entry = |at: u64| u16::try_from(at.saturating_sub(begin) / MSIX_ENTRY).unwrap_or(MOST);
    messages.route(entry(offset)..entry(last - 1).saturating_add(1), || destination(function))
}

/// The region and the place of the table, which do not change.
pub(super) fn table(function: &dyn PciFunction) -> Option<(Region, u64)> {
    header::msix(function).map(|table| (table.region, table.table))
}

/// Where a vector's messages go.
fn destination(function: &dyn PciFunction) -> impl Fn(u16) -> Destination {
    let by_table = header::msix(function);
    let message = header::message(function);
    move |vector| match by_table {
        Some(table) if !table.enabled => Destination::Nowhere,
        Some(table) if table.all_masked => Destination::Masked,
        Some(table) => {
            header::msix_message(function, &table, vector).map_or(Destination::Masked, Destination::Sent)
        }
        None => message.map_or(Destination::Nowhere, |message| {
            let data = message.data.wrapping_add(vector);
            Destination::Sent(Message { data, ..message })
        }),
    }
}
