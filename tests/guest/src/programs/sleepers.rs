//! `sleepers`: many channels in threads and processes; each hands small work over and sleeps in the kernel
//! until it is done, again and again. An end of work that is told late, or never, shows as a long sleep.
//!
//! | option | what |
//! | --- | --- |
//! | `count` | sleeps in all |
//! | `processes`, `threads` | processes, and threads in every one of them |
//! | `sharing` | threads that use one channel together; 1: each has its own |
//! | `limit_ms` | the longest sleep that is not a failure |
//! | `forgive` | 1: a sleep that is the driver's own fault is counted, and no failure |
//! | `pause_us` | each thread rests for a random time up to this after every 64th sleep, so that GPU and interrupts come to rest too |
//!
//! A thread of each process watches the sleepers. One that sleeps for too long is asked after: whether its
//! work is done, so that only the news of it is missing, and how many others were woken up meanwhile. Asking
//! wakes it up as well if its work is done, so nobody waits for the kernel's own limit of 30 s.
//!
//! nouveau before Linux 6.2 looks, at each interrupt, at the fences of all channels that it has asked to be
//! told of; and on several processors it forgets to ask, now and then, when a process falls asleep on one
//! while the handler has just woken up the channel's last sleeper on another (`nvif_notify`, docs/guests.md).
//! So a sleep is its own fault if the work is done and others were woken up in the second half of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use super::child::Other;
use super::session;
use super::{Figures, Options};
use crate::drm::{Buffer, Channel, Device, Place, Question};

const COUNT: u64 = 20_000;
const PROCESSES: u64 = 3;
const THREADS: u64 = 4;
const SHARING: u64 = 1;
const LIMIT_MS: u64 = 1000;
const PAUSE_US: u64 = 2000;
const FORGIVE: u64 = 0;

/// Sleeps between two rests of a thread.
const REST_EVERY: u64 = 64;
/// How often the sleepers are looked at.
const WATCH: Duration = Duration::from_millis(50);
/// Bytes of a copy.
const LENGTH: usize = 64;
const BUFFER: usize = 4096;
/// Nobody sleeps.
const AWAKE: u64 = u64::MAX;

pub fn run(options: &Options) -> Result<Figures> {
    let count: u64 = options.get("count", COUNT)?;
    let processes: u64 = options.get("processes", PROCESSES)?;
    let threads: u64 = options.get("threads", THREADS)?;
    let sharing: u64 = options.get("sharing", SHARING)?;
    let limit_ms: u64 = options.get("limit_ms", LIMIT_MS)?;
    let pause_us: u64 = options.get("pause_us", PAUSE_US)?;
    let forgive: u64 = options.get("forgive", FORGIVE)?;
    ensure!(processes > 0 && threads > 0 && sharing > 0, "there is somebody to sleep");
    let each = count.div_ceil(processes);
    let words = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let gpu = options.gpu()? as u64;
    let others = (1..processes)
        .map(|_| {
            let words: Vec<String> = words(&[
                ("gpu", gpu),
                ("count", each),
                ("processes", 1),
                ("threads", threads),
                ("sharing", sharing),
                ("limit_ms", limit_ms),
                ("pause_us", pause_us),
                ("forgive", forgive),
            ]);
            Other::start("sleepers", &words)
        })
        .collect::<Result<Vec<_>>>()?;

    let start = Instant::now();
    let plan =
        Plan { threads, sharing, turns: each.div_ceil(threads), limit_ms, pause_us, forgives: forgive != 0 };
    let crowd = Crowd::open(options.gpu()?, plan)?;
    let own = crowd.sleep();
    // Others are waited for also after a failure: what they have to say belongs to it.
    let mut all = vec![own];
    all.extend(others.into_iter().map(|other| other.finish().map(|figures| Sleeps::of(&figures))));
    let mut sum = Sleeps::default();
    let mut problems = Vec::new();
    for result in all {
        match result {
            Ok(sleeps) => sum.add(sleeps),
            Err(error) => problems.push(format!("{error:#}")),
        }
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("; "));
    }
    ensure!(sum.sleeps >= count, "{} sleeps instead of {count}", sum.sleeps);
    let mut figures = Figures::new();
    figures.insert("sleeps".into(), sum.sleeps.into());
    figures.insert("channels".into(), (processes * threads.div_ceil(sharing)).into());
    figures.insert("longest_us".into(), sum.longest_us.into());
    figures.insert("above_20_ms".into(), sum.above_20_ms.into());
    figures.insert("above_100_ms".into(), sum.above_100_ms.into());
    figures.insert("total_us".into(), sum.total_us.into());
    figures.insert("lost_by_driver".into(), sum.lost_by_driver.into());
    figures.insert("seconds".into(), start.elapsed().as_secs().into());
    Ok(figures)
}

/// What one process does.
#[derive(Debug, Clone, Copy)]
struct Plan {
    threads: u64,
    sharing: u64,
    turns: u64,
    limit_ms: u64,
    pause_us: u64,
    forgives: bool,
}

