//! The table of ranges: what is announced, by its first address.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::owner::Range;
use crate::DmaError;

/// Limit of ranges of one owner: the number that QEMU's client allows a server to ask for.
pub const MAX_MAPPINGS: usize = 65535;

/// Ranges by their first address.
pub(super) type Table = BTreeMap<u64, Arc<Range>>;

/// Puts a range into a table, as one with those that it continues. Returns what took another shape.
pub(super) fn insert(table: &mut Table, range: Range) -> Result<Vec<Arc<Range>>, DmaError> {
    let before = table.range(..=range.last).next_back().map(|(_, before)| Arc::clone(before));
    if before.as_ref().is_some_and(|before| before.last >= range.first) {
        return Err(DmaError::Overlap { iova: range.first, size: range.size() });
    }
    let after = range.last.checked_add(1).and_then(|next| table.get(&next)).map(Arc::clone);
    let mut replaced = Vec::new();
    let mut whole = range;
    if let Some(before) = before
        && let Some(joined) = before.joined(&whole)
    {
        whole = joined;
        replaced.push(before);
    }
    if let Some(after) = after
        && let Some(joined) = whole.joined(&after)
    {
        whole = joined;
        replaced.push(after);
    }
    let owner = whole.owner.clone();
    if replaced.is_empty() && owner.ranges() >= owner.most_ranges() {
        return Err(DmaError::TooMany(owner.most_ranges()));
    }
    for range in &replaced {
        table.remove(&range.first);
    }
    owner.note_ranges(replaced.len(), 1);
    table.insert(whole.first, Arc::new(whole));
    Ok(replaced)
}

/// Takes addresses out of a table. Returns the removed ranges.
pub(super) fn cut(table: &mut Table, first: u64, last: u64) -> Vec<Arc<Range>> {
    let below = table.range(..first).next_back().filter(|(_, range)| range.last >= first);
    let inside = below.into_iter().chain(table.range(first..=last));
    let gone: Vec<_> = inside.map(|(_, range)| Arc::clone(range)).collect();
    for range in &gone {
        table.remove(&range.first);
        let left = (range.first < first).then(|| range.part(range.first, first - 1));
        let right = (range.last > last).then(|| range.part(last + 1, range.last));
        let parts: Vec<_> = left.into_iter().chain(right).collect();
        // A client that keeps splitting ranges must come to a limit.
        let room = range.owner.ranges() < MAX_MAPPINGS;
        range.owner.note_ranges(1, if room { parts.len() } else { 0 });
        if room {
            table.extend(parts.into_iter().map(|part| (part.first, Arc::new(part))));
        }
    }
    gone
}

/// Hands ranges to their owners.
pub(super) fn retire(gone: Vec<Arc<Range>>) {
    let mut gone = gone.into_iter().peekable();
    while let Some(range) = gone.next() {
        let owner = range.owner.clone();
        let mut one_owners = vec![range];
        while let Some(range) = gone.next_if(|range| range.owner.is(&owner)) {
            one_owners.push(range);
        }
        owner.retire(one_owners);
    }
}
