//! For tests: how a back keeps ends of work that the driver would not notice, and sends its message.

use std::sync::{Mutex, MutexGuard};

use super::backend::{EngineEvents, Heed};
use gpuvmk_chip::{Engine, EngineSet};

/// Ends of work that are kept, and what was told of them.
#[derive(Debug, Default)]
pub struct KeptEnds {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    heed: Option<Heed>,
    engines: EngineSet,
    sent: bool,
}

impl KeptEnds {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// What the driver would notice, as far as that was told.
    pub fn heed(&self) -> Option<Heed> {
        self.state().heed
    }

    /// Work ended.
    pub fn keep(&self, engine: Engine) {
        self.state().engines |= engine.into();
    }

    /// Work ended for which the driver gets a message that the function does not know of.
    pub fn post(&self, engine: Engine) {
        let mut state = self.state();
        assert!(matches!(state.heed, Some(Heed::Message(engines)) if engines.contains(engine.into())));
        assert!(!state.sent, "one message was sent already");
        state.engines |= engine.into();
        state.sent = true;
    }

    /// True while there are some.
    pub fn any(&self) -> bool {
        !self.state().engines.is_empty()
    }

    /// See [`super::backend::Backend::heed_non_stall`].
    pub fn heeded(&self, heed: Heed, events: &dyn EngineEvents) -> bool {
        self.state().heed = Some(heed);
        match heed {
            Heed::No => {
                let sent = std::mem::take(&mut self.state().sent);
                if sent {
                    events.posted(EngineSet::empty());
                }
                sent
            }
            Heed::Wake | Heed::Message(_) => self.bring(events),
        }
    }

    /// See [`super::backend::Backend::bring_non_stall`].
    pub fn bring(&self, events: &dyn EngineEvents) -> bool {
        let State { engines, sent, .. } = {
            let mut state = self.state();
            let heed = state.heed;
            std::mem::replace(&mut *state, State { heed, ..State::default() })
        };
        if sent {
            self.state().heed = Some(Heed::Wake);
            events.posted(engines);
        } else {
            engines.engines().for_each(|engine| events.non_stall(engine));
        }
        sent
    }
}
