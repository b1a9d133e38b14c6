//! The parts that the function and the back's events share: units, windows, GSP, and the locking rules.
//!
//! Locks, in this order:
//!
//! 1. GSP: held while the back is called, which may wait for another process.
//! 2. that of the interest tracker: held while the back is called, which sends events.
//! 3. one of the others: a window or the display engine (held while the back accesses memory, which neither
//!    waits nor calls back), the units, the tokens, the stopped channels, what was counted of GSP, what goes
//!    on later, or when frames begin. The last six are not held while anything else is called, except the
//!    interrupt sink under the units' lock.
//!
//! Events from the back never wait for GSP. A notification goes to the units at once. A stopped channel is
//! listed ([`super::unreported_stops`]); then the event tries to lock GSP and deliver it. If another thread
//! holds GSP, that thread checks the list again after it released the lock: one of both finds the entry.
//!
//! [`Core::freeze`] is the one exception: it holds all of them at once, in the order GSP, BAR1, BAR2, units,
//! stopped channels, so that a state is taken at one point. No other code holds two of the last six.
//!
//! Doorbells, BAR and register accesses that are not for GSP do not take GSP's lock, with one exception: a
//! doorbell whose token was never seen asks GSP whose it is.

mod boot;
mod boot_log;
mod gsp_counts;
mod head;
pub mod head_access;
mod kernel;
mod parts;
mod state;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

use super::config::HeadConfig;
use super::face::Face;
use super::hal::{Hal, Roles, Token};
use super::identity_page::IdentityPage;
use super::later::Later;
use super::locked;
use super::registers::Registers;
use super::tokens::Tokens;
use super::unreported_stops::UnreportedStops;
use crate::direct_windows::Watcher;
use crate::display::Display;
use crate::interest_tracker::InterestTracker;
use boot_log::BootLog;
use gpuvmk_backend::{EngineEvents, GspBackend, WindowTables};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::{ChannelStop, MmuFault};
use gpuvmk_chip::{Aperture, Engine, EngineSet, PhysicalAddress};
use gpuvmk_control_client::GspCounters;
use gpuvmk_gsp::{Counters, DoorbellTarget, Effect as GspEffect, Gsp, GspConfig};
use gpuvmk_host::clock::Clock;
use gpuvmk_mmio_trap::aperture::Window;
use gpuvmk_mmio_trap::aperture::gmmu::{Gmmu, GmmuRoot, GmmuTables};
use gpuvmk_pci::{CoalescableWrite, Region};
use gsp_counts::counters_of;
pub use head::Head;
pub use parts::Parts;
pub use state::GspFaceState;

/// GSP and the way to the back for those who take it by an event.
#[derive(Debug)]
struct Processor<B> {
    gsp: Gsp,
    config: GspConfig,
    /// What was counted of those before it, which function resets have ended.
    before: GspCounters,
    /// Weak, so that a thread that holds GSP is never the last owner of the back.
    back: Weak<B>,
}

/// See the module.
#[derive(Debug)]
pub struct Core<B> {
    /// What the chip does in its own way.
    pub hal: &'static Hal,
    /// What each register is.
    pub roles: Arc<Roles>,
    processor: Mutex<Processor<B>>,
    pub face: Face,
    pub interest_tracker: InterestTracker,
    pub identity: IdentityPage,
    pub bar1: Mutex<Window<GmmuTables<Gmmu>>>,
    pub bar2: Mutex<Window<GmmuTables<Gmmu>>>,
    tokens: Mutex<Tokens>,
    stops: Mutex<UnreportedStops>,
    pub window_faults: AtomicU64,
    pub bad_doorbells: AtomicU64,
    /// Tells of boots that were refused.
    pub boot_log: BootLog,
    /// What was counted of GSP when it was let go last.
    asked: Mutex<GspCounters>,
    /// The front end that has mapped windows.
    pub watcher: Watcher,
    /// Where channels of the driver's kernel go on by themselves.
    pub later: Later,
    /// The function's head, where it has one.
    pub head: Option<Head<B>>,
    /// Where the directories of BAR1 and BAR2 are.
    roots: [u64; 2],
}

