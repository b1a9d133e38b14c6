//! BP: a layer of 16 hidden units learns, epoch by epoch.
//!
//! Steps of weights are multiples of their input, so that sums of all epochs follow from those of the first:
//! what hidden units say in each epoch is compared without going over all weights again.

use anyhow::Result;

use super::{Size, fill_unit, fill_zero, row};
use crate::job::{Check, Job, Part, Room, Step, Value};
use crate::reference::{bytes, close, floats, result, samples, unit};

const HIDDEN: usize = 16;
/// Seeds of inputs and of weights.
const INPUT: u32 = 11;
const WEIGHT: u32 = 0x4000_0000;
const RATE: f32 = 0.3;
const MOMENTUM: f32 = 0.5;
const TARGET: f32 = 0.9;
/// What is kept of an epoch: what each hidden unit says, and how wrong it is.
const KEPT: usize = 2 * HIDDEN;
/// Functions of the GPU's own, and sums in another order.
const TOLERANCE: f64 = 2e-4;

/// Rooms: inputs; weights; their last steps; sums of blocks; outer weights as they come, and as they are;
/// what is kept.
const INPUTS: usize = 0;
const WEIGHTS: usize = 1;
const STEPS: usize = 2;
const PARTS: usize = 3;
const OUTER: usize = 4;
const LEARNT: usize = 5;
const EPOCHS: usize = 6;

pub(super) fn job(size: Size) -> Job {
    let (inputs, epochs, parts): (u32, usize, u32) = size.pick((512, 2, 4), (1 << 20, 16, 528));
    let network = Network {
        inputs: (0..inputs).map(|at| unit(INPUT.wrapping_add(at))).collect(),
        outer: (0..16).map(|unit_of| unit(77 + unit_of) - 0.5).collect(),
        scale: 1.0 / (inputs as f32).sqrt(),
        // Sums over all weights are computed for so many hidden units.
        whole: size.pick(HIDDEN, 2),
    };
    let count = network.inputs.len();
    let bits = |numbers: &[f32]| bytes(numbers.iter().map(|number| number.to_bits()));
    let rooms = vec![
        Room::with(bits(&network.inputs)),
        Room::empty(count * HIDDEN * 4),
        Room::empty(count * HIDDEN * 4),
        Room::empty(parts as usize * HIDDEN * 4),
        Room::with(bits(&network.outer)),
        Room::empty(HIDDEN * 4),
        Room::empty(epochs * KEPT * 4),
    ];
    let mut steps = vec![
        fill_unit(WEIGHTS, inputs * 16, WEIGHT, 1.0, -0.5),
        fill_zero(STEPS, inputs * 16),
        row("copy_words", 1, 32, &[Value::Room(OUTER), Value::Room(LEARNT), Value::Word(16)]),
    ];
    for epoch in 0..epochs {
        steps.extend(learn(inputs, parts, network.scale, Value::Inside(EPOCHS, epoch * KEPT * 4)));
    }
    let results = vec![
        Part { room: EPOCHS, at: 0, bytes: epochs * KEPT * 4 },
        Part { room: LEARNT, at: 0, bytes: HIDDEN * 4 },
        Part { room: WEIGHTS, at: 0, bytes: (count * HIDDEN * 4).min(LOOKED_AT) },
    ];
    let check: Check = Box::new(move |results| network.compare(results));
    Job { rooms, steps, transfers: vec![], results, check }
}

/// Bytes of weights that come back.
const LOOKED_AT: usize = 4 << 20;

/// The launches of an epoch.
fn learn(inputs: u32, parts: u32, scale: f32, kept: Value) -> [Step; 3] {
    let (count, [scale, target, rate, momentum]) =
        (Value::Word(inputs), [scale, TARGET, RATE, MOMENTUM].map(Value::Float));
    let [input, weight, before, part, outer] = [INPUTS, WEIGHTS, STEPS, PARTS, LEARNT].map(Value::Room);
    let square = |kernel, blocks, arguments: &[Value]| Step {
        kernel,
        grid: [blocks, 1, 1],
        block: [16, 16, 1],
        arguments: arguments.to_vec(),
    };
    [
        square("bp_forward", parts, &[input, weight, part, count]),
        square("bp_hidden", 1, &[part, Value::Word(parts), outer, kept, scale, target, rate]),
        row("bp_adjust", parts * 4, 256, &[input, weight, before, kept, count, rate, momentum]),
    ]
}

