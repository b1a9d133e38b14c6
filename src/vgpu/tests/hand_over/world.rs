//! The parts that the search looks at: a link over the real ring, the function's messages, and the vGPU
//! between.

use super::super::*;
use crate::{Bar3, Vgpu, VgpuConfig};
use gpuvmk_aggregator::event_ring::{self, EventConsumer, EventProducer, Notifications};
use gpuvmk_aggregator::interleave::{World as Shared, point, saw};
use gpuvmk_chip::{Chip, Face};
use gpuvmk_pci::{InterruptSink, PciFunction, Region};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsFd;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32};

/// What one search is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) chip: Chip,
    pub(super) work: [Engine; 2],
    /// The driver has notifications masked while no process sleeps.
    pub(super) masks: bool,
    /// The aggregator sends the message itself.
    pub(super) posts: bool,
    /// The function is reset before the last sleep, and set up again.
    pub(super) resets: bool,
    /// The link takes what was kept before it says what the driver is interested in: the mistake that is to
    /// be found.
    pub(super) broken: bool,
}

/// A link of the real ring's, whose aggregator refuses nothing.
pub(super) struct RingLink {
    pub(super) notifications: Notifications,
    pub(super) handler: Mutex<Option<Arc<dyn EventHandler>>>,
    pub(super) broken: bool,
}

impl AggregatorLink for RingLink {
    fn is_ending(&self) -> bool {
        false
    }

    fn request(&self, _: &Request, _: Option<OwnedFd>) -> Result<(), LinkError> {
        Ok(())
    }

    fn doorbell(&self, _: Doorbell) {}

    fn report(&self, _: &Report) {}

    fn report_copied(&self, _: &CopiedBytes) {}

    fn report_trapped(&self, _: u64) {}

    fn report_driver(&self, _: &DriverCounters) {}

    fn set_notification_interest(&self, interest: InterruptInterest) -> Deferred {
        if self.broken {
            let kept = self.notifications.take();
            self.notifications.say_only(interest);
            return kept;
        }
        let kept = self.notifications.interest(interest);
        point();
        kept
    }

    fn engine_time(&self) -> EngineTime {
        EngineTime::default()
    }

    fn take_notifications(&self) -> Deferred {
        let kept = self.notifications.take();
        point();
        kept
    }

    fn connect(&self, handler: Arc<dyn EventHandler>) {
        *self.handler.lock().unwrap() = Some(handler);
    }
}

/// The driver's message, where it waits to be handled.
#[derive(Default)]
pub(super) struct Pending(pub(super) AtomicBool);

impl InterruptSink for Pending {
    fn set_intx(&self, _: bool) {}

    fn fire_msi(&self, _: u16) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn message_sent(&self, _vector: u16) {}
}

pub(super) struct HandOver {
    pub(super) case: Case,
    pub(super) vgpu: Vgpu,
    pub(super) link: Arc<RingLink>,
    pub(super) producer: Mutex<EventProducer>,
    pub(super) consumer: Mutex<EventConsumer>,
    /// Readable when the consumer is called.
    pub(super) called: OwnedFd,
    /// By which the aggregator sends.
    pub(super) event: OwnedFd,
    pub(super) pending: Arc<Pending>,
    /// One access to registers at a time.
    pub(super) session: AtomicBool,
    /// The driver's lock.
    pub(super) driver: AtomicBool,
    /// Pieces of work that are done, by their fences.
    pub(super) fences: AtomicU32,
    /// The fence that the process sleeps for, from 1; 0: none.
    pub(super) sleeps_for: AtomicU32,
    pub(super) over: AtomicBool,
}

