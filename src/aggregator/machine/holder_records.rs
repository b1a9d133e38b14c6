//! What is remembered of a VM when its connection ends: settings by operators, whether they paused it, and
//! its hangs. A record belongs to a [`Holder`]. It applies again when that holder comes back, under any name.

use std::mem::discriminant;
use std::time::Duration;

use crate::tenant::Holder;
use gpuvmk_ordered::OrderedMap;
use gpuvmk_scheduler::hang::penalty::Record;
use gpuvmk_scheduler::share::{Share, ShareSetting};

/// Most holders of whom something is remembered.
const MAX_HOLDERS: usize = 512;

/// The record of one holder.
#[derive(Clone, Debug, Default)]
pub(super) struct HolderRecord {
    /// Settings by operators, which replace the back end's.
    settings: Vec<ShareSetting>,
    /// An operator paused it.
    pub paused: bool,
    /// Its hangs, and how long it has to wait for them.
    pub hangs: Record,
    touched: Duration,
}

impl HolderRecord {
    /// A share as operators want it.
    pub fn share(&self, asked: Share) -> Share {
        self.settings.iter().fold(asked, |share, wish| share.with(*wish))
    }

    /// An operator's word, which nothing may push out.
    const fn is_ordered(&self) -> bool {
        self.paused || !self.settings.is_empty()
    }
}

/// Those of all.
#[derive(Clone, Debug, Default)]
pub(super) struct HolderRecords {
    holders: OrderedMap<Holder, HolderRecord>,
}

impl HolderRecords {
    /// What is remembered.
    pub fn of(&self, holder: &Holder) -> HolderRecord {
        self.holders.get(holder).cloned().unwrap_or_default()
    }

    /// An operator has spoken.
    pub fn order(&mut self, holder: &Holder, wishes: &[ShareSetting], paused: bool, now: Duration) {
        if wishes.is_empty() && !paused && !self.holders.contains_key(holder) {
            return;
        }
        let record = self.entry(holder, now);
        for wish in wishes {
            record.settings.retain(|known| discriminant(known) != discriminant(wish));
            record.settings.push(*wish);
        }
        record.paused = paused;
    }

    /// The hangs of one who leaves.
    pub fn keep_hangs(&mut self, holder: &Holder, hangs: Record, now: Duration) {
        if hangs.hangs > 0 || self.holders.contains_key(holder) {
            self.entry(holder, now).hangs = hangs;
        }
    }

    fn entry(&mut self, holder: &Holder, now: Duration) -> &mut HolderRecord {
        if !self.holders.contains_key(holder) {
            self.make_room();
        }
        let record = self.holders.entry(holder.clone()).or_default();
        record.touched = now;
        record
    }

    /// Drops the record of the holder that was absent for longest, first among those without operators'
    /// settings.
    fn make_room(&mut self) {
        if self.holders.len() < MAX_HOLDERS {
            return;
        }
        let oldest = self.holders.iter().min_by_key(|(_, record)| (record.is_ordered(), record.touched));
        let Some((holder, ordered)) = oldest.map(|(holder, record)| (holder.clone(), record.is_ordered()))
        else {
            return;
        };
        if ordered {
            log::warn!("what operators set of {holder} is forgotten: {MAX_HOLDERS} others have orders");
        }
        self.holders.remove(&holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(name: &str) -> Holder {
        Holder::Own(name.to_owned())
    }

    #[test]
    fn last_word_on_each_setting_holds_and_others_stay() {
        let mut holder_records = HolderRecords::default();
        let wish = |text: &str| text.parse::<ShareSetting>().unwrap();
        holder_records.order(&own("a"), &[wish("weight=300"), wish("cap=50")], true, Duration::ZERO);
        holder_records.order(&own("a"), &[wish("weight=1")], true, Duration::ZERO);

        let share = holder_records.of(&own("a")).share(Share { weight: 77, ..Share::default() });

        assert_eq!((share.weight, share.cap), (1, Some(50)));
        assert!(holder_records.of(&own("a")).paused && !holder_records.of(&own("b")).paused);
    }

    #[test]
    fn names_without_end_are_bounded_and_do_not_push_an_order_out() {
        let mut holder_records = HolderRecords::default();
        holder_records.order(&Holder::User(7), &[], true, Duration::ZERO);
        for number in 0..10_000_u64 {
            let mut hangs = Record::default();
            hangs.hangs = 1;
            holder_records.keep_hangs(&own(&number.to_string()), hangs, Duration::from_millis(number));
        }

        assert_eq!(holder_records.holders.len(), MAX_HOLDERS);
        assert!(holder_records.of(&Holder::User(7)).paused);
    }
}