/// The network as it is before it learns.
struct Network {
    inputs: Vec<f32>,
    outer: Vec<f32>,
    scale: f32,
    whole: usize,
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn weight(input: usize, unit_of: usize) -> f32 {
    -0.5 + unit(WEIGHT.wrapping_add((input * HIDDEN + unit_of) as u32))
}

impl Network {
    fn compare(&self, results: &[Vec<u8>]) -> Result<()> {
        let [kept, learnt, weights] = [0, 1, 2].map(|number| result(results, number).map(floats));
        let (kept, learnt, weights) = (kept?, learnt?, weights?);
        let mut outer: Vec<f64> = self.outer.iter().map(|weight| f64::from(*weight)).collect();
        for (number, epoch) in kept.chunks(KEPT).enumerate() {
            let (says, wrong) = epoch.split_at_checked(HIDDEN).unwrap_or_default();
            let sum: f64 = says.iter().zip(&outer).map(|(says, weight)| f64::from(*says) * weight).sum();
            let output = sigmoid(sum);
            let all = output * (1.0 - output) * (f64::from(TARGET) - output);
            for (at, weight) in outer.iter_mut().enumerate() {
                let said = f64::from(says.get(at).copied().unwrap_or_default());
                let wanted = said * (1.0 - said) * (all * *weight);
                close(wrong.get(at), wanted, TOLERANCE, format_args!("epoch {number}, error of unit {at}"))?;
                *weight += f64::from(RATE) * all * said;
            }
        }
        for (at, wanted) in outer.iter().enumerate() {
            close(learnt.get(at), *wanted, TOLERANCE, format_args!("outer weight {at}"))?;
        }
        self.sums(&kept)?;
        self.weights(&kept, &weights)
    }

    /// What hidden units say in each epoch: by the sum of the first, and what all weights gained.
    fn sums(&self, kept: &[f32]) -> Result<()> {
        let squares: f64 = self.inputs.iter().map(|input| f64::from(input * input)).sum();
        for unit_of in 0..self.whole {
            let product = |(at, input): (usize, &f32)| f64::from(input * weight(at, unit_of));
            let first: f64 = self.inputs.iter().enumerate().map(product).sum();
            let mut gained = Gained::default();
            for (number, epoch) in kept.chunks(KEPT).enumerate() {
                let wanted = sigmoid((first + gained.factor * squares) * f64::from(self.scale));
                let place = format_args!("epoch {number}, hidden unit {unit_of}");
                close(epoch.get(unit_of), wanted, TOLERANCE, place)?;
                gained.step(epoch.get(HIDDEN + unit_of));
            }
        }
        Ok(())
    }

    fn weights(&self, kept: &[f32], weights: &[f32]) -> Result<()> {
        let looked_at = if self.whole == HIDDEN { weights.len() } else { 2000 };
        samples(looked_at, weights.len(), 3).try_for_each(|at| {
            let (input, unit_of) = (at / HIDDEN, at % HIDDEN);
            let mut gained = Gained::default();
            kept.chunks(KEPT).for_each(|epoch| gained.step(epoch.get(HIDDEN + unit_of)));
            let value = f64::from(self.inputs.get(input).copied().unwrap_or_default());
            let wanted = f64::from(weight(input, unit_of)) + gained.factor * value;
            close(weights.get(at), wanted, 1e-5, format_args!("weight {at}"))
        })
    }
}

/// What a weight gained, as a multiple of its input.
#[derive(Default)]
struct Gained {
    factor: f64,
    last: f64,
}

impl Gained {
    fn step(&mut self, wrong: Option<&f32>) {
        let wrong = f64::from(wrong.copied().unwrap_or_default());
        self.last = f64::from(RATE) * wrong + f64::from(MOMENTUM) * self.last;
        self.factor += self.last;
    }
}