impl HandOver {
    pub(super) fn new(case: Case) -> Arc<Self> {
        let (mut producer, file, wake) = event_ring::create().unwrap();
        let consumer = EventConsumer::open(file.as_fd(), wake).unwrap();
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        if case.posts {
            producer.sends_by(event.try_clone().unwrap());
        }
        let link = Arc::new(RingLink {
            notifications: consumer.notifications(),
            handler: Mutex::default(),
            broken: case.broken,
        });
        let mut config = VgpuConfig::of(case.chip).unwrap();
        config.mediator.bar3 = Bar3::Trapped;
        let vgpu = Vgpu::new(link.clone(), grant(), config).unwrap();
        let pending = Arc::new(Pending::default());
        vgpu.connect_interrupts(Some(pending.clone()));
        Arc::new(Self {
            case,
            vgpu,
            link,
            producer: Mutex::new(producer),
            called: consumer.wake_copy(),
            consumer: Mutex::new(consumer),
            event,
            pending,
            session: AtomicBool::new(false),
            driver: AtomicBool::new(false),
            fences: AtomicU32::new(0),
            sleeps_for: AtomicU32::new(0),
            over: AtomicBool::new(false),
        })
    }

    pub(super) fn write(&self, offset: u64, value: u32) {
        self.vgpu.write(Region::Bar(0), offset, &value.to_le_bytes()).unwrap();
    }

    pub(super) fn read(&self, offset: u64) -> u32 {
        let mut raw = [0; 4];
        self.vgpu.read(Region::Bar(0), offset, &mut raw).unwrap();
        u32::from_le_bytes(raw)
    }

    /// What a driver does before its first sleep.
    pub(super) fn set_up(&self) {
        self.vgpu.write(Region::Config, 4, &[6, 0]).unwrap();
        match self.case.chip.face {
            Face::Registers => {
                self.vgpu.write(Region::Config, 0x6a, &[1, 0]).unwrap();
                self.write(0x200, 0x100);
                self.write(0x2628, 1);
                self.write(0x2140, if self.case.masks { 0x7fff_ffff } else { 0xffff_ffff });
                self.write(0x140, 1);
            }
            Face::Gsp => {
                let control = msi_control(&self.vgpu);
                self.vgpu.write(Region::Config, control, &[1, 0]).unwrap();
                self.write(0xb8_1204, if self.case.masks { 0 } else { 0x3f });
                self.write(0xb8_1608, 0xf);
            }
        }
    }

    pub(super) fn fences(&self) -> u32 {
        let fences = self.fences.load(Ordering::SeqCst);
        saw(fences);
        fences
    }

    pub(super) fn has_message(&self) -> bool {
        self.pending.0.load(Ordering::SeqCst) || is_readable(&self.event)
    }

    pub(super) fn take_message(&self) {
        self.pending.0.store(false, Ordering::SeqCst);
        let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// Where the message capability's control word is.
pub(super) fn msi_control(function: &dyn PciFunction) -> u64 {
    let byte = |at: u64| {
        let mut raw = [0];
        function.read(Region::Config, at, &mut raw).unwrap();
        raw[0]
    };
    let mut at = u64::from(byte(0x34));
    while byte(at) != 5 {
        at = byte(at + 1).into();
    }
    at + 2
}

impl Shared for HandOver {
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.link.notifications.words().hash(&mut hasher);
        self.vgpu.interrupt_state().hash(&mut hasher);
        (self.has_message(), is_readable(&self.called)).hash(&mut hasher);
        for flag in [&self.session, &self.driver, &self.over] {
            flag.load(Ordering::SeqCst).hash(&mut hasher);
        }
        for number in [&self.fences, &self.sleeps_for] {
            number.load(Ordering::SeqCst).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn reset(&self) {
        self.vgpu.reset();
        self.link.notifications.clear();
        let mut consumer = self.consumer.lock().unwrap_or_else(PoisonError::into_inner);
        consumer.take(|_| {});
        consumer.wakes_up();
        drop(consumer);
        for flag in [&self.session, &self.driver, &self.over] {
            flag.store(false, Ordering::SeqCst);
        }
        for number in [&self.fences, &self.sleeps_for] {
            number.store(0, Ordering::SeqCst);
        }
        self.set_up();
        self.take_message();
    }

    fn judge(&self, stuck: &[usize]) -> Option<String> {
        let state = (self.link.notifications.words(), self.vgpu.interrupt_state());
        (!stuck.is_empty()).then(|| format!("{stuck:?} sleep for ever: {state:x?}"))
    }

    fn is_shared(&self, index: usize) -> bool {
        Notifications::STEPS.contains(&index)
    }
}

pub(super) fn is_readable(descriptor: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}
