//! How a back keeps ends of work that the driver would not notice, and sends its message.

use std::sync::{Mutex, MutexGuard};

use crate::{EngineEvents, InterruptInterest};
use gpuvmk_chip::{Engine, EngineSet};

/// Notifications of finished work that are held back, and the interest that was set for them.
#[derive(Debug, Default)]
pub struct DeferredCompletions {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    interest: Option<InterruptInterest>,
    engines: EngineSet,
    sent: bool,
}

impl DeferredCompletions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The interest that was set; `None` before the first.
    pub fn interest(&self) -> Option<InterruptInterest> {
        self.state().interest
    }

    /// Notes that work ended.
    pub fn keep(&self, engine: Engine) {
        self.state().engines |= engine.into();
    }

    /// Work ended for which the driver gets a message that the function does not know of.
    pub fn post(&self, engine: Engine) {
        let mut state = self.state();
        assert!(
            matches!(state.interest, Some(InterruptInterest::Message(engines)) if engines.contains(engine.into()))
        );
        assert!(!state.sent, "one message was sent already");
        state.engines |= engine.into();
        state.sent = true;
    }

    /// True while there are some.
    pub fn any(&self) -> bool {
        !self.state().engines.is_empty()
    }

    /// See [`crate::Completions::set_completion_interest`].
    pub fn set_interest(&self, interest: InterruptInterest, events: &dyn EngineEvents) -> bool {
        self.state().interest = Some(interest);
        match interest {
            InterruptInterest::Masked => {
                let sent = std::mem::take(&mut self.state().sent);
                if sent {
                    events.message_delivered(EngineSet::empty());
                }
                sent
            }
            InterruptInterest::Wake | InterruptInterest::Message(_) => self.bring(events),
        }
    }

    /// See [`crate::Completions::take_completions`].
    pub fn bring(&self, events: &dyn EngineEvents) -> bool {
        let State { engines, sent, .. } = {
            let mut state = self.state();
            let interest = state.interest;
            std::mem::replace(&mut *state, State { interest, ..State::default() })
        };
        if sent {
            self.state().interest = Some(InterruptInterest::Wake);
            events.message_delivered(engines);
        } else {
            engines.engines().for_each(|engine| events.non_stall(engine));
        }
        sent
    }
}
