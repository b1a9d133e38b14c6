//! A copy engine: classes 90b5 and 90b8, with the methods, limits and context of nouveau's firmware.
//!
//! Not handled: swizzling of components (the FORMAT bit of EXEC), which is refused.

use super::layout::{Blocks, Gob, Layout, Surface};
use super::transfer::{Position, Transfer};
use crate::engine::model::{Effects, Model, Progress, Refusal, Run};
use crate::mmu::channel_memory::Report;
use gpuvmk_chip::gf100::methods::{host, pcopy};
use gpuvmk_chip::gf100::mmu::VA_MAX;
use gpuvmk_chip::stream::Method;

/// Number of words of the context: the stored methods, the object, EXEC, whether a copy runs, and how far it
/// got.
const SAVED_WORDS: usize = pcopy::STATE.len() + 7;

/// Bytes of the context image that the firmware uses.
const IMAGE_SIZE: usize = 256;
const _: () = assert!(SAVED_WORDS * 4 <= IMAGE_SIZE);

/// State of a copy engine; a channel's context holds it while another channel has the engine.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    object: u32,
    words: [u32; pcopy::STATE.len()],
    exec: u32,
    position: Option<Position>,
}

impl Default for Copy {
    fn default() -> Self {
        Self { object: 0, words: [0; pcopy::STATE.len()], exec: 0, position: None }
    }
}

fn index(method: u16) -> Option<usize> {
    pcopy::STATE.iter().position(|def| def.method == method)
}

impl Copy {
    fn word(&self, method: u16) -> u32 {
        index(method).and_then(|index| self.words.get(index)).copied().unwrap_or(0)
    }

    fn address(&self, high: u16) -> u64 {
        u64::from(self.word(high)) << 32 | u64::from(self.word(high + 4))
    }

    /// Tiling methods come in a fixed order: mode, x size, y size, z size, z, x, y.
    fn surface(&self, address: u16, pitch: u16, linear: bool, mode: u16) -> Surface {
        let shape = self.word(mode);
        let layout = if linear {
            Layout::Pitch(i64::from(self.word(pitch)))
        } else {
            Layout::Blocks(Blocks {
                gob: Gob::Lines,
                height_shift: pcopy::SRC_TILE_MODE::HEIGHT.get(shape),
                depth_shift: pcopy::SRC_TILE_MODE::DEPTH.get(shape),
                width: u64::from(self.word(mode + 4)),
                height: u64::from(self.word(mode + 8)),
                z: u64::from(self.word(mode + 16)),
                x: u64::from(self.word(mode + 20)),
                y: u64::from(self.word(mode + 24)),
            })
        };
        Surface { base: self.address(address), layout, va_max: VA_MAX }
    }

    fn transfer(&self) -> Transfer {
        let source_linear = pcopy::EXEC::SRC_LINEAR.is_set(self.exec);
        let target_linear = pcopy::EXEC::DST_LINEAR.is_set(self.exec);
        Transfer {
            source: self.surface(
                pcopy::SRC_ADDRESS_HIGH,
                pcopy::SRC_PITCH,
                source_linear,
                pcopy::SRC_TILE_MODE,
            ),
            target: self.surface(
                pcopy::DST_ADDRESS_HIGH,
                pcopy::DST_PITCH,
                target_linear,
                pcopy::DST_TILE_MODE,
            ),
            length: u64::from(self.word(pcopy::X_COUNT)),
            count: u64::from(self.word(pcopy::Y_COUNT)),
        }
    }
}

impl Model for Copy {
    fn method(&mut self, run: &Run<'_>, method: Method, effects: &mut Effects) -> Result<Progress, Refusal> {
        match method.method {
            host::SET_OBJECT => self.object = method.data,
            pcopy::NOP | pcopy::PM_TRIGGER | pcopy::WRCACHE_FLUSH => {}
            pcopy::EXEC => {
                if pcopy::EXEC::FORMAT.is_set(method.data) {
                    return Err(Refusal::Illegal);
                }
                self.exec = method.data;
                self.position = Some(Position::default());
                return self.resume(run, effects);
            }
            other => {
                let index = index(other).ok_or(Refusal::Illegal)?;
                let allowed = pcopy::STATE.get(index).map_or(0, |def| def.mask);
                if method.data & !allowed != 0 {
                    return Err(Refusal::Illegal);
                }
                if let Some(word) = self.words.get_mut(index) {
                    *word = method.data;
                }
            }
        }
        Ok(Progress::Done)
    }

    fn resume(&mut self, run: &Run<'_>, effects: &mut Effects) -> Result<Progress, Refusal> {
        let Some(mut position) = self.position.take() else { return Ok(Progress::Done) };
        let progress = self.transfer().advance(run, &mut position)?;
        match progress {
            Progress::Paused => self.position = Some(position),
            Progress::Done if pcopy::EXEC::QUERY.is_set(self.exec) => {
                let short = pcopy::EXEC::QUERY_SHORT.is_set(self.exec);
                let va = self.address(pcopy::QUERY_ADDRESS_HIGH);
                let report = if short { Report::Word } else { Report::FourWords };
                run.memory.write_report(va, self.word(pcopy::QUERY_COUNTER).into(), report)?;
                effects.released = true;
            }
            Progress::Done => {}
        }
        Ok(progress)
    }

    fn save(&self) -> Vec<u8> {
        let position = self.position.unwrap_or_default();
        let halves =
            |word: u64| [word & 0xffff_ffff, word >> 32].map(|half| u32::try_from(half).unwrap_or(0));
        let [a, b] = halves(position.line);
        let [c, d] = halves(position.at);
        let words = [self.object].into_iter().chain(self.words);
        let words = words.chain([self.exec, u32::from(self.position.is_some()), a, b, c, d]);
        words.flat_map(u32::to_le_bytes).collect()
    }

    fn load(&mut self, image: &[u8]) {
        let mut words = image.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let mut next = || words.next().unwrap_or(0);
        self.object = next();
        for (word, def) in self.words.iter_mut().zip(pcopy::STATE) {
            // The driver can write the image, so that the limits are checked here too.
            *word = next() & def.mask;
        }
        self.exec = next();
        let running = next() != 0;
        let line = u64::from(next()) | u64::from(next()) << 32;
        let at = u64::from(next()) | u64::from(next()) << 32;
        self.position = running.then_some(Position { line, at });
    }

    fn image_size(&self) -> usize {
        SAVED_WORDS * 4
    }

    fn image_offset(&self) -> u64 {
        0
    }

    fn reset(&mut self) {
        *self = Self::default();
    }
}
