//! One event as eight words of the event ring. Decoding is total: words that mean nothing give nothing.

use super::protocol::Event;
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::{
    ChannelStop, FaultUnit, GraphicsError, Hang, HangKind, HostError, MmuFault, StopCause,
};
use gpuvmk_chip::{AccessKind, Engine, FaultReason};

/// Words of a record.
pub const RECORD_WORDS: usize = 8;

/// An event as words of the ring.
pub type Record = [u32; RECORD_WORDS];

const NON_STALL: u32 = 1;
const FAULT: u32 = 2;
const HOST_ERROR: u32 = 3;
const GRAPHICS_ERROR: u32 = 4;
const PREEMPTED: u32 = 5;
const LOST: u32 = 6;
const CHANNEL_ERROR: u32 = 7;
const HUNG: u32 = 8;
const UNSENT: u32 = 9;
const MONITOR: u32 = 10;

/// Engines are numbered by their places, and so are they as units that fault, from here on.
const FIRST_ENGINE_UNIT: u32 = 16;

/// A fault that belongs to no channel.
const NO_CHANNEL: u32 = u32::MAX;

/// Reasons by their number in a record.
const REASONS: [FaultReason; 9] = [
    FaultReason::PageTableNotPresent,
    FaultReason::PageTableTooShort,
    FaultReason::PageNotPresent,
    FaultReason::VmLimitExceeded,
    FaultReason::NoChannel,
    FaultReason::PageSystemOnly,
    FaultReason::WriteToReadOnly,
    FaultReason::CompressionFault,
    FaultReason::UnsupportedAperture,
];

/// The words of `event`.
pub fn encode(event: Event) -> Record {
    match event {
        Event::NonStall(engine) => [NON_STALL, engine_number(engine), 0, 0, 0, 0, 0, 0],
        Event::Stopped(ChannelStop { channel, cause }) => stop_record(channel, cause),
        Event::Fault(fault) => fault_record(NO_CHANNEL, fault),
        Event::Preempted(channel) => [PREEMPTED, channel.0.into(), 0, 0, 0, 0, 0, 0],
        Event::Unsent => [UNSENT, 0, 0, 0, 0, 0, 0, 0],
        // No monitor prefers a size of 0.
        Event::Monitor(size) => {
            let (width, height) = size.unwrap_or((0, 0));
            [MONITOR, width.into(), height.into(), 0, 0, 0, 0, 0]
        }
        Event::Lost => [LOST, 0, 0, 0, 0, 0, 0, 0],
    }
}

fn stop_record(channel: GuestChannel, cause: StopCause) -> Record {
    let channel = channel.0.into();
    match cause {
        StopCause::Fault(fault) => fault_record(channel, fault),
        StopCause::Host(error) => {
            [HOST_ERROR, channel, error.pbdma.into(), error.status, error.method, error.data, 0, 0]
        }
        StopCause::Graphics(error) => [
            GRAPHICS_ERROR,
            channel,
            error.status,
            error.subchannel.into(),
            error.class.into(),
            error.method.into(),
            error.data,
            0,
        ],
        StopCause::Manager(code) => [CHANNEL_ERROR, channel, code, 0, 0, 0, 0, 0],
        StopCause::Hang(hang) => {
            let acquire = u32::from(hang.kind == HangKind::Acquire);
            [HUNG, channel, engine_number(hang.engine), acquire, 0, 0, 0, 0]
        }
    }
}

fn fault_record(channel: u32, fault: MmuFault) -> Record {
    [
        FAULT,
        channel,
        unit_number(fault.unit),
        low(fault.address.0),
        high(fault.address.0),
        u32::from(fault.access == AccessKind::Write),
        fault.reason as u32,
        0,
    ]
}

/// The event of a record, if it is one.
pub fn decode(record: Record) -> Option<Event> {
    let [kind, a, b, c, d, e, f, _] = record;
    Some(match kind {
        NON_STALL => Event::NonStall(engine(a)?),
        FAULT => {
            let fault = MmuFault {
                unit: unit(b)?,
                address: GpuVa(u64::from(d) << 32 | u64::from(c)),
                access: if e == 0 { AccessKind::Read } else { AccessKind::Write },
                reason: REASONS.into_iter().find(|reason| *reason as u32 == f)?,
            };
            if a == NO_CHANNEL { Event::Fault(fault) } else { stopped(a, fault)? }
        }
        HOST_ERROR => stopped(a, HostError { pbdma: u8::try_from(b).ok()?, status: c, method: d, data: e })?,
        GRAPHICS_ERROR => {
            let error = GraphicsError {
                status: b,
                subchannel: u8::try_from(c).ok()?,
                class: u16::try_from(d).ok()?,
                method: u16::try_from(e).ok()?,
                data: f,
            };
            stopped(a, error)?
        }
        PREEMPTED => Event::Preempted(channel(a)?),
        CHANNEL_ERROR => stopped(a, StopCause::Manager(b))?,
        HUNG => {
            let kind = if c == 0 { HangKind::Engine } else { HangKind::Acquire };
            stopped(a, Hang { engine: engine(b)?, kind })?
        }
        UNSENT => Event::Unsent,
        MONITOR => {
            let size = (u16::try_from(a).ok()?, u16::try_from(b).ok()?);
            Event::Monitor((size != (0, 0)).then_some(size))
        }
        LOST => Event::Lost,
        _ => return None,
    })
}