impl<B: GspBackend> Core<B> {
    /// Everything in its reset state.
    pub fn new(
        back: Weak<B>,
        hal: &'static Hal,
        config: GspConfig,
        registers: Registers,
        clock: Arc<dyn Clock>,
        display: Option<(HeadConfig, Display)>,
    ) -> Self {
        let physical = GmmuTables { format: hal.mmu, root: GmmuRoot::Physical };
        let parts = Parts {
            gsp: Gsp::new(config),
            face: Face::new(registers, clock),
            identity: IdentityPage::new((hal.registers)()),
            bar1: Window::new(physical),
            bar2: Window::new(physical),
            stops: UnreportedStops::default(),
            window_faults: 0,
            bad_doorbells: 0,
            display,
        };
        Self::of(back, hal, config, parts)
    }

    /// All of it, of these parts.
    pub fn of(back: Weak<B>, hal: &'static Hal, config: GspConfig, parts: Parts) -> Self {
        let Parts { mut gsp, face, identity, bar1, bar2, stops, window_faults, bad_doorbells, display } =
            parts;
        let head = display.map(|display| Head::new(display, Weak::clone(&back)));
        if let Some(head) = &head {
            gsp.set_display(head.engine());
        }
        let roots = [gsp.bar1_root(), gsp.bar2_root()];
        let (before, asked) = (GspCounters::default(), Mutex::new(counters_of(&gsp)));
        let roles = Arc::clone(face.lock().roles());
        Self {
            hal,
            roles,
            processor: Mutex::new(Processor { gsp, config, before, back }),
            face,
            interest_tracker: InterestTracker::default(),
            identity,
            bar1: Mutex::new(bar1),
            bar2: Mutex::new(bar2),
            tokens: Mutex::default(),
            stops: Mutex::new(stops),
            window_faults: AtomicU64::new(window_faults),
            bad_doorbells: AtomicU64::new(bad_doorbells),
            boot_log: BootLog::default(),
            asked,
            watcher: Watcher::default(),
            later: Later::default(),
            head,
            roots,
        }
    }

    /// The driver rang for its command queue.
    pub fn commands(&self, back: &B) {
        {
            let mut processor = locked(&self.processor);
            // Earlier stops are delivered first: they are about the channels that existed then.
            self.tell_stopped(back, &mut processor.gsp);
            let effects = processor.gsp.commands(back, self.face.now());
            self.apply(back, &effects);
            self.kernel_work_of_messages(back, &mut processor);
            self.finish(back, &mut processor);
        }
        self.deliver();
    }

    /// Function reset: everything as after power-on.
    pub fn reset(&self, back: &B) {
        let mut processor = locked(&self.processor);
        let mut fresh = Gsp::new(processor.config);
        let hidden = self.watcher.hide();
        // Before the back's reset, which tells operators.
        back.note_objects(fresh.take_object_usage());
        back.reset();
        if let Some(head) = &self.head {
            fresh.set_display(head.engine());
            head.reset();
        }
        processor.before = processor.before.and(counters_of(&processor.gsp));
        processor.gsp = fresh;
        // Late events of the back are dropped with it.
        self.interest_tracker.reset(back);
        locked(&self.stops).clear();
        locked(&self.tokens).clear();
        self.face.reset();
        self.identity.reset();
        locked(&self.bar1).set_tables(self.tables(GmmuRoot::Physical));
        locked(&self.bar2).set_tables(self.tables(GmmuRoot::Physical));
        drop(hidden);
        self.watcher.coalescable_writes_changed();
    }

