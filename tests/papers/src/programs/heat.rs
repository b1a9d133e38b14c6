//! HS: heat on a chip, step by step.

use super::window::Window;
use super::{Size, fill_unit};
use crate::job::{Check, Job, Part, Room, Step, Value};
use crate::reference::{equal, floats, result, unit};

/// Seeds of temperatures and of power.
const HEAT: u32 = 21;
const POWER: u32 = 0x2000_0000;

/// Threads of a block.
const BLOCK: [u32; 3] = [32, 8, 1];

pub(super) fn job(size: Size) -> Job {
    let (side, times): (u32, usize) = size.pick((40, 3), (4096, 24));
    let (count, bytes) = (side * side, (side * side * 4) as usize);
    let mut steps = vec![fill_unit(0, count, POWER, 4.0, 0.0), fill_unit(1, count, HEAT, 40.0, 60.0)];
    steps.extend((0..times).map(|time| Step {
        kernel: "hs_step",
        grid: [side.div_ceil(BLOCK[0]), side.div_ceil(BLOCK[1]), 1],
        block: BLOCK,
        arguments: vec![
            Value::Room(0),
            Value::Room(1 + time % 2),
            Value::Room(1 + (time + 1) % 2),
            Value::Word(side),
        ],
    }));
    let side = side as usize;
    let height = side.min(256);
    let check: Check = Box::new(move |results| {
        let found = floats(result(results, 0)?);
        for (window, places) in Window::all(size, (side, height), times) {
            let window = after(&window, side, times);
            for (y, x) in places {
                equal(found.get(y * side + x), window.get(y, x), format_args!("row {y}, column {x}"))?;
            }
        }
        Ok(())
    });
    Job {
        rooms: vec![Room::empty(bytes); 3],
        steps,
        transfers: vec![],
        // The first rows: what can be copied in no time.
        results: vec![Part { room: 1 + times % 2, at: 0, bytes: height * side * 4 }],
        check,
    }
}

/// What a part of the chip is like after so many steps.
fn after(window: &Window, side: usize, times: usize) -> Window {
    let at = |y: usize, x: usize| (y * side + x) as u32;
    let first = window.made(|y, x| 60.0 + 40.0 * unit(HEAT.wrapping_add(at(y, x))));
    (0..times).fold(first, |heat, _| {
        heat.made(|y, x| {
            let (here, power) = (heat.get(y, x), 4.0 * unit(POWER.wrapping_add(at(y, x))));
            let [north, south, west, east] = heat.beside(y, x);
            let mut flow = power + (north + south - 2.0 * here) * 0.3;
            flow += (east + west - 2.0 * here) * 0.2;
            flow += (80.0 - here) * 0.05;
            here + flow * 0.25
        })
    })
}
