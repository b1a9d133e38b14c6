//! Chrome's JSON of events, which Perfetto opens: a process for each trace, in it a track for register
//! accesses, one for each channel, and one for each engine with the VMs that had it.

use std::collections::HashSet;
use std::io::{Result, Write};

use serde_json::{Value, json};

use super::json_lines;
use crate::event::{ChannelChange, Entry, Event};
use crate::text::{self, RegisterNames};

/// Tracks of a trace; channels come behind.
const ACCESSES: u64 = 1;
const EVENTS: u64 = 2;
const FIRST_ENGINE: u64 = 10;
const FIRST_CHANNEL: u64 = 100;

/// Writes events.
#[derive(Debug)]
pub struct Events<W> {
    sink: W,
    any: bool,
    sources: Vec<Source>,
}

/// State of one trace of the output.
#[derive(Debug)]
struct Source {
    /// Engines in the order of their first switch, with who has them since when.
    engines: Vec<(String, Option<(String, u64)>)>,
    /// Channels that have a name already.
    channels: HashSet<u32>,
}

impl<W: Write> Events<W> {
    /// Writes what comes before the first event; `sources` are the traces' names, in the order of their
    /// numbers.
    ///
    /// # Errors
    /// The sink's.
    pub fn new(mut sink: W, sources: &[&str]) -> Result<Self> {
        sink.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let tracks = |_: &&str| Source { engines: Vec::new(), channels: HashSet::new() };
        let mut events = Self { sink, any: false, sources: sources.iter().map(tracks).collect() };
        for (index, source) in sources.iter().enumerate() {
            events.name(index, "process_name", 0, source)?;
            events.name(index, "thread_name", ACCESSES, "accesses")?;
            events.name(index, "thread_name", EVENTS, "events")?;
        }
        Ok(events)
    }

    fn emit(&mut self, event: &Value) -> Result<()> {
        self.sink.write_all(if self.any { b",\n" } else { b"\n" })?;
        self.any = true;
        serde_json::to_writer(&mut self.sink, event)?;
        Ok(())
    }

    fn name(&mut self, source: usize, what: &str, track: u64, name: &str) -> Result<()> {
        self.emit(
            &json!({ "ph": "M", "name": what, "pid": source + 1, "tid": track, "args": { "name": name } }),
        )
    }

    /// Adds an entry of a trace. Times are in microseconds.
    ///
    /// # Errors
    /// The sink's.
    pub fn push(&mut self, entry: &Entry, source: usize, names: &impl RegisterNames) -> Result<()> {
        let process = source + 1;
        let args = json_lines::details(&entry.event, names);
        match &entry.event {
            Event::Access(access) => {
                let named = text::register(access, names);
                let what = named.map_or(text::place(access.place), |(definition, _)| definition.name);
                let name = format!("{} {what}", entry.event.kind().word());
                let (begin, took) = (micros(entry.nanos.saturating_sub(access.took)), micros(access.took));
                self.emit(&json!({
                    "ph": "X", "name": name, "cat": "access", "pid": process, "tid": ACCESSES, "ts": begin, "dur": took,
                    "args": args,
                }))
            }
            Event::Switch { engine, to } => self.switch(entry.nanos, source, engine, to),
            Event::Depth { engine, vm, entries } => self.emit(&json!({
                "ph": "C", "name": format!("queue of {vm} on {engine}"), "pid": process, "ts": micros(entry.nanos),
                "args": { "entries": entries },
            })),
            Event::Doorbell { channel, .. } | Event::Channel { channel, .. } => {
                let track = self.channel(source, *channel)?;
                let fault = matches!(&entry.event, Event::Channel { change: ChannelChange::Failed, .. });
                let name =
                    if let Event::Channel { change, .. } = &entry.event { change.word() } else { "doorbell" };
                let category = if fault { "fault" } else { "channel" };
                self.instant(entry.nanos, process, track, name, category, &args)
            }
            Event::Origin(_) => Ok(()),
            event => {
                let category = if matches!(event, Event::Refusal { .. }) { "fault" } else { "event" };
                self.instant(entry.nanos, process, EVENTS, event.kind().word(), category, &args)
            }
        }
    }

