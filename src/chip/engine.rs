//! The engines that execute channels' work, in chip-neutral terms, and sets of them.
//!
//! Every engine that exists for this program has one place, from 0 to [`Engine::COUNT`]: its bit in an
//! [`EngineSet`], its number in messages between processes, and its index in tables by engine:
//!
//! | places | engines |
//! | --- | --- |
//! | 0 | graphics and compute |
//! | 1 to 20 | copy engines 0 to 19 |
//! | 21 to 28 | video decoders 0 to 7 |
//! | 29 to 32 | video encoders 0 to 3 |
//! | 33 to 40 | JPEG decoders 0 to 7 |
//! | 41 and 42 | optical flow accelerators 0 and 1 |
//! | 43 | SEC2 |
//!
//! These are the engines that NVIDIA's driver has numbers for ([`Engine::nv2080_type`]), without the parts of
//! a graphics engine that is divided (GR1 to GR7). Which of them a chip has is said by the chip.

use std::fmt;

const COPIES: u8 = 20;
const NVDECS: u8 = 8;
const NVENCS: u8 = 4;
const NVJPGS: u8 = 8;
const OFAS: u8 = 2;

const GRAPHICS: u8 = 0;
const FIRST_COPY: u8 = 1;
const FIRST_NVDEC: u8 = FIRST_COPY + COPIES;
const FIRST_NVENC: u8 = FIRST_NVDEC + NVDECS;
const FIRST_NVJPG: u8 = FIRST_NVENC + NVENCS;
const FIRST_OFA: u8 = FIRST_NVJPG + NVJPGS;
const SEC2: u8 = FIRST_OFA + OFAS;

/// The number of an engine among those of its kind, of which there are `COUNT`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct EngineNumber<const COUNT: u8>(u8);

/// A number that no engine of its kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Engine {number} of its kind does not exist; there are {count}, from 0 on")]
pub struct NoSuchEngine {
    /// The number that was asked for.
    pub number: u8,
    /// Number of engines of the kind.
    pub count: u8,
}

impl<const COUNT: u8> EngineNumber<COUNT> {
    /// The number, if an engine of the kind has it.
    ///
    /// # Errors
    /// It is not below `COUNT`.
    pub const fn new(number: u8) -> Result<Self, NoSuchEngine> {
        if number < COUNT { Ok(Self(number)) } else { Err(NoSuchEngine { number, count: COUNT }) }
    }

    /// The number, below `COUNT`.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl<const COUNT: u8> TryFrom<u8> for EngineNumber<COUNT> {
    type Error = NoSuchEngine;

    fn try_from(number: u8) -> Result<Self, NoSuchEngine> {
        Self::new(number)
    }
}

impl<const COUNT: u8> From<EngineNumber<COUNT>> for u8 {
    fn from(number: EngineNumber<COUNT>) -> Self {
        number.0
    }
}

impl<const COUNT: u8> fmt::Display for EngineNumber<COUNT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const COUNT: u8> fmt::Debug for EngineNumber<COUNT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An engine that executes channel work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// Graphics and compute (PGRAPH, GR0).
    Graphics,
    /// A copy engine (PCOPY, CE).
    Copy(EngineNumber<COPIES>),
    /// A video decoder (NVDEC).
    Nvdec(EngineNumber<NVDECS>),
    /// A video encoder (NVENC).
    Nvenc(EngineNumber<NVENCS>),
    /// A JPEG decoder (NVJPG).
    Nvjpg(EngineNumber<NVJPGS>),
    /// An optical flow accelerator (OFA).
    Ofa(EngineNumber<OFAS>),
    /// The security engine (SEC2).
    Sec2,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Graphics => f.write_str("graphics"),
            Self::Copy(number) => write!(f, "copy{number}"),
            Self::Nvdec(number) => write!(f, "nvdec{number}"),
            Self::Nvenc(number) => write!(f, "nvenc{number}"),
            Self::Nvjpg(number) => write!(f, "nvjpg{number}"),
            Self::Ofa(number) => write!(f, "ofa{number}"),
            Self::Sec2 => f.write_str("sec2"),
        }
    }
}

impl Engine {
    /// Copy engine 0.
    pub const COPY0: Self = Self::Copy(EngineNumber(0));
    /// Copy engine 1.
    pub const COPY1: Self = Self::Copy(EngineNumber(1));
    /// Copy engine 2.
    pub const COPY2: Self = Self::Copy(EngineNumber(2));
    /// Copy engine 3.
    pub const COPY3: Self = Self::Copy(EngineNumber(3));
    /// Copy engine 4.
    pub const COPY4: Self = Self::Copy(EngineNumber(4));
    /// Copy engine 5.
    pub const COPY5: Self = Self::Copy(EngineNumber(5));
    /// Copy engine 6.
    pub const COPY6: Self = Self::Copy(EngineNumber(6));
    /// Copy engine 7.
    pub const COPY7: Self = Self::Copy(EngineNumber(7));
    /// Copy engine 8.
    pub const COPY8: Self = Self::Copy(EngineNumber(8));
    /// Copy engine 9.
    pub const COPY9: Self = Self::Copy(EngineNumber(9));

