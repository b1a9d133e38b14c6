//! Threads that carry orders of the thread that owns the GPU out: calls that take long, and that it must not
//! make itself. It gives orders and looks for answers, and waits for neither.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use gpuvmk_jail::{self as jail, Role};

/// How many there are: a tenant whose memory takes long has one.
const THREADS: usize = 4;

/// The threads. When this is dropped they have ended: orders that none has begun are not carried out.
pub struct OrderThreads<O, A> {
    orders: Option<Sender<O>>,
    answers: Receiver<A>,
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl<O: Send + 'static, A: Send + 'static> OrderThreads<O, A> {
    /// Starts them. Each answer makes `wake` readable, where there is one.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(
        name: &str,
        role: Role,
        wake: Option<&Arc<OwnedFd>>,
        carry_out: impl Fn(O) -> A + Clone + Send + 'static,
    ) -> std::io::Result<Self> {
        let (orders, taken) = channel::<O>();
        let (told, answers) = channel();
        let taken = Arc::new(Mutex::new(taken));
        let ended = Arc::new(AtomicBool::new(false));
        let mut started = Self { orders: Some(orders), answers, ended, threads: Vec::new() };
        for _ in 0..THREADS {
            let (carry_out, wake, taken, told, ended) = (
                carry_out.clone(),
                wake.map(Arc::clone),
                Arc::clone(&taken),
                told.clone(),
                Arc::clone(&started.ended),
            );
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                jail::enter(role);
                loop {
                    let order = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    // The owner is gone, and with it the receiver of answers.
                    let Ok(order) = order else { return };
                    if ended.load(Ordering::Relaxed) || told.send(carry_out(order)).is_err() {
                        return;
                    }
                    if let Some(wake) = &wake {
                        // It fails only when the counter is full, and then the owner looks anyway.
                        let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
                    }
                }
            })?;
            started.threads.push(thread);
        }
        Ok(started)
    }

    /// Gives an order. Does not wait.
    pub fn order(&self, order: O) {
        // The threads end with this, and not before.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
    }

    /// The next answer that is there.
    pub fn answer(&self) -> Option<A> {
        self.answers.try_recv().ok()
    }
}

impl<O, A> Drop for OrderThreads<O, A> {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.orders = None;
        for thread in self.threads.drain(..) {
            // One that has panicked has ended the process.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn order_that_takes_long_holds_up_no_other() {
        let (hold, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let threads = OrderThreads::start("test", Role::Pinner, None, move |order: u32| {
            if order == 0 {
                let _ = held.lock().unwrap().recv();
            }
            order
        })
        .unwrap();
        (0..10).for_each(|order| threads.order(order));

        let start = Instant::now();
        let mut answers = Vec::new();
        while answers.len() < 9 {
            assert!(start.elapsed() < Duration::from_secs(10), "only {answers:?} are done");
            answers.extend(threads.answer());
        }
        answers.sort_unstable();
        assert_eq!(answers, (1..10).collect::<Vec<_>>());
        drop(hold);
        while answers.len() < 10 {
            assert!(start.elapsed() < Duration::from_secs(10));
            answers.extend(threads.answer());
        }
    }
}
