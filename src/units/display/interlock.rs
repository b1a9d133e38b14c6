//! Which updates go together: those that wait for each other, once all of them wait.

use std::collections::BTreeSet;

use gpuvmk_chip::display::immediate::IMMEDIATE_UPDATE;
use gpuvmk_chip::display::window::{INTERLOCK_FLAGS, PRESENT_CONTROL, WINDOW_UPDATE};
use gpuvmk_chip::display::{ChannelKind, ChannelName, WINDOWS, core, immediate, window};

use super::methods::Methods;

/// Channels of which an UPDATE can take effect: each of whose partners waits too, and is in it.
pub fn ready<'a>(waiting: impl Iterator<Item = (ChannelName, &'a Methods)>) -> BTreeSet<ChannelName> {
    let waiting: Vec<_> = waiting.map(|(name, methods)| (name, partners(name, methods))).collect();
    let mut ready: BTreeSet<_> = waiting.iter().map(|(name, _)| *name).collect();
    loop {
        let before = ready.len();
        for (name, partners) in &waiting {
            if !partners.iter().all(|partner| ready.contains(partner)) {
                ready.remove(name);
            }
        }
        if ready.len() == before {
            return ready;
        }
    }
}

/// Whether an update takes effect at once, and not with the next blanking: alone, and where the driver allows
/// that a picture is torn.
pub fn is_immediate(name: ChannelName, methods: &Methods) -> bool {
    let control = methods.assembled(window::SET_PRESENT_CONTROL);
    name.is_window()
        && PRESENT_CONTROL::BEGIN_MODE.get(control) == PRESENT_CONTROL::BEGIN_MODE::IMMEDIATE
        && partners(name, methods).iter().all(|partner| *partner == name)
}

/// The channels that an update names. Cursors take effect when they are told, so nobody waits for them.
fn partners(name: ChannelName, methods: &Methods) -> Vec<ChannelName> {
    let windows = |mask: u32| {
        let named = (0u32..).take(WINDOWS).filter(move |window| mask >> window & 1 != 0);
        named.filter_map(|window| ChannelName::new(ChannelKind::Window, window))
    };
    let same = |kind, is_named: bool| ChannelName::new(kind, name.instance).filter(|_| is_named);
    match name.kind {
        ChannelKind::Core => windows(methods.assembled(core::SET_WINDOW_INTERLOCK_FLAGS)).collect(),
        ChannelKind::Window => {
            let flags = methods.assembled(window::SET_INTERLOCK_FLAGS);
            let with_core = INTERLOCK_FLAGS::INTERLOCK_WITH_CORE.is_set(flags);
            let update = methods.assembled(window::UPDATE);
            let with_immediate = WINDOW_UPDATE::INTERLOCK_WITH_WIN_IMM.is_set(update);
            windows(methods.assembled(window::SET_WINDOW_INTERLOCK_FLAGS))
                .chain(ChannelName::new(ChannelKind::Core, 0).filter(|_| with_core))
                .chain(same(ChannelKind::Immediate, with_immediate))
                .collect()
        }
        ChannelKind::Immediate => {
            let update = methods.assembled(immediate::UPDATE);
            let with_window = IMMEDIATE_UPDATE::INTERLOCK_WITH_WINDOW.is_set(update);
            same(ChannelKind::Window, with_window).into_iter().collect()
        }
        ChannelKind::Cursor => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: ChannelName = ChannelName { kind: ChannelKind::Core, instance: 0 };
    const WINDOW: ChannelName = ChannelName { kind: ChannelKind::Window, instance: 0 };
    const OVERLAY: ChannelName = ChannelName { kind: ChannelKind::Window, instance: 1 };
    const PLACE: ChannelName = ChannelName { kind: ChannelKind::Immediate, instance: 0 };

    fn methods(name: ChannelName, set: &[(u32, u32)]) -> (ChannelName, Methods) {
        let mut methods = Methods::new(name.kind);
        assert!(set.iter().all(|(method, value)| methods.set(*method, *value)));
        (name, methods)
    }

    fn ready_of(all: &[(ChannelName, Methods)]) -> Vec<ChannelName> {
        ready(all.iter().map(|(name, methods)| (*name, methods))).into_iter().collect()
    }

    #[test]
    fn partners_take_effect_together_or_not_at_all() {
        let core = methods(CORE, &[(core::SET_WINDOW_INTERLOCK_FLAGS, 1)]);
        let window = methods(
            WINDOW,
            &[
                (window::SET_INTERLOCK_FLAGS, 1),
                (window::SET_WINDOW_INTERLOCK_FLAGS, 1),
                (window::UPDATE, 0x1001),
            ],
        );
        let place = methods(PLACE, &[(immediate::UPDATE, 3)]);
        let alone = methods(OVERLAY, &[]);
        assert_eq!(ready_of(std::slice::from_ref(&core)), []);
        assert_eq!(ready_of(&[core.clone(), window.clone(), alone.clone()]), [OVERLAY]);
        assert_eq!(ready_of(&[core, window, place, alone]), [CORE, WINDOW, OVERLAY, PLACE]);
    }

    #[test]
    fn a_window_that_may_be_torn_does_not_wait_for_the_head() {
        let (name, torn) = methods(
            WINDOW,
            &[(window::SET_PRESENT_CONTROL, 1 << 4), (window::SET_WINDOW_INTERLOCK_FLAGS, 1)],
        );
        assert!(is_immediate(name, &torn));
        let (name, with_core) =
            methods(WINDOW, &[(window::SET_PRESENT_CONTROL, 1 << 4), (window::SET_INTERLOCK_FLAGS, 1)]);
        assert!(!is_immediate(name, &with_core) && !is_immediate(CORE, &Methods::new(ChannelKind::Core)));
    }
}
