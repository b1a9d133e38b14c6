//! Which of a warp's groups runs next, as an H200 does it.
//!
//! A group runs until it waits, ends or yields. Those that a branch makes go on last come, first served;
//! then those that have yielded, in their order. Nobody waits at a convergence barrier for lanes that have
//! yielded: who waits for none but these goes on when they yield, and so leaves the barrier without them.

use super::{Group, Warp};

impl Warp {
    /// Takes a group that may run.
    pub(super) fn next(&mut self) {
        let may = |group: &Group| group.mask & self.words.hidden == 0;
        let place = self.ready.iter().rposition(|group| may(group) && group.mask & self.yielded == 0);
        let place = place.or_else(|| self.ready.iter().position(may));
        self.group = place.map_or(Group { pc: 0, mask: 0 }, |place| self.ready.remove(place));
        self.yielded &= !self.group.mask;
    }

    /// YIELD and NANOSLEEP: the running group lets others run: those first that wait for it at a barrier.
    pub fn give_way(&mut self) {
        let group = self.group;
        self.yielded |= group.mask;
        let before = self.ready.len();
        if !self.parked.is_empty() {
            self.release();
        }
        let may = |group: &Group| group.mask & self.words.hidden == 0;
        let released = self.ready.iter().skip(before).position(may).map(|place| before + place);
        let place = released
            .or_else(|| self.ready.iter().position(|group| may(group) && group.mask & self.yielded == 0))
            .or_else(|| self.ready.iter().position(may));
        if let Some(place) = place {
            self.group = self.ready.remove(place);
            if group.mask != 0 {
                self.ready.push(group);
            }
        }
        self.yielded &= !self.group.mask;
    }

    /// Lets the group that waited longest run, though the running one has not yielded. The others get their
    /// turns, too.
    pub fn rotate(&mut self) {
        let hidden = self.words.hidden;
        if let Some(oldest) = self.ready.iter().position(|group| group.mask & hidden == 0) {
            let oldest = self.ready.remove(oldest);
            if self.group.mask != 0 {
                self.ready.push(self.group);
            }
            self.group = oldest;
            self.yielded &= !oldest.mask;
        }
    }
}
