//! People who look at a VM's head, at a socket of the device back end.

use std::os::unix::net::UnixListener;
use std::sync::Arc;

use anyhow::{Context, bail};

use crate::display::rfb::{NoInput, Server, Settings};
use crate::display::{Head, Watch};
use crate::host::socket_path::Listener;
use crate::jail::{self, Role};

/// Serves them while it lives.
pub(super) struct Viewers {
    /// First, so that nobody looks any more when the other goes.
    _server: Server,
    _watch: Arc<Watch>,
    /// Keeps the socket's path.
    _listener: Listener,
}

impl Viewers {
    /// Serves people who come to `listener` what a head shows.
    pub(super) fn start(listener: Listener, head: Option<Arc<dyn Head>>, name: &str) -> anyhow::Result<Self> {
        let Some(head) = head else { bail!("VM `{name}` has a [viewers] section, and no display") };
        let refused = || format!("Cannot show what VM `{name}` shows");
        let watch = Arc::new(Watch::start_with(head, || jail::enter(Role::Compose)).with_context(refused)?);
        let socket = UnixListener::from(listener.socket().try_clone().with_context(refused)?);
        let settings = Settings { begin: || jail::enter(Role::Viewers), ..Settings::new(name) };
        let server = Server::start(socket, watch.clone(), Box::new(NoInput), settings);
        Ok(Self { _server: server.with_context(refused)?, _watch: watch, _listener: listener })
    }
}
