//! Fresh memory in the place of VRAM that is nobody's any more. To change what is mapped has all processors
//! of the process forget the old pages, which takes hundreds of microseconds where they sleep: a helper waits
//! for that, and whoever wants it asks again.

use std::io;
use std::sync::{Mutex, PoisonError};

use gpuvmk_host::reaper::{Account, Pending};

/// A renewal: first byte and size of its range, and its result.
type UnderWay = ((u64, u64), Pending<io::Result<()>>);

/// The renewals that are under way.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    account: Account,
    under_way: Mutex<Vec<UnderWay>>,
}

impl Renewals {
    /// Starts the renewal of a range, or returns its result.
    ///
    /// # Errors
    /// The error of `work`; `WouldBlock` while it is under way.
    pub(crate) fn ask<W: FnOnce() -> io::Result<()> + Send + 'static>(
        &self,
        offset: u64,
        size: u64,
        work: impl FnOnce() -> W,
    ) -> io::Result<()> {
        let range = (offset, size);
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if !under_way.iter().any(|(other, _)| *other == range) {
            under_way.push((range, self.account.later(work())));
        }
        let known = under_way.iter().find(|(other, _)| *other == range);
        let done = match known.and_then(|(_, pending)| pending.get()) {
            None => return Err(io::ErrorKind::WouldBlock.into()),
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        under_way.retain(|(other, _)| *other != range);
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Asks again as long as it is under way.
    fn finish(ask: impl Fn() -> io::Result<()>) -> io::Result<()> {
        loop {
            match ask() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                done => return done,
            }
        }
    }

    #[test]
    fn each_range_is_renewed_once_for_each_time_that_it_is_done() {
        let renewals = Renewals::default();
        let done = Arc::new(Mutex::new(0));
        let count = || {
            let done = Arc::clone(&done);
            move || {
                *done.lock().unwrap() += 1;
                Ok(())
            }
        };
        for _ in 0..3 {
            finish(|| renewals.ask(0, 4096, count)).unwrap();
            assert!(renewals.under_way.lock().unwrap().is_empty());
        }
        assert_eq!(*done.lock().unwrap(), 3);
        let failed = finish(|| renewals.ask(0, 4096, || || Err(io::ErrorKind::OutOfMemory.into())));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    }
}
