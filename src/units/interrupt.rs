//! The end of the interrupt tree: a level that becomes INTx or one message.
//!
//! With messages (MSI) the GPU sends one when the level rises or is found high while armed. It sends none
//! until it is armed again (GF100: a byte written to NV_XVE_MSI_REARM; GH100: the top of its interrupt tree
//! enabled). With INTx the line follows the level. Configuration space decides between the two: a function
//! that may not master the bus sends no message.

use std::sync::Arc;

use gpuvmk_backend::InterruptInterest;
use gpuvmk_chip::EngineSet;
use gpuvmk_pci::InterruptSink;
use gpuvmk_pci::config_space::Control;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// State of the function's interrupt output.
#[derive(Default)]
pub struct InterruptOutput {
    sink: Option<Arc<dyn InterruptSink>>,
    line: bool,
    unarmed: bool,
}

impl std::fmt::Debug for InterruptOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InterruptOutput")
            .field("connected", &self.sink.is_some())
            .field("line", &self.line)
            .field("unarmed", &self.unarmed)
            .finish()
    }
}

impl InterruptOutput {
    /// Connects or disconnects the receiver. A new one gets the line's level.
    pub fn connect(&mut self, sink: Option<Arc<dyn InterruptSink>>) {
        if self.line {
            if let Some(old) = &self.sink {
                old.set_intx(false);
            }
            if let Some(new) = &sink {
                new.set_intx(true);
            }
        }
        self.sink = sink;
    }

    /// The driver allows the next message.
    pub const fn rearm(&mut self) {
        self.unarmed = false;
    }

    /// Another process has sent the message that the function would have sent.
    pub fn message_sent(&mut self) {
        self.unarmed = true;
        if let Some(sink) = &self.sink {
            sink.message_sent(0);
        }
    }

    /// A message was not sent that [`Self::message_sent`] speaks of. One too many does no harm.
    pub fn send_again(&self, control: &Control) {
        if let Some(sink) = &self.sink
            && control.msi.enabled
            && control.bus_master
        {
            sink.fire_msi(0);
        }
    }

    /// A driver's interest in finished work on `engines`, whose interrupts it has enabled.
    pub const fn interest(&self, engines: EngineSet, control: &Control) -> InterruptInterest {
        if control.msi.enabled && control.bus_master && !self.unarmed {
            InterruptInterest::Message(engines)
        } else {
            InterruptInterest::Wake
        }
    }

    /// Function reset: the line falls, messages are armed.
    pub fn reset(&mut self) {
        self.unarmed = false;
        self.set_line(false);
    }

    /// Follows the interrupt level.
    pub fn update(&mut self, level: bool, control: &Control) {
        self.set_line(level && !control.msi.enabled && !control.intx_disabled);
        if level && control.msi.enabled && control.bus_master && !self.unarmed {
            self.unarmed = true;
            if let Some(sink) = &self.sink {
                sink.fire_msi(0);
            }
        }
    }

    fn set_line(&mut self, line: bool) {
        if self.line != line {
            self.line = line;
            if let Some(sink) = &self.sink {
                sink.set_intx(line);
            }
        }
    }
}

/// State of an [`InterruptOutput`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterruptOutputState {
    /// The INTx line is asserted.
    pub line: bool,
    /// No message is sent until the driver allows one.
    pub unarmed: bool,
}

impl InterruptOutput {
    /// The state to save.
    pub const fn state(&self) -> InterruptOutputState {
        let Self { sink: _, line, unarmed } = self;
        InterruptOutputState { line: *line, unarmed: *unarmed }
    }

    /// An output in a saved state, without a receiver. A receiver that is connected gets the line's level.
    ///
    /// # Errors
    /// The line is asserted where configuration space does not let it.
    pub fn from_state(state: &InterruptOutputState, control: &Control) -> Result<Self, StateError> {
        let InterruptOutputState { line, unarmed } = *state;
        Check("interrupt output").that(!line || (!control.msi.enabled && !control.intx_disabled), || {
            "the line is asserted, and configuration space silences it".to_owned()
        })?;
        Ok(Self { sink: None, line, unarmed })
    }
}