/// How long sleeps were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sleeps {
    sleeps: u64,
    longest_us: u64,
    above_20_ms: u64,
    above_100_ms: u64,
    total_us: u64,
    /// Those that the driver forgot; not among the others.
    lost_by_driver: u64,
}

impl Sleeps {
    fn note(&mut self, time: Duration) {
        let us = micros(time);
        self.add(Self {
            sleeps: 1,
            longest_us: us,
            above_20_ms: (us > 20_000).into(),
            above_100_ms: (us > 100_000).into(),
            total_us: us,
            lost_by_driver: 0,
        });
    }

    fn add(&mut self, other: Self) {
        self.sleeps += other.sleeps;
        self.longest_us = self.longest_us.max(other.longest_us);
        self.above_20_ms += other.above_20_ms;
        self.above_100_ms += other.above_100_ms;
        self.total_us += other.total_us;
        self.lost_by_driver += other.lost_by_driver;
    }

    /// As another process printed them.
    fn of(figures: &Figures) -> Self {
        let figure = |name: &str| figures.get(name).and_then(Value::as_u64).unwrap_or(0);
        Self {
            sleeps: figure("sleeps"),
            longest_us: figure("longest_us"),
            above_20_ms: figure("above_20_ms"),
            above_100_ms: figure("above_100_ms"),
            total_us: figure("total_us"),
            lost_by_driver: figure("lost_by_driver"),
        }
    }
}

/// The threads of one process.
struct Crowd {
    sleepers: Vec<Sleeper>,
    watched: Arc<Watched>,
}

/// What the watching thread sees of the others.
struct Watched {
    began: Instant,
    limit: Duration,
    /// By thread: since when it sleeps, in microseconds, or [`AWAKE`].
    since: Vec<AtomicU64>,
    /// By thread: what it sleeps for.
    targets: Vec<Question>,
    /// By thread: its present sleep is the driver's fault, which is forgiven.
    forgiven: Vec<AtomicBool>,
    forgives: bool,
    woken: AtomicU64,
    over: AtomicBool,
}

/// One thread.
struct Sleeper {
    number: usize,
    channel: Arc<Mutex<Channel>>,
    source: Buffer,
    copy: Buffer,
    target: Buffer,
    turns: u64,
    pause_us: u64,
}

