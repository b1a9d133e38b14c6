//! What a porter receives: an unadmitted connection's hello, and a tenant's requests with the descriptor
//! that comes with one.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::handle::{Arrival, FromPorter, Rings};
use super::{End, Porter, Stage, own};
use crate::limit::Limit;
use crate::protocol::{Hello, RefusalKind, Reply, Request};
use crate::seqpacket::{self, Attached, Next, Received};
use crate::service::files;
use crate::tenant::{MOST_UNCLOSED, Refusal};
use crate::wire;
use gpuvmk_host::reaper::Reaped;

/// Messages that are no hello before an unadmitted connection is sent away, and how much longer each answer
/// takes than the one before.
const MOST_MISTAKES: u32 = 16;
const MISTAKE_PAUSE: Duration = Duration::from_millis(5);

impl Porter {
    /// Receives one datagram.
    pub(super) fn receive(&mut self) -> Result<(), End> {
        let is_tenant = matches!(self.stage, Stage::Tenant(_));
        if !is_tenant && seqpacket::peek(&self.socket).map_err(own)? == (Next::Datagram { files: true }) {
            let text = "the first request is hello, and comes without descriptors";
            let refusal = Refusal::new(RefusalKind::Protocol, text);
            self.refuse(&refusal)?;
            // Unread data would take the answer away from the other side. Closing the received files may take
            // long, but only this thread.
            drop(seqpacket::receive_one(&self.socket, &mut self.bytes));
            return Err(End::Own("it gives descriptors and is no VM".to_owned()));
        }
        let (received, attached) = seqpacket::receive_one(&self.socket, &mut self.bytes).map_err(own)?;
        let length = match received {
            Received::Datagram(length) => length,
            Received::Nothing => return Ok(()),
            Received::End => return Err(End::Left),
        };
        let request = wire::decode_request(self.bytes.get(..length).unwrap_or_default())
            .map_err(|error| Refusal::new(RefusalKind::Protocol, error.to_string()));
        if is_tenant {
            let said = match request.and_then(|request| self.judge(request, attached)) {
                Ok((request, file)) => FromPorter::Request(request, file),
                Err(refusal) => FromPorter::Bad(refusal),
            };
            self.waits = true;
            self.say(said);
            return Ok(());
        }
        match request {
            Ok(Request::Hello(hello)) => self.arrive(hello),
            Ok(_) => self.mistake(&Refusal::new(RefusalKind::Protocol, "the first request must be hello")),
            Err(refusal) => self.mistake(&refusal),
        }
    }

    /// Looks at what came with a request.
    fn judge(
        &mut self,
        request: Request,
        attached: Attached,
    ) -> Result<(Request, Option<Reaped<OwnedFd>>), Refusal> {
        let Stage::Tenant(tenant) = &self.stage else {
            return Err(Refusal::new(RefusalKind::Protocol, "this connection is not admitted"));
        };
        let file = match attached {
            Attached::None => None,
            // From here on, closing it takes a reaper's time only.
            Attached::One(file) => Some(Reaped::new(file, tenant.account.clone())),
            Attached::More => {
                let text = "a request comes with one descriptor at most";
                return Err(Refusal::new(RefusalKind::Protocol, text));
            }
            Attached::NoRoom => {
                let text = "its descriptor cannot be taken: Too many open files here (`ulimit -n`)";
                return Err(Refusal::new(RefusalKind::Exhausted, text));
            }
        };
        let wants = matches!(request, Request::DmaMap { .. } | Request::MessageEvent { given: true });
        if file.is_some() != wants {
            let text = "guest memory comes with its file, and an eventfd for messages if it is given; nothing else comes with one";
            return Err(Refusal::new(RefusalKind::Protocol, text));
        }
        let unclosed = tenant.account.backlog();
        if wants && unclosed >= MOST_UNCLOSED {
            return Err(Refusal::met(
                Limit::Unclosed,
                RefusalKind::Quota,
                format!(
                    "{unclosed} files and mappings of this VM are not closed yet, {MOST_UNCLOSED} may be"
                ),
            ));
        }
        if let Request::DmaMap { writable, .. } = &request {
            if let Some(given) = file.as_ref().and_then(Reaped::get) {
                files::is_memory(given.as_fd(), *writable)?;
            }
            return Ok((request, file));
        }
        self.offered = file.and_then(Reaped::take);
        Ok((request, None))
    }

    /// An unadmitted connection's wish.
    fn arrive(&mut self, hello: Hello) -> Result<(), End> {
        let rings = match Rings::create() {
            Ok(rings) => rings,
            Err(error) => {
                let text = format!("no rings can be had: {error}");
                self.refuse(&Refusal::new(RefusalKind::Exhausted, text.as_str()))?;
                return Err(End::Own(text));
            }
        };
        match std::mem::replace(&mut self.stage, Stage::Asking) {
            Stage::Unadmitted { peer, door, handle, .. } => {
                // This thread serves one connection: no other waits.
                std::thread::sleep(self.place.asks());
                self.waits = true;
                self.say(FromPorter::Hello(Box::new(Arrival { hello, peer, door, porter: handle, rings })));
                Ok(())
            }
            stage => {
                self.stage = stage;
                Err(End::Own("it says hello again".to_owned()))
            }
        }
    }

    /// An unadmitted connection sends something else than a hello.
    fn mistake(&mut self, refusal: &Refusal) -> Result<(), End> {
        self.refuse(refusal)?;
        let Stage::Unadmitted { mistakes, .. } = &mut self.stage else { return Ok(()) };
        *mistakes = mistakes.saturating_add(1);
        let pause = MISTAKE_PAUSE.saturating_mul(*mistakes);
        if *mistakes >= MOST_MISTAKES {
            return Err(End::Own(format!("{MOST_MISTAKES} messages of it were no hello")));
        }
        std::thread::sleep(pause);
        Ok(())
    }

    fn refuse(&self, refusal: &Refusal) -> Result<(), End> {
        self.place.refused();
        let reply = Reply::Refused { kind: refusal.kind, message: refusal.message.clone() };
        let mut bytes = Vec::new();
        wire::encode_reply(&reply, &mut bytes);
        self.send(&bytes, &[])
    }
}
