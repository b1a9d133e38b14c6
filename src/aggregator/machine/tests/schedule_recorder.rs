//! What a recording of the aggregator has.

use std::io;
use std::sync::Mutex;

use super::*;
use crate::machine::settings::Order;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_trace::recorder::RING;
use gpuvmk_trace::{Event as Traced, Filter, Header, Reader, Recorder, Tracer};

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Both work under a policy with turns for 40 ms; the events from the time on in which a recording began.
fn recorded(from: u64) -> Vec<Traced> {
    let (machine, fake, a, b) = two_tenants();
    let (tracer, sink) = (Tracer::default(), Sink::default());
    let mut machine = machine.with_tracer(tracer.clone());
    fake.state().fetched = Some(0);
    let (host_a, host_b) = (host_of(&fake, 64 * MIB), host_of(&fake, 128 * MIB));
    let order = Order { vm: None, settings: vec!["policy=best-effort".into(), "slice=4000".into()] };
    machine.set(&order, T0).unwrap();
    for ms in 0..40 {
        let now = Duration::from_millis(ms);
        if ms == from {
            let recorder =
                Recorder::start(sink.clone(), "test", Header::default(), Filter::default(), RING).unwrap();
            tracer.start(recorder);
        }
        for (tenant, gp_put) in [(a, 3), (b, 7)] {
            machine.doorbell(tenant, Doorbell { channel: GuestChannel(0), gp_put }, 0, now);
        }
        let listed = |host| fake.state().runlist.contains(&host);
        let running = [host_a, host_b].into_iter().find(|host| listed(*host));
        fake.state().running = running;
        machine.step(now);
    }
    tracer.stop();
    let bytes = sink.0.lock().unwrap().clone();
    Reader::new(bytes.as_slice()).unwrap().map(|entry| entry.unwrap().event).collect()
}

fn turns(events: &[Traced]) -> Vec<&str> {
    let to = |event: &'_ Traced| matches!(event, Traced::Switch { engine, .. } if engine == "graphics");
    events
        .iter()
        .filter(|event| to(event))
        .filter_map(|event| match event {
            Traced::Switch { to, .. } => Some(to.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn turns_and_work_that_waits_are_told() {
    let events = recorded(0);

    let turns = turns(&events);
    assert!(turns.len() >= 6, "{turns:?}");
    assert!(turns.windows(2).all(|pair| pair[0] != pair[1]), "{turns:?}");
    assert!(["a", "b"].iter().all(|vm| turns.contains(vm)), "{turns:?}");
    let waits = |vm: &str, of: u64| {
        events.iter().any(|event| {
            matches!(event, Traced::Depth { vm: name, engine, entries }
                if name == vm && engine == "graphics" && *entries == of)
        })
    };
    assert!(waits("a", 3) && waits("b", 7), "{events:?}");
}

#[test]
fn recording_that_begins_later_begins_with_who_has_the_engine() {
    let events = recorded(20);

    assert!(!turns(&events).is_empty());
    let depths = events.iter().filter(|event| matches!(event, Traced::Depth { .. })).count();
    assert!(depths >= 2, "{events:?}");
}
