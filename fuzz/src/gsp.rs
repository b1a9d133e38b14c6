//! The virtual GSP: boot arguments, queues and RPCs of a driver that lies. What the back is asked for makes
//! sense whatever the driver says, before a suspension and after one: channels in free slots, nothing in
//! empty ones; objects stay below their limits; and a new boot finds it as good as new.

pub(crate) mod rpc;
mod sleep;

use gpuvmk::backend::{Backend as _, ChannelRefusal};
use gpuvmk::chip::addr::{Chid, GpuVa, GuestChannel};
use gpuvmk::chip::channel_event::{ChannelStop, FaultUnit, Hang, HangKind, HostError, MmuFault, StopCause};
use gpuvmk::chip::{AccessKind, Aperture, Engine, EngineSet, FaultReason, PhysicalAddress};
use gpuvmk::gsp::abi;
use gpuvmk::gsp::abi::values::PciIdentity;
use gpuvmk::gsp::hal::{AD104, GB203, GH100, TU106};
use gpuvmk::gsp::{BootError, Gsp, GspConfig, ObjectLimits};
use gpuvmk_backend::testing::{FakeGspBack, FakeGspBackConfig};

use crate::gsp_queues::{LIBOS, PLACES, Queues, RAM_BYTES, Ram};
use crate::input::Input;
use crate::log_sink;
use rpc::Driver;

/// Bus address of the system memory.
const BASE: u64 = 1 << 32;
const VRAM: u64 = 64 << 20;
const CHANNELS: u16 = 8;

/// So few objects that a driver meets its limits.
const LIMITS: ObjectLimits = ObjectLimits { total: 64, per_client: 16 };
/// The back's answers to requests of channels.
const REFUSALS: [Option<ChannelRefusal>; 5] =
    [None, None, Some(ChannelRefusal::Exhausted), Some(ChannelRefusal::Invalid), Some(ChannelRefusal::Lost)];
/// Objects of the firmware's own.
const OWN: usize = 3;

impl Ram for FakeGspBack {
    fn put(&self, offset: u64, data: &[u8]) {
        // What does not fit is not written.
        let _ = self.write_memory(bus(BASE.wrapping_add(offset)), data);
    }

    fn get(&self, offset: u64, data: &mut [u8]) {
        let _ = self.read_memory(bus(BASE.wrapping_add(offset)), data);
    }
}

fn bus(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::SystemCoherent, address }
}

/// Talks to a GSP.
pub fn run(data: &[u8]) {
    log_sink::install();
    let mut input = Input::new(data);
    let engines = input.pick(&[
        EngineSet::all(),
        EngineSet::GRAPHICS | EngineSet::COPY0 | EngineSet::COPY1 | EngineSet::COPY2,
        EngineSet::GRAPHICS,
    ]);
    let ram = BASE..BASE + RAM_BYTES;
    let back = FakeGspBack::new(FakeGspBackConfig { vram: VRAM, ram, channels: CHANNELS, engines });
    let driver =
        Driver { abi: input.pick(abi::VERSIONS), chip: input.pick(&[&GH100, &AD104, &GB203, &TU106]) };
    let config = GspConfig {
        hal: driver.chip,
        vram: VRAM,
        engines,
        channels: CHANNELS,
        graphics: None,
        objects: LIMITS,
        pci: PciIdentity::default(),
        uuid: [7; 16],
        // By the input's length, so that inputs that were kept mean what they meant.
        has_head: data.len().is_multiple_of(2),
    };
    let mut gsp = Gsp::new(config);
    let mut queues = Queues::prepare(&back, BASE);
    if input.below(8) != 7 {
        gsp.boot(&back, BASE + LIBOS).expect("good arguments");
        let record = driver.hello(&queues);
        queues.push(&back, &record);
        gsp.commands(&back, 0);
    }
    let mut steps = 0;
    while input.more() && steps < 96 {
        steps += 1;
        step(&mut input, &mut gsp, (driver, config), &back, &mut queues);
        assert!(gsp.objects() <= LIMITS.total as usize, "more objects than there may be");
        drop(format!("{:?}", gsp.take_notes()));
        if steps % 8 == 0 {
            // Another one goes on in its place.
            let state = gsp.state();
            gsp = Gsp::from_state(&state, config).expect("a state that was taken is one that it can be in");
            assert_eq!(gsp.state(), state, "it is not what it was");
        }
    }
    // A driver that comes next.
    back.refuse(None);
    let mut queues = Queues::prepare(&back, BASE);
    gsp.boot(&back, BASE + LIBOS).expect("good arguments");
    assert_eq!(gsp.objects(), OWN, "objects of the last driver stay");
    assert!(back.live().is_empty(), "channels of the last driver stay");
    let record = queues.record(rpc::STATIC_INFO, &[0; 0x678]);
    queues.push(&back, &record);
    let before = queues.messages(&back);
    gsp.commands(&back, 0);
    assert_eq!(queues.messages(&back), before + 1, "GSP does not answer");
}