fn channel(number: u32) -> Option<GuestChannel> {
    u16::try_from(number).ok().map(GuestChannel)
}

fn stopped(number: u32, cause: impl Into<StopCause>) -> Option<Event> {
    Some(Event::Stopped(ChannelStop::new(channel(number)?, cause)))
}

fn engine_number(engine: Engine) -> u32 {
    engine.place().into()
}

fn engine(number: u32) -> Option<Engine> {
    u8::try_from(number).ok().and_then(Engine::at_place)
}

fn unit_number(unit: FaultUnit) -> u32 {
    match unit {
        FaultUnit::Host => 0,
        FaultUnit::Bar1 => 1,
        FaultUnit::Bar3 => 2,
        FaultUnit::Engine(engine) => engine_number(engine).saturating_add(FIRST_ENGINE_UNIT),
    }
}

fn unit(number: u32) -> Option<FaultUnit> {
    match number {
        0 => Some(FaultUnit::Host),
        1 => Some(FaultUnit::Bar1),
        2 => Some(FaultUnit::Bar3),
        n => engine(n.checked_sub(FIRST_ENGINE_UNIT)?).map(FaultUnit::Engine),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
const fn low(value: u64) -> u32 {
    value as u32
}

const fn high(value: u64) -> u32 {
    low(value >> 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind_of_event_survives() {
        let fault = MmuFault {
            unit: FaultUnit::Engine(Engine::COPY1),
            address: GpuVa(0xff_1234_5678),
            access: AccessKind::Write,
            reason: FaultReason::UnsupportedAperture,
        };
        let stop = |channel, cause| Event::Stopped(ChannelStop { channel: GuestChannel(channel), cause });
        let events = [
            Event::NonStall(Engine::COPY1),
            stop(127, fault.into()),
            Event::Fault(MmuFault { unit: FaultUnit::Bar1, ..fault }),
            stop(5, HostError { pbdma: 2, status: 1, method: 0x1f_0123, data: !0 }.into()),
            stop(5, GraphicsError { status: 1, subchannel: 7, class: 0x9039, method: 0x300, data: 3 }.into()),
            stop(6, StopCause::Manager(31)),
            stop(7, Hang { engine: Engine::COPY2, kind: HangKind::Acquire }.into()),
            stop(8, Hang { engine: Engine::Graphics, kind: HangKind::Engine }.into()),
            Event::Preempted(GuestChannel(9)),
            Event::Unsent,
            Event::Monitor(Some((1920, 1080))),
            Event::Monitor(None),
            Event::Lost,
        ];

        for event in events {
            assert_eq!(decode(encode(event)), Some(event));
        }
    }

    #[test]
    fn every_engine_survives_and_numbers_of_none_are_no_event() {
        for engine in Engine::ALL {
            let fault = MmuFault {
                unit: FaultUnit::Engine(engine),
                address: GpuVa(0),
                access: AccessKind::Read,
                reason: FaultReason::NoChannel,
            };
            for event in [Event::NonStall(engine), Event::Fault(fault)] {
                assert_eq!(decode(encode(event)), Some(event));
            }
        }
        let beyond = u32::try_from(Engine::COUNT).unwrap();
        for number in [beyond, 256, u32::MAX] {
            assert_eq!(decode([NON_STALL, number, 0, 0, 0, 0, 0, 0]), None);
        }
        for unit in [3, FIRST_ENGINE_UNIT - 1, FIRST_ENGINE_UNIT + beyond] {
            assert_eq!(decode([FAULT, NO_CHANNEL, unit, 0, 0, 0, 0, 0]), None);
        }
    }

    proptest! {
        #[test]
        fn random_records_never_panic(kind in 0_u32..11, mut record: Record) {
            let _ = decode(record);
            record[0] = kind;
            let _ = decode(record);
        }
    }
}