    /// The channel that a doorbell's token names.
    pub fn doorbell_target(&self, token: Token) -> Option<DoorbellTarget> {
        let known = locked(&self.tokens).get(token);
        if known.is_some() {
            return known;
        }
        // Stored with GSP held, so that no refresh is missed.
        let processor = locked(&self.processor);
        let target = processor.gsp.doorbell_target(token.runlist, token.chid)?;
        locked(&self.tokens).put(token, target);
        drop(processor);
        // Its next doorbells need not stop the guest.
        self.watcher.coalescable_writes_changed();
        Some(target)
    }

    /// The doorbells of the channels that have rung: what a doorbell says is found when it is carried out,
    /// however late.
    pub fn coalescable_writes(&self) -> Vec<CoalescableWrite> {
        let doorbell = &self.hal.doorbell;
        let (region, offset) = (Region::Bar(0), doorbell.register.0.into());
        let write = |token| CoalescableWrite { region, offset, value: doorbell.value(token) };
        locked(&self.tokens).known().map(write).collect()
    }

    /// GSP's counters since the function was reset.
    pub fn gsp_counters(&self) -> Counters {
        locked(&self.processor).gsp.counters()
    }

    /// What was counted of all GSPs that the function has had, up to when the last was let go. Does not wait
    /// for GSP.
    pub fn asked_of_gsp(&self) -> GspCounters {
        *locked(&self.asked)
    }

    /// Drops the windows' cached translations, and calls the watcher if mapped memory may have changed. A
    /// window whose own directory was not named shows the same memory as before.
    pub fn invalidate_windows(&self, back: &B, directory: PhysicalAddress) {
        // Every invalidation empties the small TLBs of the windows: walks are cheap.
        locked(&self.bar1).flush_all();
        locked(&self.bar2).flush_all();
        for (root, bar) in self.roots.into_iter().zip([1, 3]) {
            if directory == (PhysicalAddress { aperture: Aperture::Vram, address: root }) {
                self.tell_changed(back, bar);
            }
        }
    }

    /// Tells those who have to know that the window of a BAR may show something else.
    pub fn tell_changed(&self, back: &B, bar: u8) {
        if bar == 3
            && let Some(windows) = back.windows()
        {
            let table = locked(&self.bar2).tables().first_table();
            windows.show_bar3(table.map(|table| WindowTables { table, is_root: false, end: u64::MAX }));
        }
        self.watcher.changed(bar);
    }

    /// True for the page directories by which the driver names BAR1 and BAR2.
    pub fn is_bar_root(&self, directory: PhysicalAddress) -> bool {
        directory.aperture == Aperture::Vram && self.roots.contains(&directory.address)
    }

    /// Stopped channels that were not reported to the driver, for lack of room.
    pub fn dropped_stops(&self) -> u64 {
        locked(&self.stops).dropped()
    }

    /// Tells the back how many objects there are.
    pub fn tell_objects(&self, back: &B) {
        back.note_objects(locked(&self.processor).gsp.take_object_usage());
    }

    /// The function goes: events find no back any more. Waits for one that is at it.
    pub fn close(&self) {
        locked(&self.processor).back = Weak::new();
    }

    /// Work of every holder of GSP before it releases the lock.
    fn finish(&self, back: &B, processor: &mut Processor<B>) {
        self.tell_stopped(back, &mut processor.gsp);
        if self.head.as_ref().is_some_and(Head::take_replugged) {
            let effects = processor.gsp.replugged(back);
            self.apply(back, &effects);
        }
        back.note_objects(processor.gsp.take_object_usage());
        let target = |token: Token| processor.gsp.doorbell_target(token.runlist, token.chid);
        if locked(&self.tokens).refresh(target) {
            self.watcher.coalescable_writes_changed();
        }
        for note in processor.gsp.take_notes() {
            log::info!("{note}");
        }
        *locked(&self.asked) = processor.before.and(counters_of(&processor.gsp));
        self.face.counters_changed.note();
    }

    fn tell_stopped(&self, back: &B, gsp: &mut Gsp) {
        let stopped = locked(&self.stops).take();
        for stopped in stopped {
            let effects = gsp.stopped(back, stopped);
            self.apply(back, &effects);
        }
    }

