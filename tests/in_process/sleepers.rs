//! The end of work reaches whoever sleeps for it, without QEMU: vGPUs on one aggregator and software GPU,
//! each with a driver whose threads hand in fences and sleep, and one that is its interrupt handler, while
//! others want the processors.
//!
//! `GPUVMK_SLEEPS=1000000 cargo test --release --test sleepers` sleeps that often (some minutes).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on panics")]

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::soft_host::soft_host;
use crate::tiny_driver::{Channel, Space, TinyDriver};
use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::protocol::{Hello, PROTOCOL_VERSION};
use gpuvmk::aggregator::{ServiceHandle, connect_in_process};
use gpuvmk::chip::gf100::regs::{pfifo, pmc};
use gpuvmk::chip::{Chip, Engine};
use gpuvmk::pci::{InterruptSink, PciFunction};
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::share::Share;
use gpuvmk::vgpu::{Vgpu, VgpuConfig};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

const VRAM: u64 = 48 << 20;
/// Sleeps of all threads together, where nobody asks for more.
const SLEEPS: u32 = 4000;
/// The longest that is no failure, on a machine where others are at work.
const LIMIT: Duration = Duration::from_secs(5);
const ENGINES: [Engine; 3] = [Engine::Graphics, Engine::COPY0, Engine::COPY1];
const NON_STALL: u32 = 1 << 31;

/// Where the function's own messages go: to the eventfd that the aggregator has too.
struct ByEventfd(OwnedFd);

impl InterruptSink for ByEventfd {
    fn set_intx(&self, _: bool) {}

    fn fire_msi(&self, _: u16) {
        rustix::io::write(&self.0, &1_u64.to_ne_bytes()).unwrap();
    }

    fn message_sent(&self, _vector: u16) {}
}

/// A VM with its driver.
struct Vm {
    driver: Mutex<TinyDriver>,
    message: OwnedFd,
    /// The driver has notifications masked while nobody sleeps.
    masks: bool,
    /// How many sleep.
    sleepers: Mutex<u32>,
    told: Condvar,
    over: AtomicBool,
    longest_us: AtomicU32,
}

impl Vm {
    fn new(service: &ServiceHandle, name: &str, masks: bool) -> Arc<Self> {
        let hello = Hello {
            version: PROTOCOL_VERSION,
            name: name.to_owned(),
            chip: Chip::GF100.into(),
            vram: VRAM,
            channels: 16,
            share: Share::default(),
            limits: gpuvmk::aggregator::protocol::TenantLimits::default(),
        };
        let (link, grant) = connect_in_process(service, hello).unwrap();
        let function: Arc<dyn PciFunction> =
            Arc::new(Vgpu::new(link, grant, VgpuConfig::of(Chip::GF100).unwrap()).unwrap());
        let driver = TinyDriver::bring_up(function.clone());
        let message = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        function.connect_interrupts(Some(Arc::new(ByEventfd(message.try_clone().unwrap()))));
        function.message_owner().unwrap().connect_message(Some(message.try_clone().unwrap()));
        let vm = Self {
            driver: Mutex::new(driver),
            message,
            masks,
            sleepers: Mutex::new(0),
            told: Condvar::new(),
            over: AtomicBool::new(false),
            longest_us: AtomicU32::new(0),
        };
        vm.allow(&vm.driver.lock().unwrap(), !masks);
        Arc::new(vm)
    }

    fn allow(&self, driver: &TinyDriver, allowed: bool) {
        driver.write(pfifo::NV_PFIFO_INTR_EN_0, if allowed { u32::MAX } else { !NON_STALL });
    }

    /// The interrupt handler, until all is over.
    fn handle(&self) {
        let look = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        while !self.over.load(Ordering::Acquire) {
            if poll(&mut [PollFd::new(&self.message, PollFlags::IN)], Some(&look)) != Ok(1) {
                continue;
            }
            let _ = rustix::io::read(&self.message, &mut [0_u8; 8]);
            let read = |reg| self.driver.lock().unwrap().read(reg);
            let write = |reg, value| self.driver.lock().unwrap().write(reg, value);
            write(pmc::NV_PMC_INTR_EN_0, 0);
            self.driver.lock().unwrap().rearm();
            if read(pmc::NV_PMC_INTR) & 1 << 8 != 0
                && read(pfifo::NV_PFIFO_INTR_0) & read(pfifo::NV_PFIFO_INTR_EN_0) & NON_STALL != 0
            {
                let units = read(pfifo::NV_PFIFO_INTR_ENGINE_ID);
                for unit in (0..16).filter(|unit| units & 1 << unit != 0) {
                    let reg = pfifo::NV_PFIFO_INTR_ENGINE.at(unit);
                    write(reg, read(reg));
                }
                // Whoever is asleep looks at its fence, and says how it goes on.
                let sleepers = self.sleepers.lock().unwrap();
                if self.masks && *sleepers == 0 {
                    self.allow(&self.driver.lock().unwrap(), false);
                }
                self.told.notify_all();
            }
            write(pmc::NV_PMC_INTR_EN_0, 1);
        }
    }

