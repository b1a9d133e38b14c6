//! The serial console: this process's standard output and input.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use vm_superio::serial::NoEvents;
use vm_superio::{Serial, Trigger};
use vmm_sys_util::eventfd::EventFd;

use gpuvmk_frontend::kvm::BusDevice;
use gpuvmk_jail::{self as jail, Role};

/// Signals the console's interrupt.
struct Line(EventFd);

impl Trigger for Line {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        self.0.write(1)
    }
}

/// Where the guest's output goes. A terminal that is gone takes nothing, and the guest goes on.
type Output = Box<dyn Write + Send>;

/// The serial console, a 16550A.
pub(super) struct Console(Mutex<Serial<Line, NoEvents, Output>>);

impl Console {
    /// One whose interrupt is signalled at `line`.
    pub(super) fn new(line: EventFd, output: Output) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Serial::new(Line(line), output))))
    }

    fn device(&self) -> MutexGuard<'_, Serial<Line, NoEvents, Output>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends input to the console of the machine that runs.
pub(super) struct Typing(Arc<Mutex<Weak<Console>>>);

impl Typing {
    /// Reads this process's standard input from now on.
    pub(super) fn start() -> io::Result<Self> {
        let console = Arc::new(Mutex::new(Weak::new()));
        let to = Arc::clone(&console);
        std::thread::Builder::new().name("console".to_owned()).spawn(move || {
            jail::enter(Role::Typing);
            type_in(&to);
        })?;
        Ok(Self(console))
    }

    /// It goes to this console from now on.
    pub(super) fn connect(&self, console: &Arc<Console>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(console);
    }
}

/// Ends with the input. Input without a machine is dropped.
fn type_in(to: &Mutex<Weak<Console>>) {
    let mut typed = [0; 64];
    while let Ok(count) = io::stdin().read(&mut typed) {
        let mut rest = typed.get(..count).unwrap_or_default();
        if rest.is_empty() {
            return;
        }
        while !rest.is_empty() {
            let Some(console) = to.lock().unwrap_or_else(PoisonError::into_inner).upgrade() else { break };
            let taken = {
                let mut device = console.device();
                let room = device.fifo_capacity().min(rest.len());
                device.enqueue_raw_bytes(rest.get(..room).unwrap_or_default()).unwrap_or(0)
            };
            rest = rest.get(taken..).unwrap_or_default();
            if taken == 0 {
                // The guest has not read what came before.
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl BusDevice for Console {
    fn read(&self, offset: u64, data: &mut [u8]) {
        match (data, u8::try_from(offset)) {
            ([byte], Ok(offset)) => *byte = self.device().read(offset),
            (data, _) => data.fill(0xff),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        if let ([byte], Ok(offset)) = (data, u8::try_from(offset))
            && let Err(error) = self.device().write(offset, *byte)
        {
            log::debug!("The console's output is lost: {error:?}");
        }
    }
}