    /// Number of engines.
    pub const COUNT: usize = SEC2 as usize + 1;

    /// Every engine, by its place.
    pub const ALL: [Self; Self::COUNT] = {
        let mut all = [Self::Graphics; Self::COUNT];
        let mut place = 0;
        while place < Self::COUNT {
            // CAST: there are fewer than 64.
            #[expect(clippy::cast_possible_truncation, reason = "below COUNT")]
            if let Some(engine) = Self::at_place(place as u8) {
                all[place] = engine;
            }
            place += 1;
        }
        all
    };

    /// Its place among all engines, below [`Self::COUNT`].
    pub const fn place(self) -> u8 {
        match self {
            Self::Graphics => GRAPHICS,
            Self::Copy(number) => FIRST_COPY + number.0,
            Self::Nvdec(number) => FIRST_NVDEC + number.0,
            Self::Nvenc(number) => FIRST_NVENC + number.0,
            Self::Nvjpg(number) => FIRST_NVJPG + number.0,
            Self::Ofa(number) => FIRST_OFA + number.0,
            Self::Sec2 => SEC2,
        }
    }

    /// The engine that has the place; `None`: there are no more than [`Self::COUNT`].
    pub const fn at_place(place: u8) -> Option<Self> {
        Some(match place {
            GRAPHICS => Self::Graphics,
            FIRST_COPY..FIRST_NVDEC => Self::Copy(EngineNumber(place - FIRST_COPY)),
            FIRST_NVDEC..FIRST_NVENC => Self::Nvdec(EngineNumber(place - FIRST_NVDEC)),
            FIRST_NVENC..FIRST_NVJPG => Self::Nvenc(EngineNumber(place - FIRST_NVENC)),
            FIRST_NVJPG..FIRST_OFA => Self::Nvjpg(EngineNumber(place - FIRST_NVJPG)),
            FIRST_OFA..SEC2 => Self::Ofa(EngineNumber(place - FIRST_OFA)),
            SEC2 => Self::Sec2,
            _ => return None,
        })
    }

    /// Its number in what clients ask of NVIDIA's driver and firmware: `NV2080_ENGINE_TYPE_*`. Releases that
    /// do not know an engine leave its number free.
    ///
    /// Source: open-gpu-kernel-modules `cl2080_notification.h` of 535 to 595.
    pub const fn nv2080_type(self) -> u32 {
        // CAST: widening.
        match self {
            Self::Graphics => 0x01,
            Self::Copy(EngineNumber(number @ 0..10)) => 0x09 + number as u32,
            Self::Copy(EngineNumber(number)) => 0x34 - 10 + number as u32,
            Self::Nvdec(EngineNumber(number)) => 0x13 + number as u32,
            Self::Nvenc(EngineNumber(number @ 0..3)) => 0x1b + number as u32,
            Self::Nvenc(_) => 0x3f,
            Self::Sec2 => 0x26,
            Self::Nvjpg(EngineNumber(number)) => 0x2b + number as u32,
            Self::Ofa(EngineNumber(0)) => 0x33,
            Self::Ofa(_) => 0x3e,
        }
    }

    /// The engine of a `NV2080_ENGINE_TYPE_*`.
    pub fn of_nv2080_type(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| engine.nv2080_type() == number)
    }
}

/// The bits of `count` places from `first` on.
const fn places(first: u8, count: u8) -> u64 {
    ((1 << count) - 1) << first
}

bitflags::bitflags! {
    /// A set of engines: a bit each, at the engine's [place](Engine::place).
    #[derive(Clone, Copy, PartialEq, Eq, Default)]
    pub struct EngineSet: u64 {
        /// Graphics and compute.
        const GRAPHICS = places(GRAPHICS, 1);
        /// All copy engines.
        const COPIES = places(FIRST_COPY, COPIES);
        /// All video decoders.
        const NVDECS = places(FIRST_NVDEC, NVDECS);
        /// All video encoders.
        const NVENCS = places(FIRST_NVENC, NVENCS);
        /// All JPEG decoders.
        const NVJPGS = places(FIRST_NVJPG, NVJPGS);
        /// All optical flow accelerators.
        const OFAS = places(FIRST_OFA, OFAS);
        /// SEC2.
        const SEC2 = places(SEC2, 1);
    }
}