    /// Sleeps until a channel's last fence has passed.
    fn sleep(&self, channel: &Channel) {
        let start = Instant::now();
        let mut sleepers = self.sleepers.lock().unwrap();
        *sleepers += 1;
        if self.masks && *sleepers == 1 {
            self.allow(&self.driver.lock().unwrap(), true);
        }
        let passed = || self.driver.lock().unwrap().fence_passed(channel);
        while !passed() {
            let (woken, slept) = self.told.wait_timeout(sleepers, LIMIT).unwrap();
            sleepers = woken;
            if slept.timed_out() {
                let state = if passed() { "done, and nobody told it" } else { "not done" };
                panic!("channel {} has slept for {:?}: its work is {state}", channel.id, start.elapsed());
            }
        }
        *sleepers -= 1;
        if self.masks && *sleepers == 0 {
            self.allow(&self.driver.lock().unwrap(), false);
        }
        drop(sleepers);
        let us = u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX);
        self.longest_us.fetch_max(us, Ordering::Relaxed);
    }
}

/// Sleeps so often on each of the VM's channels, all at once.
fn sleep_on_channels(vm: &Arc<Vm>, channels: Vec<Channel>, times: u32) {
    std::thread::scope(|scope| {
        for (number, mut channel) in channels.into_iter().enumerate() {
            scope.spawn(move || {
                for turn in 0..times {
                    vm.driver.lock().unwrap().fence(&mut channel);
                    // Now and then the work is done before anybody sleeps.
                    if (turn as usize + number).is_multiple_of(7) {
                        std::thread::yield_now();
                    }
                    vm.sleep(&channel);
                }
            });
        }
    });
}

fn channels(vm: &Vm) -> Vec<Channel> {
    let mut driver = vm.driver.lock().unwrap();
    let mut space = driver.new_space();
    (0..4_u16)
        .map(|id| {
            let engine = ENGINES[usize::from(id) % ENGINES.len()];
            let mut channel =
                driver.new_channel(&mut space, id, engine, 0x1_0000_0000 + (u64::from(id) << 24));
            driver.set_object(&mut channel);
            channel
        })
        .collect()
}

/// Threads that never rest, while `work` does.
fn beside_others(work: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::black_box((0..20_000_u32).fold(0, |sum: u32, n| sum.wrapping_add(n)));
                    std::thread::yield_now();
                }
            });
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Lets `work` be done on VMs with their handlers; one masks notifications while nobody sleeps, as old
/// drivers do.
fn on_vms(work: impl Fn(&Arc<Vm>) + Sync) {
    let service = soft_host(Chip::GF100, 256 << 20, PolicyKind::Fifo, ScrubPolicy::default());
    let vms = [("old", true), ("new", false)].map(|(name, masks)| Vm::new(&service, name, masks));
    std::thread::scope(|scope| {
        for vm in &vms {
            scope.spawn(|| vm.handle());
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            std::thread::scope(|scope| {
                for vm in &vms {
                    scope.spawn(|| work(vm));
                }
            });
        }));
        vms.iter().for_each(|vm| vm.over.store(true, Ordering::Release));
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
    let longest = vms.iter().map(|vm| vm.longest_us.load(Ordering::Relaxed)).max().unwrap();
    println!("the longest sleep: {longest} us");
    let foreign: u64 = service.status().unwrap().tenants.iter().filter_map(|vm| vm.foreign_accesses).sum();
    assert_eq!(foreign, 0);
}

#[test]
fn every_sleeper_is_told_of_the_end_of_its_work() {
    let sleeps = std::env::var("GPUVMK_SLEEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(SLEEPS);
    beside_others(|| {
        on_vms(|vm| {
            let channels = channels(vm);
            let each = sleeps / 2 / u32::try_from(channels.len()).unwrap();
            sleep_on_channels(vm, channels, each);
        });
    });
}

/// nouveau of Linux 6.1 gives a running channel its context by a store to memory: what it does first may be
/// done before anybody knows that the channel uses the engine.
#[test]
fn first_work_on_an_engine_is_told_too() {
    beside_others(|| {
        on_vms(|vm| {
            let mut space: Option<Space> = None;
            for turn in 0..40_u16 {
                let (id, engine) = (turn % 8, ENGINES[usize::from(turn) % ENGINES.len()]);
                let base = 0x1_0000_0000 + (u64::from(turn) << 24);
                let channel = {
                    let mut driver = vm.driver.lock().unwrap();
                    let space = space.get_or_insert_with(|| driver.new_space());
                    let mut channel = driver.new_channel_61(space, id, engine, base);
                    driver.set_object(&mut channel);
                    driver.fence(&mut channel);
                    channel
                };
                vm.sleep(&channel);
                vm.driver.lock().unwrap().unbind(id);
            }
        });
    });
}