    fn instant(
        &mut self,
        nanos: u64,
        process: usize,
        track: u64,
        name: &str,
        category: &str,
        args: &Value,
    ) -> Result<()> {
        self.emit(&json!({
            "ph": "i", "s": "t", "name": name, "cat": category, "pid": process, "tid": track, "ts": micros(nanos),
            "args": args,
        }))
    }

    /// The track of a channel.
    fn channel(&mut self, source: usize, channel: u32) -> Result<u64> {
        let track = FIRST_CHANNEL + u64::from(channel);
        if self.sources.get_mut(source).is_some_and(|source| source.channels.insert(channel)) {
            self.name(source, "thread_name", track, &format!("channel {channel}"))?;
        }
        Ok(track)
    }

    /// Ends the turn of who had an engine, and begins another's.
    fn switch(&mut self, nanos: u64, source: usize, engine: &str, to: &str) -> Result<()> {
        let Some(tracks) = self.sources.get_mut(source) else { return Ok(()) };
        let place = tracks.engines.iter().position(|(name, _)| name == engine);
        let index = place.unwrap_or_else(|| {
            tracks.engines.push((engine.to_owned(), None));
            tracks.engines.len() - 1
        });
        let now = (!to.is_empty()).then(|| (to.to_owned(), nanos));
        let before = tracks.engines.get_mut(index).and_then(|(_, turn)| std::mem::replace(turn, now));
        let track = FIRST_ENGINE + index as u64;
        if place.is_none() {
            self.name(source, "thread_name", track, engine)?;
        }
        match before {
            Some((whose, since)) => self.turn(source, track, &whose, since, nanos),
            None => Ok(()),
        }
    }

    fn turn(&mut self, source: usize, track: u64, whose: &str, since: u64, until: u64) -> Result<()> {
        self.emit(&json!({
            "ph": "X", "name": whose, "cat": "turn", "pid": source + 1, "tid": track, "ts": micros(since),
            "dur": micros(until.saturating_sub(since)),
        }))
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish(mut self) -> Result<()> {
        self.sink.write_all(b"\n]}\n")?;
        self.sink.flush()
    }
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Access, Direction, Place};
    use gpuvmk_pci::Region;

    #[test]
    fn whole_is_json_with_slices_turns_and_faults() {
        let place = Place::Region(Region::Bar(0));
        let access = Access { direction: Direction::Read, place, size: 4, offset: 0, value: 5, took: 1500 };
        let switch = |to: &str| Event::Switch { engine: "GRAPHICS".into(), to: to.into() };
        let mut text = Vec::new();
        let mut events = Events::new(&mut text, &["vm1", "gpu0"]).unwrap();
        for (nanos, source, event) in [
            (2000, 0, Event::Access(access)),
            (3000, 1, switch("vm1")),
            (4000, 0, Event::Doorbell { channel: 4, gp_put: 1 }),
            (5000, 1, switch("vm2")),
            (6000, 0, Event::Channel { channel: 4, change: ChannelChange::Failed }),
        ] {
            events.push(&Entry { nanos, event }, source, &None).unwrap();
        }
        events.finish().unwrap();

        let whole: Value = serde_json::from_slice(&text).unwrap();
        let told: Vec<_> = whole["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["ph"] != "M")
            .map(|event| format!("{} {} {} {}", event["ph"], event["name"], event["ts"], event["dur"]))
            .collect();
        assert_eq!(
            told,
            [
                "\"X\" \"read BAR0\" 0.5 1.5",
                "\"i\" \"doorbell\" 4.0 null",
                "\"X\" \"vm1\" 3.0 2.0",
                "\"i\" \"failed\" 6.0 null",
            ]
        );
    }
}