impl EngineSet {
    /// Copy engine 0.
    pub const COPY0: Self = Self::of(Engine::COPY0);
    /// Copy engine 1.
    pub const COPY1: Self = Self::of(Engine::COPY1);
    /// Copy engine 2.
    pub const COPY2: Self = Self::of(Engine::COPY2);
    /// Copy engine 3.
    pub const COPY3: Self = Self::of(Engine::COPY3);
    /// Copy engine 4.
    pub const COPY4: Self = Self::of(Engine::COPY4);
    /// Copy engine 5.
    pub const COPY5: Self = Self::of(Engine::COPY5);
    /// Copy engine 6.
    pub const COPY6: Self = Self::of(Engine::COPY6);
    /// Copy engine 7.
    pub const COPY7: Self = Self::of(Engine::COPY7);
    /// Copy engine 8.
    pub const COPY8: Self = Self::of(Engine::COPY8);
    /// Copy engine 9.
    pub const COPY9: Self = Self::of(Engine::COPY9);

    /// The set of one engine.
    pub const fn of(engine: Engine) -> Self {
        Self::from_bits_retain(1 << engine.place())
    }

    /// The engines, by their places: graphics first.
    pub fn engines(self) -> impl Iterator<Item = Engine> {
        let mut left = self.bits();
        std::iter::from_fn(move || {
            // CAST: below 64.
            #[expect(clippy::cast_possible_truncation, reason = "a number of bits")]
            let engine = Engine::at_place(left.trailing_zeros() as u8)?;
            left &= left.wrapping_sub(1);
            Some(engine)
        })
    }
}

impl From<Engine> for EngineSet {
    fn from(engine: Engine) -> Self {
        Self::of(engine)
    }
}

impl fmt::Debug for EngineSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.engines()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn set_of_one_engine_has_it_and_no_other() {
        for engine in Engine::ALL {
            let set = EngineSet::from(engine);
            assert_eq!(set.engines().collect::<Vec<_>>(), [engine]);
            for other in Engine::ALL {
                assert_eq!(set.contains(other.into()), other == engine, "{engine} and {other}");
            }
        }
    }

    #[test]
    fn places_are_as_documented_and_bits_of_no_engine_are_refused() {
        let last = |kind: EngineSet| kind.engines().map(|engine| (engine.to_string(), engine.place())).last();
        let kinds = [
            (EngineSet::GRAPHICS, "graphics", 0),
            (EngineSet::COPIES, "copy19", 20),
            (EngineSet::NVDECS, "nvdec7", 28),
            (EngineSet::NVENCS, "nvenc3", 32),
            (EngineSet::NVJPGS, "nvjpg7", 40),
            (EngineSet::OFAS, "ofa1", 42),
            (EngineSet::SEC2, "sec2", 43),
        ];
        for (kind, name, place) in kinds {
            assert_eq!(last(kind), Some((name.to_owned(), place)));
        }
        assert_eq!(EngineSet::all().engines().collect::<Vec<_>>(), Engine::ALL);
        assert_eq!(EngineSet::all().bits(), (1 << 44) - 1);
        assert_eq!(EngineSet::from_bits(1 << 44), None);
        for place in 0..=u8::MAX {
            let engine = Engine::at_place(place);
            assert_eq!(engine.map(Engine::place), (usize::from(place) < Engine::COUNT).then_some(place));
        }
    }

    #[test]
    fn numbers_beyond_a_kind_are_refused_wherever_they_come_from() {
        assert_eq!(EngineNumber::new(19).map(Engine::Copy).map(Engine::place), Ok(20));
        assert_eq!(
            EngineNumber::<COPIES>::new(20).unwrap_err().to_string(),
            "Engine 20 of its kind does not exist; there are 20, from 0 on"
        );
        assert_eq!(serde_json::to_string(&Engine::COPY1).unwrap(), r#"{"copy":1}"#);
        assert_eq!(serde_json::from_str::<Engine>(r#"{"ofa":1}"#).unwrap().to_string(), "ofa1");
        for raw in [r#"{"copy":20}"#, r#"{"nvenc":4}"#, r#"{"ofa":255}"#, r#"{"sec2":0}"#] {
            assert!(serde_json::from_str::<Engine>(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn names_and_driver_numbers_belong_to_one_engine_each() {
        let names: BTreeSet<_> = Engine::ALL.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), Engine::COUNT);
        for engine in Engine::ALL {
            assert_eq!(Engine::of_nv2080_type(engine.nv2080_type()), Some(engine));
        }
        let of = |engines: EngineSet| engines.engines().map(Engine::nv2080_type).collect::<Vec<_>>();
        assert_eq!(of(EngineSet::COPIES), (0x09..=0x12).chain(0x34..=0x3d).collect::<Vec<_>>());
        assert_eq!(of(EngineSet::NVENCS), [0x1b, 0x1c, 0x1d, 0x3f]);
        assert_eq!(of(EngineSet::OFAS), [0x33, 0x3e]);
        for number in [0, 2, 8, 0x1e, 0x22, 0x25, 0x27, 0x40, u32::MAX] {
            assert_eq!(Engine::of_nv2080_type(number), None, "{number:#x}");
        }
    }
}