    fn apply(&self, back: &B, effects: &[GspEffect]) {
        for effect in effects {
            match *effect {
                GspEffect::Running => {
                    let [root, _] = self.roots;
                    let root = PhysicalAddress { aperture: Aperture::Vram, address: root };
                    locked(&self.bar1).set_tables(self.tables(GmmuRoot::Root(root)));
                    self.tell_changed(back, 1);
                    self.face.lock().gsp_running();
                }
                GspEffect::Bar2Root(raw) => {
                    locked(&self.bar2).set_tables(bar2_tables(self.hal.mmu, raw));
                    self.tell_changed(back, 3);
                }
                GspEffect::Interrupt => self.face.lock().gsp_event(),
                GspEffect::NonStall(engine) => self.face.lock().non_stall(engine),
                GspEffect::Halted { suspend } => {
                    if !suspend {
                        locked(&self.bar1).set_tables(self.tables(GmmuRoot::Physical));
                        locked(&self.bar2).set_tables(self.tables(GmmuRoot::Physical));
                        self.tell_changed(back, 1);
                        self.tell_changed(back, 3);
                    }
                    self.face.lock().gsp_halted();
                }
            }
        }
    }

    /// Delivers to GSP what waits for it: stopped channels, and that the monitor is another one. If another
    /// thread holds GSP, that one does.
    pub fn deliver(&self) {
        let waits = || !locked(&self.stops).is_empty() || self.head.as_ref().is_some_and(Head::is_replugged);
        while waits() {
            let Some(mut processor) = self.try_processor() else { return };
            // Dropped before GSP is let go, for which a function that goes waits: never the last one.
            let Some(back) = processor.back.upgrade() else { return };
            self.finish(&back, &mut processor);
        }
    }

    const fn tables(&self, root: GmmuRoot) -> GmmuTables<Gmmu> {
        GmmuTables { format: self.hal.mmu, root }
    }

    fn try_processor(&self) -> Option<MutexGuard<'_, Processor<B>>> {
        match self.processor.try_lock() {
            Ok(processor) => Some(processor),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn stop(&self, stop: ChannelStop<GuestChannel>) {
        locked(&self.stops).push(stop);
        self.face.counters_changed.note();
        self.deliver();
    }
}

/// BAR2 by the entry that the driver gave. One that names no table turns translation off, as a driver does
/// when it goes.
fn bar2_tables(format: Gmmu, raw: u64) -> GmmuTables<Gmmu> {
    let entry = GmmuTables { format, root: GmmuRoot::RootEntry(raw) };
    if entry.first_table().is_some() { entry } else { GmmuTables { format, root: GmmuRoot::Physical } }
}

impl<B: GspBackend> EngineEvents for Core<B> {
    fn non_stall(&self, engine: Engine) {
        self.face.lock().non_stall(engine);
    }

    fn message_delivered(&self, engines: EngineSet) {
        self.face.lock().message_delivered(engines);
    }

    fn unsent(&self) {
        self.face.lock().send_again();
    }

    fn stopped(&self, stop: ChannelStop<GuestChannel>) {
        self.stop(stop);
    }

    fn fault(&self, _fault: MmuFault) {
        // An access by the CPU: it stops nothing.
        self.window_faults.fetch_add(1, Ordering::Relaxed);
        self.face.counters_changed.note();
    }

    fn preempted(&self, _channel: GuestChannel) {
        // GSP schedules its channels itself, so that its driver asks for no preemption.
    }

    fn monitor(&self, size: Option<(u16, u16)>) {
        self.replug(size);
    }

    fn patch_register(&self, offset: u32, _value: u32) {
        // Contexts of this chip are the host's: there is no list of registers to patch.
        log::debug!("A context patches register {offset:#08x}: ignored");
    }

    fn lost(&self, reason: &str) {
        self.identity.lose();
        if self.face.lose() {
            log::error!("The GPU is lost: {reason}");
            self.watcher.replaced();
        }
    }
}
