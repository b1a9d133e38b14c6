//! People who look at a VM's head, at a socket of the device back end.

use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::vm_gpu::VmGpu;

use crate::display::rfb::{Server, Settings, ViewerCounts, ViewerInput};
use crate::display::{Address, Head, ReadBytes, ReadError, Scanout, Watch};
use crate::host::socket_path::Listener;
use crate::jail::{self, Role};
use crate::units::LookCounters;
use crate::vgpu::Vgpu;

/// How often operators are told what pictures cost.
const TOLD: Duration = Duration::from_secs(1);

/// Serves them while it lives.
pub(super) struct Viewers {
    /// First, so that nobody looks any more when the other goes.
    _server: Server,
    _watch: Arc<Watch>,
    /// Keeps the socket's path.
    _listener: Listener,
}

impl Viewers {
    /// Serves people who come to `listener` what a GPU's head shows.
    pub(super) fn start(listener: Listener, gpu: &VmGpu, name: &str) -> anyhow::Result<Self> {
        let (Some(head), Some(vgpu)) = (gpu.head(), gpu.part()) else {
            bail!("VM `{name}` has a [viewers] section, and no display");
        };
        let refused = || format!("Cannot show what VM `{name}` shows");
        let looks = Arc::new(Looks {
            vgpu: Arc::downgrade(vgpu),
            watch: OnceLock::new(),
            state: Mutex::new((LookCounters::default(), Instant::now())),
        });
        let counted: Arc<dyn Head> = Arc::new(Counted { head, looks: Arc::clone(&looks) });
        let begin = || jail::enter(Role::Compose);
        let watch = Arc::new(Watch::start_with(counted, begin).with_context(refused)?);
        // It is set once.
        let _ = looks.watch.set(Arc::downgrade(&watch));
        let socket = UnixListener::from(listener.socket().try_clone().with_context(refused)?);
        let settings = Settings { begin: || jail::enter(Role::Viewers), ..Settings::new(name) };
        let server = Server::start(socket, watch.clone(), Box::new(NoInput(looks)), settings);
        Ok(Self { _server: server.with_context(refused)?, _watch: watch, _listener: listener })
    }
}

/// What operators are told of viewers and pictures. It keeps neither the GPU nor who composes.
struct Looks {
    vgpu: Weak<Vgpu>,
    watch: OnceLock<Weak<Watch>>,
    /// What was told, and when.
    state: Mutex<(LookCounters, Instant)>,
}

impl Looks {
    /// Tells operators; `viewers`: how many there are now. Without, what pictures cost alone, and that not
    /// all the time.
    fn tell(&self, viewers: Option<(usize, &ViewerCounts)>) {
        let Some(vgpu) = self.vgpu.upgrade() else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if viewers.is_none() && state.1.elapsed() < TOLD {
            return;
        }
        let mut looks = state.0;
        if let Some((now, counts)) = viewers {
            looks = LookCounters {
                viewers: u64::try_from(now).unwrap_or(u64::MAX),
                came: counts.came.get(),
                too_many: counts.too_many.get(),
                faults: counts.faults.get(),
                too_slow: counts.too_slow.get(),
                bytes: counts.bytes.get(),
                ..looks
            };
        }
        if let Some(watch) = self.watch.get().and_then(Weak::upgrade) {
            let counts = watch.counts();
            looks = LookCounters {
                composed: counts.composed.get(),
                changed: counts.changed.get(),
                unread: counts.unread.get(),
                too_large: counts.too_large.get(),
                nanoseconds: counts.nanoseconds.get(),
                ..looks
            };
        }
        *state = (looks, Instant::now());
        vgpu.report_looks(looks);
    }
}

/// The head, of which operators are told when a picture begins.
struct Counted {
    head: Arc<dyn Head>,
    looks: Arc<Looks>,
}

impl ReadBytes for Counted {
    fn read(&self, address: Address, bytes: &mut [u8]) -> Result<(), ReadError> {
        self.head.read(address, bytes)
    }
}

impl Head for Counted {
    fn scanout(&self) -> Scanout {
        self.looks.tell(None);
        self.head.scanout()
    }
}

/// Drops what viewers type and point at.
struct NoInput(Arc<Looks>);

impl ViewerInput for NoInput {
    fn key(&self, _down: bool, _key: u32) {}

    fn pointer(&self, _buttons: u8, _x: u16, _y: u16) {}

    fn viewers(&self, now: usize, counts: &ViewerCounts) {
        self.0.tell(Some((now, counts)));
    }
}
