//! A way to give commands to the service, for other threads.

use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use gpuvmk_control_client::Status;

use super::commands::{Command, Commands};
use super::gate::Gate;
use crate::machine::guests::Guest;
use crate::machine::hang::Reset;
use crate::machine::settings::{EffectiveSettings, Order};
use gpuvmk_scheduler::share::Rejection;

/// How long an operator's request may wait for the service's thread.
const PATIENCE: Duration = Duration::from_secs(2);

/// A way to give commands to the service.
#[derive(Clone, Debug)]
pub struct ServiceRemote {
    commands: Commands,
    gate: Gate,
}

impl ServiceRemote {
    pub(super) const fn new(commands: Commands, gate: Gate) -> Self {
        Self { commands, gate }
    }

    /// The state now; `None` when the service has ended or does not answer.
    pub fn status(&self) -> Option<Status> {
        let (answer, status) = sync_channel(1);
        self.commands.send(Command::Status(answer));
        status.recv_timeout(PATIENCE).ok()
    }

    /// Carries out an operator's order; `None` when the service has ended or does not answer.
    pub fn set(&self, order: Order) -> Option<Result<EffectiveSettings, Rejection>> {
        let (answer, done) = sync_channel(1);
        self.commands.send(Command::Set(order, answer));
        done.recv_timeout(PATIENCE).ok()
    }

    /// Takes a VM's unfinished work off; `None` when the service has ended or does not answer.
    pub fn reset_vm(&self, name: &str) -> Option<Result<Reset, Rejection>> {
        let (answer, done) = sync_channel(1);
        self.commands.send(Command::Reset(name.to_owned(), answer));
        done.recv_timeout(PATIENCE).ok()
    }

    /// Lets a VM come from now on, or no longer; `None` when the service has ended or does not answer.
    pub fn list(&self, name: &str, guest: Option<Guest>) -> Option<Result<(), Rejection>> {
        let (answer, done) = sync_channel(1);
        self.commands.send(Command::List(name.to_owned(), guest, answer));
        done.recv_timeout(PATIENCE).ok()
    }

    /// Ends the service soon: its sockets close, which tenants notice.
    pub fn stop(&self) {
        self.commands.send(Command::Stop);
    }

    /// Serves this connection as if it had been accepted.
    pub(crate) fn adopt(&self, socket: OwnedFd) {
        self.gate.admit(socket, &self.commands);
    }
}
