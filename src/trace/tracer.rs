//! A recorder that all parts of a process share, and that is switched on and off while they work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::event::{Access, Event};
use super::recorder::Recorder;
use gpuvmk_pci::Region;

/// Records while a recording is on. Clones record to the same trace. Without a recording it costs a load.
#[derive(Clone, Debug, Default)]
pub struct Tracer {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    on: AtomicBool,
    recorder: RwLock<Option<Recorder>>,
}

impl Tracer {
    /// Records from now on; what was recorded to before is completed.
    pub fn start(&self, recorder: Recorder) {
        let before = self.exchange(Some(recorder));
        // Its end waits for its writer: not while others want to record.
        drop(before);
    }

    /// Completes the trace.
    pub fn stop(&self) {
        drop(self.exchange(None));
    }

    fn exchange(&self, recorder: Option<Recorder>) -> Option<Recorder> {
        let on = recorder.is_some();
        let mut present = self.shared.recorder.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *present, recorder);
        self.shared.on.store(on, Ordering::Relaxed);
        before
    }

    /// True while a recording is on.
    pub fn is_on(&self) -> bool {
        self.shared.on.load(Ordering::Relaxed)
    }

    /// True while accesses to a region are recorded.
    pub fn wants_region(&self, region: Region) -> bool {
        let mut wanted = false;
        self.with(|recorder| wanted = recorder.filter().wants_region(region));
        wanted
    }

    /// Records an access.
    pub fn access(&self, access: Access) {
        self.with(|recorder| recorder.access(access));
    }

    /// Records another event. `make` is called only while a recording is on.
    pub fn event(&self, make: impl FnOnce() -> Event) {
        self.with(|recorder| recorder.event(make()));
    }

    fn with(&self, record: impl FnOnce(&Recorder)) {
        if self.is_on() {
            let recorder = self.shared.recorder.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(recorder) = recorder.as_ref() {
                record(recorder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::filter::Filter;
    use super::super::header::Header;
    use super::super::reader::Reader;
    use super::super::recorder::RING;
    use super::*;

    /// Memory that a test looks at later.
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Sink {
        fn recorder(&self) -> Recorder {
            Recorder::start(self.clone(), "test", Header::default(), Filter::default(), RING).unwrap()
        }

        fn events(&self) -> Vec<Event> {
            let bytes = self.0.lock().unwrap().clone();
            Reader::new(bytes.as_slice()).unwrap().map(|entry| entry.unwrap().event).collect()
        }
    }

    #[test]
    fn events_go_to_the_trace_that_is_being_recorded_and_to_none_without_one() {
        let (tracer, first, second) = (Tracer::default(), Sink::default(), Sink::default());
        let clone = tracer.clone();
        let doorbell = |channel| Event::Doorbell { channel, gp_put: 0 };

        clone.event(|| unreachable!("nobody records"));
        tracer.start(first.recorder());
        clone.event(|| doorbell(1));
        tracer.start(second.recorder());
        clone.event(|| doorbell(2));
        tracer.stop();
        clone.event(|| unreachable!("nobody records any more"));

        assert!(!clone.is_on());
        assert_eq!((first.events(), second.events()), (vec![doorbell(1)], vec![doorbell(2)]));
    }
}
