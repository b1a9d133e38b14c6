//! BFS: levels of a graph's nodes, from several sources at once.

use std::collections::VecDeque;

use anyhow::{Context as _, Result, ensure};

use super::Size;
use crate::job::{Check, Job, Part, Room, Step, Value};
use crate::reference::{bytes, mix, result, same, samples, words};

/// Edges that leave a node.
const DEGREE: u32 = 6;
/// Sources are so far apart.
const STRIDE: u32 = 7919;
/// A node without a level.
const UNSEEN: u32 = u32::MAX;

pub(super) fn job(size: Size) -> Job {
    let (nodes, sources, depths): (u32, u32, u32) = size.pick((300, 2, 6), (1 << 19, 32, 16));
    let edges: Vec<u32> = (0..nodes * DEGREE).map(|edge| mix(edge.wrapping_add(5)) % nodes).collect();
    let (count, all) = (nodes as usize, (nodes * sources) as usize);
    let grid = [nodes.div_ceil(256), sources, 1];
    let step = |kernel, arguments: &[Value]| Step {
        kernel,
        grid,
        block: [256, 1, 1],
        arguments: arguments.to_vec(),
    };
    let start = [Value::Room(1), Value::Word(nodes), Value::Word(STRIDE)];
    let mut steps = vec![step("bfs_start", &start)];
    steps.extend((0..depths).map(|depth| {
        let words = [nodes, DEGREE, depth].map(Value::Word);
        step("bfs_level", &[&[Value::Room(0), Value::Room(1)], &words[..]].concat())
    }));
    // Levels of the first and of the last source come back.
    let part = |source: u32| Part { room: 1, at: (source * nodes) as usize * 4, bytes: count * 4 };
    let rooms = vec![Room::with(bytes(edges.iter().copied())), Room::empty(all * 4)];
    let whole_last = size == Size::Small;
    let check: Check = Box::new(move |results| {
        let [first, last] = [0, 1].map(|number| result(results, number).map(words));
        let (first, last) = (first?, last?);
        compare(&first, &edges, 0, depths)?;
        let source = (sources - 1) * STRIDE % nodes;
        if whole_last { compare(&last, &edges, source, depths) } else { likely(&last, &edges, source) }
    });
    Job { rooms, steps, transfers: vec![], results: vec![part(0), part(sources - 1)], check }
}

fn edges_of(edges: &[u32], node: usize) -> &[u32] {
    let degree = DEGREE as usize;
    edges.get(node * degree..(node + 1) * degree).unwrap_or_default()
}

/// All levels, by a queue.
fn compare(found: &[u32], edges: &[u32], source: u32, depths: u32) -> Result<()> {
    let mut levels = vec![UNSEEN; found.len()];
    *levels.get_mut(source as usize).context("a source that is no node")? = 0;
    let mut queue = VecDeque::from([source]);
    while let Some(node) = queue.pop_front() {
        let level = levels.get(node as usize).copied().unwrap_or(depths);
        if level == depths {
            continue;
        }
        for next in edges_of(edges, node as usize) {
            let place = levels.get_mut(*next as usize).context("a node that there is not")?;
            if *place == UNSEEN {
                *place = level + 1;
                queue.push_back(*next);
            }
        }
    }
    levels.iter().enumerate().try_for_each(|(node, level)| {
        same(found.get(node), *level, format_args!("node {node} from {source}"))
    })
}

/// That no edge leads further than to the next level.
fn likely(found: &[u32], edges: &[u32], source: u32) -> Result<()> {
    same(found.get(source as usize), 0, format_args!("source {source}"))?;
    let level = |node: usize| found.get(node).copied().unwrap_or(0);
    for node in samples(50_000, found.len(), 13).filter(|node| level(*node) != UNSEEN) {
        for next in edges_of(edges, node) {
            let (here, there) = (level(node), level(*next as usize));
            ensure!(
                there <= here + 1,
                "from {source}: node {node} is at {here}, and its edge leads to {there}"
            );
        }
    }
    Ok(())
}
