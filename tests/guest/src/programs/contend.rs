//! `contend`: one of several guests that want the GPU. The host says what it wants at a time: `busy` keeps
//! some submissions queued, each of many copies inside VRAM, so that the GPU never waits for this guest's
//! processor, and `busy BYTES` does so with copies of another size; `light MICROSECONDS` submits one small
//! copy in each such time; `rest` wants nothing; `end` ends the program. `copy` is the size of a copy in
//! bytes where the host names none.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::{Figures, Options};
use crate::chip::Chip;
use crate::cmdline::Plan;
use crate::drm::{Buffer, Channel, Device, Place};
use crate::push::Commands;
use crate::report::Reports;

/// One copy, if nothing else is said: less than a turn, because a GF100 yields between copies.
const COPY: usize = 512 << 10;
/// Copies in a submission; of larger ones, as many as make the same number of bytes.
const COPIES: usize = 384;
/// Submissions under way: enough for a guest whose processor is not its own.
const DEPTH: usize = 8;
/// The largest copy that the host may ask for.
const LARGEST: usize = 2 << 20;
/// A light guest's copy.
const SMALL: usize = 4096;

/// What the host wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Busy(Option<usize>),
    Light(Duration),
    Rest,
    End,
}

pub fn run(options: &Options) -> Result<Figures> {
    let plan = Plan::parse(&fs::read_to_string("/proc/cmdline")?);
    let port = plan.report.context("the host's orders need a report port (gpuvmk.report)")?;
    let mut reports = Reports::to(Some(&port));
    let orders = orders(&port)?;
    let size = options.get("copy", COPY)?;
    let device = Device::open(options.gpu()?)?;
    let mut channel = Channel::open(&device, Chip::of(&device)?.mover())?;
    let room = size.max(LARGEST);
    let source = Buffer::new(&device, Place::Vram, room)?;
    let mut idle: Vec<Buffer> =
        (0..DEPTH).map(|_| Buffer::new(&device, Place::Vram, room)).collect::<Result<_>>()?;
    let mut under_way: VecDeque<Buffer> = VecDeque::new();
    reports.event("contend-ready", json!({}));

    let (mut order, mut submissions) = (Order::Rest, 0u64);
    loop {
        // Who rests does not look around: on an emulated processor that would cost the host as much as work
        // does.
        let resting = order == Order::Rest && under_way.is_empty();
        let next =
            if resting { orders.recv().map_err(|_| TryRecvError::Disconnected) } else { orders.try_recv() };
        match next {
            Ok(next) => order = next,
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => bail!("the host went away"),
        }
        let wanted = if matches!(order, Order::Busy(_)) { DEPTH } else { 0 };
        if under_way.len() > wanted || (wanted > 0 && under_way.len() == DEPTH) {
            if let Some(target) = under_way.pop_front() {
                target.wait()?;
                idle.push(target);
            }
            continue;
        }
        match order {
            Order::Busy(other) => {
                let size = other.unwrap_or(size).min(room);
                let target = idle.pop().context("a target")?;
                let mut commands = Commands::new();
                for _ in 0..COPIES.min(COPIES * COPY / size.max(1)) {
                    let (to, from) = (target.address(), source.address());
                    channel.engine().copy(&mut commands, to, from, size as u64);
                }
                channel.submit(&commands, &[&target, &source])?;
                under_way.push_back(target);
                submissions += 1;
            }
            Order::Light(period) => {
                let next = Instant::now() + period;
                let target = idle.first().context("a target")?;
                channel.copy((target, 0), (&source, 0), SMALL)?;
                target.wait()?;
                submissions += 1;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            Order::Rest => {}
            Order::End => break,
        }
    }
    let mut figures = Figures::new();
    figures.insert("submissions".into(), submissions.into());
    Ok(figures)
}

fn parse(line: &str) -> Result<Order> {
    let words: Vec<_> = line.split_whitespace().collect();
    Ok(match words.as_slice() {
        ["busy"] => Order::Busy(None),
        ["busy", size] => Order::Busy(Some(size.parse()?)),
        ["light", period] => Order::Light(Duration::from_micros(period.parse()?)),
        ["rest"] => Order::Rest,
        ["end"] => Order::End,
        _ => bail!("'{}' is no order", line.trim()),
    })
}

/// The host's orders as they come.
fn orders(port: &str) -> Result<Receiver<Order>> {
    let mut lines = BufReader::new(File::open(format!("/dev/{port}"))?);
    let (sender, orders) = channel();
    thread::spawn(move || {
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
            match parse(&line) {
                Ok(order) if sender.send(order).is_ok() => {}
                _ => break,
            }
            line.clear();
        }
    });
    Ok(orders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_as_the_host_gives_them() {
        assert_eq!(parse("busy\n").unwrap(), Order::Busy(None));
        assert_eq!(parse("busy 65536").unwrap(), Order::Busy(Some(65536)));
        assert_eq!(parse("light 10000").unwrap(), Order::Light(Duration::from_millis(10)));
        assert_eq!((parse("rest").unwrap(), parse("end").unwrap()), (Order::Rest, Order::End));
        assert!(parse("light").is_err() && parse("light soon").is_err() && parse("").is_err());
    }
}