impl Crowd {
    fn open(gpu: usize, plan: Plan) -> Result<Self> {
        let Plan { threads, sharing, turns, limit_ms, pause_us, forgives } = plan;
        let device = Device::open(gpu)?;
        let engines = session::engines(&device)?;
        let channels = (0..usize::try_from(threads.div_ceil(sharing))?)
            .map(|number| {
                let engine = engines.iter().copied().cycle().nth(number).context("the chip has no engine")?;
                Ok(Arc::new(Mutex::new(Channel::open(&device, engine)?)))
            })
            .collect::<Result<Vec<_>>>()?;
        let sleepers = (0..usize::try_from(threads)?)
            .map(|number| {
                let channel = channels.iter().cycle().nth(number).context("there is no channel")?;
                Sleeper::open(&device, Arc::clone(channel), number, turns, pause_us)
            })
            .collect::<Result<Vec<_>>>()?;
        let watched = Arc::new(Watched {
            began: Instant::now(),
            limit: Duration::from_millis(limit_ms),
            since: sleepers.iter().map(|_| AtomicU64::new(AWAKE)).collect(),
            targets: sleepers.iter().map(|sleeper| sleeper.target.question()).collect(),
            forgiven: sleepers.iter().map(|_| AtomicBool::new(false)).collect(),
            forgives,
            woken: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        Ok(Self { sleepers, watched })
    }

    fn sleep(self) -> Result<Sleeps> {
        let Self { sleepers, watched } = self;
        let together = Arc::new(Barrier::new(sleepers.len()));
        let watcher = {
            let watched = Arc::clone(&watched);
            thread::spawn(move || watched.watch())
        };
        let threads: Vec<_> = sleepers
            .into_iter()
            .map(|sleeper| {
                let (watched, together) = (Arc::clone(&watched), Arc::clone(&together));
                thread::spawn(move || {
                    together.wait();
                    sleeper.run(&watched)
                })
            })
            .collect();
        let mut sum = Sleeps::default();
        let mut failures = Vec::new();
        for thread in threads {
            match thread.join().map_err(|_| anyhow!("a thread panicked"))? {
                Ok(sleeps) => sum.add(sleeps),
                Err(error) => failures.push(format!("{error:#}")),
            }
        }
        watched.over.store(true, Ordering::Release);
        let found = watcher.join().map_err(|_| anyhow!("the watching thread panicked"))?;
        failures.splice(0..0, found);
        if failures.is_empty() {
            return Ok(sum);
        }
        bail!("{}", failures.join("; "))
    }
}

impl Watched {
    fn now_us(&self) -> u64 {
        micros(self.began.elapsed())
    }

    /// Looks at the sleepers until they are done; what was wrong with those that slept for too long.
    fn watch(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut seen: Vec<Seen> = self.since.iter().map(|_| Seen::default()).collect();
        while !self.over.load(Ordering::Acquire) {
            thread::sleep(WATCH);
            let (now, woken) = (self.now_us(), self.woken.load(Ordering::Relaxed));
            for (number, seen) in seen.iter_mut().enumerate() {
                let since = self.since[number].load(Ordering::Acquire);
                if seen.since != Some(since) {
                    *seen = Seen { since: Some(since), woken, ..Seen::default() };
                }
                let slept = Duration::from_micros(now.saturating_sub(since));
                if since == AWAKE || slept < self.limit / 2 {
                    continue;
                }
                let half = *seen.half.get_or_insert(woken);
                if slept < self.limit || std::mem::replace(&mut seen.asked, true) {
                    continue;
                }
                let is_forgiven = self.forgives && woken > half;
                if is_forgiven {
                    // Before it is woken up by the question.
                    self.forgiven[number].store(true, Ordering::Release);
                }
                let state = match self.targets[number].is_done() {
                    Ok(true) if is_forgiven => continue,
                    Ok(true) => "its work is done and nobody told it".to_owned(),
                    Ok(false) => "its work is not done".to_owned(),
                    Err(error) => format!("nobody knows whether its work is done: {error:#}"),
                };
                self.forgiven[number].store(false, Ordering::Release);
                found.push(format!(
                    "thread {number} has slept for {} ms: {state}; {} other sleeps ended meanwhile, {} of them in the second half",
                    slept.as_millis(),
                    woken.saturating_sub(seen.woken),
                    woken.saturating_sub(half)
                ));
            }
        }
        found
    }
}

/// What the watching thread knows of a sleep.
#[derive(Debug, Default)]
struct Seen {
    since: Option<u64>,
    /// Sleeps that had ended when it began, and when half of the limit was over.
    woken: u64,
    half: Option<u64>,
    asked: bool,
}

impl Sleeper {
    fn open(
        device: &Device,
        channel: Arc<Mutex<Channel>>,
        number: usize,
        turns: u64,
        pause_us: u64,
    ) -> Result<Self> {
        Ok(Self {
            number,
            channel,
            source: Buffer::new(device, Place::Gart, BUFFER)?,
            copy: Buffer::new(device, Place::Gart, BUFFER)?,
            target: Buffer::new(device, Place::Gart, BUFFER)?,
            turns,
            pause_us,
        })
    }

    fn run(mut self, watched: &Watched) -> Result<Sleeps> {
        let mut sleeps = Sleeps::default();
        let mut random =
            0x9e37_79b9_7f4a_7c15_u64 ^ (self.number as u64 + 1) << 32 ^ u64::from(std::process::id());
        let since = &watched.since[self.number];
        let channel = || self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, engine) = (self.number, channel().engine());
        for turn in 0..self.turns {
            let what = || format!("thread {number} on {engine:?}, sleep {turn}");
            let contents = [turn.to_le_bytes(), random.to_le_bytes()].concat();
            self.source.write(0, &contents)?;
            channel().copy((&self.copy, 0), (&self.source, 0), LENGTH).with_context(what)?;
            channel().copy((&self.target, 0), (&self.copy, 0), LENGTH).with_context(what)?;
            let fell_asleep = Instant::now();
            since.store(watched.now_us(), Ordering::Release);
            let result = self.target.wait();
            since.store(AWAKE, Ordering::Release);
            let slept = fell_asleep.elapsed();
            result.with_context(|| format!("{} of {} ms", what(), slept.as_millis()))?;
            watched.woken.fetch_add(1, Ordering::Relaxed);
            if watched.forgiven[number].swap(false, Ordering::AcqRel) {
                sleeps.sleeps += 1;
                sleeps.lost_by_driver += 1;
            } else {
                sleeps.note(slept);
                ensure!(slept <= watched.limit, "{} took {} ms", what(), slept.as_millis());
            }
            let mut found = [0; 16];
            self.copy.read(0, &mut found)?;
            ensure!(found[..] == contents[..], "{}: woken up before the copy was done", what());
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if turn % REST_EVERY == REST_EVERY - 1 && self.pause_us > 0 {
                thread::sleep(Duration::from_micros((random >> 33) % self.pause_us));
            }
        }
        Ok(sleeps)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_of_all_processes_add_up() {
        let mut sum = Sleeps::default();
        sum.note(Duration::from_millis(3));
        sum.note(Duration::from_millis(120));
        let mut figures = Figures::new();
        for (name, value) in
            [("sleeps", 5), ("longest_us", 7), ("above_20_ms", 1), ("total_us", 10), ("lost_by_driver", 3)]
        {
            figures.insert(name.into(), value.into());
        }
        sum.add(Sleeps::of(&figures));

        let expected = Sleeps {
            sleeps: 7,
            longest_us: 120_000,
            above_20_ms: 2,
            above_100_ms: 1,
            total_us: 123_010,
            lost_by_driver: 3,
        };
        assert_eq!(sum, expected);
    }
}