fn step(
    input: &mut Input<'_>,
    gsp: &mut Gsp,
    (driver, config): (Driver, GspConfig),
    back: &FakeGspBack,
    queues: &mut Queues,
) {
    match input.below(16) {
        0 => {
            let address = match input.below(4) {
                0 => 0,
                3 if driver.abi.suspends => {
                    sleep::suspend(driver, gsp, back, queues);
                    return sleep::resume(input, gsp, config, back, queues);
                }
                1 => BASE.wrapping_add(input.near(&PLACES)),
                _ => BASE + LIBOS,
            };
            match gsp.boot(back, address) {
                Ok(_) if address != 0 => queues.restart(),
                Ok(_) => {}
                Err(error @ (BootError::NoMemory(_) | BootError::Arguments(_))) => drop(error.to_string()),
                Err(BootError::Saved(error)) => panic!("nothing was handed over: {error}"),
            }
        }
        1 => {
            let place = input.near(&PLACES);
            back.put(place, input.bytes(16));
        }
        2 => queues.read_all(back),
        3 => back.refuse(input.pick(&REFUSALS)),
        4 => {
            let channel = GuestChannel(if input.flag() { input.u16() } else { u16::from(input.below(6)) });
            let cause = match input.below(4) {
                0 => StopCause::Manager(input.u8().into()),
                1 => StopCause::Host(HostError { pbdma: 0, status: 1, method: 0, data: 0 }),
                2 => StopCause::Hang(Hang {
                    engine: input.pick(&[Engine::Graphics, Engine::COPY1, Engine::COPY9]),
                    kind: HangKind::Engine,
                }),
                _ => StopCause::Fault(MmuFault {
                    unit: FaultUnit::Engine(input.pick(&[Engine::Graphics, Engine::COPY9])),
                    address: GpuVa(input.u64()),
                    access: AccessKind::Read,
                    reason: input.pick(&FaultReason::ALL),
                }),
            };
            gsp.stopped(back, ChannelStop { channel, cause });
        }
        5 => {
            let (runlist, chid) = (u16::from(input.below(4)), u16::from(input.below(20)));
            if let Some(target) = gsp.doorbell_target(runlist, Chid(chid)) {
                assert!(
                    back.live().contains_key(&target.channel),
                    "a doorbell of a channel that is not there"
                );
            }
        }
        6 | 7 => {
            gsp.commands(back, 0);
        }
        _ => {
            let record = rpc::record(input, queues, driver);
            queues.push(back, &record);
            if input.below(8) != 7 {
                gsp.commands(back, 0);
                queues.read_all(back);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is made worse at random works as it is: channels of every version's driver, and a suspension.
    #[test]
    fn drivers_get_on_with_gsp() {
        for abi in abi::VERSIONS {
            for chip in [&GH100, &AD104, &GB203, &TU106] {
                let driver = Driver { abi, chip };
                let engines = EngineSet::all();
                let ram = BASE..BASE + RAM_BYTES;
                let back =
                    FakeGspBack::new(FakeGspBackConfig { vram: VRAM, ram, channels: CHANNELS, engines });
                let config = GspConfig {
                    hal: chip,
                    vram: VRAM,
                    engines,
                    channels: CHANNELS,
                    graphics: None,
                    objects: LIMITS,
                    pci: PciIdentity::default(),
                    uuid: [7; 16],
                    has_head: true,
                };
                let mut gsp = Gsp::new(config);
                let mut queues = Queues::prepare(&back, BASE);
                gsp.boot(&back, BASE + LIBOS).expect("good arguments");
                queues.push(&back, &driver.hello(&queues));
                for record in rpc::channels(driver) {
                    let record = record(&queues);
                    queues.push(&back, &record);
                    gsp.commands(&back, 0);
                    queues.read_all(&back);
                }
                assert_eq!(back.live().len(), 3, "{} with {}", chip.name, abi.version);
                if !driver.abi.suspends {
                    continue;
                }
                sleep::suspend(driver, &mut gsp, &back, &mut queues);
                sleep::resume(&mut Input::new(&[]), &mut gsp, config, &back, &mut queues);
                assert!(gsp.objects() > OWN, "{} with {} does not go on", chip.name, abi.version);
            }
        }
    }
}
