//! How values lie along an axis. Which way is known when a chart is drawn, so that the drawing library has
//! one kind of axis to be built for.

use std::fmt;
use std::ops::Range;

use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::{AsRangedCoord, DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::IntoLogRange as _;

/// The values of an axis, from its beginning to its end.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// Equal steps are equally long.
    Even(f64, f64),
    /// Equal factors are equally long. Both values are above 0.
    Powers(f64, f64),
}

impl Scale {
    /// Where it begins.
    pub(crate) fn lowest(self) -> f64 {
        let (Self::Even(from, _) | Self::Powers(from, _)) = self;
        from
    }
}

/// [`Scale`] as the drawing library has it.
pub enum Coordinate {
    Even(RangedCoordf64),
    Powers(LogCoord<f64>),
}

impl fmt::Debug for Coordinate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.range(), formatter)
    }
}

impl From<Scale> for Coordinate {
    fn from(scale: Scale) -> Self {
        match scale {
            Scale::Even(from, to) => Self::Even((from..to).into()),
            Scale::Powers(from, to) => Self::Powers((from..to).log_scale().into()),
        }
    }
}

impl AsRangedCoord for Scale {
    type CoordDescType = Coordinate;
    type Value = f64;
}

impl Ranged for Coordinate {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        match self {
            Self::Even(axis) => axis.map(value, limit),
            Self::Powers(axis) => axis.map(value, limit),
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match self {
            Self::Even(axis) => axis.key_points(hint),
            Self::Powers(axis) => axis.key_points(hint),
        }
    }

    fn range(&self) -> Range<f64> {
        match self {
            Self::Even(axis) => axis.range(),
            Self::Powers(axis) => axis.range(),
        }
    }
}
