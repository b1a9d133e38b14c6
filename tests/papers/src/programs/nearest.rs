//! NN: for each query the nearest record.

use anyhow::{Context as _, Result};

use super::{Size, row};
use crate::job::{Check, Job, Part, Room, Step, Value};
use crate::reference::{bytes, result, same, samples, unit, words};

/// Seeds of the records' two coordinates, and of queries.
const NORTH: u32 = 41;
const EAST: u32 = 0x3000_0000;
const QUERY: u32 = 0x5000_0000;

pub(super) fn job(size: Size) -> Job {
    let (records, queries, parts): (u32, u32, u32) = size.pick((700, 5, 2), (1 << 18, 4096, 4));
    let numbers = |count: u32, seed: u32| bytes((0..count).map(|at| unit(seed + at).to_bits()));
    let found = (queries * parts * 4) as usize;
    let rooms = vec![
        Room::with(numbers(records, NORTH)),
        Room::with(numbers(records, EAST)),
        Room::with(numbers(queries * 2, QUERY)),
        Room::empty(found),
        Room::empty(found),
        Room::empty(queries as usize * 4),
    ];
    let arguments = [&[0, 1, 2, 3, 4].map(Value::Room)[..], &[Value::Word(records)]].concat();
    let near = Step { kernel: "nn_near", grid: [parts, queries, 1], block: [256, 1, 1], arguments };
    let words_of = [queries, parts].map(Value::Word);
    let arguments = [&[3, 4, 5].map(Value::Room)[..], &words_of].concat();
    let check: Check = Box::new(move |results| {
        let found = words(result(results, 0)?);
        samples(size.pick(usize::MAX, 4), found.len(), 23)
            .try_for_each(|query| compare(&found, query, records))
    });
    Job {
        rooms,
        steps: vec![near, row("nn_pick", queries.div_ceil(128), 128, &arguments)],
        transfers: vec![],
        results: vec![Part { room: 5, at: 0, bytes: queries as usize * 4 }],
        check,
    }
}

/// A query, by all records. Of equal ones the first is nearest.
fn compare(found: &[u32], query: usize, records: u32) -> Result<()> {
    let at = 2 * query as u32;
    let [y, x] = [at, at + 1].map(|at| unit(QUERY + at));
    let distance = |record: u32| {
        let (up, right) = (unit(NORTH + record) - y, unit(EAST + record) - x);
        up * up + right * right
    };
    let nearest = (0..records)
        .map(|record| (distance(record), record))
        .reduce(|one, other| if other.0 < one.0 { other } else { one });
    let (_, nearest) = nearest.context("there are no records")?;
    same(found.get(query), nearest, format_args!("query {query}"))
}
