//! Graphs of many kernels, in a row and with branches that meet again.

use std::ffi::CStr;
use std::rc::Rc;

use anyhow::{Context as _, Result, ensure};

use super::{Figures, SUMS, bytes, figures, pattern, same, words};
use crate::driver::{Context, DeviceMemory, Event, Graph, Module, Shape, Stream};

const COUNT: usize = 3_001;
const TIMES: u32 = 3;
const LANES: usize = 3;

/// Lists: the graph's own, one of each lane, and what is added and never changes.
const LISTS: usize = LANES + 2;
const OWN: usize = 0;
const STEP: usize = LANES + 1;

/// A part of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A kernel of a lane: the first list is the sum of the two others.
    Sum { lane: usize, lists: [usize; 3] },
    /// All lanes go on behind the first one.
    Fork,
    /// The first lane goes on behind all others.
    Join,
}

fn first([into, one, two]: [usize; 3]) -> Part {
    Part::Sum { lane: 0, lists: [into, one, two] }
}

/// Kernels in a row, each of which needs the one before.
fn row(kernels: usize) -> Vec<Part> {
    (0..kernels).map(|kernel| first([OWN, OWN, if kernel % 3 == 0 { OWN } else { STEP }])).collect()
}

/// Ten kernels at a time: one, three in each of two branches and one in a third, and two where they meet.
fn branches(kernels: usize) -> Vec<Part> {
    let mut parts = Vec::new();
    for _ in 0..kernels / 10 {
        parts.extend([first([OWN, OWN, STEP]), Part::Fork]);
        for lane in 1..LANES {
            let list = lane + 1;
            let steps =
                [[list, OWN, STEP], [list, list, if lane == 1 { list } else { OWN }], [list, list, OWN]];
            parts.extend(steps.map(|lists| Part::Sum { lane, lists }));
        }
        parts.extend([first([1, OWN, OWN]), Part::Join, first([OWN, 1, 2]), first([OWN, OWN, 3])]);
    }
    parts
}

/// What the graph's own list is afterwards.
fn expected(parts: &[Part], mut lists: [Vec<u32>; LISTS]) -> Vec<u8> {
    for part in parts {
        if let Part::Sum { lists: [into, one, two], .. } = *part {
            let sum = lists[one].iter().zip(&lists[two]).map(|(one, two)| one.wrapping_add(*two)).collect();
            lists[into] = sum;
        }
    }
    let [own, ..] = lists;
    bytes(own)
}

/// Each graph is taken down once and launched three times, with other contents each time.
pub fn graphs(context: &Rc<Context>) -> Result<Figures> {
    let module = Module::load(context, CStr::from_bytes_with_nul(SUMS.as_bytes())?)?;
    let kernel = module.kernel(c"vector_sum")?;
    let memory = (0..LISTS).map(|_| DeviceMemory::allocate(context, COUNT * 4));
    let memory = memory.collect::<Result<Vec<_>>>()?;
    let lanes = (0..LANES).map(|_| Stream::create(context)).collect::<Result<Vec<_>>>()?;
    let mut counted = Vec::new();
    for (name, parts) in [("row", row(40)), ("branches", branches(40)), ("many", branches(200))] {
        // Each kernel waits for all that the events before it say: an event is used once.
        let mut events = Vec::new();
        let graph = Graph::take_down(context, &lanes[0], || {
            let mut behind = |stream: &Stream, other: &Stream| -> Result<()> {
                let event = Event::create(context, false)?;
                event.record(other)?;
                stream.wait_for(&event)?;
                events.push(event);
                Ok(())
            };
            for part in &parts {
                match part {
                    Part::Sum { lane, lists } => {
                        let [into, one, two] = lists.map(|list| memory[list].address());
                        let parameters = [one, two, into, COUNT as u64];
                        kernel.launch_in(&lanes[*lane], Shape::row(3, 128), &parameters)?;
                    }
                    Part::Fork => lanes[1..].iter().try_for_each(|lane| behind(lane, &lanes[0]))?,
                    Part::Join => lanes[1..].iter().try_for_each(|lane| behind(&lanes[0], lane))?,
                }
            }
            Ok(())
        })?;
        let kernels = parts.iter().filter(|part| matches!(part, Part::Sum { .. })).count();
        ensure!(graph.nodes() == kernels, "{name}: {} nodes instead of {kernels}", graph.nodes());
        for time in 0..TIMES {
            let mut seeds = 90 + 10 * time..;
            let contents = [(); LISTS].map(|()| pattern(COUNT * 4, seeds.next().unwrap_or(0)));
            memory.iter().zip(&contents).try_for_each(|(memory, content)| memory.write(content))?;
            graph.launch_in(&lanes[0])?;
            lanes[0].synchronize()?;
            let expected = expected(&parts, contents.map(|content| words(&content)));
            same(&memory[OWN].read()?, &expected).with_context(|| format!("{name}, launch {time}"))?;
        }
        counted.push((name, kernels));
    }
    Ok(figures(&counted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum_of_one(parts: &[Part]) -> u32 {
        let own = expected(parts, [1, 11, 21, 31, 41].map(|value| vec![value]));
        words(&own)[0]
    }

    #[test]
    fn result_has_all_that_was_added() {
        // Own is 1, the step 41: doubled, and the step twice.
        assert_eq!(sum_of_one(&row(3)), 2 + 41 + 41);
        // 42, of which the branches make (42 + 41) * 2 + 42, (42 + 41) + 42 + 42, and 84.
        assert_eq!(sum_of_one(&branches(10)), 208 + 167 + 84);
    }

    #[test]
    fn kernel_that_is_left_out_or_early_is_another_result() {
        let parts = branches(40);
        let whole = sum_of_one(&parts);
        for index in 0..parts.len() {
            let mut less = parts.clone();
            if matches!(less.remove(index), Part::Sum { .. }) {
                assert_ne!(sum_of_one(&less), whole, "part {index}");
            }
        }
        assert!(parts.len() > 40);
    }
}
